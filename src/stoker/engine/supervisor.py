"""A process that works for a long time, and that another takes the place of when it crashes, is killed or gets stuck."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from .fresh_interpreter import command_line, ended_in_words
from .janitor import kill_group
from .wake_pipe import WakePipe

#: what a process reports: that it has done some work, and that it ends because it wants to
WORKED, ENDED = b"w", b"e"
#: processes that end one after another before they have done any work, until nobody believes in the next
_MOST_IDLE = 10
#: seconds until the next one starts, where the last has done no work, and at most
_PAUSE_S, _LONGEST_S = 1.0, 60.0


class Supervisor:
    """Runs ``main(lifeline, report, successor, *words)`` of a module in a process, again and again, until it ends by itself.

    The process is killed when this one ends, however it does. What it has started ends with it. It writes to `report`: `WORKED`
    once, and `ENDED` last. `successor`: there was one before it. `say` takes a line for whoever watches.
    """

    def __init__(self, module: str, words: list[Any], say: Callable[[str], None]) -> None:
        self._module, self._words, self._say = module, words, say
        self._child = 0  # its number, while it can mean no other
        self._leaving = False
        self._wake = WakePipe()

    def leave(self) -> None:
        """Ask the process to finish what it has begun. For handlers of signals."""
        self._leaving = True
        self._wake.ring()
        self._ask()

    def run(self) -> int:
        """The exit status of the process that ended by itself, or 1 where none lasts."""
        idle, successor = 0, False
        try:
            while True:
                number, status, report = self._run_one(successor)
                leaving = self._leaving  # a handler sets it, at any time
                if leaving or ENDED in report:
                    return status if status >= 0 else 128 - status
                idle, successor = 0 if WORKED in report else idle + 1, True
                how = f"the worker process (pid {number}) {ended_in_words(status)}"
                if idle == _MOST_IDLE:
                    self._say(f"{how}, as {idle - 1} did before it, and none of them had made rows; no other is started")
                    return 1
                pause_s = min(_PAUSE_S * 2 ** (idle - 2), _LONGEST_S) if idle > 1 else 0.0
                self._say(f"{how}; another takes its place" + (f" in {pause_s:g} s" if pause_s else ""))
                if select.select([self._wake.end], [], [], pause_s)[0]:
                    return 0
        finally:
            self._wake.close()

    def _run_one(self, successor: bool) -> tuple[int, int, bytes]:
        """Start a process and wait for its end: its number, its exit status, and what it reported."""
        with ExitStack() as opened:
            lifeline, ours = os.pipe()
            opened.callback(os.close, ours)
            with ExitStack() as theirs:
                theirs.callback(os.close, lifeline)
                reported, report = os.pipe()
                opened.callback(os.close, reported)
                theirs.callback(os.close, report)
                process = subprocess.Popen(
                    command_line(self._module, lifeline, report, successor, *self._words),
                    pass_fds=(lifeline, report),
                    start_new_session=True,  # Ctrl-C is for this process to decide on
                )
            try:
                self._child = process.pid
                if self._leaving:
                    self._ask()
                if hasattr(os, "waitid"):  # macOS has it from Python 3.13
                    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its number stays its own
                else:
                    process.wait()
            finally:
                self._child = 0
                kill_group(process.pid)  # what functions started in it
                process.wait()
            os.set_blocking(reported, False)
            with suppress(BlockingIOError):  # a process that it has forked may still have the other end
                return process.pid, process.returncode, os.read(reported, 16)
            return process.pid, process.returncode, b""

    def _ask(self) -> None:
        if self._child:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGTERM)
