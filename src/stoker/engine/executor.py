"""The seam an executor fills: take groups of tasks, give back their outcomes. What a task is, it does not know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: what a worker does: (a task's content, the worker's private scratch) -> result
Work = Callable[[Any, Any], Any]


@dataclass(slots=True)
class Task:
    """One piece of work: its unit, its number there, and whatever `Work` needs to know."""

    unit: int
    number: int
    content: Any


@dataclass(slots=True)
class Outcome:
    """What became of a task; there is one for every task, whatever happened in the worker."""

    task: Task
    result: Any = None
    error: BaseException | None = None
    start_s: float = 0.0  # monotonic
    stop_s: float = 0.0
    cpu_s: float = 0.0
    worker: int = 0


class Channel(ABC):
    """A line to an executor for one kind of work; outcomes come back on the line they left by."""

    @abstractmethod
    def submit(self, tasks: list[Task], *, first: bool = False) -> None:
        """Queue tasks that one worker is to run one after another; with `first`, before all others. Does not block."""

    @abstractmethod
    def collect(self, timeout_s: float) -> list[Outcome]:
        """Outcomes that have arrived; waits for the first, at most `timeout_s`, and gives [] when none came."""

    @abstractmethod
    def cancel(self) -> None:
        """Drop what has not started, and ignore the rest. Idempotent; does not block."""


class Executor(ABC):
    """Owns workers. `close()` is idempotent, takes at most about a second, and leaves no worker that can be ended."""

    #: how many tasks run at once
    workers: int

    @property
    def stopped(self) -> bool:
        """Whether its workers were stopped, by `close` or because the program is ending: then no more outcomes come."""
        return False

    @abstractmethod
    def channel(self, work: Work) -> Channel:
        """A new line for one kind of work."""

    @abstractmethod
    def stacks(self) -> str:
        """What every worker is doing right now, for a stall report."""

    @abstractmethod
    def close(self) -> None:
        """Stop all workers."""
