"""The driver: keeps a scheduler and an executor's channel moving, and delivers units in order.

It runs in the consumer's thread, inside `take()`. While the consumer is away, the workers have a full window of tasks, which is
all the prefetching that is allowed; so it needs no thread of its own and no lock.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..errors import BatchError, StallError
from ..turns import TURNS
from .daemons import ended
from .executor import Channel, Executor, Outcome, Task
from .schedule import FINISH, Command, Emit, Finished, GiveUp, Lost, Offered, Run, RunAlone, Schedule, Taken, Window

_log = logging.getLogger("stoker")
_NO_MEMORY = "there is not enough memory to put the next samples together; use a smaller batch, or loader(memory='500MB')"


#: a worker is stuck if it has been on one task for this share of the time in which none has finished: it began a little later
_STUCK = 0.9
#: how many slow tasks one worker gets at a time
_LANE_TASKS = 4


class Exhausted(Exception):
    """There is no further unit."""


C = TypeVar("C")
R = TypeVar("R")


class Unit(ABC, Generic[C, R]):
    """Something made by tasks and delivered as a whole. It stays with the consumer: tasks only have contents and results."""

    #: bytes it occupies, as far as known in advance
    nbytes: int = 0
    #: whether a finishing task must run when the others are done
    finish: bool = False
    #: how many rows of work it is
    rows: int = 0
    #: whether something went wrong: then it needs no finish
    failed: bool = False
    #: the numbers of tasks that are known to be slow, and start before others; known when it is split
    early: Collection[int] = ()

    @abstractmethod
    def split(self, rows: int) -> list[C]:
        """The contents of its tasks, about `rows` rows each."""

    def finisher(self) -> C:
        """The content of its finishing task."""
        raise AssertionError("a unit with finish=True has a finisher")

    @abstractmethod
    def done(self, outcome: Outcome[C, R]) -> int:
        """Take in a task's outcome; returns the bytes it added. A task may be done again, and then counts once."""

    def lost(self, outcome: Outcome[C, R]) -> None:
        """Note that a worker ended in the middle of a task, which will run again."""

    def pieces(self, content: C) -> list[C]:
        """The same work in a few pieces, in the order of its rows; none if it cannot be cut."""
        return []

    @abstractmethod
    def give_up(self, content: C | None, causes: Sequence[str]) -> int:
        """Continue without a task (None: the finishing task), or fail; returns the bytes that this added.

        Workers ended while they ran it; `causes` say how: "was killed by signal 11 (SIGSEGV)".
        """


U = TypeVar("U", bound=Unit[Any, Any])


class Supply(ABC, Generic[U]):
    """The source of a feed's units."""

    @abstractmethod
    def poll(self, block: bool) -> U | None:
        """The next unit; None if it would have to wait and `block` is False. Raises Exhausted at the end."""


class EarlyTasks(Protocol):
    """What a feed needs to know about slow tasks, which start early."""

    def lanes(self, workers: int) -> int:
        """How many of `workers` workers may run them at a time."""

    def units(self, rows: int, workers: int) -> int:
        """How many units of `rows` rows should be in flight for them."""

    def due(self, rows: int, workers: int) -> int:
        """In how many of the oldest units they start in any case."""


