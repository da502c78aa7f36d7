"""Announces upcoming samples to the source, so that it can fetch them early.

Only sources that fetch ahead, into a cache or into memory, listen. They get the samples of this epoch and the next in order:
all of them for a short distance, or an even selection for a long one, as they request.
"""

from __future__ import annotations

import weakref

import numpy as np

from ..engine.background import Background
from ..plan.cursor import Cursor
from ..plan.deal import WHOLE, Deal, StepTurns
from ..plan.order import Order
from ..source.chunk import Ints
from ..source.source import Source
from ..storage.sample_cache import SampleCache

#: threads that fetch ahead, through a cache and into memory: they wait for a network most of the time
_CACHE_THREADS, _BLOCK_THREADS = 8, 16


class Forerunner:
    """Keeps a source informed, and threads fetching for it; closed with the feed it runs ahead of.

    With a `deal` it announces only the samples of one rank, and of its `part` of them; with `once` no epoch after the first.
    `lead` is how many samples workers are ahead of the consumer.
    """

    def __init__(
        self,
        source: Source,
        order: Order,
        cursor: Cursor,
        decoded: bool,
        cache: SampleCache | None = None,
        deal: Deal | None = None,
        part: StepTurns = WHOLE,
        once: bool = False,
        lead: int = 0,
    ) -> None:
        self._source, self._order, self._decoded, self._cache = source, order, decoded, cache
        self._deal, self._part, self._once, self._lead = deal, part, once, lead
        assert source.foresight is not None
        self._span = source.foresight
        self._begun = cursor  # from where on workers take turns
        self._told = cursor  # up to where the source knows that we are
        self._until = 0  # position in the announced epoch at which to announce more
        self._known: dict[int, tuple[Ints, Ints]] = {}  # per epoch, the positions announced last, and the samples there
        self._tell(cursor)
        threads = _CACHE_THREADS if self._span.shared else _BLOCK_THREADS
        self._background = Background(source.fetch_ahead, threads, "stoker-ahead")
        weakref.finalize(self, self._background.stop).atexit = False  # a loader that is dropped leaves no thread

    def reached(self, cursor: Cursor) -> None:
        """The consumer has come this far."""
        if cursor.epoch != self._told.epoch or _position(cursor) >= self._until:
            self._tell(cursor)

    def close(self) -> None:
        self._background.stop()
        if not self._span.shared:
            self._source.foresee(np.zeros(0, np.int64), self._decoded)  # so that those who wait for more look up
        self._background.close()

    def _tell(self, cursor: Cursor) -> None:
        length, start, span = self._order.length, _position(cursor), self._span
        now = self._stretch(start, span.count, _position(self._begun) if cursor.epoch == self._begun.epoch else 0)
        known, self._known = self._known, {}
        indices = [self._resolve(now, cursor.epoch, known)]
        next_epoch = span.count if span.whole else span.count - len(now)
        if length is not None and not self._once and next_epoch > 0:
            indices.append(self._resolve(self._stretch(0, next_epoch, 0), cursor.epoch + 1, known))
        reach = length if span.whole and length is not None else int(now[-1]) + 1 if len(now) else start
        self._told = cursor
        # Said again after a part of the way, long before what was said runs out.
        self._until = start + max(1, min((reach - start) // 16, self._lead // 4 or reach))
        coming = np.concatenate(indices)
        if self._cache is not None:
            coming = coming[self._cache.missing(coming)]  # what is kept is not read
        self._source.foresee(coming, self._decoded, self._lead + self._lead // 4)

    def _resolve(self, positions: Ints, epoch: int, known: dict[int, tuple[Ints, Ints]]) -> Ints:
        """The samples at some positions; those at positions that are `known`, most of them, are not computed again."""
        before, found = known.get(epoch, (positions[:0], positions[:0]))
        passed = int(np.searchsorted(before, positions[0])) if len(positions) else 0
        before, found = before[passed : passed + len(positions)], found[passed : passed + len(positions)]
        if not np.array_equal(before, positions[: len(before)]):
            before = found = positions[:0]
        samples = np.concatenate([found, self._order.resolve(positions[len(before) :], epoch)])
        self._known[epoch] = positions, samples
        return samples

    def _stretch(self, start: int, count: int, begun: int) -> Ints:
        """Positions from `start` on: the next `count`, or so many spread evenly to the end."""
        length = self._order.length
        if self._span.whole and length is not None:
            return np.linspace(start, length, min(count, max(0, length - start)), endpoint=False).astype(np.int64)
        return rank_positions(start, count, length, self._deal, self._part, begun)


def rank_positions(
    start: int, count: int, length: int | None, deal: Deal | None, part: StepTurns = WHOLE, begun: int | None = None
) -> Ints:
    """The next `count` positions from `start` on that are dealt to a rank, and to a part of its steps; without a deal, to all.

    Turns are counted from the position `begun` on; None: from `start`.
    """
    shares = 1 if deal is None else deal.world * part.count
    stop = start + -(-count // part.run) * part.run * shares
    positions = np.arange(start, stop if length is None else max(start, min(length, stop)))
    if deal is None or shares == 1:
        return positions
    steps, rows = np.divmod(positions - (start if begun is None else begun), deal.stride)
    mine: Ints = positions[(rows // deal.size == deal.rank) & part.mine(steps)]
    return mine[:count]


def _position(cursor: Cursor) -> int:
    """Where in the order the next sample is, about; after a filter only a cursor with `at` says so."""
    return cursor.row if cursor.at is None else cursor.at[0]
