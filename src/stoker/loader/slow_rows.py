"""Which samples take much longer than others, known from the index or an earlier epoch, so that they can start early.

A photograph of 80 megapixels among thumbnails, or an object that a server takes long to find, holds up its batch and all later
ones. But the order is known. A sample known to be slow becomes a task of its own, which starts as soon as its batch is offered,
and batches are offered early enough for it to finish in time. Batches and their order do not change.

What is learned here affects nothing but timing. Functions report which of their samples were slow. In other tasks that took too
long, all samples are suspects: the next time, each gets a task of its own, which identifies the slow one. A large stored size
makes a sample a suspect before anything is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from ..batch.written_rows import SLOW_S, SLOW_TIMES, Report
from ..observe.meters import Meters
from ..observe.stats import SlowSample
from ..source.arrays import ArraysSource
from ..source.chunk import Ints
from ..source.source import Source

#: a task contains a slow sample if it takes this many times as long as usual for its rows
_TASK_TIMES = 2.0
#: tasks that are seen before any is suspected: the first ones import things, and fill caches
_WARM_TASKS = 16
#: in a task of more rows than this each is so quick that a slow task is an accident
_TASK_ROWS = 256
#: where more than this share of the samples that were seen are suspects, none is: then something else was slow
_MOST_SUSPECTS = 0.05
#: a sample whose stored size is this many times the usual is a suspect
_TIMES_STORED = 16.0
#: samples that are remembered
_MOST = 1 << 16
#: a table of flags that tells most samples that they are not meant: the low bits of their index
_FLAGS = (1 << 20) - 1
#: slow samples that take less than this share of the work are not worth a longer window
_LITTLE = 0.02
#: rows after which what was measured counts half
_HALF_ROWS = 10_000
#: units that are offered ahead beyond the time that a slow sample takes, because slow ones come in bursts; and the most of all
_BURSTS, _MOST_UNITS = 12, 256
#: the most rows of a batch that get tasks of their own: where more are slow, slow is usual
_SHARE = 4


class SlowRows:
    """What is known about the slow samples of one source. Used by the consumer's thread alone."""

    def __init__(self, source: Source, meters: Meters | None = None, kinds: Sequence[str] = ()) -> None:
        self._source, self._meters = source, meters
        # Steps that may wait for something of the sample's own. Others are on a core, or wait for the interpreter lock.
        self._waiting = [kind == "function" or (kind == "read" and not isinstance(source, ArraysSource)) for kind in kinds]
        self.start_over()

    def start_over(self) -> None:
        """Forget what was learned: others do the work from now on, and take other times for it."""
        self.since_s = time.monotonic()  # tasks that began before do not count
        self._known: dict[int, float] = {}  # seconds, by source index
        self._slowest_s = 0.0  # of these
        self._suspects: set[int] = set()
        self._flags: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None  # where anything is known, or suspected
        self._usual_s, self._tasks = 0.0, 0  # of a row that is not slow
        self._task_s = self._slow_s = 0.0  # of all rows lately, and of slow ones
        self._rows = self._seen = 0
        for index in self._source.outsized(_TIMES_STORED, _MOST).tolist():
            self._suspect(index)

    # ---- learning ------------------------------------------------------------------------------------------------------------

    def see(self, indices: Ints, report: Report) -> None:
        """Learn from a task that is done."""
        rows, spent_s = len(indices), self._spent(report)
        if not rows or spent_s <= 0:
            return
        self._tasks += 1
        self._task_s += spent_s
        self._rows += rows
        self._seen += rows
        if self._rows > _HALF_ROWS:
            self._rows, self._task_s, self._slow_s = self._rows // 2, self._task_s / 2, self._slow_s / 2
        usual_s = self._usual_s
        each_s = spent_s / rows
        if self._tasks > _WARM_TASKS:
            if rows == 1:
                if not self._judge(int(indices[0]), spent_s):
                    return
            elif report.slow:
                # A task that had no core for a while looks slow, too.
                on_time = 1 - report.queued_s / sum(seconds for _, seconds in report.slow)
                for slot, seconds in report.slow:
                    if on_time * seconds > self._limit_s:
                        self._note(int(indices[slot]), on_time * seconds)
                return
            elif spent_s > _TASK_TIMES * rows * usual_s and spent_s - rows * usual_s > self._limit_s and rows <= _TASK_ROWS:
                self._suspect_all(indices, spent_s - rows * usual_s)
                return
        self._usual_s = each_s if not usual_s else usual_s + 0.1 * (min(each_s, 4 * usual_s) - usual_s)

    def _spent(self, report: Report) -> float:
        """What a task took because of its samples."""
        if not self._waiting:
            return sum(report.seconds) - report.queued_s
        steps = zip(self._waiting, report.seconds, report.cpu_s)
        spent_s = sum(seconds if waiting else min(seconds, cpu_s) for waiting, seconds, cpu_s in steps)
        return max(sum(report.cpu_s), spent_s - report.queued_s)

    @property
    def _limit_s(self) -> float:
        return max(SLOW_TIMES * self._usual_s, SLOW_S)

    def _judge(self, index: int, spent_s: float) -> bool:
        """A sample that had a task of its own: whether it is like others."""
        if spent_s > self._limit_s:
            self._note(index, spent_s)
            return False
        self._suspects.discard(index)
        if self._known.pop(index, None) is not None:
            self._slowest_s = max(self._known.values(), default=0.0)
        return True

    def _note(self, index: int, seconds: float) -> None:
        self._slow_s += seconds
        self._suspects.discard(index)
        if index in self._known or len(self._known) < _MOST:
            self._known[index] = seconds
            self._slowest_s = max(self._slowest_s, seconds)
            self._flag(index)
        if self._meters is not None:
            self._meters.slow([SlowSample(self._source.key(index), seconds)])

    def _suspect(self, index: int) -> None:
        if index not in self._known and len(self._suspects) < _MOST:
            self._suspects.add(index)
            self._flag(index)

    def _suspect_all(self, indices: Ints, excess_s: float) -> None:
        """One of these may be slow."""
        if len(self._suspects) + len(indices) > max(_TASK_ROWS, _MOST_SUSPECTS * self._seen):
            self._suspects.clear()
            return
        self._slow_s += excess_s
        for index in indices.tolist():
            self._suspect(index)

    def _flag(self, index: int) -> None:
        if self._flags is None:
            self._flags = np.zeros(_FLAGS + 1, np.bool_)
        self._flags[index & _FLAGS] = True

    # ---- what follows from it ------------------------------------------------------------------------------------------------

    def slots(self, indices: Ints) -> list[int]:
        """Which of these samples of a batch should have tasks of their own, started first."""
        if self._flags is None:
            return []
        flagged = np.flatnonzero(self._flags[indices & _FLAGS]).tolist()
        found = [slot for slot in flagged if (index := int(indices[slot])) in self._known or index in self._suspects]
        return found if len(found) * _SHARE <= max(len(indices), _SHARE) else []

    def lanes(self, workers: int) -> int:
        """How many workers may process slow samples at a time.

        As many as their share of the work. If all workers could, several slow samples together would keep all batches from being
        finished until they are done.
        """
        share = self._slow_s / self._task_s if self._task_s else 1.0
        return max(1, min(workers - 1, math.ceil(share * workers)))

    def units(self, rows: int, workers: int) -> int:
        """How many units of so many rows are to be under way, so that the slowest sample is done when its turn comes."""
        due = self.due(rows, workers)
        return min(_MOST_UNITS, due + _BURSTS) if due else 0

    def due(self, rows: int, workers: int) -> int:
        """How many units, the oldest first, have their slow samples begun in any case: they would be late otherwise."""
        if not self._slowest_s or not self._rows or self._slow_s < _LITTLE * self._task_s:
            return 0
        unit_s = max(1, rows) * self._task_s / self._rows / workers
        return math.ceil(self._slowest_s / unit_s) + 1 if self._slowest_s > unit_s else 0
