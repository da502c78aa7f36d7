"""The scheduler: window, order and back-pressure, without I/O, clock or threads.

Events go in, commands come out, so it is tested in microseconds and can be replayed. Units (batches, or chunks on their way to
become batches) are numbered in delivery order; tasks of a unit may finish in any order, on any worker.

Invariant: a unit is emitted once, in order, after all its tasks have finished; a unit counts against the window from its offer
until it is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

#: the task that joins a unit's rows when all others are done
FINISH = -1


@dataclass(frozen=True, slots=True)
class Offered:
    """Unit `unit` consists of `tasks` tasks; `finish` asks for one more when these are done."""

    unit: int
    tasks: int
    nbytes: int = 0
    finish: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A task is done. `failed` units need no finish; `nbytes` is memory the task added to its unit."""

    unit: int
    task: int
    failed: bool = False
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """The consumer has the oldest emitted unit."""

    unit: int


@dataclass(frozen=True, slots=True)
class Run:
    """Give this task to a worker."""

    unit: int
    task: int


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand this unit over; it is complete, and all before it have been emitted."""

    unit: int


Event = Union[Offered, Finished, Taken]
Command = Union[Run, Emit]


class _Unit:
    __slots__ = ("done", "failed", "finish", "left", "nbytes")

    def __init__(self, left: int, nbytes: int, finish: bool) -> None:
        self.left, self.nbytes, self.finish = left, nbytes, finish
        self.done = self.failed = False


class Schedule:
    """Decides what runs and what is handed over.

    `window` bounds the units in flight, `budget` their bytes. One unit is always let in, however large: a budget that is too
    small slows down, and never stops.
    """

    def __init__(self, window: int, budget: int = 1 << 62) -> None:
        self.window, self.budget = window, budget
        self._units: dict[int, _Unit] = {}  # in flight, oldest first
        self._next = 0  # the next unit to emit
        self._bytes = 0

    @property
    def in_flight(self) -> int:
        """Units offered and not yet taken."""
        return len(self._units)

    def room(self, nbytes: int = 0) -> bool:
        """Whether a unit of that size may be offered now."""
        return not self._units or (len(self._units) < self.window and self._bytes + nbytes <= self.budget)

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, Finished):
            return self._finished(event)
        if isinstance(event, Taken):
            self._bytes -= self._units.pop(event.unit).nbytes
            return []
        unit = self._units[event.unit] = _Unit(event.tasks, event.nbytes, event.finish)
        self._bytes += event.nbytes
        if not event.tasks:
            return self._complete(event.unit, unit)
        return [Run(event.unit, task) for task in range(event.tasks)]

    def _finished(self, event: Finished) -> list[Command]:
        unit = self._units[event.unit]
        unit.nbytes += event.nbytes
        self._bytes += event.nbytes
        unit.failed |= event.failed
        unit.left -= 1
        return [] if unit.left else self._complete(event.unit, unit)

    def _complete(self, number: int, unit: _Unit) -> list[Command]:
        if unit.finish and not unit.failed:
            unit.finish, unit.left = False, 1
            return [Run(number, FINISH)]
        unit.done = True
        emitted: list[Command] = []
        while (ready := self._units.get(self._next)) is not None and ready.done:
            emitted.append(Emit(self._next))
            self._next += 1
        return emitted
