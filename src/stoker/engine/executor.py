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


#: how much a lost task is to blame: its worker had not begun it, was killed by somebody while at it, or ended by itself. What
#: adds up to POISON is not run again
NOT_BEGUN, KILLED, CRASHED, POISON = 0, 1, 2, 4
#: how often the same happened
_TIMES = {1: "", 2: ", twice"}


def in_words(causes: Sequence[str]) -> str:
    """How the workers of a task ended, one after the other."""
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
    """Work whose results are of rows, which can be left out."""

    def leave_out(self, content: Any, result: Any, refusal: Callable[[Any], str], /) -> Any:
        """The result of a task without the rows whose values cannot be sent home; raises where there are no rows.

        `refusal` says that of a value, and why; "": it can be sent.
        """


@runtime_checkable
class FarWork(Protocol):
    """Work whose tasks write to memory of the consumer, and can be done where that is not seen."""

    def written(self, content: Any, /) -> list[NDArray[Any]] | None:
        """The memory that a task writes to; where a worker has memory of its own, it is copied home from there.

        None: the task needs what others have written, and is done at home.
        """


@runtime_checkable
class WritingWork(Protocol):
    """Work that may write to the arrays it holds, because they are the user's: each worker has them as its own."""

    writes: bool


class Address(Protocol):
    """Where memory that `Executor.allocate` gave lies: a value that can be pickled."""

    def open(self) -> NDArray[np.uint8]:
        """That memory, as a worker sees it."""


@dataclass(slots=True)
class Task(Generic[C]):
    """One piece of work: its unit, its number there, and whatever `TaskWork` needs to know."""

    unit: int
    number: int
    content: C
    alone: bool = False  # it is suspected of ending its worker: a worker that may end runs nothing else meanwhile


@dataclass(slots=True)
class Outcome(Generic[C, R]):
    """What became of a task: a result, a fault, or that it is lost. Every task has one, whatever happened in the worker."""

    task: Task[C]
    result: R | None = None
    fault: TaskFault | None = None
    lost: bool = False  # its worker ended before it did: nobody works on it any more
    blame: int = 0  # of a lost task, how likely it is what ended the worker: NOT_BEGUN, KILLED or CRASHED
    cause: str = ""  # of a lost task, how its worker ended, in words
    start_s: float = 0.0  # monotonic
    stop_s: float = 0.0
    cpu_s: float = 0.0
    worker: int = 0
    noted: bytes = b""  # of a lost task, the sample it was at, if it said so


class Channel(ABC, Generic[C, R]):
    """A line to an executor for one kind of work; outcomes come back on the line they left by.

    A task is held until it has an outcome or its worker has ended, cancelled or not: what it writes to lives as long.
    """

    @abstractmethod
    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        """Queue tasks that one worker is to run one after another; with `first`, before all others. Does not block."""

    @abstractmethod
    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        """Outcomes that have arrived; waits for the first, at most `timeout_s`, and gives [] when none came."""

    @abstractmethod
    def cancel(self) -> None:
        """Drop what has not started, and ignore the rest. Idempotent; does not block."""


@dataclass(frozen=True, slots=True)
class RemoteCount:
    """Threads of this process, remote workers beside them, and the threads of all of those.

    `away` are the threads that have cores of other machines.
    """

    home: int
    workers: int
    threads: int
    away: int
    shy: bool = False  # this process makes rows only while no worker is there
    rerun: int = 0  # tasks so far that were given to others because a worker was lost


class Executor(ABC):
    """Owns workers. `close()` is idempotent, takes at most about a second, and leaves no worker that can be ended."""

    #: how many tasks run at once
    workers: int
    #: whether work may soon move to other workers: then few tasks are to wait for those it has
    may_move: bool = False
    #: whether it has workers that run tasks before their outcomes are asked for; else the thread that asks runs them
    ahead: bool = True
    #: whether workers see the memory of this process; else they see what `allocate` gives
    shares_memory: bool = True
    #: rows that every task is to have, so that others ask for the very same ones; 0: as many as the work takes time for
    task_rows: int = 0
    #: whether a forked child can go on with it
    survives_fork: bool = False

    @abstractmethod
    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1) -> None:
        """Start workers, each with a scratch of its own, in so many processes where it has processes."""

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
        """Who works on other machines just now; None: nobody ever does."""
        return None

    @property
    def ready(self) -> bool:
        """Whether its workers can begin at once; else they are still being started."""
        return True

    @property
    def starting(self) -> bool:
        """Whether some worker is only just starting: until it has, nobody can say that work has come to a halt."""
        return False

    def allocate(self, nbytes: int) -> tuple[NDArray[np.uint8], Address | None]:
        """Memory that its workers can write to, and its address where they need one."""
        return np.empty(nbytes, np.uint8), None

    @abstractmethod
    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        """A new line for one kind of work."""

    @abstractmethod
    def stacks(self, describe: Callable[[Any], str]) -> str:
        """What every worker is doing right now, for a stall report; `describe` names the samples of a task's content."""

    def replace_stuck(self, quiet_s: float) -> bool:
        """End every worker that has been at one task for `quiet_s` seconds, and start others in their places.

        Whether there was one; never where workers cannot be ended. Tasks that were at it for so long come back as lost with
        CRASHED, all others of such a worker with NOT_BEGUN: it was not because of them.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Stop all workers."""
