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


#: a worker is stuck that has been at one task for this share of the time in which none has finished: it began a little later
_STUCK = 0.9
#: tasks that take long, and that one worker gets at a time
_LANE_TASKS = 4


class Exhausted(Exception):
    """There is no further unit."""


C = TypeVar("C")
R = TypeVar("R")


class Unit(ABC, Generic[C, R]):
    """Something to be made by tasks and handed over whole. It stays here: tasks have contents, and give results."""

    #: bytes it occupies, as far as known beforehand
    nbytes: int = 0
    #: whether a finishing task is to run when the others are done
    finish: bool = False
    #: how many rows of work it is
    rows: int = 0
    #: whether something went wrong: then it needs no finish
    failed: bool = False
    #: the numbers of tasks that are known to take long, and begin before others; known when it is split
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
        """Note that a worker ended in the middle of a task, which is going to be done again."""

    def pieces(self, content: C) -> list[C]:
        """The same work in a few pieces, in the order of its rows; none where it cannot be cut."""
        return []

    @abstractmethod
    def give_up(self, content: C | None, causes: Sequence[str]) -> int:
        """Do without a task, or with None without the finishing task, or fail; returns the bytes that added.

        Workers ended in the middle of it; how, `causes` say: "was killed by signal 11 (SIGSEGV)".
        """


U = TypeVar("U", bound=Unit[Any, Any])


class Supply(ABC, Generic[U]):
    """Where a feed gets its units from."""

    @abstractmethod
    def poll(self, block: bool) -> U | None:
        """The next unit; None when it would have to wait and may not. Raises Exhausted at the end."""


class EarlyTasks(Protocol):
    """What a feed has to know about tasks that are begun early because they take long."""

    def lanes(self, workers: int) -> int:
        """How many of so many workers may be at them at a time."""

    def units(self, rows: int, workers: int) -> int:
        """How many units of so many rows are to be under way for them."""

    def due(self, rows: int, workers: int) -> int:
        """In how many of these, the oldest, they are begun in any case."""


