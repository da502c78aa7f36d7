"""An executor whose workers could be anywhere: everything that crosses is pickled, and tasks are lost in every way."""

from __future__ import annotations

import pickle
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stoker.engine.executor import CRASHED, NOT_BEGUN, POISON, Channel, Executor, Outcome, Task, TaskWork
from stoker.engine.run_task import run_task
from stoker.engine.schedule import FINISH

C = TypeVar("C")
R = TypeVar("R")

_memory: weakref.WeakValueDictionary[int, NDArray[np.uint8]] = weakref.WeakValueDictionary()
_numbers = count()


@dataclass(frozen=True)
class Number:
    """An address: what a name in a folder of shared memory would be. What nobody holds any more cannot be opened."""

    number: int

    def open(self) -> NDArray[np.uint8]:
        return _memory[self.number]


@dataclass
class Sent(Generic[C]):
    """A task on its way: the task, which is held here as long as somebody may work on it, and what travels."""

    task: Task[C]
    wire: bytes


class Death(BaseException):
    """Ends the worker of whoever raises it."""


def end_worker() -> None:
    raise Death


class PicklingExecutor(Executor):
    """Runs tasks when asked for outcomes, on copies of everything.

    Every seventh task is lost: in turns before it has begun, in the middle of it (killed), and after it has written all its rows
    (crashed); no sample so often that it is to blame. One that was cancelled may still be at work, and writes when others have
    begun.
    """

    shares_memory = False
    #: one of so many tasks is lost; 0: none, but those whose functions end their worker
    every = 7
    #: how often each task is lost before it is begun
    unlucky = 0
    #: tasks that were lost with blame, of all executors
    lost = 0
    #: how often functions ended their worker, by channel and unit
    deaths: ClassVar[Counter[tuple[int, int]]] = Counter()

    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1) -> None:
        self.workers = workers
        self.scratch = make_scratch()
        self.begun = 0
        self.late: list[Callable[[], Any]] = []

    def allocate(self, nbytes: int) -> tuple[NDArray[np.uint8], Number]:
        memory, number = np.full(nbytes, 0xAB, np.uint8), next(_numbers)
        _memory[number] = memory
        return memory, Number(number)

    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        return PicklingChannel(self, pickle.loads(pickle.dumps(work)))  # noqa: S301

    def stacks(self, describe: Callable[[Any], str]) -> str:
        return "tasks run in the caller's thread"

    def close(self) -> None:
        self.scratch.close()


class PicklingChannel(Channel[C, R]):
    def __init__(self, executor: PicklingExecutor, work: TaskWork[C, R]) -> None:
        self._executor, self._work, self._number = executor, work, next(_numbers)
        self._queue: deque[Sent[C]] = deque()
        self._blamed: Counter[tuple[int, int]] = Counter()  # by unit and position
        self._waited: Counter[tuple[int, int]] = Counter()

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        sent = [Sent(task, pickle.dumps(task)) for task in tasks]
        if first:
            self._queue.extendleft(reversed(sent))
        else:
            self._queue.extend(sent)

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        while self._executor.late:
            self._executor.late.pop()()
        return [self._run(self._queue.popleft())] if self._queue else []

    def cancel(self) -> None:
        if self._queue:
            begun = self._queue.popleft()
            self._executor.late.append(lambda: self._ran(begun))
        self._queue.clear()

    def _ran(self, sent: Sent[C]) -> bytes | None:
        """What comes back; None: nothing, because the worker has ended."""
        task: Task[C] = pickle.loads(sent.wire)  # noqa: S301
        outcome = run_task(self._work, task, self._executor.scratch, 0)
        if outcome.fault is not None and isinstance(outcome.fault.live, Death):
            return None
        outcome.task = Task(task.unit, task.number, None)  # type: ignore[arg-type]  # what was sent need not come back
        return pickle.dumps(outcome)

    def _run(self, sent: Sent[C]) -> Outcome[C, R]:
        executor, task = self._executor, sent.task
        executor.begun += 1
        place = (task.unit, task.number)
        if self._waited[place] < executor.unlucky:
            self._waited[place] += 1
            return Outcome(task, lost=True, blame=NOT_BEGUN, cause="was killed while it waited")
        if executor.every and executor.begun % executor.every == 0:
            turn = executor.begun // executor.every % 3
            if turn and self._may_blame(task, turn):
                type(executor).lost += 1
                if turn == CRASHED:
                    self._ran(sent)
                return Outcome(task, lost=True, blame=turn, cause=("was killed", "crashed")[turn - 1])
            return Outcome(task, lost=True, blame=NOT_BEGUN)
        returned = self._ran(sent)
        if returned is None:
            executor.deaths[self._number, task.unit] += 1
            self._blame(task, CRASHED)
            return Outcome(task, lost=True, blame=CRASHED, cause="was ended by the test")
        outcome: Outcome[C, R] = pickle.loads(returned)  # noqa: S301
        outcome.task = task
        return outcome

    def _may_blame(self, task: Task[C], blame: int) -> bool:
        """Whether none of the task's samples would be to blame for so much that it is given up; if so, they are blamed."""
        if any(self._blamed[place] + blame >= POISON for place in self._places(task)):
            return False
        self._blame(task, blame)
        return True

    def _blame(self, task: Task[C], blame: int) -> None:
        self._blamed.update(dict.fromkeys(self._places(task), blame))

    def _places(self, task: Task[C]) -> list[tuple[int, int]]:
        rows: Any = getattr(task.content, "rows", task.content)
        return [(task.unit, position) for position in ([FINISH] if task.number == FINISH else rows.positions.tolist())]
