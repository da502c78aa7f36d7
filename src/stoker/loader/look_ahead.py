"""Telling the source what comes: because the plan is known, what is needed next can be fetched now.

Only sources that fetch through a cache listen. They are told the samples of this epoch and the next, in order: all of them for a
short way, or every so-manyth for a long one, as they ask for.
"""

from __future__ import annotations

import weakref

import numpy as np

from ..engine.background import Background
from ..plan.cursor import Cursor
from ..plan.order import Order
from ..source.chunk import Ints
from ..source.source import ForesightSpan, Source
from ..storage.sample_cache import SampleCache

#: threads that fetch ahead: they wait for a network most of the time
_THREADS = 4


class Forerunner:
    """Keeps a source informed, and threads fetching for it; closed with the feed it runs ahead of."""

    def __init__(self, source: Source, order: Order, cursor: Cursor, decoded: bool, cache: SampleCache | None = None) -> None:
        self._source, self._order, self._decoded, self._cache = source, order, decoded, cache
        assert source.foresight is not None
        self._span = source.foresight
        self._told = cursor  # up to where the source knows that we are
        self._until = 0  # position, within the epoch told of, at which to tell more
        self._tell(cursor)
        self._background = Background(source.fetch_ahead, _THREADS, "stoker-ahead")
        weakref.finalize(self, self._background.stop).atexit = False  # a loader that is dropped leaves no thread behind

    def reached(self, cursor: Cursor) -> None:
        """The consumer has come this far."""
        if cursor.epoch != self._told.epoch or cursor.row >= self._until:
            self._tell(cursor)

    def close(self) -> None:
        self._background.close()

    def _tell(self, cursor: Cursor) -> None:
        length = self._order.length
        now = _stretch(cursor.row, length, self._span)
        indices = [self._order.resolve(now, cursor.epoch)]
        reach = length if self._span.whole and length is not None else cursor.row + len(now)
        if self._span.whole and length is not None:
            indices.append(self._order.resolve(_stretch(0, length, self._span), cursor.epoch + 1))
        self._told = cursor
        # Said again after a part of the way, long before what was said runs out.
        self._until = cursor.row + max(1, (reach - cursor.row) // 16)
        coming = np.concatenate(indices)
        if self._cache is not None:
            coming = coming[self._cache.missing(coming)]  # what is kept is not read
        self._source.foresee(coming, self._decoded)


def _stretch(start: int, length: int | None, span: ForesightSpan) -> Ints:
    """Positions from `start` on: the next `count`, or so many spread evenly to the end."""
    stop = start + span.count if length is None else min(length, start + span.count) if not span.whole else length
    count = min(span.count, max(0, stop - start))
    return np.linspace(start, stop, count, endpoint=False).astype(np.int64)