class Pace:
    """How much work goes into a task, learned from the tasks done so far. Results never depend on it.

    A task should last so long that handing it over, and the Python around its native calls, cost little; with sixteen workers
    that Python competes for one interpreter lock. It should be short enough that all workers have something to do. Its length is
    measured in time on a core: a task that waits for the lock looks slow, and cutting tasks smaller for it would make the waiting
    worse (seen on sixteen cores: a quarter of the rate). A function that sleeps or waits for a network uses no core at all, so
    there is a bound on time by the clock too: a batch of a hundred downloads is not one task.
    """

    TASK_S = 0.024
    LEAST_S = 0.004  # however many workers there are: small images on sixteen came half as fast as on four without it
    MOST_S = 0.5  # by the clock
    GROUP_S = 0.004  # small tasks are handed out together up to this
    MOST_TASKS = 64  # in one group
    MOST_FIRST = 1024  # tasks of a unit before anything is learned: of a batch of a million rows there would be very many
    MOST_TIMES = 4  # as long as usual that a task counts for
    MOVING_S = 0.5  # of work in flight, by the clock, while it may soon move to other workers

    def __init__(self, workers: int, window: int, rows: int = 8) -> None:
        self.workers, self.window = workers, window
        self.even = False  # units are to come evenly: all workers share one, as far as it is enough for them
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
        # Two tasks a worker in every full window: then nobody waits for work while others have too much of it.
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
        """Units that are enough for the workers there are, while others may soon take over: what has begun is not moved."""
        return int(self.workers * self.MOVING_S / max(self._row_wall_s, 1e-9) / max(1, unit_rows))

    def burst(self, unit_rows: int, window: int) -> int:
        """Units worth handing out together because each alone would be too little."""
        if self._row_s is None:
            return 1
        units = int(self.GROUP_S / (self._row_s * max(1, unit_rows)))
        return max(1, min(units, window // (self.workers + 1), self.MOST_TASKS))


class Feed(Generic[U, C, R]):
    """Units from a supply, made by an executor, handed over in order."""

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
        self._describe = describe  # which samples a task's content is, whoever's task it is
        self._supply, self._channel, self._executor = supply, channel, executor
        self._schedule = Schedule(window, budget)
        self._pace = Pace(executor.workers, window.most)
        self._watchdog_s = watchdog_s
        self._resized = resized  # the window for another number of workers
        self._first = first  # its tasks go before those of other feeds, because it takes what these give
        self._early_tasks = early
        self._early: deque[Task[C]] = deque()  # that wait for their turn to be early
        self._waits = False  # the consumer did when it last asked
        self._lanes: set[tuple[int, int]] = set()  # groups of these that are under way: the last task of each
        self._resume_at: int | None = None  # no unit is begun until so few are ready; None: as there is room
        self._units: dict[int, U] = {}
        self._ready: list[int] = []  # emitted, not yet taken; oldest first
        self._contents: dict[int, list[C]] = {}
        self._offered = 0
        self._ended = self._closed = False
        self._awaits = False  # the program waits for a unit of this feed
        self._failure: Exception | None = None
        self._usual_bytes = self._usual_rows = 0

    def take(self, block: bool = True, timeout_s: float = math.inf) -> U | None:
        """The next unit; None when it is not complete, and `block` is False or the time is over. Raises Exhausted at the end."""
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
                quiet_since = time.monotonic()  # what the supply waits for is the supply's to watch
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
        """Units that are complete, all of them, their bytes, and how many bytes they may take."""
        schedule = self._schedule
        return len(self._ready), schedule.in_flight, schedule.nbytes, schedule.budget

    def pause(self) -> None:
        """Begin no further unit until most of those that are ready have been taken."""
        self._resume_at = max(1, len(self._ready) // 3)

    def close(self) -> None:
        """Drop everything in flight; a `take()` that waits in another thread ends."""
        self._closed = True
        self._channel.cancel()

    def _hand_over(self, number: int) -> U:
        if self._awaits:
            TURNS.awaited, self._awaits = 0, False
        self._run(self._schedule.handle(Taken(number)))
        self._contents.pop(number, None)
        return self._units.pop(number)

    def _fill(self, block: bool) -> None:
        """Offer units while there is room. Small ones are offered in bursts, so that a group of tasks is worth its hand-over."""
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
            except Exception as error:  # noqa: BLE001  raised in its place: when all units before it have been taken
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
        # Others ask for the same tasks, so nothing that was measured here counts. Two tasks a worker, as `Pace` has it.
        most = self._schedule.window.least * unit_rows // (2 * self._executor.workers)
        return 1 << (max(1, min(rows, most)).bit_length() - 1)

    def _collect(self, timeout_s: float) -> bool:
        """Take in outcomes; whether there were any."""
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
            self._run(again, first=True)  # somebody waits for what was lost
        self._run(commands)
        if self._early:
            self._begin_early()
        return True

    def _lose(self, outcome: Outcome[C, R]) -> list[Command]:
        """Have a lost task run again, in pieces where it may be what ended its worker; or have its unit do without."""
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
        # Enough rows to be worth a hand-over, but never so many that one worker gets what several could share.
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
                # Before all look-ahead work: this unit is the oldest that is not finished, or nearly so.
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
        """Begin tasks that take long: a few at a time, and all of those that are due."""
        assert self._early_tasks is not None  # who makes such tasks says how many may run
        early, workers = self._early, self._executor.workers
        lanes = self._early_tasks.lanes(workers)
        due = next(iter(self._units)) + max(1, self._early_tasks.due(self._usual_rows, workers))
        while early and (len(self._lanes) < lanes or early[0].unit <= due):
            # While the consumer is away nobody begins another, so each lane gets some. Where it waits they go one by one, because
            # outcomes of a group come together.
            free = lanes - len(self._lanes)
            count = min(_LANE_TASKS, -(-len(early) // free)) if free > 0 and not self._waits else 1
            group = [early.popleft() for _ in range(count)]
            self._lanes.add((group[-1].unit, group[-1].number))
            self._channel.submit(group, first=True)

    def _stalled(self) -> None:
        """Have workers replaced that are stuck, or raise where nobody can do that."""
        report = self._stall_report()
        if not self._executor.replace_stuck(_STUCK * self._watchdog_s):
            raise StallError(report)
        _log.warning("%s\nworkers that are stuck were ended, and what they were at runs again", report)

    def _stall_report(self) -> str:
        waiting = [number for number in self._units if number not in self._ready]
        oldest = self._units[waiting[0]] if waiting else None
        return (
            f"no task finished for {self._watchdog_s:g} s (watchdog_s) while waiting for {oldest or 'the source'}; "
            f"every worker's stack follows, the innermost call last\n\n{self._executor.stacks(self._describe)}"
        )
