"""Counting bad samples against the budget of `on_error(skip(...))`, in the order of delivery, so that every run agrees."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import DataLossError, SampleError
from ..plan.nodes import SkipPolicy

#: a share is judged over at least this many samples, so that one bad sample at the start is not "100 %"
_LEAST = 1000


class SkipBudget:
    """What may still go wrong in this epoch."""

    def __init__(self, policy: SkipPolicy) -> None:
        self._policy = policy
        self._seen = self._skipped = 0

    def epoch(self) -> None:
        """Start counting anew."""
        self._seen = self._skipped = 0

    def count(self, rows: int, skipped: list[SampleError], epoch: int) -> None:
        """Take in a batch: `rows` good rows and the errors of those left out; raises when the budget is spent."""
        self._seen += rows + len(skipped)
        self._skipped += len(skipped)
        if skipped and self._policy.quarantine:
            self._write(self._policy.quarantine, skipped, epoch)
        if self._skipped > self.allowed:
            last = skipped[-1] if skipped else None
            raise DataLossError(
                f"{self._skipped:,} of {self._seen:,} samples of epoch {epoch} were bad, more than skip(budget="
                f"{self._policy.budget:g}) allows; the last one: {last}"
            ) from last

    @property
    def allowed(self) -> float:
        budget = self._policy.budget
        return budget if budget >= 1 else max(1.0 if budget else 0.0, budget * max(self._seen, _LEAST))

    def _write(self, path: str, skipped: list[SampleError], epoch: int) -> None:
        with Path(path).open("a", encoding="utf-8") as file:
            for error in skipped:
                entry = {
                    "key": error.key,
                    "origin": error.origin,
                    "epoch": epoch,
                    "position": error.position,
                    "error": type(error).__name__,
                    "reason": str(error),
                }
                file.write(json.dumps(entry) + "\n")
