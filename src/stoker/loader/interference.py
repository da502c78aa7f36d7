"""Measures whether busy workers make the training loop's own steps slower.

Workers need cores, the GIL and memory bandwidth, and so does the loop. Steps next to busy workers are compared with steps next to
almost idle ones. If workers are always busy and batches are ready, a short pause makes steps to compare with: no new batch is
started until only a few are left. That is too rare to cost anything, and never happens while the loop waits for batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..observe.meters import Meters

#: a step is beside busy workers where at least this share of them is in tasks, on average; beside calm ones, at most the other
_BUSY, _CALM = 0.3, 0.1
#: a step that takes this many times as long as others is another kind of step: a validation, a checkpoint
_ODD = 4.0
#: how often steps are compared; by then the tasks that ran next to them have been reported
_LOOK_S = 0.5
#: the first pauses come after so many seconds; when there are steps to compare, after twice as many each time, up to the last
_FIRST_S, _MOST_S = 2.5, 240.0
#: there is no pause where the loop waits for this share of its time, or has fewer units ready; or where this many steps were
#: calm by themselves
_WAITS, _READY, _ENOUGH = 0.1, 2, 8

Floats = NDArray[np.float64]


class Beside(NamedTuple):
    """Steps and their seconds, next to busy workers and next to calm ones."""

    busy: tuple[int, float] = (0, 0.0)
    calm: tuple[int, float] = (0, 0.0)


def mean_busy(tasks: Floats, steps: Floats) -> Floats:
    """How many tasks ran during each step, on average. Both are rows of (begin, end)."""
    busy_until = _busy_s(np.sort(tasks[:, 0]), steps) - _busy_s(np.sort(tasks[:, 1]), steps)
    return (busy_until[:, 1] - busy_until[:, 0]) / np.maximum(steps[:, 1] - steps[:, 0], 1e-9)


def _busy_s(begins: Floats, times: Floats) -> Floats:
    """For each time, the seconds since all of these that were before it, added up."""
    sums = np.concatenate(([0.0], np.cumsum(begins)))
    before = np.searchsorted(begins, times)
    return before * times - sums[before]


def compare(tasks: Floats, steps: Floats, workers: int) -> Beside:
    """Separate steps next to busy workers from those next to calm ones."""
    if not len(steps) or not workers:
        return Beside()
    seconds = steps[:, 1] - steps[:, 0]
    usual = seconds <= _ODD * max(float(np.sort(seconds)[len(seconds) // 2]), 1e-6)
    share = mean_busy(tasks, steps) / workers if len(tasks) else np.zeros(len(steps))
    busy, calm = usual & (share >= _BUSY), usual & (share <= _CALM)
    return Beside((int(busy.sum()), float(seconds[busy].sum())), (int(calm.sum()), float(seconds[calm].sum())))


class Interference:
    """Follows one loader. Called by the consumer's thread, some times per second while batches are handed out."""

    def __init__(self) -> None:
        #: stops the feed from beginning units for a while; None: there is none that could
        self.pause: Callable[[], None] | None = None
        self._looked = 0.0
        self._upto = 0.0  # steps that began until then have been compared
        self._pause_at = self._every_s = 0.0
        self._calm = self._all_calm = 0  # steps since the last pause, and ever

    def look(self, meters: Meters, now: float) -> None:
        if not self._looked:
            self._looked = self._upto = now
            self._pause_at, self._every_s = now + _FIRST_S, _FIRST_S
        if now < self._looked + _LOOK_S:
            return
        tasks, handed = meters.timeline(self._upto)
        steps = np.column_stack((handed[:-1, 1], handed[1:, 0]))  # from getting a batch to asking for the next
        steps = steps[(steps[:, 0] >= self._upto) & (steps[:, 0] < self._looked)]
        beside = compare(tasks, steps, meters.workers)
        if beside.busy[0] or beside.calm[0]:
            meters.beside_workers(*beside)
        self._calm += beside.calm[0]
        self._all_calm += beside.calm[0]
        lately = handed[handed[:, 1] >= self._looked]
        waits = float((lately[:, 1] - lately[:, 0]).sum()) > _WAITS * (now - self._looked)
        self._upto, self._looked = self._looked, now
        if now >= self._pause_at and not waits:
            self._make_calm(meters, now)

    def _make_calm(self, meters: Meters, now: float) -> None:
        if self._calm < _ENOUGH:
            if self.pause is None or meters.occupancy().ready < _READY:
                return
            self.pause()
        self._calm = 0
        if self._all_calm >= _ENOUGH:
            self._every_s = min(2 * self._every_s, _MOST_S)
        self._pause_at = now + self._every_s
