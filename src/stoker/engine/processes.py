"""Worker processes, seen from the one that started them: each does one task after the other, and may die."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .worker_process import STOP_S, WorkerStatus

#: how often a task is tried when its worker dies, how often the workers are looked at, and how long one may take to begin
_TRIES, _LOOK_S, _BEGIN_S = 2, 0.2, 600.0


@dataclass(frozen=True, slots=True)
class LostTask:
    """A task whose workers died, each time it was tried; `at` is what the last one was at, as it said itself."""

    cause: str
    at: bytes
    tries: int = _TRIES


class WorkerProcesses:
    """Hands tasks to workers and gathers what they tell. One that dies, however it does, is replaced and its task tried again.

    `maker` is ``module:function`` of ours, called in each worker with `settings` and its `WorkerStatus`; what it returns is
    called with the values of each task, and returns what came of it. All of these are what JSON holds. A worker that finishes
    nothing for `timeout_s` is stopped. `tick` hears, five times per second, of the samples and bytes of the tasks under way.
    """

    def __init__(
        self, maker: str, settings: dict[str, Any], workers: int, timeout_s: float, tick: Callable[[int, int], None]
    ) -> None:
        self._job, self._timeout_s, self._many, self._tick = (maker, settings), timeout_s, workers, tick
        self._waiting: deque[_Task] = deque()
        self._workers: list[_Worker] = []
        self._ending: list[_Worker] = []  # those there is no more work for

    def __call__(self, tasks: Sequence[Sequence[Any]]) -> Iterator[tuple[int, dict[str, Any] | LostTask]]:
        """The number of each task and what came of it, as they come. When this is left, workers give up what they have begun."""
        self._waiting.extend(_Task(number, values) for number, values in enumerate(tasks))
        try:
            self._start()
            while self._workers:
                yield from self._look()
        finally:
            self._stop()

    def _start(self) -> None:
        """As many workers as there is work for."""
        while self._waiting and len(self._workers) < self._many:
            worker = _Worker(*self._job)
            self._workers.append(worker)
            self._give(worker)

    def _give(self, worker: _Worker) -> None:
        if self._waiting:
            worker.give(self._waiting.popleft())
        else:
            self._workers.remove(worker)
            self._ending.append(worker)
            worker.release()

    def _look(self) -> Iterator[tuple[int, dict[str, Any] | LostTask]]:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
            ready = [key.data for key, _ in selector.select(_LOOK_S)]
        for worker in ready:
            number, outcome = worker.task.number, worker.hear()
            if outcome is None:
                yield from self._died(worker, worker.cause())
            elif outcome:
                yield number, outcome
                self._give(worker)
        for worker in list(self._workers):
            if worker.idle_s() > (self._timeout_s if worker.status.at() else max(self._timeout_s, _BEGIN_S)):
                cause = f"its worker finished no sample for {self._timeout_s:g} s (--timeout), and was stopped"
                yield from self._died(worker, cause)
        counts = [worker.status.counts() for worker in self._workers]
        self._tick(sum(samples for samples, _ in counts), sum(nbytes for _, nbytes in counts))

    def _died(self, worker: _Worker, cause: str) -> Iterator[tuple[int, LostTask]]:
        self._workers.remove(worker)
        task, at = worker.task, worker.status.at()
        worker.kill()
        if task.tries < _TRIES:
            self._waiting.appendleft(task)
        else:
            yield task.number, LostTask(cause, at)
        self._start()

    def _stop(self) -> None:
        """Let go of all workers: they give up what they do; those that do not, in time, are killed."""
        deadline = time.monotonic() + STOP_S
        workers = [*self._workers, *self._ending]
        for worker in workers:
            worker.release()
        try:
            for worker in workers:
                worker.wait(deadline)
        finally:
            for worker in workers:
                worker.kill()


#: finds what the parent found, wherever that was
_PROGRAM = """
import json, sys
words = json.loads(sys.argv[1])
sys.path[:] = words[0]
from {0} import {1}
from stoker.engine.worker_process import work
work({1}, *words[1:])
"""


class _Task:
    def __init__(self, number: int, values: Sequence[Any]) -> None:
        self.number, self.values, self.tries = number, values, 0


class _Worker:
    """A worker process, seen from the parent. Its tasks go down one pipe and its answers come up another, as lines of JSON.

    The pipe of tasks is also its lifeline: when it closes, because the parent says so or is dead, the worker gives up and ends.
    """

    task: _Task

    def __init__(self, maker: str, settings: dict[str, Any]) -> None:
        self.status = WorkerStatus(tempfile.TemporaryFile(prefix="stoker-map-", buffering=0))  # noqa: SIM115  closed with this
        tasks, self._tasks = os.pipe()
        self.answers, answers = os.pipe()
        words = json.dumps([sys.path, settings, tasks, answers, self.status.fileno()])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(*maker.split(":")), words],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what the user's function prints is no result of this command
                pass_fds=(tasks, answers, self.status.fileno()),
                start_new_session=True,  # Ctrl-C is for the parent to decide on
            )
        finally:
            os.close(tasks)
            os.close(answers)
        self._heard = b""
        self._since, self._at = time.monotonic(), (-1, -1)

    def give(self, task: _Task) -> None:
        self.task = task
        task.tries += 1
        self._since = time.monotonic()
        with suppress(BrokenPipeError):  # it is dead: that is heard soon enough
            os.write(self._tasks, json.dumps(task.values).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """What it tells of its task; {} when that is not complete yet, None when it has died."""
        data = os.read(self.answers, 1 << 16)
        self._heard += data
        line, newline, rest = self._heard.partition(b"\n")
        if not newline:
            return {} if data else None
        self._heard = rest
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    def idle_s(self) -> float:
        """For how long it has finished no sample."""
        at = self.status.counts()
        if at != self._at:
            self._at, self._since = at, time.monotonic()
        return time.monotonic() - self._since

    def cause(self) -> str:
        """Why it is dead."""
        try:
            status = self._process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            return "its worker closed its pipes"
        if status < 0:
            hint = " (out of memory?)" if status == -signal.SIGKILL else ""
            return f"its worker was killed by signal {-status}{hint}"
        return f"its worker ended in the middle, with status {status}"

    def release(self) -> None:
        """Close the lifeline."""
        if self._tasks >= 0:
            tasks, self._tasks = self._tasks, -1  # first: closed again after an interruption, the number may be another file's
            os.close(tasks)

    def wait(self, deadline: float) -> None:
        """Let it end by itself, until the deadline."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """End it now, with all it started, and let go of everything."""
        self.release()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self.answers >= 0:
            answers, self.answers = self.answers, -1
            os.close(answers)
            self.status.close()
