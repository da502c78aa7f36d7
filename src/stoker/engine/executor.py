"""The seam an executor fills: take groups of tasks, return their outcomes. It does not know what a task does.

Only values pass through it: the work, once per channel; the content of a task; its result. So a task can run in another thread,
process or machine, be lost with it, and run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..faults import TaskFault

C = TypeVar("C")
R = TypeVar("R")
_Content = TypeVar("_Content", contravariant=True)
_Result = TypeVar("_Result", covariant=True)


#: how much a lost task is to blame: its worker had not started it, was killed from outside while running it, or ended by itself.
#: A task whose blame adds up to POISON does not run again
NOT_BEGUN, KILLED, CRASHED, POISON = 0, 1, 2, 4
#: how often the same happened
_TIMES = {1: "", 2: ", twice"}


def in_words(causes: Sequence[str]) -> str:
    """How the workers of a task ended, in order."""
    if len({*causes}) > 1:
        how = ", then ".join(causes)
    else:
        how = f"{causes[0]}{_TIMES.get(len(causes), f', {len(causes)} times')}"
    return how + (" (the system does that when it is short of memory)" if "SIGKILL" in how else "")


class TaskWork(Protocol[_Content, _Result]):
    """What a worker does with a task: a frozen value that can be pickled. `scratch` is the worker's private memory."""

    def __call__(self, content: _Content, scratch: Any, /) -> _Result: ...


@runtime_checkable
class RowWork(Protocol):
    """Work whose results consist of rows, each of which can be omitted."""

    def leave_out(self, content: Any, result: Any, refusal: Callable[[Any], str], /) -> Any:
        """The result of a task without the rows whose values cannot be sent back; raises if it has no rows.

        `refusal` returns the reason why a value cannot be sent, or "" if it can.
        """


@runtime_checkable
class FarWork(Protocol):
    """Work whose tasks write to the consumer's memory, but can run in workers that do not share it."""

    def written(self, content: Any, /) -> list[NDArray[Any]] | None:
        """The memory that a task writes to. A worker without access to it writes elsewhere, and the result is copied there.

        None: the task needs what others have written, so it runs in the consumer's process.
        """


@runtime_checkable
class WritingWork(Protocol):
    """Work that may write to the arrays it holds, because they are the user's: each worker has its own copy."""

    writes: bool


class Address(Protocol):
    """The address of memory from `Executor.allocate`: a value that can be pickled."""

    def open(self) -> NDArray[np.uint8]:
        """That memory, as a worker sees it."""


@dataclass(slots=True)
class Task(Generic[C]):
    """One piece of work: its unit, its number there, and whatever `TaskWork` needs to know."""

    unit: int
    number: int
    content: C
    alone: bool = False  # suspected of ending its worker, so its worker runs nothing else in the meantime


@dataclass(slots=True)
class Outcome(Generic[C, R]):
    """The outcome of a task: a result, a fault, or lost. Every task has one, whatever happened in the worker."""

    task: Task[C]
    result: R | None = None
    fault: TaskFault | None = None
    lost: bool = False  # its worker ended before it was done
    blame: int = 0  # of a lost task, how likely it ended the worker: NOT_BEGUN, KILLED or CRASHED
    cause: str = ""  # of a lost task, how its worker ended, in words
    start_s: float = 0.0  # monotonic
    stop_s: float = 0.0
    cpu_s: float = 0.0
    worker: int = 0
    noted: bytes = b""  # of a lost task, the sample it was working on, if noted


class Channel(ABC, Generic[C, R]):
    """A line to an executor for one kind of work; outcomes come back on the line by which tasks were sent.

    A task is held until it has an outcome or its worker has ended, cancelled or not, so the memory it writes to stays alive.
    """

    @abstractmethod
    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        """Queue tasks for one worker to run in order; with `first`, before all others. Does not block."""

    @abstractmethod
    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        """Outcomes that have arrived; waits at most `timeout_s` for the first, and returns [] if none came."""

    @abstractmethod
    def cancel(self) -> None:
        """Drop what has not started, and ignore the rest. Idempotent; does not block."""


@dataclass(frozen=True, slots=True)
class RemoteCount:
    """Threads of this process (`home`), remote workers, and all of their threads together.

    `away` are the threads on cores of other machines.
    """

    home: int
    workers: int
    threads: int
    away: int
    shy: bool = False  # this process makes rows only while no worker is connected
    rerun: int = 0  # tasks so far that were moved to others because a worker was lost


class Executor(ABC):
    """Owns workers. `close()` is idempotent, takes at most about a second, and leaves no worker that can be ended."""

    #: how many tasks run at once
    workers: int
    #: whether work may soon move to other workers: then only few tasks should wait for the present ones
    may_move: bool = False
    #: whether its workers run tasks before their outcomes are requested; else the requesting thread runs them
    ahead: bool = True
    #: whether workers see the memory of this process; else they see what `allocate` returns
    shares_memory: bool = True
    #: a fixed number of rows per task, so that other trainers request the same tasks; 0: depends on the time the work takes
    task_rows: int = 0
    #: whether a forked child can continue to use it
    survives_fork: bool = False

    @abstractmethod
    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1) -> None:
        """Start workers, each with its own scratch, in `processes` processes if it uses processes."""

    @property
    def stopped(self) -> bool:
        """Whether its workers were stopped, by `close` or because the program is ending: then no more outcomes come."""
        return False

    @property
    def processes(self) -> list[int]:
        """The numbers of its worker processes."""
        return []

    @property
    def remote(self) -> RemoteCount | None:
        """The present workers on other machines; None: this executor never has any."""
        return None

    @property
    def ready(self) -> bool:
        """Whether its workers can begin at once; if not, they are still starting."""
        return True

    @property
    def starting(self) -> bool:
        """Whether a worker is still starting: until it has started, the work cannot be considered stalled."""
        return False

    def allocate(self, nbytes: int) -> tuple[NDArray[np.uint8], Address | None]:
        """Memory that its workers can write to, and its address if they need one."""
        return np.empty(nbytes, np.uint8), None

    @abstractmethod
    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        """A new line for one kind of work."""

    @abstractmethod
    def stacks(self, describe: Callable[[Any], str]) -> str:
        """What every worker is doing right now, for a stall report; `describe` names the samples of a task's content."""

    def replace_stuck(self, quiet_s: float) -> bool:
        """End every worker that has been running one task for `quiet_s` seconds, and start others in their places.

        Returns whether there was one; always False if workers cannot be ended. Tasks that ran for so long come back as lost with
        CRASHED, all others of such a worker with NOT_BEGUN, because they are not to blame.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Stop all workers."""
