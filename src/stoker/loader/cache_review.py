"""Decides what a full cache keeps: the samples that the plan needs soonest. Reviewed at intervals, as rows are dealt out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..plan.next_use import MOST, NextUse, soonest
from ..plan.order import Order, Places
from ..storage.sample_cache import SampleCache

#: how much of a cache is filled: workers have begun blocks
_FILLED = 63 / 64
#: once it is full, it is looked at so many times while as many samples as there are were dealt out
_LOOKS = 32


class CacheReview:
    """Decides which rows on their way to workers are kept, and removes those that are needed last.

    While there is room, this costs one comparison. After that, samples that are kept and those that come until the next review
    are compared, at intervals, by when they are needed again: those without room are removed, or not stored.
    """

    def __init__(self, cache: SampleCache, order: Order) -> None:
        self._cache, self._order = cache, order
        self._stretch = max(1, order.source_length // _LOOKS)
        self._sees = NextUse.reach(order) <= MOST
        self._uses: NextUse | None = None
        self._until = 0  # the position at which it is looked at next
        self._limit = 0  # what is needed before it is kept

    def coming(self, places: Places) -> Places:
        """The same places, and which of them to keep."""
        if not self._sees or (self._uses is None and not self._cache.full) or not len(places):
            return places
        first, last = int(places.positions[0]), int(places.positions[-1])
        if self._uses is None or not self._uses.covers(places.epoch, first):
            self._uses, self._until = NextUse(self._order, places.epoch, first), first
        if first >= self._until:
            self._until = max(first + self._stretch, last + 1)
            self._limit = self._review(self._uses, first, self._until)
        return replace(places, stores=self._uses.after(places.positions) < self._limit)

    def _review(self, uses: NextUse, first: int, stop: int) -> int:
        """Make room for what comes at these positions and is needed soon again; returns how soon that is."""
        indices, sizes, removable = self._cache.kept()
        if not len(indices):
            return uses.never + 1
        needs = uses.first(first)[indices]
        new, again = uses.without(first, stop, indices)
        all_sizes = np.concatenate([sizes, np.full(len(new), sizes.mean())])
        limit = soonest(np.concatenate([needs, again]), all_sizes, int(self._cache.limit * _FILLED), uses.never)
        last = indices[removable & (needs >= limit)]
        if len(last):
            self._cache.remove(last)
        return limit
