"""The thread executor: the default. Kernels release the GIL for a whole chunk, so plain threads scale.

How shutdown must behave (anything else is a bug): `close()` marks every channel cancelled and wakes every worker; a worker
checks the mark before each task, so it ends after its current task. A worker inside a user's function that never returns cannot
be ended; it is a daemon thread, `close()` stops waiting for it after a second, and the process can still exit (see
`daemons.py`). Workers know the queue and their channel, never the loader, so a loader that is no longer referenced is collected
and closed.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar

from ..errors import ConfigError
from .daemons import Daemons
from .executor import Channel, Executor, Outcome, Task, TaskWork
from .run_task import LONG_S, run_task

_CLOSE_S = 1.0
C = TypeVar("C")
R = TypeVar("R")
_Group = tuple["_ThreadChannel[Any, Any]", list[Task[Any]]]


class Outlet(Protocol):
    """Takes outcomes as they come, in the thread that has them."""

    def put(self, outcomes: list[Outcome[Any, Any]], /) -> None: ...


class _TaskQueue:
    """Groups of tasks for whoever comes next; those put with `first` go before all others.

    For each group there is a ticket, put after it: who has a ticket finds a group. A priority queue would need a lock.
    """

    def __init__(self) -> None:
        self._tickets: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._urgent: deque[_Group] = deque()
        self._usual: deque[_Group] = deque()

    def put(self, group: _Group, first: bool) -> None:
        (self._urgent if first else self._usual).append(group)
        self._tickets.put(True)

    def end(self) -> None:
        """One worker is to stop, when it has done what was put before."""
        self._tickets.put(False)

    def take_back(self) -> list[Task[Any]] | None:
        """A group of the usual ones that nobody has begun, the last of them; None: there is none."""
        try:
            ticket = self._tickets.get_nowait()
        except queue.Empty:
            return None
        if ticket and self._usual:
            with suppress(IndexError):  # somebody took it, who leaves an urgent one
                return self._usual.pop()[1]
        self._tickets.put(ticket)
        return None

    def get(self) -> _Group | None:
        """The next group; waits for one. None: stop."""
        if not self._tickets.get():
            return None
        while True:
            try:
                return (self._urgent or self._usual).popleft()
            except IndexError:
                continue  # another took the urgent one: the ticket is for one of the others


class _ThreadChannel(Channel[C, R]):
    """Outcomes travel through a SimpleQueue of their own, which has no lock that another loader could hold, or to an outlet."""

    def __init__(self, work: TaskWork[C, R], tasks: _TaskQueue, outlet: Outlet | None) -> None:
        self.work = work
        self.cancelled = False
        self.done: Any = outlet or queue.SimpleQueue()
        self._tasks = tasks

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        self._tasks.put((self, tasks), first)

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        outcomes: list[Outcome[C, R]] = []
        try:
            outcomes += self.done.get(timeout=timeout_s) if timeout_s > 0 else self.done.get_nowait()
            while True:
                outcomes += self.done.get_nowait()
        except queue.Empty:
            return outcomes

    def cancel(self) -> None:
        self.cancelled = True
        self.done.put([])  # wakes threads that wait for an outcome that will not come


class _Seat:
    """What is known from outside about one worker: its thread and the task in its hands."""

    __slots__ = ("number", "task", "thread")

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: Task[Any] | None = None
        self.thread: threading.Thread | None = None


class ThreadExecutor(Executor):
    """Worker threads that share one queue of task groups."""

    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1) -> None:
        self.workers = 0
        self._make_scratch = make_scratch
        self._tasks = _TaskQueue()
        # Weakly: a line that its feed has dropped must not keep outcomes that will not be collected.
        self._channels: weakref.WeakSet[_ThreadChannel[Any, Any]] = weakref.WeakSet()
        self._seats: list[_Seat] = []
        self._daemons = Daemons(partial(_dismiss, self._channels, self._tasks, self._seats))
        try:
            self.resize(workers)
        except ConfigError:
            self.close()
            raise

    @property
    def stopped(self) -> bool:
        return self._daemons.stopped

    def resize(self, workers: int) -> None:
        """Have so many workers. Those that are too many end when they have done what is queued."""
        self._seats[:] = [seat for seat in self._seats if seat.thread is None or seat.thread.is_alive()]
        free = (number for number in count() if number not in {seat.number for seat in self._seats})
        while self.workers < workers:
            seat = _Seat(next(free))
            what, name = f"worker thread {self.workers + 1} of {workers}", f"stoker-{seat.number}"
            seat.thread = self._daemons.start(what, name, _work, seat, self._tasks, self._make_scratch)
            self._seats.append(seat)
            self.workers += 1
        while self.workers > workers:
            self._tasks.end()
            self.workers -= 1

    def channel(self, work: TaskWork[C, R], outlet: Outlet | None = None) -> Channel[C, R]:
        """A new line; with an outlet, lists of outcomes are put there by the threads and are not to be collected."""
        channel = _ThreadChannel(work, self._tasks, outlet)
        self._channels.add(channel)
        return channel

    def take_back(self, groups: int) -> list[list[Task[Any]]]:
        """Up to so many groups that nobody has begun; they will not be."""
        taken: list[list[Task[Any]]] = []
        while len(taken) < groups and (group := self._tasks.take_back()) is not None:
            taken.append(group)
        return taken

    def stacks(self, describe: Callable[[Any], str]) -> str:
        frames = sys._current_frames()
        told = []
        for seat in self._seats:
            thread, task = seat.thread, seat.task
            frame = frames.get(thread.ident or 0) if thread else None
            doing = "waiting for work" if task is None else f"at {describe(task.content)}"
            stack = "".join(traceback.format_stack(frame)) if frame else "  (ended)\n"
            told.append(f"worker {seat.number}, {doing}:\n{stack}")
        return "\n".join(told)

    def close(self) -> None:
        self._daemons.close(_CLOSE_S)


def _dismiss(channels: Iterable[_ThreadChannel[Any, Any]], tasks: _TaskQueue, seats: Iterable[_Seat]) -> None:
    for channel in list(channels):
        channel.cancel()
    for _ in seats:
        tasks.end()


def _work(seat: _Seat, tasks: _TaskQueue, make_scratch: Callable[[], Any]) -> None:
    scratch = make_scratch()
    while (item := tasks.get()) is not None:
        channel, group = item
        done, group, item = channel.done, [*reversed(group)], None
        outcomes: list[Outcome[Any, Any]] = []
        while group and not channel.cancelled:
            seat.task = group.pop()
            outcome = run_task(channel.work, seat.task, scratch, seat.number)
            outcomes.append(outcome)
            took_s, outcome = outcome.stop_s - outcome.start_s, None  # type: ignore[assignment]
            if group and took_s > LONG_S:
                # The next may take as long, as where a server is silent: what is done does not wait for that.
                handed, outcomes, seat.task = [outcomes], [], None
                done.put(handed.pop())
        # Nothing may linger in this frame: a batch held here could not be recycled. It is let go before the hand-over, because
        # this thread may stand still right after it for as long as the machine likes.
        handed = [outcomes]
        seat.task = channel = group = outcomes = None  # type: ignore[assignment]
        done.put(handed.pop())
        done = None
    scratch.close()
