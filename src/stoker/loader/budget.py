"""Counts bad samples against the budget of `on_error("skip")`, in the order of delivery, so that all runs agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ..errors import DataLossError, SampleError, message_of
from ..plan.cursor import MOST_RECENT, Cursor, SkipCounts
from ..plan.nodes import SkipPolicy

#: a share is judged over at least this many samples, so that one bad sample at the start is not "100 %"
_LEAST = 1000
#: a sample that was made of another has the number among those above this bit of its position (`stage/ragged.py`)
_SOURCE_POSITION = (1 << 40) - 1


class SkipBudget:
    """What may still go wrong in this epoch."""

    def __init__(self, policy: SkipPolicy) -> None:
        self._policy = policy
        self._seen = self._bad = 0
        self._recent: deque[int] = deque()  # numbers of the bad samples in the window: one more than the budget allows, at most
        # The latest batch: the place in front of it, its rows, and the bad samples that were counted with it, or before their
        # turn: (on the way to a filter, position). A state of a place in front of them leaves them to be counted again.
        self._here, self._rows = Cursor(), 0
        self._latest: list[tuple[bool, int]] = []

    def begin(self, counts: SkipCounts | None) -> None:
        """Count from the start of an epoch, or continue from a saved state."""
        counts = counts or SkipCounts()
        self._seen, self._bad = counts.seen, counts.bad
        self._recent = deque(counts.seen - age for age in counts.recent)
        self._rows, self._latest = 0, []

    def count(
        self, rows: int, skipped: list[SampleError], fronts: int, epoch: int, before: Callable[[], Sequence[int]], here: Cursor
    ) -> None:
        """Take in a batch: `rows` good rows and the errors of bad ones; raises when the budget is spent.

        The first `fronts` of the errors are of samples on their way to a filter or the like. `before` says how many samples of
        the batch, good or bad, come before each bad one. The batch is the one after `here`.
        """
        first = self._seen
        self._seen += rows + len(skipped)
        self._here, self._rows = here, rows + len(skipped) - fronts
        if self._latest:
            self._latest = [each for each in self._latest if _comes_after(each, here)]
        if not skipped:
            return
        self._bad += len(skipped)
        self._latest += [(number < fronts, error.position or 0) for number, error in enumerate(skipped)]
        if (window := self._policy.window) is not None:
            for error, at in zip(skipped, before()):
                self._judge(error, first + at, window, epoch)
        elif self._bad > self._allowed(max(self._seen, _LEAST)):
            raise self._spent(f"{self._bad:,} of {self._seen:,} samples of epoch {epoch}", skipped[-1])

    def counts(self, at: Cursor, world: int) -> SkipCounts:
        """What was counted up to a place in front of the latest batch, in it or after it.

        Another thread, or a signal's handler, may ask in the middle of `count`: it is off by that batch then, but can be loaded.
        """
        later = [each for each in self._latest if _comes_after(each, at)]
        passed = -((self._here.row - at.row) // world)  # rows of this rank
        seen = max(0, self._seen - max(0, self._rows - max(0, passed)) - sum(front for front, _ in later))
        bad = min(max(0, self._bad - len(later)), seen)
        window = self._policy.window or 0
        ages = [seen - number for number in tuple(self._recent)]
        return SkipCounts(seen, bad, tuple(age for age in ages if 0 < age < window)[-MOST_RECENT:])

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


def _comes_after(bad: tuple[bool, int], cursor: Cursor) -> bool:
    """Whether a bad sample comes after a place: by its source position on the way to a filter, by its row elsewhere."""
    front, position = bad
    if not front:
        return position >= cursor.row
    return cursor.at is not None and position & _SOURCE_POSITION >= cursor.at[0]
