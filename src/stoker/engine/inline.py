"""The inline executor: no threads; tasks run when their outcome is requested. Slow, simple, and the oracle for the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from .executor import Channel, Executor, Outcome, Task, TaskWork
from .run_task import run_task

C = TypeVar("C")
R = TypeVar("R")


class InlineExecutor(Executor):
    """Runs everything in the caller's thread, which is its one worker."""

    ahead = False
    survives_fork = True

    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1) -> None:
        self.workers = workers
        self._scratch = make_scratch()

    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        return _InlineChannel(work, self._scratch)

    def stacks(self, describe: Callable[[Any], str]) -> str:
        return "tasks run in the caller's thread"

    def close(self) -> None:
        self._scratch.close()


class _InlineChannel(Channel[C, R]):
    def __init__(self, work: TaskWork[C, R], scratch: Any) -> None:
        self._work, self._scratch = work, scratch
        self._tasks: deque[Task[C]] = deque()

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        self._tasks.extend(tasks)  # one unit at a time: nothing waits in front of a task that goes first

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        if not self._tasks:
            return []
        return [raise_interrupts(run_task(self._work, self._tasks.popleft(), self._scratch, 0))]

    def cancel(self) -> None:
        self._tasks.clear()


def raise_interrupts(outcome: Outcome[C, R]) -> Outcome[C, R]:
    """The outcome of a task that ran in the caller's thread; raises what is meant for that very thread."""
    if outcome.fault is not None and isinstance(error := outcome.fault.error(), (KeyboardInterrupt, SystemExit)):
        raise error
    return outcome
