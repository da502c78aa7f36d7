"""One function over many things at once, where doing it is mostly waiting: for disks, and for networks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from ..errors import ConfigError
from .daemons import Daemons

#: threads a crew may have: so many requests are under way at once
_THREADS = 64


class Crew:
    """Threads that do one thing each, started when they are first needed, gone when this is dropped.

    ``crew(work, things)`` gives ``work(thing)`` for each, in their order. Of several exceptions the first thing's is raised, and
    no new work begins. The caller works too, and waits for those still at it: `work` must have deadlines of its own. Any
    number of threads may call at once; `work` must not call the same crew.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        self._most = threads
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Round | None] = SimpleQueue()
        self._daemons = Daemons(partial(self._queue.put, None))
        weakref.finalize(self, self._daemons.stop).atexit = False

    def __call__(self, work: Callable[[Any], Any], things: Iterable[Any]) -> list[Any]:
        todo = list(things)
        if len(todo) < 2:
            return [work(thing) for thing in todo]
        if self._process != os.getpid():
            self._begin()  # a forked child has none of its parent's threads
        turn = _Round(work, todo)
        for _ in range(self._start(min(self._most, len(todo) - 1))):
            self._queue.put(turn)
        try:
            turn.help()
            return turn.results()
        finally:
            turn.stop()  # Ctrl-C, perhaps: the threads finish what they are at, and begin nothing more

    def __reduce__(self) -> tuple[type[Crew], tuple[int]]:
        return Crew, (self._most,)

    def _start(self, count: int) -> int:
        """Have up to `count` threads; how many of them there are. The caller works too, so none at all will do."""
        with self._lock, suppress(ConfigError):
            while len(self._daemons) < count:
                self._daemons.start("a thread of a crew", "stoker-crew", _help, self._queue)
        return min(count, len(self._daemons))


class _Round:
    """One call: things to be done, and what came of them."""

    def __init__(self, work: Callable[[Any], Any], things: list[Any]) -> None:
        self._work, self._things = work, things
        self._results: list[Any] = [None] * len(things)
        self._errors: dict[int, BaseException] = {}
        self._next = self._running = 0
        self._changed = threading.Condition()

    def help(self) -> None:
        """Do things until none is left to begin."""
        while True:
            with self._changed:
                if self._next == len(self._things):
                    return
                at = self._next
                self._next, self._running = at + 1, self._running + 1
            error: BaseException | None = None
            try:
                self._results[at] = self._work(self._things[at])
            except BaseException as raised:  # noqa: BLE001  told to the caller
                error = raised
            with self._changed:
                self._running -= 1
                if error is not None:
                    self._errors[at], error = error, None  # kept once: it knows this frame
                    self.stop()  # for good: a thread may come when the errors are taken out again
                if not self._running:
                    self._changed.notify_all()

    def stop(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._next = len(self._things)

    def results(self) -> list[Any]:
        with self._changed:
            while self._running:
                self._changed.wait(1.0)  # wakes now and then, so that a signal is noticed
        if self._errors:
            # Taken out, because they know these very frames: a circle would keep the crew until the collector comes.
            errors, self._errors = self._errors, {}
            raise errors.pop(min(errors))
        return self._results


def _help(queue: SimpleQueue[_Round | None]) -> None:
    while (turn := queue.get()) is not None:
        turn.help()
        del turn  # hold nothing while waiting
    queue.put(None)  # for the next one
