"""Counting bad samples against the budget of `on_error("skip")`, in the order of delivery, so that every run agrees."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence

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
        self._recent: deque[int] = deque()  # numbers of the bad samples in the window: one more than the budget allows, at most

    def epoch(self) -> None:
        """Start counting again."""
        self._seen = self._skipped = 0
        self._recent.clear()

    def count(self, rows: int, skipped: list[SampleError], epoch: int, before: Callable[[], Sequence[int]]) -> None:
        """Take in a batch: `rows` good rows and the errors of bad ones; raises when the budget is spent.

        `before` says how many samples of the batch, good or bad, come before each bad one.
        """
        first = self._seen
        self._seen += rows + len(skipped)
        self._skipped += len(skipped)
        if not skipped:
            return
        if self._policy.quarantine:
            append_lines(self._policy.quarantine, [_entry(error, epoch) for error in skipped])
        if (window := self._policy.window) is not None:
            for error, at in zip(skipped, before()):
                self._judge(error, first + at, window, epoch)
        elif self._skipped > self._allowed(max(self._seen, _LEAST)):
            raise self._spent(f"{self._skipped:,} of {self._seen:,} samples of epoch {epoch}", skipped[-1])

    def _judge(self, error: SampleError, number: int, window: int, epoch: int) -> None:
        recent = self._recent
        recent.append(number)
        while recent[0] <= number - window:
            recent.popleft()
        if len(recent) > self._allowed(window):
            raise self._spent(f"{len(recent):,} of the last {window:,} samples of epoch {epoch}", error)

    def _allowed(self, samples: int) -> float:
        """How many of so many samples may be bad."""
        budget = self._policy.budget
        return budget if budget >= 1 else max(1.0 if budget else 0.0, budget * samples)

    def _spent(self, what: str, last: SampleError) -> DataLossError:
        allowed = f"on_error('skip', budget={self._policy.budget:g}) allows"
        error = DataLossError(f"{what} were bad, more than {allowed}; the last one: {message_of(last)}")
        error.__cause__ = last
        return error


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
