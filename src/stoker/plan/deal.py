"""How rows of the global order are dealt to ranks: which rows are batch `step` of this rank.

The global batch of a step is `world * size` consecutive rows; rank r gets the r-th run of `size` of them. So the sequence of
global batches does not depend on how many ranks share it, and a position in it is one number: the rows dealt so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..source.chunk import Ints, numbers

REMAINDERS = ("drop", "pad", "keep")


@dataclass(frozen=True, slots=True)
class Share:
    """Rows of one batch of one rank: `count` rows from `first`, the last `padded` of which repeat the rows of `tail`."""

    first: int
    count: int
    padded: int = 0
    tail: tuple[int, int] = (0, 1)  # first row and number of rows of the last, short global batch

    def rows(self) -> Ints:
        """The row numbers, padding included."""
        rows = np.arange(self.first, self.first + self.count, dtype=np.int64)
        if self.padded:
            first, length = self.tail
            rows[self.count - self.padded :] = first + (rows[self.count - self.padded :] - first) % length
        return rows


@dataclass(frozen=True, slots=True)
class StepTurns:
    """How workers of a torch DataLoader share a rank's steps: every `count`-th run of them, from `number` on, is one's.

    A DataLoader that puts samples together itself asks its workers in turn for whole batches. With runs of that size, batch after
    batch is the same as with one worker, and only the last one of all is short.
    """

    number: int = 0
    count: int = 1
    run: int = 1

    def mine(self, steps: Ints) -> NDArray[np.bool_]:
        """Which of these steps are this worker's."""
        turns: NDArray[np.bool_] = steps // self.run % self.count == self.number
        return turns


#: of a loader that is not one of several that share its steps
WHOLE = StepTurns()


@dataclass(frozen=True, slots=True)
class Deal:
    """The rule: batch size, rank, world, and what becomes of rows that do not fill a global batch."""

    size: int
    rank: int = 0
    world: int = 1
    remainder: str = "drop"
    drop_last: bool = True

    @property
    def keeps(self) -> bool:
        """Whether left-over rows are dealt without padding: ``remainder="keep"``, or a batch with `drop_last=False`."""
        return self.remainder == "keep" or (self.remainder == "drop" and not self.drop_last)

    @property
    def stride(self) -> int:
        """Rows of one global batch."""
        return self.size * self.world

    def steps(self, rows: int) -> int:
        """Batches every rank gets from `rows` rows."""
        full, tail = divmod(rows, self.stride)
        return full + (1 if self._tail_share(tail) else 0)

    def rows(self, start: int, steps: int) -> Ints:
        """This rank's rows of `steps` whole steps from row `start` on."""
        first = start + self.rank * self.size
        if steps == 1:
            return first + numbers(self.size)
        return (np.arange(steps, dtype=np.int64)[:, None] * self.stride + np.arange(first, first + self.size)).ravel()

    def share(self, step: int, start: int, stop: int) -> Share:
        """This rank's rows of batch `step`, when rows `start` to `stop` are dealt."""
        first = start + step * self.stride
        if stop - first >= self.stride:
            return Share(first + self.rank * self.size, self.size)
        offset, count, padded = self._tail_share(stop - first) or (0, 0, 0)
        return Share(first + offset, count, padded, tail=(first, max(1, stop - first)))

    def _tail_share(self, tail: int) -> tuple[int, int, int] | None:
        """(offset, count, padded) of this rank in a last global batch of `tail` rows; None: no such batch, on any rank."""
        if tail <= 0:
            return None
        if self.remainder == "pad":
            offset = self.rank * self.size
            return offset, self.size, min(self.size, max(0, offset + self.size - tail))
        if not self.keeps:
            return None
        each, extra = divmod(tail, self.world)
        offset = self.rank * each + min(self.rank, extra)
        count = each + (self.rank < extra)
        # A rank without a row gets one that is marked: every rank must take the same number of steps.
        return (offset, count, 0) if count else (offset, 1, 1)


def check_remainder(remainder: str) -> None:
    if remainder not in REMAINDERS:
        raise ConfigError(f"shard(remainder={remainder!r}): choose one of {', '.join(REMAINDERS)}")
