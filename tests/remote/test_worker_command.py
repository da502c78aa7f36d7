"""`stoker worker`: a process that makes rows, and a command that starts another when it crashes, is killed or gets stuck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.engine import supervisor
from stoker.engine.supervisor import Supervisor
from stoker.loader import Loader

from ..loader.runs import ROOT
from ..support import process_ended, process_id
from .serving import DEADLINE_S, HERE, command, executor_of, until, workers_of

#: the pipeline as workers find it
NAME = "tests.remote.test_worker_command:troubled"


def trouble(sample: dict[str, Any]) -> dict[str, Any]:
    """What befalls the process that gets the sample first; `TEST_TROUBLE` is a file that says so, until it was read."""
    if sample["x"] == 17:
        try:
            path = Path(os.environ["TEST_TROUBLE"])
            kind = path.read_text()
            path.unlink()
        except FileNotFoundError:
            return sample
        if kind == "crash":
            signal.raise_signal(signal.SIGSEGV)
        while True:
            time.sleep(60)
    return sample


def troubled() -> Pipeline:
    return stoker.arrays(x=np.arange(400)).map(trouble).batch(8)


def process_of(loader: Loader) -> str:
    """The process that makes rows, of the only worker there is."""
    until(lambda: workers_of(loader) == 1, "a worker")
    [worker] = executor_of(loader).remote_workers
    return process_id(int(worker.name.rpartition(":")[2]))


@pytest.mark.parametrize(("kind", "watchdog_s"), [("crash", 60), pytest.param("stuck", 5, marks=pytest.mark.faults)])
def test_another_process_takes_the_place_of_one_that_is_of_no_use(
    kind: str, watchdog_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trouble"
    path.write_text(kind)
    monkeypatch.setenv("TEST_TROUBLE", str(path))
    monkeypatch.setattr("stoker.remote.parcel_ledger.SUSPECTS_WAIT_S", 0.0)
    with (
        troubled().loader(threads=0, workers_at=HERE, watchdog_s=watchdog_s) as loader,
        command(loader, NAME, "--once") as [worker],
    ):
        first = process_of(loader)
        assert sum(batch.rows for batch in loader) == 400
        second = process_of(loader)
        until(lambda: process_ended(first), "the first to be gone")
        assert second != first and not path.exists()
        loader.close()
        told, _ = worker.communicate(timeout=DEADLINE_S)
        assert worker.returncode == 0 and "another takes its place" in told
        assert ("SIGSEGV" if kind == "crash" else "a task was stuck") in told
        assert process_ended(second)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_ends_with_the_command(number: int) -> None:
    with troubled().loader(workers_at=HERE) as loader, command(loader, NAME) as [worker]:
        process = process_of(loader)
        worker.send_signal(number)
        assert worker.wait(DEADLINE_S) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        until(lambda: process_ended(process), "the process to end")


def test_a_signal_to_command_and_process_asks_once_and_a_second_to_the_command_ends_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Service managers send it to all processes of a service. What is at work is finished, here that is stuck."""
    path = tmp_path / "trouble"
    path.write_text("stuck")
    monkeypatch.setenv("TEST_TROUBLE", str(path))
    with troubled().loader(threads=0, workers_at=HERE) as loader, command(loader, NAME) as [worker]:
        process = process_of(loader)
        next(iter(loader))
        until(lambda: not path.exists(), "the worker to be stuck")
        for pid in (int(process.partition("@")[0]), worker.pid):
            os.kill(pid, signal.SIGTERM)
        assert worker.stdout is not None
        until(lambda: "leaving:" in worker.stdout.readline(), "it to say what it leaves with")
        assert not process_ended(process)
        worker.send_signal(signal.SIGINT)
        assert worker.wait(DEADLINE_S) == 130
        until(lambda: process_ended(process), "the process to end")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_the_pipeline_is_imported_ends_both(number: int, status: int, tmp_path: Path) -> None:
    script = tmp_path / "slow_import.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    line = [sys.executable, "-m", "stoker", "worker", "--connect", "tcp://127.0.0.1:9", f"{script}:train"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as worker:
        assert worker.stdout is not None
        process = process_id(int(worker.stdout.readline()))
        worker.send_signal(number)
        try:
            _, told = worker.communicate(timeout=DEADLINE_S)
        finally:
            worker.kill()
    assert (worker.returncode, told) == (status, "stopped\n" if number == signal.SIGINT else "")
    assert process_ended(process)


# ---- the supervisor ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, list[str]]]:
    """Run the body of a process's main function under supervision: the exit status, and what was said."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(supervisor, "_PAUSE_S", 0.001)

    def run(body: str) -> tuple[int, list[str]]:
        (tmp_path / "supervised.py").write_text(
            "import os, signal, subprocess, sys\ndef main(lifeline, report, successor, marks):\n"
            f"    with open(marks, 'a') as file: file.write(f'{{int(successor)}}')\n    {body}\n"
        )
        said: list[str] = []
        return Supervisor("supervised", [str(tmp_path / "marks")], said.append).run(), said

    return run


def test_a_process_that_ends_by_itself_gives_its_status(supervised: Any, tmp_path: Path) -> None:
    assert supervised("os.write(report, b'we'); sys.exit(2)") == (2, [])
    assert (tmp_path / "marks").read_text() == "0"


def test_processes_that_never_do_any_work_are_given_up(supervised: Any, tmp_path: Path) -> None:
    status, said = supervised("os._exit(0)")
    assert status == 1 and (tmp_path / "marks").read_text() == "0" + "1" * (supervisor._MOST_IDLE - 1)
    assert "exited with code 0; another takes its place" in said[0] and "in 0.002 s" in said[2]
    assert "none of them had made rows" in said[-1]


def test_one_that_has_done_some_work_is_no_reason_to_give_up(supervised: Any, tmp_path: Path) -> None:
    most = 2 * supervisor._MOST_IDLE
    last = f"os.write(report, b'e') if os.path.getsize(marks) > {most} else 0"
    status, said = supervised(f"os.write(report, b'w'); {last}; os.kill(os.getpid(), signal.SIGKILL)")
    assert status == 128 + signal.SIGKILL and len(said) == most and not [text for text in said if " in 0" in text]


def test_what_a_process_has_started_ends_with_it(supervised: Any, tmp_path: Path) -> None:
    sleeper = "subprocess.Popen(['sleep', '600']).pid"
    supervised(f"file = open(marks + '-pid', 'w'); file.write(str({sleeper})); file.close(); os.write(report, b'e')")
    pid = int((tmp_path / "marks-pid").read_text())
    until(lambda: not process_id(pid), "it to end")
