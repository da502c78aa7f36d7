"""An executor whose workers could be anywhere: everything that crosses is pickled, and every seventh task is lost."""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stoker.engine.executor import Channel, Executor, Outcome, Task, TaskWork
from stoker.engine.run_task import run_task

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


class PicklingExecutor(Executor):
    """Runs tasks when asked for outcomes, on copies of everything.

    Every seventh task is lost, but none twice: in turns before it has begun, and after it has written all its rows. One that was
    cancelled may still be at work, and writes when others have begun.
    """

    shares_memory = False
    #: tasks of which this is true are lost whenever they are run
    deadly: Callable[[Any], bool] | None = None
    #: tasks that were lost, of all executors
    lost = 0

    def __init__(self, workers: int, make_scratch: Callable[[], Any]) -> None:
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
        self._executor, self._work = executor, work
        self._queue: deque[Sent[C]] = deque()
        self._lost: set[tuple[int, int]] = set()

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

    def _ran(self, sent: Sent[C]) -> bytes:
        task: Task[C] = pickle.loads(sent.wire)  # noqa: S301
        outcome = run_task(self._work, task, self._executor.scratch, 0)
        outcome.task = Task(task.unit, task.number, None)  # type: ignore[arg-type]  # what was sent need not come back
        return pickle.dumps(outcome)

    def _run(self, sent: Sent[C]) -> Outcome[C, R]:
        executor, task = self._executor, sent.task
        executor.begun += 1
        place = (task.unit, task.number)
        deadly = executor.deadly is not None and executor.deadly(task.content)
        if deadly or (executor.begun % 7 == 0 and place not in self._lost):
            self._lost.add(place)
            type(executor).lost += 1
            if executor.begun % 2:
                self._ran(sent)
            return Outcome(task, lost=True)
        outcome: Outcome[C, R] = pickle.loads(self._ran(sent))  # noqa: S301
        outcome.task = task
        return outcome
