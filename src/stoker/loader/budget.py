"""Counting bad samples against the budget of `on_error(skip(...))`, in the order of delivery, so that every run agrees."""

from __future__ import annotations

import json

from ..errors import DataLossError, SampleError, message_of
from ..plan.nodes import SkipPolicy
from ..storage.text_files import append_lines

#: a share is judged over at least this many samples, so that one bad sample at the start is not "100 %"
_LEAST = 1000


class SkipBudget:
    """What may still go wrong in this epoch."""

    def __init__(self, policy: SkipPolicy) -> None:
        self._policy = policy
        self._seen = self._skipped = 0

    def epoch(self) -> None:
        """Start counting again."""
        self._seen = self._skipped = 0

    def count(self, rows: int, skipped: list[SampleError], epoch: int) -> None:
        """Take in a batch: `rows` good rows and the errors of those left out; raises when the budget is spent."""
        self._seen += rows + len(skipped)
        self._skipped += len(skipped)
        if skipped and self._policy.quarantine:
            append_lines(self._policy.quarantine, [_entry(error, epoch) for error in skipped])
        if self._skipped > self.allowed:
            last = skipped[-1] if skipped else None
            raise DataLossError(
                f"{self._skipped:,} of {self._seen:,} samples of epoch {epoch} were bad, more than skip(budget="
                f"{self._policy.budget:g}) allows; the last one: {last and message_of(last)}"
            ) from last

    @property
    def allowed(self) -> float:
        budget = self._policy.budget
        return budget if budget >= 1 else max(1.0 if budget else 0.0, budget * max(self._seen, _LEAST))


def _entry(error: SampleError, epoch: int) -> str:
    """A bad sample as a line of the quarantine file."""
    entry = {
        "key": error.key,
        "origin": error.origin,
        "epoch": epoch,
        "position": error.position,
        "error": type(error).__name__,
        "reason": message_of(error, 1 << 16),
    }
    return json.dumps(entry)
