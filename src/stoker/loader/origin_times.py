"""Reading times by storage location, which reveal a single slow shard or server."""

from __future__ import annotations

import numpy as np

from ..observe.stats import OriginStats
from ..source.chunk import Ints
from ..source.source import Source

#: tasks that are added up together, because each alone would take as long
_TOGETHER = 32
#: origins that are shown
_SHOWN = 8


class OriginTimes:
    """Reading times of one loader, by origin. Written by the consumer's thread; other threads see them a few tasks late."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._seconds, self._samples = np.zeros(source.origins), np.zeros(source.origins, np.int64)
        self._indices: list[Ints] = []
        self._each_s: list[float] = []

    def see(self, indices: Ints, read_s: float) -> None:
        """A task has read these samples in so many seconds."""
        self._indices.append(indices)
        self._each_s.append(read_s / len(indices))
        if len(self._indices) >= _TOGETHER:
            self._add_up()

    def _add_up(self) -> None:
        count = len(self._seconds)
        origins = self._source.origins_of(np.concatenate(self._indices))
        seconds = np.repeat(self._each_s, [len(indices) for indices in self._indices])
        self._seconds += np.bincount(origins, seconds, count)
        self._samples += np.bincount(origins, minlength=count)
        self._indices, self._each_s = [], []

    def slowest(self) -> tuple[OriginStats, ...]:
        """Where reading takes longest for each sample, the slowest first."""
        samples, seconds = self._samples.copy(), self._seconds.copy()
        seen = np.flatnonzero(samples)
        order = seen[np.argsort(-seconds[seen] / samples[seen], kind="stable")][:_SHOWN].tolist()
        return tuple(OriginStats(self._source.origin_name(at), int(samples[at]), float(seconds[at])) for at in order)
