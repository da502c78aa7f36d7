"""What a task says when it is done: the rows it wrote, what they cost, and which samples it left out.

Plain values, which nobody changes. They are not frozen, because one is made for every task, and that would take it five times as
long.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..faults import TaskFault
from ..source.chunk import Column, Ints
from ..source.sample_names import Names
from ..storage.scratch import Notes

_NOTHING = Notes()


@dataclass(slots=True)
class Report:
    """What a run of stages cost, and which samples it left out."""

    seconds: list[float] = field(default_factory=list)  # one a step, in the order of `Runner.steps`
    skipped: list[TaskFault] = field(default_factory=list)
    rows: int = 0
    failure: TaskFault | None = None  # of the first row that is not in the chunk, unless bad rows are left out
    failed_slot: int = 0  # the slot of that row
    notes: Notes = field(default_factory=lambda: _NOTHING)  # what happened to pictures

    def lap(self, clock: float) -> float:
        """Note the time since `clock` as a step's; returns the new clock."""
        now = time.perf_counter()
        self.seconds.append(now - clock)
        return now


@dataclass(slots=True)
class WrittenRows:
    """Rows of a batch: which rows of the task they are, their columns beside the slab and the bytes of those, their names."""

    slots: Ints
    loose: dict[str, Column]
    nbytes: int
    names: Names
    report: Report
