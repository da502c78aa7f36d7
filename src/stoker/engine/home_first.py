"""Worker processes, and until they are ready the calling thread, so that nothing waits for an interpreter and its imports.

What runs here is a copy of the work, as a worker has it; the original is not changed by running. Workers report when they are
ready: each is sent an empty task (its content is None), which it can answer once it has the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .executor import Address, Channel, Executor, Outcome, Task, TaskWork
from .inline import raise_interrupts
from .process_executor import ProcessExecutor
from .run_task import run_task

C = TypeVar("C")
R = TypeVar("R")


class HomeFirst(Executor):
    """Worker processes whose first tasks may be done here."""

    shares_memory = False

    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1) -> None:
        self._processes = ProcessExecutor(workers, make_scratch, processes)
        self.workers = self._processes.workers
        self._scratch = make_scratch()
        self._seen: set[Any] = set()  # works that all workers have

    @property
    def stopped(self) -> bool:
        return self._processes.stopped

    @property
    def processes(self) -> list[int]:
        return self._processes.processes

    @property
    def ready(self) -> bool:
        """Whether all workers have a work: what they import for it may take them longer than their start."""
        return bool(self._seen)

    @property
    def starting(self) -> bool:
        return self._processes.starting

    def allocate(self, nbytes: int) -> tuple[NDArray[np.uint8], Address | None]:
        return self._processes.allocate(nbytes)

    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        return _HomeFirstChannel(work, self._processes, self._scratch, self._seen)

    def pack(self, work: TaskWork[C, R]) -> int:
        """Prepare a work for sending, in its present state; ConfigError says why it cannot be sent."""
        return self._processes.pack(work)

    def is_sent(self, work: TaskWork[C, R]) -> bool:
        """Whether a work that was packed is still what it was then."""
        return self._processes.is_sent(work)

    def stacks(self, describe: Callable[[Any], str]) -> str:
        return self._processes.stacks(describe)

    def replace_stuck(self, quiet_s: float) -> bool:
        return self._processes.replace_stuck(quiet_s)

    def close(self) -> None:
        self._processes.close()
        self._scratch.close()


class _HomeFirstChannel(Channel[C, R]):
    def __init__(self, work: TaskWork[C, R], processes: ProcessExecutor, scratch: Any, seen: set[Any]) -> None:
        self._away, self._given, self._seen = processes.channel(work), work, seen
        self._scratch = scratch
        self._waiting: deque[Task[C]] = deque()
        self._work: TaskWork[C, R] | None = None  # what runs here; None: all runs there
        self._unready = 0  # workers that have not said yet that they have the work
        if work not in seen:
            # A copy at once: the program may change what the work holds later, and workers do not see that either.
            self._work, self._unready = processes.copy_of(work), len(processes.processes)
            for _ in processes.processes:
                self._away.submit([Task(-1, -1, None)])  # type: ignore[arg-type]

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        if self._work is None:
            self._away.submit(tasks, first=first)
        else:
            self._waiting.extend(tasks)

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        if self._work is not None:
            self._unready -= len(self._away.collect(0.0 if self._waiting else timeout_s))
            if self._unready > 0:
                if not self._waiting:
                    return []
                return [raise_interrupts(run_task(self._work, self._waiting.popleft(), self._scratch, 0))]
            self._work = None
            self._seen.add(self._given)
            while self._waiting:
                self._away.submit([self._waiting.popleft()])  # one by one: all workers get some
        return self._away.collect(timeout_s)

    def cancel(self) -> None:
        self._waiting.clear()
        self._away.cancel()
