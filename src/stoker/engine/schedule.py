"""The scheduler: window, order and back-pressure, without I/O, clock or threads.

Events go in, commands come out, so it is tested in microseconds and can be replayed. Units (batches, or chunks on their way to
become batches) are numbered in delivery order; tasks of a unit may finish in any order, on any worker.

Invariant: a unit is emitted once, in order, after all its tasks have finished; a unit counts against the window from its offer
until it is taken. A lost task runs again, however often, unless it is to blame: then it is a suspect, and runs alone, in pieces
if it can be cut, and so do the pieces, until the sample that ends its workers is found. The suspects of a unit run one after
another, in the order of their rows: when one has failed, those after it do not run. A task that cannot be cut and is blamed too
often is given up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Union

from .executor import NOT_BEGUN, POISON

#: the task number of the finishing task, which joins a unit's rows when all others are done
FINISH = -1


@dataclass(frozen=True, slots=True)
class Offered:
    """Unit `unit` of `rows` rows consists of `tasks` tasks; with `finish`, one more runs when these are done.

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
    """A task's worker ended before the task was done. `blame` is how likely the task was the reason, `cause` how it ended.

    The task comes back as `pieces` tasks, in the order of their rows, numbered after all others of its unit; 0: unchanged.
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
    """Give this task to a worker that does nothing else in that time: it may have ended others."""

    unit: int
    task: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This task cannot be done, because its workers ended, as `causes` say: the unit continues without it or fails; then
    it is `Finished`."""

    unit: int
    task: int
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Emit:
    """Deliver this unit; it is complete, and all before it have been emitted."""

    unit: int


Event = Union[Offered, Finished, Lost, Taken]
Command = Union[Run, RunAlone, GiveUp, Emit]


