"""A pump: one thread that pulls an iterator ahead of its consumer, for sources that can only be read in order."""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..errors import StallError
from .daemons import Daemons, ended
from .run_task import presentable

_CLOSE_S = 1.0
_POLL_S = 1.0


class Pump:
    """Lists of up to `size` values from ``open_()``, at most `depth` of them waiting, of about `nbytes` bytes together.

    A list is handed over early if no worker has one, so that a slow iterator's values do not wait for each other, and if `weigh`
    says that its values are large. `get` returns a list, [] at the end, or raises what the iterator raised. With
    ``threaded=False`` it pulls when asked.
    """

    def __init__(
        self,
        open_: Callable[[], Iterator[Any]],
        size: int,
        depth: int,
        watchdog_s: float,
        threaded: bool,
        nbytes: int = 1 << 62,
        weigh: Callable[[Any], int] = lambda value: 0,
    ) -> None:
        self._watchdog_s = watchdog_s
        # Simple queues, because a finalizer may put into them whatever the thread it meets is doing.
        self._lists: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # as many as there may be more lists
        for _ in range(depth):
            self._room.put(None)
        stop = threading.Event()
        self._daemons = Daemons(partial(_stop, stop, self._room))
        self._thread: threading.Thread | None = None
        # Beside the lists that wait there is one in the making and one in the consumer's hands.
        early = self._lists.empty if threaded else lambda: False
        self._pull = _chunks(open_, size, nbytes // (depth + 2), weigh, early)
        if threaded:
            what = "the thread that reads a stream"
            self._thread = self._daemons.start(what, "stoker-pump", _pump, self._pull, self._lists, self._room, stop)
            weakref.finalize(self, self._daemons.stop).atexit = False  # a pump without references stops

    def get(self, block: bool) -> list[Any] | None:
        """The next list; None when there is none yet and `block` is False."""
        if self._thread is None:
            return next(self._pull, [])
        found = self._wait(self._watchdog_s if block else 0.0)
        if found is None and block:
            frame = sys._current_frames().get(self._thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame else "(ended)"
            raise StallError(f"the stream yielded no sample for {self._watchdog_s:g} s (watchdog_s); it is here:\n{stack}")
        if found is None:
            return None
        self._room.put(None)
        if isinstance(found, BaseException):
            raise presentable(found)
        return list(found)

    def close(self) -> None:
        """Stop pulling; a stream that never gives its next value is left to its daemon thread."""
        self._daemons.close(_CLOSE_S)

    def _wait(self, wait_s: float) -> Any:
        """What the thread has put there, within `wait_s`; or None."""
        deadline = time.monotonic() + wait_s
        while True:
            left = deadline - time.monotonic()
            try:
                return self._lists.get(timeout=min(max(left, 0.0), _POLL_S))
            except queue.Empty:
                if self._daemons.stopped:
                    raise ended() from None
                if left <= 0:
                    return None


def _chunks(
    open_: Callable[[], Iterator[Any]], size: int, most: int, weigh: Callable[[Any], int], early: Callable[[], bool]
) -> Iterator[list[Any]]:
    values: list[Any] = []
    weight = 0
    failure: Exception | None = None
    source: Iterator[Any] | None = None
    while True:
        try:
            source = open_() if source is None else source
            values.append(next(source))
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001  raised after the values that came before it
            failure = error
            break
        weight += weigh(values[-1])
        if len(values) == size or weight >= most or early():
            yield values
            values, weight = [], 0
    if values:
        yield values
    if failure is not None:
        raise failure


def _pump(pull: Iterator[list[Any]], lists: queue.SimpleQueue[Any], room: queue.SimpleQueue[None], stop: threading.Event) -> None:
    def put(value: Any) -> bool:
        room.get()
        if stop.is_set():
            return False
        lists.put(value)
        return True

    try:
        for values in pull:
            if not put(values):
                return
        put([])
    except BaseException as error:  # noqa: BLE001  whatever ended the stream is raised at the consumer
        put(error)


def _stop(stop: threading.Event, room: queue.SimpleQueue[None]) -> None:
    stop.set()
    room.put(None)
