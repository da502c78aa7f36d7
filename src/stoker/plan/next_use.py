"""When samples are needed again, which is known because the order is. A full cache keeps what is needed soonest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..source.chunk import Ints
from .order import Order

#: positions looked at: beyond that, tables of them would take more memory than is worth it
MOST = 1 << 27


class NextUse:
    """The samples of two epochs, or of a stretch of one without end, from `start` on; places in it are counted from 0."""

    def __init__(self, order: Order, epoch: int, start: int) -> None:
        length = order.length
        self.epoch, self.start = epoch, 0 if length is not None else start
        if length is None:
            self._coming = order.resolve(np.arange(start, start + 2 * order.source_length), epoch)
        else:
            both = [order.resolve(np.arange(length), number) for number in (epoch, epoch + 1)]
            self._coming = np.concatenate(both)
        self._samples = order.source_length
        #: stands for: not as far as one can see
        self.never = len(self._coming)
        self._after: Ints | None = None

    @staticmethod
    def reach(order: Order) -> int:
        """How many positions it would look at."""
        return 2 * (order.source_length if order.length is None else order.length)

    def covers(self, epoch: int, position: int) -> bool:
        """Whether an epoch's position is in its first half, so that enough is known of what follows."""
        return epoch == self.epoch and self.start <= position <= self.start + self.never // 2

    def first(self, position: int) -> Ints:
        """For each sample of the source: where it is needed first, at or after `position`."""
        at = position - self.start
        first = np.full(self._samples, self.never, np.int64)
        first[self._coming[at:][::-1]] = np.arange(self.never - 1, at - 1, -1)  # of equal ones the last assignment counts
        return first

    def after(self, positions: Ints) -> Ints:
        """For each position: where its sample is needed next."""
        if self._after is None:
            by_sample = np.argsort(self._coming, kind="stable")
            again = self._coming[by_sample[1:]] == self._coming[by_sample[:-1]]
            self._after = np.full(self.never, self.never, np.int64)
            self._after[by_sample[:-1][again]] = by_sample[1:][again]
        return self._after[np.clip(positions - self.start, 0, self.never - 1)]

    def without(self, first: int, stop: int, indices: Ints) -> tuple[Ints, Ints]:
        """The samples at some positions that are not among `indices`, and where each is needed after that."""
        positions = np.arange(first, min(stop, self.start + self.never))
        there = np.zeros(self._samples, np.bool_)
        there[indices] = True
        positions = positions[~there[self._coming[positions - self.start]]]
        return self._coming[positions - self.start], self.after(positions)


def soonest(needs: Ints, sizes: NDArray[Any], room: int, never: int) -> int:
    """The first need for which there is no room: everything needed before it fits. `never` + 1: everything fits."""
    filled = np.cumsum(np.bincount(needs, weights=sizes, minlength=never + 1))
    return int(np.searchsorted(filled, room, "right"))
