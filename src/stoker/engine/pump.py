"""A pump: one thread that pulls an iterator ahead of its consumer, for sources that can only be read in order."""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import StallError
from .run import presentable

_POLL_S = 0.2


class Pump:
    """Lists of up to `size` values from ``open_()``, at most `depth` of them waiting, of about `nbytes` bytes together.

    A list is handed over early when nobody has one to work on, so that a slow iterator's values do not wait for each other, and
    when `weigh` says that its values are large. `get` gives a list, [] at the end, or raises what the iterator raised. With
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
        self._lists: queue.Queue[Any] = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        # Beside the lists that wait there is one in the making and one in the consumer's hands.
        early = self._lists.empty if threaded else lambda: False
        self._pull = _chunks(open_, size, nbytes // (depth + 2), weigh, early)
        if threaded:
            self._thread = threading.Thread(
                target=_pump, args=(self._pull, self._lists, self._stop), name="stoker-pump", daemon=True
            )
            self._thread.start()
            weakref.finalize(self, self._stop.set)  # a pump nobody holds any more stops by itself

    def get(self, block: bool) -> list[Any] | None:
        """The next list; None when there is none yet and `block` is False."""
        if self._thread is None:
            return next(self._pull, [])
        try:
            wait_s = min(self._watchdog_s, threading.TIMEOUT_MAX)
            found = self._lists.get(timeout=wait_s) if block else self._lists.get_nowait()
        except queue.Empty:
            if not block:
                return None
            frame = sys._current_frames().get(self._thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame else "(ended)"
            raise StallError(f"the stream gave no sample for {self._watchdog_s:g} s (watchdog_s); it is here:\n{stack}") from None
        if isinstance(found, BaseException):
            raise presentable(found)
        return list(found)

    def close(self) -> None:
        """Stop pulling; a stream that never gives its next value is left to its daemon thread."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)


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
        except Exception as error:  # noqa: BLE001  raised behind the values that came before it
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


def _pump(pull: Iterator[list[Any]], lists: queue.Queue[Any], stop: threading.Event) -> None:
    try:
        for values in pull:
            if not _put(lists, values, stop):
                return
        _put(lists, [], stop)
    except BaseException as error:  # noqa: BLE001  whatever ended the stream is the consumer's to hear
        _put(lists, error, stop)


def _put(lists: queue.Queue[Any], value: Any, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            lists.put(value, timeout=_POLL_S)
            return True
        except queue.Full:
            time.sleep(0)
    return False
