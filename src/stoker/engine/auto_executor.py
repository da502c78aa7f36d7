"""The auto executor: threads, until measurements suggest that other workers would do more.

It is made of other executors, and each whole task goes to one of them. Its threads stay as they are, and more are added if tasks
wait. Processes start in the background and are used once they are ready: new units start there, and units that have started
finish where they are. When these are done, processes that are no longer used are closed.

Nothing is decided here: `AutoPolicy` decides, and the owner of both carries out its choices. All methods but `close` are called
by the consumer's thread.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ClosedError, WorkerError
from .auto_policy import Setting
from .background import Background
from .executor import CRASHED, Address, Channel, Executor, Outcome, Task, TaskWork
from .threads import ThreadExecutor

C = TypeVar("C")
R = TypeVar("R")
#: starts a number of processes with a number of threads
StartProcesses = Callable[[int, int], Executor]

#: how long to wait for one kind of workers before checking the other, while both work
_LOOK_S = 0.005


class AutoExecutor(Executor):
    """Threads and, temporarily or permanently, processes."""

    def __init__(
        self,
        workers: int,
        make_scratch: Callable[[], Any],
        processes: int = 1,
        start_processes: StartProcesses | None = None,
    ) -> None:
        self.workers = workers
        self._threads = ThreadExecutor(workers, make_scratch)
        self._start_processes = start_processes
        self._now: Executor = self._threads
        self._asked: Setting | None = None
        self._coming: _Start | None = None
        self._leaving: Executor | None = None
        self._crashes: list[str] = []  # how workers ended by themselves: what they were at is not to run in this process
        # Weakly: a line that its feed has dropped must not keep outcomes that will not be collected.
        self._channels: weakref.WeakSet[_AutoChannel[Any, Any]] = weakref.WeakSet()

    @property
    def shares_memory(self) -> bool:  # type: ignore[override]  # it depends on who is at work
        return self._now.shares_memory

    @property
    def stopped(self) -> bool:
        return self._threads.stopped

    @property
    def processes(self) -> list[int]:
        return self._now.processes

    def allocate(self, nbytes: int) -> tuple[NDArray[np.uint8], Address | None]:
        return self._now.allocate(nbytes)

    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        channel = _AutoChannel(work, self._threads.channel(work), self._crashes)
        if self._now is not self._threads:
            channel.move(self._now.channel(work))
        self._channels.add(channel)
        return channel

    def ask_for(self, setting: Setting) -> None:
        """Prepare to run tasks so; `arrived` says when it is done."""
        self._asked = setting
        if setting.processes:
            start = self._start_processes
            assert start is not None  # a caller that asks for processes has said how to start them
            self._coming = _Start(lambda: start(setting.processes, setting.threads), self._works())

    def arrived(self, before: Callable[[], None] = lambda: None) -> bool:
        """Whether tasks run as was asked for, from now on; raises what went wrong where they cannot.

        `before` is called right before memory comes from somebody else. An interrupt in the middle leaves a state in which all
        goes on, and the next call completes it.
        """
        asked, coming = self._asked, self._coming
        if asked is None:
            return True
        if not self.tidy():
            return False
        executor: Executor = self._threads
        if coming is None:
            if self._crashes:
                raise WorkerError(f"the process of a worker {self._crashes[0]}, and this process must not end that way")
            self._threads.resize(asked.threads)
            lines = [(channel, channel.home) for channel in self._live()]
        else:
            try:
                if not coming.ready(self._works()):
                    return False
                executor = coming.executor
                lines = [(channel, coming.line(channel.work)) for channel in self._live()]
            except Exception:
                self._coming = self._asked = None
                coming.close()
                raise
        was = self._now
        if coming is not None:
            before()
            self._now = executor  # first: memory of processes is good for threads, but not the other way round
        for channel, line in lines:
            channel.move(line)
        self._now, self.workers = executor, asked.workers
        if was not in (executor, self._threads):
            self._leaving = was
        self._coming = self._asked = None
        return True

    @property
    def alone(self) -> bool:
        """Whether those who are at work have done something, and nobody of before has tasks left."""
        live = self._live()
        return any(channel.answered for channel in live) and not any(channel.rests for channel in live)

    def _live(self) -> list[_AutoChannel[Any, Any]]:
        return [channel for channel in self._channels if not channel.cancelled]

    def _works(self) -> list[TaskWork[Any, Any]]:
        return [channel.work for channel in self._live()]

    def tidy(self) -> bool:
        """Close processes that were told to stop and have done their last task; whether there are none of these any more."""
        if self._leaving is not None and not any(channel.elsewhere for channel in self._channels):
            self._leaving.close()
            self._leaving = None
        return self._leaving is None

    def stacks(self, describe: Callable[[Any], str]) -> str:
        return "\n".join(executor.stacks(describe) for executor in self._at_work())

    @property
    def starting(self) -> bool:
        return any(executor.starting for executor in self._at_work())

    def replace_stuck(self, quiet_s: float) -> bool:
        replaced = [executor.replace_stuck(quiet_s) for executor in self._at_work()]
        return any(replaced)

    def _at_work(self) -> list[Executor]:
        others = [executor for executor in (self._leaving, self._now) if executor not in (None, self._threads)]
        return [self._threads, *(executor for executor in others if executor is not None)]

    def close(self) -> None:
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.close()
        for executor in self._at_work():
            executor.close()


class _Start:
    """Processes on their way. A thread starts them and packs what they need, because the consumer has better things to do."""

    def __init__(self, start: Callable[[], Executor], works: list[TaskWork[Any, Any]]) -> None:
        self._start, self._works = start, works
        self._lines: dict[int, Channel[Any, Any]] = {}  # by the identity of their work, which `_works` keeps
        self._executor: Executor | None = None
        self._error: Exception | None = None
        self._done = False
        self._background = Background(self._run, 1, "stoker-start")

    def _run(self, stop: threading.Event) -> None:
        try:
            self._executor = self._start()
            for work in self._works:
                self.line(work)
        except Exception as error:  # noqa: BLE001  raised where it is asked for
            self._error = error
        self._done = True
        if stop.is_set() and self._executor is not None:
            self._executor.close()

    def ready(self, works: list[TaskWork[Any, Any]]) -> bool:
        """Whether a worker has begun; raises what went wrong. Lines to all of these works are made then."""
        if not self._done:
            return False
        if self._error is not None:
            raise self._error
        self._works += works  # of feeds that were started in the meantime
        for work in works:
            self.line(work).collect(0.0)  # which is when an executor looks after its workers
        return bool(works) and self.executor.ready

    @property
    def executor(self) -> Executor:
        if self._executor is None:
            raise ClosedError("the loader was closed")
        return self._executor

    def line(self, work: TaskWork[Any, Any]) -> Channel[Any, Any]:
        if id(work) not in self._lines:
            self._lines[id(work)] = self.executor.channel(work)
        return self._lines[id(work)]

    def close(self) -> None:
        self._background.close()
        if self._executor is not None:
            self._executor.close()


class _Rest(Generic[C, R]):
    """Tasks that are under way on a line that gets no more of them, and how many."""

    __slots__ = ("channel", "tasks")

    def __init__(self, channel: Channel[C, R], tasks: int) -> None:
        self.channel, self.tasks = channel, tasks


class _AutoChannel(Channel[C, R]):
    """A line to whoever is at work, and to those who still have tasks of before.

    A unit ends where it began. It may lie in memory that others do not see; and what has ended a worker process must never run
    in a thread of this one.
    """

    def __init__(self, work: TaskWork[C, R], home: Channel[C, R], crashes: list[str]) -> None:
        self.work, self.home, self.cancelled = work, home, False
        self._crashes = crashes
        self._now, self._under_way = home, 0
        self.answered = True  # whether an outcome has come from where tasks go now
        self.rests: list[_Rest[C, R]] = []
        self._last = -1  # the last unit that was begun
        self._begun: list[tuple[int, Channel[C, R]]] = []  # units up to that one, and after those before it, began there

    @property
    def elsewhere(self) -> bool:
        """Whether tasks are under way at a place that is to be left."""
        return any(rest.channel is not self.home for rest in self.rests)

    def move(self, to: Channel[C, R]) -> None:
        """Send new units there from now on."""
        if to is self._now:
            return
        if self._under_way:
            self.rests.append(_Rest(self._now, self._under_way))
            self._begun.append((self._last, self._now))
        here = [rest for rest in self.rests if rest.channel is to]
        self.rests = [rest for rest in self.rests if rest.channel is not to]
        self._now, self._under_way = to, sum(rest.tasks for rest in here)
        self.answered = False

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        if self._begun:
            self._submit_by_unit(tasks, first)
            return
        self._under_way += len(tasks)
        self._last = max(self._last, tasks[-1].unit)
        self._now.submit(tasks, first=first)

    def _submit_by_unit(self, tasks: list[Task[C]], first: bool) -> None:
        for line in {id(line): line for line in map(self._line, tasks)}.values():
            group = [task for task in tasks if self._line(task) is line]
            if line is self._now:
                self._under_way += len(group)
            else:
                rest = next((rest for rest in self.rests if rest.channel is line), None)
                if rest is None:
                    self.rests.append(rest := _Rest(line, 0))
                rest.tasks += len(group)
            line.submit(group, first=first)
        self._last = max(self._last, tasks[-1].unit)

    def _line(self, task: Task[C]) -> Channel[C, R]:
        return next((line for last, line in self._begun if task.unit <= last), self._now)

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        if self.rests:
            return self._collect_all(timeout_s)
        if self._begun:
            self._begun = []  # and ended: what was lost is submitted again before the next look
        outcomes = self._now.collect(timeout_s)
        if outcomes:
            self._under_way -= len(outcomes)
            self.answered = True
            if self._now is not self.home:
                self._note_crashes(outcomes)
        return outcomes

    def _note_crashes(self, outcomes: list[Outcome[C, R]]) -> None:
        self._crashes += [outcome.cause for outcome in outcomes if outcome.lost and outcome.blame == CRASHED]

    def _collect_all(self, timeout_s: float) -> list[Outcome[C, R]]:
        """From all places; those of before first, because their units are due first."""
        deadline, wait_s = time.monotonic() + timeout_s, 0.0
        while True:
            outcomes: list[Outcome[C, R]] = []
            for rest in self.rests:
                came = rest.channel.collect(0.0 if outcomes else wait_s)
                rest.tasks -= len(came)
                outcomes += came
            came = self._now.collect(0.0)
            self._under_way -= len(came)
            self.answered = self.answered or bool(came)
            outcomes += came
            self._note_crashes(outcomes)
            self.rests = [rest for rest in self.rests if rest.tasks > 0]
            wait_s = min(_LOOK_S, deadline - time.monotonic())
            if outcomes or wait_s <= 0:
                return outcomes
            if not self.rests:
                return self.collect(wait_s)

    def cancel(self) -> None:
        self.cancelled = True
        for rest in self.rests:
            rest.channel.cancel()
        self.rests = []
        self.home.cancel()
        self._now.cancel()
