"""What a finished task reports: the rows it wrote, what they cost, and which samples it left out.

These are plain values that nobody changes. They are not frozen, because one is made per task, and that would take five times as
long.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

from ..faults import TaskFault
from ..source.chunk import Column, Ints
from ..source.sample_names import Names
from ..storage.scratch import NO_NOTES, Notes

#: a row is slow that takes so many times as long as usual, and so many seconds at least: about as long as a task, and longer than
#: threads that compete for the interpreter lock mostly wait for it
SLOW_TIMES, SLOW_S = 8.0, 0.02

#: the time, and this thread's time on a core
Clock = tuple[float, float]


def clocks() -> Clock:
    return time.perf_counter(), time.thread_time()


@dataclass(slots=True, init=False)
class Report:
    """What a run of stages cost, and which samples it left out."""

    seconds: list[float]  # one for each step, in the order of `Runner.steps`
    cpu_s: list[float]  # of these, on a core
    nbytes: list[int]  # that came out of each step, as far as that is known without counting
    read_bytes: int  # that were read from the source
    weight: int  # tasks that these costs stand for: of very short ones not each is looked at; 0: this one was not
    queued_s: float  # ready to run, and no core was free
    lock_s: float  # how long it took to get the interpreter lock when it was let go once; -1: nobody tried
    skipped: list[TaskFault]
    rows: int
    failure: TaskFault | None  # of the first row that is not in the chunk, unless bad rows are left out
    failed_slot: int  # the slot of that row
    notes: Notes  # what happened to pictures, and what was tried again
    slow: tuple[tuple[int, float], ...]  # rows of the task that took functions much longer than others, and how many seconds
    draws: bool  # whether a function draws from the process's random generators, so that only one of it runs at a time

    def __init__(self, steps: int = 0) -> None:
        self.seconds, self.cpu_s, self.nbytes = [0.0] * steps, [0.0] * steps, [0] * steps
        self.read_bytes, self.weight, self.queued_s, self.lock_s = 0, 1, 0.0, -1.0
        self.skipped, self.notes, self.slow = [], NO_NOTES, ()
        self.failure, self.rows, self.failed_slot, self.draws = None, 0, 0, False

    def lap(self, clock: Clock) -> Clock:
        """Note the time since `clock` as a step's, if anybody looks; returns the new clock."""
        if not self.weight:
            return clock
        now = clocks()
        self.seconds.append(now[0] - clock[0])
        self.cpu_s.append(now[1] - clock[1])
        self.nbytes.append(0)
        return now


class Placed(Enum):
    """Marks a column that was written into the slab, although its field had no guaranteed place there."""

    PLACED = "in the slab"


@dataclass(slots=True)
class WrittenRows:
    """Rows of a batch: which rows of the task they are, their columns outside the slab and the bytes of those, their names.

    The task's rows are those of the slab from `first`.
    """

    first: int
    slots: Ints
    loose: dict[str, Column | Placed]
    nbytes: int
    names: Names
    report: Report
