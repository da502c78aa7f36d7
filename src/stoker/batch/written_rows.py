"""What a task says when it is done: the rows it wrote, what they cost, and which samples it left out.

Plain values, which nobody changes. They are not frozen, because one is made for every task, and that would take it five times as
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


@dataclass(slots=True, init=False)
class Report:
    """What a run of stages cost, and which samples it left out."""

    seconds: list[float]  # one a step, in the order of `Runner.steps`
    skipped: list[TaskFault]
    rows: int
    failure: TaskFault | None  # of the first row that is not in the chunk, unless bad rows are left out
    failed_slot: int  # the slot of that row
    notes: Notes  # what happened to pictures, and what was tried again
    draws: bool  # whether a function draws from the process's random generators, so that only one of it runs at a time

    def __init__(self, steps: int = 0) -> None:
        self.seconds, self.skipped, self.notes = [0.0] * steps, [], NO_NOTES
        self.failure, self.rows, self.failed_slot, self.draws = None, 0, 0, False

    def lap(self, clock: float) -> float:
        """Note the time since `clock` as a step's; returns the new clock."""
        now = time.perf_counter()
        self.seconds.append(now - clock)
        return now


class Placed(Enum):
    """Stands for a column of a field that nobody promised room for in the slab, and that is there all the same."""

    PLACED = "in the slab"


@dataclass(slots=True)
class WrittenRows:
    """Rows of a batch: which rows of the task they are, their columns beside the slab and the bytes of those, their names.

    The task's rows are those of the slab from `first` on.
    """

    first: int
    slots: Ints
    loose: dict[str, Column | Placed]
    nbytes: int
    names: Names
    report: Report