@dataclass(frozen=True, slots=True)
class Window:
    """How many units may be in flight: as many as fit into `nbytes`, but never fewer than `least` nor more than `most`.

    Until one is complete, their final size is unknown, and `first` are enough.
    """

    least: int
    most: int
    nbytes: int = 0
    first: int = 2

    def units(self, unit_bytes: int) -> int:
        """The number, for units of `unit_bytes` bytes."""
        return max(self.least, min(self.most, self.nbytes // max(1, unit_bytes)))


#: the place of a task among those of its unit: its number, followed for a piece by the numbers of the pieces that contain it
_Place = tuple[int, ...]


class _Suspects:
    """The tasks of a unit that are to blame for a loss, and what was lost with each."""

    __slots__ = ("_places", "gone", "losses", "trial", "waiting")

    def __init__(self) -> None:
        self.losses: dict[int, tuple[Lost, ...]] = {}
        self.waiting: list[tuple[_Place, int]] = []  # the last is next
        self.trial: int | None = None  # the one that runs now
        self.gone: set[int] = set()  # tasks that do not run again: cut into pieces, or given up
        self._places: dict[int, _Place] = {}  # of pieces

    def place(self, task: int) -> _Place:
        return self._places.get(task, (task,))

    def add(self, task: int, losses: tuple[Lost, ...]) -> None:
        self.losses[task] = losses
        self.waiting = sorted([*self.waiting, (self.place(task), task)], reverse=True)

    def cut(self, event: Lost, pieces: range) -> None:
        """A task comes back as pieces. Only this loss counts for them: earlier ones were of more rows than these."""
        self.gone.add(event.task)
        place = self.place(event.task)
        for number, piece in enumerate(pieces):
            self._places[piece] = (*place, number)
            self.add(piece, (event,))

    def drop_after(self, failed: int) -> int:
        """Forget suspects whose rows come after a failed task; returns how many."""
        before, place = len(self.waiting), self.place(failed)
        self.waiting = [suspect for suspect in self.waiting if suspect[0] < place]
        return before - len(self.waiting)


class _Unit:
    __slots__ = ("added", "done", "expected", "failed", "finish", "left", "nbytes", "rows", "suspects", "tasks")

    def __init__(self, event: Offered, expected: int) -> None:
        self.left = self.tasks = event.tasks
        self.nbytes, self.finish, self.rows = event.nbytes, event.finish, event.rows
        self.suspects: _Suspects | None = None  # None: nothing is to blame
        self.expected, self.added = expected, 0
        self.done = False
        self.failed: int | None = None  # the task with which it failed

    @property
    def counted(self) -> int:
        """Bytes that count against the budget: until all tasks are done, at least what was expected."""
        known = self.nbytes + self.added
        return known if self.done else max(known, self.expected)


def _run(number: int, task: int, unit: _Unit) -> Command:
    suspected = unit.suspects is not None and task in unit.suspects.losses
    return RunAlone(number, task) if suspected else Run(number, task)


class Schedule:
    """Decides what runs and what is delivered.

    `window` bounds the units in flight, `budget` their bytes. One unit is always allowed, however large: a budget that is too
    small slows the run down, but never stops it. A unit's size may be known only when it is complete, so the window follows the
    sizes that units have turned out to have.
    """

    def __init__(self, window: Window, budget: int = 1 << 62) -> None:
        self.window, self.budget = window, budget
        self.stretch = 0  # units that may be in flight even beyond the window, because of slow tasks; within the budget
        self._units: dict[int, _Unit] = {}  # in flight, oldest first
        self._next = 0  # the next unit to emit
        #: bytes of the units in flight, including those reserved for them
        self.nbytes = 0
        self._row_bytes = 0.0  # the most that tasks have added so far, per row
        self._usual_row_bytes = 0.0  # what they have added recently, per row

    @property
    def in_flight(self) -> int:
        """Units offered and not yet taken."""
        return len(self._units)

    def expect(self, nbytes: int, rows: int) -> int:
        """The expected final size of a unit of that size, judging from earlier units."""
        return nbytes + math.ceil(self._row_bytes * rows)

    def limit(self, nbytes: int = 0, rows: int = 0) -> int:
        """How many units of that size may be in flight."""
        units = max(self.stretch, self.window.units(nbytes + math.ceil(self._usual_row_bytes * rows)))
        return units if self._next else min(units, self.window.first)

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
        if event.failed and unit.failed is None:
            unit.failed = event.task
        unit.left -= 1
        if unit.suspects is not None:
            return self._try(event.unit, unit, unit.suspects, event.task)
        return [] if unit.left else self._complete(event.unit, unit)

    def _lost(self, event: Lost) -> list[Command]:
        number, task, unit = event.unit, event.task, self._units[event.unit]
        if event.blame == NOT_BEGUN:
            return self._finish_again(number, unit) if task == FINISH else [_run(number, task, unit)]
        suspects = unit.suspects = unit.suspects or _Suspects()
        losses = (*suspects.losses.get(task, ()), event)
        if event.pieces:
            first, unit.tasks = unit.tasks, unit.tasks + event.pieces
            unit.left += event.pieces - 1
            suspects.cut(event, range(first, unit.tasks))
        elif sum(loss.blame for loss in losses) >= POISON:
            suspects.gone.add(task)
            return [GiveUp(number, task, tuple(loss.cause for loss in losses))]
        elif task == FINISH:
            suspects.losses[task] = losses
            return self._finish_again(number, unit)
        else:
            suspects.add(task, losses)
        return self._try(number, unit, suspects, task)

    def _try(self, number: int, unit: _Unit, suspects: _Suspects, ended: int) -> list[Command]:
        """Continue a unit that has suspects, now that one of its tasks is done or lost."""
        if suspects.trial == ended:
            suspects.trial = None
        if unit.failed is not None:
            unit.left -= suspects.drop_after(unit.failed)
        if suspects.trial is None and suspects.waiting:
            suspects.trial = suspects.waiting.pop()[1]
            return [RunAlone(number, suspects.trial)]
        return [] if unit.left else self._complete(number, unit)

    def _finish_again(self, number: int, unit: _Unit) -> list[Command]:
        """A finishing task was lost.

        It works in the memory that the other tasks have filled, and may have changed some or all of it before its worker ended:
        so the other tasks fill it again. They have been done once, so they are no longer suspects.
        """
        gone: set[int] = set()
        if unit.suspects is not None:
            losses, gone = unit.suspects.losses, unit.suspects.gone
            unit.suspects.losses = {task: losses[task] for task in losses if task == FINISH}
        parts = [part for part in range(unit.tasks) if part not in gone]
        if not parts:
            return [_run(number, FINISH, unit)]
        unit.finish, unit.left = True, len(parts)
        return [Run(number, part) for part in parts]

    def _complete(self, number: int, unit: _Unit) -> list[Command]:
        if unit.finish and unit.failed is None:
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
