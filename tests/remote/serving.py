"""Workers for tests: in a thread of this process, over a real socket, or as the real command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stoker import Pipeline
from stoker.loader import Loader
from stoker.loader.remote_work import worker_service
from stoker.remote import remote_executor
from stoker.remote.remote_executor import BeatTimes, RemoteExecutor

from ..loader.runs import ROOT
from ..support import DEADLINE_S, until

HERE = "tcp://127.0.0.1:0"


def hurried() -> tuple[Any, ...]:
    """The defaults of a setting with which somebody who says nothing is soon taken for lost."""
    quick = remote_executor.RemoteSetting._field_defaults | {"patience": BeatTimes(beat_s=0.1, silent_s=1.0)}
    return tuple(quick.values())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers soon take somebody who says nothing for lost."""
    monkeypatch.setattr(remote_executor.RemoteSetting.__new__, "__defaults__", hurried())


def executor_of(loader: Loader) -> RemoteExecutor:
    executor = loader._machinery.executor
    assert isinstance(executor, RemoteExecutor)
    return executor


def workers_of(loader: Loader) -> int:
    return len(executor_of(loader).remote_workers)


@contextmanager
def serving(pipeline: Pipeline, loader: Loader, threads: int = 2, keys: Any = None) -> Iterator[list[str]]:
    """A worker in a thread; what it says."""
    said: list[str] = []
    assert loader.workers_at is not None
    before = {worker.number for worker in executor_of(loader).remote_workers}
    service = worker_service(pipeline.plan, loader.workers_at, keys, threads, None, said.append)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        until(lambda: {worker.number for worker in executor_of(loader).remote_workers} - before, "a worker to join")
        yield said
    finally:
        service.leave()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@contextmanager
def command(
    loader: Loader, name: str, *arguments: str, count: int = 1, threads: int = 1
) -> Iterator[list[subprocess.Popen[str]]]:
    """`stoker worker` as it is; nothing of it is left after the block."""
    with ExitStack() as running:
        yield [running.enter_context(ended(start(loader, name, *arguments, threads=threads))) for _ in range(count)]


def signal_process(command: subprocess.Popen[str], number: int) -> None:
    """Send a signal to the process that makes rows for `stoker worker`, if it is there."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split():
            os.kill(int(child), number)


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone after the block, whatever state it is in."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def start(
    loader: Loader, name: str, *arguments: str, threads: int = 1, at: str | None = None, before: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """`at`: where the trainer is, as seen from there; `before`: what runs the command."""
    at = at or loader.workers_at
    assert at is not None
    line = [*before, sys.executable, "-m", "stoker", "worker", "--connect", at, "--threads", str(threads), *arguments, name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
