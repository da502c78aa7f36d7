"""The inline executor: no threads, tasks run when their outcome is asked for. Slow, simple, and the oracle for the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .executor import Channel, Executor, Outcome, Task, Work
from .run_task import run_task


class InlineExecutor(Executor):
    """Runs everything in the caller's thread."""

    workers = 1

    def __init__(self, make_scratch: Callable[[], Any]) -> None:
        self._scratch = make_scratch()

    def channel(self, work: Work) -> Channel:
        return _InlineChannel(work, self._scratch)

    def stacks(self) -> str:
        return "tasks run in the caller's thread"

    def close(self) -> None:
        self._scratch.close()


class _InlineChannel(Channel):
    def __init__(self, work: Work, scratch: Any) -> None:
        self._work, self._scratch = work, scratch
        self._tasks: deque[Task] = deque()

    def submit(self, tasks: list[Task], *, first: bool = False) -> None:
        self._tasks.extend(tasks)  # one unit at a time: nothing waits in front of a task that goes first

    def collect(self, timeout_s: float) -> list[Outcome]:
        if not self._tasks:
            return []
        outcome = run_task(self._work, self._tasks.popleft(), self._scratch, 0)
        if isinstance(outcome.error, (KeyboardInterrupt, SystemExit)):
            raise outcome.error  # meant for this very thread
        return [outcome]

    def cancel(self) -> None:
        self._tasks.clear()
