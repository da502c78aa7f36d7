"""The scheduler: window, order and back-pressure, without I/O, clock or threads.

Events go in, commands come out, so it is tested in microseconds and can be replayed. Units (batches, or chunks on their way to
become batches) are numbered in delivery order; tasks of a unit may finish in any order, on any worker.

Invariant: a unit is emitted once, in order, after all its tasks have finished; a unit counts against the window from its offer
until it is taken. A task that is lost runs again, however often, unless it is to blame: then it runs in pieces, where it can be
cut, and alone, so that the sample that ends its workers is found. What is to blame for too much is given up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Union

from .executor import NOT_BEGUN, POISON

#: the task that joins a unit's rows when all others are done
FINISH = -1


@dataclass(frozen=True, slots=True)
class Offered:
    """Unit `unit` of `rows` rows consists of `tasks` tasks; `finish` asks for one more when these are done.

    `nbytes` is the memory it has from the start; its tasks may add to that.
    """

    unit: int
    tasks: int
    nbytes: int = 0
    finish: bool = False
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """A task is done. `failed` units need no finish; `nbytes` is memory the task added to its unit."""

    unit: int
    task: int
    failed: bool = False
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """A task's worker has ended before the task did. `blame` says how likely the task is why, `cause` how the worker ended.

    It comes back as `pieces` tasks, numbered after all others of its unit; 0: as it is.
    """

    unit: int
    task: int
    blame: int = NOT_BEGUN
    cause: str = ""
    pieces: int = 0


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
class RunAlone:
    """Give this task to a worker that does nothing else meanwhile: it may be what ended others."""

    unit: int
    task: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell the unit that this task cannot be done, because its workers ended, as `causes` say; then it is `Finished`."""

    unit: int
    task: int
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand this unit over; it is complete, and all before it have been emitted."""

    unit: int


Event = Union[Offered, Finished, Lost, Taken]
Command = Union[Run, RunAlone, GiveUp, Emit]


@dataclass(frozen=True, slots=True)
class Window:
    """How many units may be in flight: as many as fit into `nbytes`, but never fewer than `least` nor more than `most`."""

    least: int
    most: int
    nbytes: int = 0

    def units(self, unit_bytes: int) -> int:
        """The number, for units of so many bytes."""
        return max(self.least, min(self.most, self.nbytes // max(1, unit_bytes)))


#: of a unit that lost no task; nobody writes to it
_NO_LOSSES: dict[int, tuple[Lost, ...]] = {}


class _Unit:
    __slots__ = ("added", "done", "expected", "failed", "finish", "gone", "left", "losses", "nbytes", "rows", "tasks")

    def __init__(self, event: Offered, expected: int) -> None:
        self.left = self.tasks = event.tasks
        self.nbytes, self.finish, self.rows = event.nbytes, event.finish, event.rows
        self.losses = _NO_LOSSES  # those that tasks are to blame for, by task; of pieces, those of what they were cut from too
        self.gone: frozenset[int] = frozenset()  # tasks that are not run again: in pieces now, or given up
        self.expected, self.added = expected, 0
        self.done = self.failed = False

    @property
    def counted(self) -> int:
        """Bytes that count against the budget: until all tasks are done, at least what was expected."""
        known = self.nbytes + self.added
        return known if self.done else max(known, self.expected)


def _run(number: int, task: int, unit: _Unit) -> Command:
    return RunAlone(number, task) if task in unit.losses else Run(number, task)


class Schedule:
    """Decides what runs and what is handed over.

    `window` bounds the units in flight, `budget` their bytes. One unit is always let in, however large: a budget that is too
    small slows down, and never stops. A unit's size may be known only when it is complete, so the window opens by what units
    have turned out to take.
    """

    def __init__(self, window: Window, budget: int = 1 << 62) -> None:
        self.window, self.budget = window, budget
        self._units: dict[int, _Unit] = {}  # in flight, oldest first
        self._next = 0  # the next unit to emit
        #: bytes of the units in flight, those set aside included
        self.nbytes = 0
        self._row_bytes = 0.0  # the most that tasks have added so far, by row
        self._usual_row_bytes = 0.0  # what they have added lately

    @property
    def in_flight(self) -> int:
        """Units offered and not yet taken."""
        return len(self._units)

    def expect(self, nbytes: int, rows: int) -> int:
        """What a unit of that size will grow to, as far as units so far can tell."""
        return nbytes + math.ceil(self._row_bytes * rows)

    def limit(self, nbytes: int = 0, rows: int = 0) -> int:
        """How many units of that size may be in flight. Until one is complete nobody knows what they grow to: two are enough."""
        units = self.window.units(nbytes + math.ceil(self._usual_row_bytes * rows))
        return units if self._next else min(units, 2)

    def room(self, nbytes: int = 0, rows: int = 0) -> bool:
        """Whether a unit of that size may be offered now."""
        if not self._units:
            return True
        return len(self._units) < self.limit(nbytes, rows) and self.nbytes + self.expect(nbytes, rows) <= self.budget

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, Finished):
            return self._finished(event)
        if isinstance(event, Taken):
            self.nbytes -= self._units.pop(event.unit).counted
            return []
        if isinstance(event, Lost):
            return self._lost(event)
        unit = self._units[event.unit] = _Unit(event, self.expect(event.nbytes, event.rows))
        self.nbytes += unit.counted
        if not event.tasks:
            return self._complete(event.unit, unit)
        return [Run(event.unit, task) for task in range(event.tasks)]

    def _finished(self, event: Finished) -> list[Command]:
        unit = self._units[event.unit]
        self.nbytes -= unit.counted
        unit.added += event.nbytes
        self.nbytes += unit.counted
        unit.failed |= event.failed
        unit.left -= 1
        return [] if unit.left else self._complete(event.unit, unit)

    def _lost(self, event: Lost) -> list[Command]:
        number, task, unit = event.unit, event.task, self._units[event.unit]
        if event.blame == NOT_BEGUN:
            return [_run(number, task, unit)]
        losses = (*unit.losses.get(task, ()), event)
        if event.pieces:
            first, unit.tasks = unit.tasks, unit.tasks + event.pieces
            unit.left += event.pieces - 1
            unit.gone |= {task}
            unit.losses = {**unit.losses, **dict.fromkeys(range(first, unit.tasks), losses)}
            return [RunAlone(number, piece) for piece in range(first, unit.tasks)]
        if sum(loss.blame for loss in losses) >= POISON:
            unit.gone |= {task}
            return [GiveUp(number, task, tuple(loss.cause for loss in losses))]
        if task != FINISH:
            unit.losses = {**unit.losses, task: losses}
            return [RunAlone(number, task)]
        # It works in the memory that the other tasks have filled, and may have done half of that: they fill it again. They have
        # been done once, so whatever they were suspected of was not theirs.
        unit.losses = {FINISH: losses}
        parts = [part for part in range(unit.tasks) if part not in unit.gone]
        if not parts:
            return [RunAlone(number, FINISH)]
        unit.finish, unit.left = True, len(parts)
        return [Run(number, part) for part in parts]

    def _complete(self, number: int, unit: _Unit) -> list[Command]:
        if unit.finish and not unit.failed:
            unit.finish, unit.left = False, 1
            return [_run(number, FINISH, unit)]
        self.nbytes -= unit.counted
        unit.done = True
        self.nbytes += unit.counted
        if unit.rows:
            self._learn(unit.added / unit.rows)
        emitted: list[Command] = []
        while (ready := self._units.get(self._next)) is not None and ready.done:
            emitted.append(Emit(self._next))
            self._next += 1
        return emitted

    def _learn(self, row_bytes: float) -> None:
        """The budget follows the largest unit so far. The window follows recent ones: an outlier must not narrow it for good."""
        if not self._row_bytes:
            self._usual_row_bytes = row_bytes
        self._row_bytes = max(self._row_bytes, row_bytes)
        self._usual_row_bytes += 0.25 * (row_bytes - self._usual_row_bytes)
