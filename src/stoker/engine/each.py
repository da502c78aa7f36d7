"""Applies one function to many things, several at a time. All callers that need this use it.

A crew is called like the built-in `map`, and returns results in the order of its arguments. So code that takes a crew also takes
`map`, and then works without threads.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from ..errors import ConfigError
from .daemons import Daemons

T = TypeVar("T")
R = TypeVar("R")

#: threads a crew may have: the number of simultaneous requests
_THREADS = 64
#: large things at once: more would only hold more in memory, and lose more when the program is killed
_AT_ONCE = 4
#: seconds between two looks at signals, and at whether all is to stop
_POLL_S, _TICK_S = 1.0, 0.1


class Stopped(Exception):
    """Raised in work that is given up because its caller is gone."""


class Crew:
    """Threads that do one thing each, started when they are first needed, gone when this is dropped or left.

    ``crew(work, things)`` gives ``work(thing)`` for each, in their order; things are taken, and worked on, up to `ahead` of the
    result that is asked for. Of several exceptions the first thing's is raised, no new work begins, and those still at it are
    waited for: `work` must have deadlines of its own. The caller works too; but with a `tick`, it only waits, and calls that ten
    times per second. Any number of threads may call at once; `work` must not call the same crew.

    >>> list(Crew(4)(abs, [-1, -2, -3]))
    [1, 2, 3]
    """

    def __init__(self, threads: int = _THREADS, ahead: int = sys.maxsize, tick: Callable[[], None] | None = None) -> None:
        self._most, self._ahead, self._tick = threads, ahead, tick
        self._look_s = _POLL_S if tick is None else _TICK_S
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[tuple[_Turn[Any, Any], _Job] | None] = SimpleQueue()
        self._jobs = _Jobs()
        self._daemons = Daemons(partial(self._queue.put, None))
        weakref.finalize(self, self._daemons.stop).atexit = False

    def __call__(self, work: Callable[[T], R], things: Iterable[T]) -> Iterator[R]:
        if self._process != os.getpid():
            self._begin()  # a forked child has none of its parent's threads
        turn, waiting = _Turn(work, self._stopping), deque[_Job]()
        try:
            for number, thing in enumerate(things):
                job = _Job(number, thing)
                if waiting or self._tick is not None:  # the caller begins with the first
                    self._hand_out(turn, job)
                waiting.append(job)
                if len(waiting) > self._ahead:
                    yield self._result(turn, waiting.popleft())
            while waiting:
                yield self._result(turn, waiting.popleft())
        finally:
            turn.stop()  # Ctrl-C, perhaps: the threads finish what they are at, and begin nothing more
            for job in waiting:
                job.error = None  # it knows the frame that knows the job: a circle would keep the crew until the collector comes

    def __reduce__(self) -> tuple[type[Crew], tuple[int, int]]:
        return Crew, (self._most, self._ahead)

    def __enter__(self) -> Crew:
        self._look_s = _TICK_S
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.stop()
        self._daemons.close(threading.TIMEOUT_MAX)

    def stop(self) -> None:
        """Begin nothing more, and have what runs come to its next `check`."""
        self._stopping.set()

    def check(self) -> None:
        """For work that takes long: raises Stopped when it is to be given up."""
        if self._stopping.is_set():
            raise Stopped

    def _hand_out(self, turn: _Turn[Any, Any], job: _Job) -> None:
        """Have threads do it, one for each job as long as there may be more. The caller works too, so none at all will do."""
        # As many as there are jobs, of all callers: with as many as one caller has, several callers would wait for each other.
        if len(self._daemons) < min(self._most, self._jobs.count + 1):
            with self._lock:
                try:
                    self._daemons.start("a thread of a crew", "stoker-crew", _help, self._queue, self._jobs)
                except ConfigError:
                    if self._tick is not None and not len(self._daemons):
                        raise
        if len(self._daemons):
            self._jobs.add(1)
            self._queue.put((turn, job))

    def _result(self, turn: _Turn[Any, R], job: _Job) -> R:
        if self._tick is None:
            turn.run(job)
        while not turn.has_done(job, self._look_s):
            self.check()
            if self._tick is not None:
                self._tick()
        return turn.result(job)


class Crews:
    """Two crews for work within work: `over` takes large things, a few at once, and within that `each` shares out smaller work.

    Leaving the ``with`` block by an exception, Ctrl-C among them, lets what runs come to its next `check`, and waits for it.
    """

    def __init__(self, threads: int, things: int, tick: Callable[[], None]) -> None:
        at_once = max(1, min(threads, things, _AT_ONCE))
        self.over = Crew(at_once, tick=tick)
        self.each = Crew(threads, math.ceil(2 * threads / at_once))

    def check(self) -> None:
        """For work that takes long: raises Stopped when it is to be given up."""
        self.over.check()

    def __enter__(self) -> Crews:
        self.each.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.over.stop()
            self.each.stop()
        self.over.__exit__(kind)
        self.each.__exit__(kind)


class _Job:
    """One thing, and what came of it."""

    __slots__ = ("begun", "done", "error", "number", "thing", "value")

    def __init__(self, number: int, thing: Any) -> None:
        self.number, self.thing = number, thing
        self.begun = self.done = False
        self.value: Any = None
        self.error: BaseException | None = None


class _Turn(Generic[T, R]):
    """One call of a crew. Jobs from `_limit` on are not begun: one before them failed, or nobody asks for them any more."""

    def __init__(self, work: Callable[[T], R], stopping: threading.Event) -> None:
        self._work, self._stopping = work, stopping
        self._limit, self._running = sys.maxsize, 0
        self._changed = threading.Condition()

    def run(self, job: _Job) -> None:
        """Do a job, unless it has been started already, or must not start."""
        with self._changed:
            if job.begun or job.number >= self._limit or self._stopping.is_set():
                return
            job.begun = True
            self._running += 1
        error: BaseException | None = None
        try:
            job.value = self._work(job.thing)
        except BaseException as raised:  # noqa: BLE001  raised again in the caller
            error = raised
        with self._changed:
            self._running -= 1
            job.done = True
            if error is not None:
                job.error, error = error, None
                self._limit = min(self._limit, job.number)
            self._changed.notify()

    def has_done(self, job: _Job, wait_s: float) -> bool:
        """Whether a job is done, by then at the latest; of one that failed, whether all others have ended too."""
        with self._changed:
            if not job.done or (job.error is not None and self._running):
                self._changed.wait(wait_s)
            return job.done and not (job.error is not None and self._running)

    def result(self, job: _Job) -> R:
        if job.error is not None:
            error, job.error = job.error, None
            try:
                raise error
            finally:
                del error  # it knows this frame
        value: R = job.value
        return value

    def stop(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._limit = -1


class _Jobs:
    """How many jobs were handed to threads, and are not done yet."""

    def __init__(self) -> None:
        self.count, self._lock = 0, threading.Lock()

    def add(self, jobs: int) -> None:
        with self._lock:
            self.count += jobs


def _help(queue: SimpleQueue[tuple[_Turn[Any, Any], _Job] | None], jobs: _Jobs) -> None:
    while (found := queue.get()) is not None:
        turn, job = found
        turn.run(job)
        jobs.add(-1)
        del found, turn, job  # hold nothing while waiting
    queue.put(None)  # for the next one
