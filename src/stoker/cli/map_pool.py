"""The processes of `stoker map`, seen from the one that started them."""

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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..pack.writers.atomic import sweep
from ..sizes import counted
from ..source.paths import printable
from .map_worker import STOP_S, Job, Status
from .tar.inputs import told
from .tar.meter import Meter

#: how often a shard is tried when its worker dies, how often the workers are looked at, and how long one may take to begin
_TRIES, _LOOK_S, _BEGIN_S = 2, 0.2, 600.0


@dataclass(frozen=True, slots=True)
class Task:
    """One shard to make of another."""

    number: int
    input: str
    output: str


@dataclass(slots=True)
class Result:
    """What came of all tasks."""

    shards: int = 0
    made: int = 0
    kept: int = 0
    samples: int = 0
    written: int = 0
    dropped: int = 0
    bytes: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: Mapping[str, Any]) -> None:
        """One task's outcome, as its worker tells it."""
        if "failed" in outcome:
            self.failures.append(outcome["failed"])
            return
        self.kept += outcome["kept"]
        self.made += not outcome["kept"]
        for name in ("samples", "written", "dropped", "bytes"):
            setattr(self, name, getattr(self, name) + outcome[name])

    def facts(self) -> dict[str, Any]:
        names = ("shards", "made", "kept", "samples", "written", "dropped", "failures")
        return {name: getattr(self, name) for name in names}

    def told(self) -> str:
        kept = f", {self.kept:,} made before" if self.kept else ""
        dropped = f", {self.dropped:,} left out" if self.dropped else ""
        failed = f"; {counted(len(self.failures), 'shard')} failed" if self.failures else ""
        samples = f"{counted(self.samples, 'sample')} in, {self.written:,} out{dropped}"
        return f"{self.made:,} of {counted(self.shards, 'shard')} made{kept}: {samples}{failed}"


class Pool:
    """Hands tasks to workers and gathers what they tell. One that dies, however it does, is replaced and its task tried again."""

    def __init__(self, job: Job, tasks: list[Task], workers: int, timeout_s: float) -> None:
        self._job, self._timeout_s, self._many = job, timeout_s, workers
        self._waiting = deque(tasks)
        self._tries = dict.fromkeys((task.number for task in tasks), 0)
        self._workers: list[_Worker] = []
        self._ending: list[_Worker] = []  # those there is no more work for
        self._result = Result(shards=len(tasks))
        self._folders = {_folder_of(task.output) for task in tasks}

    def done(self, meter: Meter) -> Result:
        """All outcomes. When this is interrupted, workers give up what they have begun; whole outputs stay."""
        try:
            self._start()
            while self._workers:
                self._look(meter)
        finally:
            self._stop()
        self._result.failures.sort()
        return self._result

    def _start(self) -> None:
        """As many workers as there is work for."""
        while self._waiting and len(self._workers) < self._many:
            worker = _Worker(self._job)
            self._workers.append(worker)
            self._give(worker)

    def _give(self, worker: _Worker) -> None:
        if self._waiting:
            task = self._waiting.popleft()
            self._tries[task.number] += 1
            worker.give(task)
        else:
            self._workers.remove(worker)
            self._ending.append(worker)
            worker.release()

    def _look(self, meter: Meter) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
            ready = [key.data for key, _ in selector.select(_LOOK_S)]
        for worker in ready:
            outcome = worker.hear()
            if outcome is None:
                self._died(worker, worker.cause())
            elif outcome:
                self._result.add(outcome)
                self._give(worker)
        for worker in list(self._workers):
            if worker.idle_s() > (self._timeout_s if worker.status.key() else max(self._timeout_s, _BEGIN_S)):
                self._died(worker, f"its worker finished no sample for {self._timeout_s:g} s (--timeout), and was stopped")
        self._tell(meter)

    def _died(self, worker: _Worker, cause: str) -> None:
        self._workers.remove(worker)
        task, key = worker.task, worker.status.key()
        worker.kill()
        assert task is not None
        if self._tries[task.number] < _TRIES:
            self._waiting.appendleft(task)
        else:
            at = f" at the sample {printable(key)}" if key else ""
            self._result.add({"failed": f"{told(task.input)}: {cause}{at}; it was tried {_TRIES} times"})
        self._start()

    def _tell(self, meter: Meter) -> None:
        finished = self._result.made + self._result.kept + len(self._result.failures)
        failed = f" ({len(self._result.failures):,} failed)" if self._result.failures else ""
        meter.note = f"{finished:,} of {counted(self._result.shards, 'shard')}{failed}"
        counts = [worker.status.counts() for worker in self._workers]
        meter.samples = self._result.samples + sum(samples for samples, _ in counts)
        meter.bytes = self._result.bytes + sum(nbytes for _, nbytes in counts)
        meter.tick()

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
            for folder in self._folders:
                sweep(folder, 0)  # what a worker that had to be killed left


#: finds what the parent found, wherever that was
_PROGRAM = """
import json, sys
words = json.loads(sys.argv[1])
sys.path[:] = words[0]
from stoker.cli.map_worker import work
work(*words[1:])
"""


class _Worker:
    """A worker process, seen from the parent. Its tasks go down one pipe and its answers come up another, as lines of JSON.

    The pipe of tasks is also its lifeline: when it closes, because the parent says so or is dead, the worker gives up and ends.
    """

    def __init__(self, job: Job) -> None:
        self.status = Status(tempfile.TemporaryFile(prefix="stoker-map-", buffering=0))  # noqa: SIM115  closed with the worker
        tasks, self._tasks = os.pipe()
        self.answers, answers = os.pipe()
        words = json.dumps([sys.path, asdict(job), tasks, answers, self.status.fileno()])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, words],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what the user's function prints is no result of this command
                pass_fds=(tasks, answers, self.status.fileno()),
                start_new_session=True,  # Ctrl-C is for the parent to decide on
            )
        finally:
            os.close(tasks)
            os.close(answers)
        self.task: Task | None = None
        self._heard = b""
        self._since, self._at = time.monotonic(), (-1, -1)

    def give(self, task: Task) -> None:
        self.task = task
        self._since = time.monotonic()
        with suppress(BrokenPipeError):  # it is dead: that is heard soon enough
            os.write(self._tasks, json.dumps([task.input, task.output]).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """What it tells of its task; {} when that is not complete yet, None when it has died."""
        data = os.read(self.answers, 1 << 16)
        self._heard += data
        line, newline, rest = self._heard.partition(b"\n")
        if not newline:
            return {} if data else None
        self._heard = rest
        outcome: dict[str, Any] = json.loads(line)
        self.task = None
        return outcome

    def idle_s(self) -> float:
        """For how long it has finished no sample."""
        at = self.status.counts()
        if at != self._at or self.task is None:
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


def _folder_of(path: str) -> bytes:
    return os.fsencode(Path(path).absolute().parent)
