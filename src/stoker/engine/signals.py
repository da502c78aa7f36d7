"""Turns Ctrl-C and similar signals into exceptions in the main thread, so that a command ends without leaving anything.

Python runs a signal's handler between two steps of the main thread's code, and relies on the signal to interrupt that thread's
system call. That fails if the signal came just before the call began, or if the kernel gave it to another thread; a command that
waits for input would then keep waiting. So a thread watches for signals here, and wakes the main thread when one has come.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

from ..errors import ConfigError
from .daemons import Daemons

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: means nothing to anybody, and wakes a thread that has a handler for it
_WAKE = signal.SIGURG
#: seconds between the times that the main thread is woken: it may be about to sleep again
_PAUSES_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: seconds until what a signal raised is raised again: the finalizer that it met is over by then
_AGAIN_S = 0.01


class SignalExit(SystemExit):
    """The end that a signal asks for."""


def install() -> None:
    """Let signals end this program by an exception. `nohup` keeps SIGHUP away as ever."""
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _stop)
    sys.unraisablehook = _raise_again
    watch()


def watch() -> None:
    """From now on no signal is overslept by the main thread, from which this is called."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(_WAKE, lambda *_: None)
    # Without the thread a signal is noticed all the same, only later, when the main thread does something.
    with suppress(ConfigError):
        stop = threading.Event()
        daemons = Daemons(partial(_end_watch, stop, write_end))
        daemons.start("the thread that watches for signals", "stoker-signals", _wake, read_end, threading.get_ident(), stop)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and similar while something is made that must be removed again, until its owner exists.

    In the main thread. Blocking the signals would not work: the kernel gives them to another thread, and this one handles them.
    """
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in _ENDING}
    held = [number for number in _ENDING if before[number] not in (signal.SIG_IGN, None)]  # None: it is not Python's
    try:
        for number in held:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number in held:
            signal.signal(number, before[number])
        if came:
            signal.raise_signal(came[0])


def _stop(number: int, _: Any) -> NoReturn:
    raise SignalExit(128 + number)


def _raise_again(dropped: Any) -> None:
    """What a signal raises is dropped by Python when it meets a finalizer; so it is raised again, when that is over."""
    error = dropped.exc_value
    by_signal = isinstance(error, (KeyboardInterrupt, SignalExit)) and threading.current_thread() is threading.main_thread()
    if not by_signal:
        sys.__unraisablehook__(dropped)
        return

    def again(*_: Any) -> NoReturn:
        raise type(error)(*error.args)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _end_watch(stop: threading.Event, write_end: int) -> None:
    stop.set()
    with suppress(BlockingIOError):  # it has much to read, and looks then
        os.write(write_end, bytes(1))  # the number of no signal


def _wake(came: int, sleeper: int, stop: threading.Event) -> None:
    """Wake a thread whenever a number of a signal comes down the pipe, other than that of the waking itself."""
    while (numbers := os.read(came, 64)) and not stop.is_set():
        if set(numbers) <= {_WAKE}:
            continue
        for pause in _PAUSES_S:
            if stop.wait(pause):
                return
            signal.pthread_kill(sleeper, _WAKE)