class Pace:
    """How much work goes into a task, learned from the tasks done so far. Results never depend on it.

    A task should be long enough for its hand-over, and the Python around its native calls, to cost little: with sixteen workers
    that Python competes for one GIL. It should be short enough that all workers have something to do. Its length is measured in
    CPU time, because a task that waits for the GIL looks slow, and smaller tasks would make the waiting worse (measured on
    sixteen cores: a quarter of the rate). A function that sleeps or waits for a network uses no CPU time, so wall time is
    limited too: a batch of a hundred downloads is not one task.
    """

    TASK_S = 0.024
    LEAST_S = 0.004  # whatever the number of workers: without it, small images were half as fast on sixteen workers as on four
    MOST_S = 0.5  # of wall time
    GROUP_S = 0.004  # small tasks are handed out together up to this
    MOST_TASKS = 64  # in one group
    MOST_FIRST = 1024  # tasks of a unit before anything is learned: a batch of a million rows would have very many
    MOST_TIMES = 4  # a task counts as at most this many times as long as usual
    MOVING_S = 0.5  # of work in flight, in wall time, while it may soon move to other workers

    def __init__(self, workers: int, window: int, rows: int = 8) -> None:
        self.workers, self.window = workers, window
        self.even = False  # units should come evenly: all workers share one, if it is large enough
        self._row_s: float | None = None
        self._row_wall_s = 0.0
        self._first_rows = rows

    def learn(self, cpu_s: float, wall_s: float, rows: int) -> None:
        if rows > 0:
            each = max(cpu_s, wall_s * self.TASK_S / self.MOST_S, 1e-9) / rows
            usual = self._row_s
            # One slow sample says little about the next rows.
            self._row_s = each if usual is None else usual + 0.25 * (min(each, self.MOST_TIMES * usual) - usual)
            self._row_wall_s += 0.25 * (wall_s / rows - self._row_wall_s)

    def task_rows(self, unit_rows: int) -> int:
        """Rows per task for a unit of `unit_rows` rows."""
        if self._row_s is None:
            return max(1, min(max(self._first_rows, unit_rows // self.MOST_FIRST), -(-unit_rows // self.workers)))
        rows = int(self.TASK_S / self._row_s)
        # Two tasks per worker in every full window: then no worker waits for work while others have too much of it.
        rows = max(1, min(rows, self.window * unit_rows // (2 * self.workers)), int(self.LEAST_S / self._row_s))
        if self.even:
            rows = min(rows, max(1, -(-unit_rows // self.workers), int(self.LEAST_S / max(self._row_s, self._row_wall_s))))
        if rows >= unit_rows:
            return max(1, unit_rows)
        tasks = -(-unit_rows // rows)
        return -(-unit_rows // tasks)  # even shares

    def group_rows(self) -> int:
        """Rows of small tasks worth handing out together."""
        return self._first_rows if self._row_s is None else max(1, int(self.GROUP_S / self._row_s))

    def units_to_move(self, unit_rows: int) -> int:
        """Units that are enough for the present workers while others may soon take over: tasks that have started do not move."""
        return int(self.workers * self.MOVING_S / max(self._row_wall_s, 1e-9) / max(1, unit_rows))

    def burst(self, unit_rows: int, window: int) -> int:
        """Units worth handing out together because each alone would be too little."""
        if self._row_s is None:
            return 1
        units = int(self.GROUP_S / (self._row_s * max(1, unit_rows)))
        return max(1, min(units, window // (self.workers + 1), self.MOST_TASKS))


class Feed(Generic[U, C, R]):
    """Units from a supply, made by an executor, delivered in order."""

    def __init__(
        self,
        supply: Supply[U],
        channel: Channel[C, R],
        executor: Executor,
        *,
        window: Window,
        budget: int,
        watchdog_s: float,
        first: bool = False,
        describe: Callable[[Any], str] = repr,
        resized: Callable[[int], Window] | None = None,
        early: EarlyTasks | None = None,
    ) -> None:
        self._describe = describe  # names the samples of a task's content, whichever feed it belongs to
        self._supply, self._channel, self._executor = supply, channel, executor
        self._schedule = Schedule(window, budget)
        self._pace = Pace(executor.workers, window.most)
        self._watchdog_s = watchdog_s
        self._resized = resized  # the window for another number of workers
        self._first = first  # its tasks go before those of other feeds, because it consumes their results
        self._early_tasks = early
        self._early: deque[Task[C]] = deque()  # early tasks that wait for their turn
        self._waits = False  # whether the consumer had to wait when it last asked
        self._lanes: set[tuple[int, int]] = set()  # groups of early tasks in flight: the last task of each
        self._resume_at: int | None = None  # no unit starts until only so many are ready; None: whenever there is room
        self._units: dict[int, U] = {}
        self._ready: list[int] = []  # emitted, not yet taken; oldest first
        self._contents: dict[int, list[C]] = {}
        self._offered = 0
        self._ended = self._closed = False
        self._awaits = False  # the program waits for a unit of this feed
        self._failure: Exception | None = None
        self._usual_bytes = self._usual_rows = 0

    def take(self, block: bool = True, timeout_s: float = math.inf) -> U | None:
        """The next unit; None if it is not complete and `block` is False or the time is over. Raises Exhausted at the end."""
        quiet_since, waited = time.monotonic(), False
        deadline = quiet_since + timeout_s
        while True:
            if self._closed or self._executor.stopped:
                raise ended()
            self._collect(0.0)
            waits = block and not self._schedule.in_flight
            if waits:
                self._awaits |= TURNS.wait()
            self._fill(block=waits)
            if waits:
                quiet_since = time.monotonic()  # the supply has its own deadline for what it waits for
            if self._ready:
                self._waits = waited
                return self._hand_over(self._ready.pop(0))
            if self._ended and not self._schedule.in_flight:
                raise self._failure or Exhausted
            if not block:
                return None
            waited = self._waits = True
            now = time.monotonic()
            if now >= deadline:
                return None
            left = min(quiet_since + self._watchdog_s, deadline) - now
            self._awaits |= TURNS.wait()
            with TURNS.aside():
                collected = self._collect(min(max(left, 0.001), 1.0))
            if collected:
                quiet_since = time.monotonic()
            elif left <= 0:
                if not self._executor.starting:
                    self._stalled()
                quiet_since = time.monotonic()

    @property
    def occupancy(self) -> tuple[int, int, int, int]:
        """Complete units, units in flight, their bytes, and the limit on these bytes."""
        schedule = self._schedule
        return len(self._ready), schedule.in_flight, schedule.nbytes, schedule.budget

    def pause(self) -> None:
        """Start no further unit until most of the ready ones have been taken."""
        self._resume_at = max(1, len(self._ready) // 3)

    def close(self) -> None:
        """Drop everything in flight, and end a `take()` that waits in another thread."""
        self._closed = True
        self._channel.cancel()

    def _hand_over(self, number: int) -> U:
        if self._awaits:
            TURNS.awaited, self._awaits = 0, False
        self._run(self._schedule.handle(Taken(number)))
        self._contents.pop(number, None)
        return self._units.pop(number)

    def _fill(self, block: bool) -> None:
        """Offer units while there is room. Small ones are offered in bursts, so that a group of tasks is worth submitting."""
        if self._resume_at is not None:
            if len(self._ready) > self._resume_at:
                return
            self._resume_at = None
        schedule, executor = self._schedule, self._executor
        if executor.workers != self._pace.workers:
            self._resize(executor.workers)
        if self._early_tasks is not None and self._resized is not None:
            schedule.stretch = self._early_tasks.units(self._usual_rows, executor.workers)
            self._pace.even = schedule.stretch > 0
        window = schedule.limit(self._usual_bytes, self._usual_rows)
        if narrow := executor.may_move:
            window = min(window, max(schedule.window.least, self._pace.units_to_move(self._usual_rows)))
        self._pace.window = window
        if schedule.in_flight >= window or schedule.in_flight > window - self._pace.burst(self._usual_rows, window):
            return
        commands: list[Command] = []
        while not self._ended and schedule.room(self._usual_bytes, self._usual_rows):
            try:
                unit = self._supply.poll(block)
            except Exhausted:
                self._ended = True
                break
            except MemoryError as error:
                self._ended, self._failure = True, BatchError(_NO_MEMORY)
                self._failure.__cause__ = error
                break
            except Exception as error:  # noqa: BLE001  raised later, when all units before it have been taken
                self._ended, self._failure = True, error
                break
            if unit is None:
                break
            commands += self._offer(unit)
            block = False
            if narrow and schedule.in_flight >= window:
                break
        self._run(commands)

    def _resize(self, workers: int) -> None:
        self._pace.workers = workers
        if self._resized is not None:
            self._schedule.window = self._resized(workers)

    def _offer(self, unit: U) -> list[Command]:
        number = self._offered
        self._offered += 1
        self._units[number] = unit
        contents = unit.split(self._task_rows(unit.rows)) if unit.rows else []
        self._contents[number] = contents
        if unit.rows:
            self._usual_bytes, self._usual_rows = unit.nbytes, unit.rows
        return self._schedule.handle(Offered(number, len(contents), unit.nbytes, unit.finish and bool(contents), unit.rows))

    def _task_rows(self, unit_rows: int) -> int:
        rows = self._executor.task_rows
        if not rows:
            return self._pace.task_rows(unit_rows)
        # Other trainers request the same tasks, so local measurements must not matter. Two tasks per worker, as in `Pace`.
        most = self._schedule.window.least * unit_rows // (2 * self._executor.workers)
        return 1 << (max(1, min(rows, most)).bit_length() - 1)

    def _collect(self, timeout_s: float) -> bool:
        """Handle outcomes; returns whether there were any."""
        outcomes = self._channel.collect(timeout_s)
        if not outcomes:
            return False
        commands: list[Command] = []
        again: list[Command] = []
        for outcome in outcomes:
            task = outcome.task
            if outcome.lost:
                for command in self._lose(outcome):
                    (commands if isinstance(command, Emit) else again).append(command)
                continue
            unit = self._units[task.unit]
            added = unit.done(outcome)
            if self._lanes:
                self._lanes.discard((task.unit, task.number))
            if task.number != FINISH and task.number not in unit.early:
                early = len(unit.early)
                rows = -(-(unit.rows - early) // (len(self._contents[task.unit]) - early))
                self._pace.learn(outcome.cpu_s, outcome.stop_s - outcome.start_s, rows)
            commands += self._schedule.handle(Finished(task.unit, task.number, unit.failed, added))
        if again:
            self._run(again, first=True)  # later units wait for what was lost
        self._run(commands)
        if self._early:
            self._begin_early()
        return True

    def _lose(self, outcome: Outcome[C, R]) -> list[Command]:
        """Run a lost task again, in pieces if it may have ended its worker; or let its unit continue without it."""
        task, unit = outcome.task, self._units[outcome.task.unit]
        self._lanes.discard((task.unit, task.number))
        pieces = unit.pieces(task.content) if outcome.blame and task.number != FINISH else []
        self._contents[task.unit] += pieces
        commands = self._schedule.handle(Lost(task.unit, task.number, outcome.blame, outcome.cause, len(pieces)))
        if commands and isinstance(commands[0], GiveUp):
            added = unit.give_up(None if task.number == FINISH else task.content, commands[0].causes)
            return self._schedule.handle(Finished(task.unit, task.number, unit.failed, added))
        if outcome.blame:
            unit.lost(outcome)
            _log.info("the process that worked on %s %s; that is done again", self._describe(task.content), outcome.cause)
        return commands

    def _run(self, commands: list[Command], first: bool = False) -> None:
        if not commands:
            return
        first = first or self._first
        group: list[Task[C]] = []
        rows = 0
        # Enough rows to be worth submitting, but never so many that one worker gets what several could share.
        runs = [type(command) for command in commands].count(Run)
        most = 1 if self._executor.task_rows else max(1, -(-runs // self._executor.workers))
        enough = self._pace.group_rows()
        for command in commands:
            if isinstance(command, Emit):
                self._ready.append(command.unit)
                continue
            unit = self._units[command.unit]
            contents = self._contents[command.unit]
            if command.task == FINISH or isinstance(command, RunAlone):
                # Before all look-ahead work: this unit is the oldest unfinished one, or nearly so.
                content = unit.finisher() if command.task == FINISH else contents[command.task]
                self._channel.submit([Task(command.unit, command.task, content, isinstance(command, RunAlone))], first=True)
                continue
            if command.task in unit.early:
                self._early.append(Task(command.unit, command.task, contents[command.task]))
                continue
            group.append(Task(command.unit, command.task, contents[command.task]))
            rows += unit.rows // len(contents)
            if len(group) >= most or rows >= enough:
                self._channel.submit(group, first=first)
                group, rows = [], 0
        if self._early:
            self._begin_early()
        if group:
            self._channel.submit(group, first=first)

    def _begin_early(self) -> None:
        """Start slow tasks: a few at a time, and all that are due."""
        assert self._early_tasks is not None  # a supply with such tasks also says how many may run
        early, workers = self._early, self._executor.workers
        lanes = self._early_tasks.lanes(workers)
        due = next(iter(self._units)) + max(1, self._early_tasks.due(self._usual_rows, workers))
        while early and (len(self._lanes) < lanes or early[0].unit <= due):
            # While the consumer is away nothing starts another, so each lane gets several. If it waits, they go one by one,
            # because the outcomes of a group arrive together.
            free = lanes - len(self._lanes)
            count = min(_LANE_TASKS, -(-len(early) // free)) if free > 0 and not self._waits else 1
            group = [early.popleft() for _ in range(count)]
            self._lanes.add((group[-1].unit, group[-1].number))
            self._channel.submit(group, first=True)

    def _stalled(self) -> None:
        """Replace stuck workers, or raise if the executor cannot."""
        report = self._stall_report()
        if not self._executor.replace_stuck(_STUCK * self._watchdog_s):
            raise StallError(report)
        _log.warning("%s\nstuck workers were ended, and their tasks run again", report)

    def _stall_report(self) -> str:
        waiting = [number for number in self._units if number not in self._ready]
        oldest = self._units[waiting[0]] if waiting else None
        return (
            f"no task finished for {self._watchdog_s:g} s (watchdog_s) while waiting for {oldest or 'the source'}; "
            f"every worker's stack follows, the innermost call last\n\n{self._executor.stacks(self._describe)}"
        )
