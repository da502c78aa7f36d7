"""What tasks note while they run: read by another process, also when their own is dead."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.engine.executor import CRASHED, KILLED, Channel, Outcome, Task
from stoker.engine.process_executor import ProcessExecutor
from stoker.engine.task_notes import NoteBoard, note


def test_a_row_tells_of_a_task_while_it_runs() -> None:
    board = NoteBoard(np.zeros(NoteBoard.size(2), np.uint8))
    row = board.row(1)
    row.begin(7)
    [(serial, begun)] = board.read()
    assert serial == 7 and begun[1:] == (0, 0, b"") and begun.since_s <= time.monotonic()
    row.note(2, 300, b"cat/1")
    [(serial, noted)] = board.read()
    assert serial == 7 and noted[1:] == (2, 300, b"cat/1") and noted.since_s >= begun.since_s
    row.note(3, 400, b"x" * 5000)
    [(_, noted)] = board.read()
    assert noted.samples == 3 and noted.at == b"x" * len(noted.at) != b""
    row.end()
    row.begin(8)
    assert [(serial, noted[1:]) for serial, noted in board.read()] == [(8, (0, 0, b""))]


def test_outside_of_a_worker_nobody_reads_notes() -> None:
    note(1, 2, b"a")


class Noting:
    """Work that notes where it is, says that it has, and waits for a file."""

    def __call__(self, content: tuple[str, bytes], scratch: Any) -> str:
        folder, name = Path(content[0]), content[1]
        note(3, 500, name)
        print("begun")
        (folder / name.decode()).touch()
        while not (folder / "go").exists():
            time.sleep(0.005)
        return name.decode()


def next_outcome(channel: Channel[Any, Any]) -> Outcome[Any, Any]:
    while not (outcomes := channel.collect(1.0)):
        pass
    [outcome] = outcomes
    return outcome


def test_a_lost_task_tells_what_it_noted_last(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with closing(ProcessExecutor(1, BytesIO, 1, stdout=2)) as executor:
        channel = executor.channel(Noting())

        def lost(name: str, end: Any) -> Outcome[Any, Any]:
            channel.submit([Task(0, 0, (str(tmp_path), name.encode()))])
            while not (tmp_path / name).exists():
                assert not channel.collect(0.01)
            [(task, noted)] = executor.notes()
            assert noted[1:] == (3, 500, name.encode())
            end(task)
            return next_outcome(channel)

        stuck = lost("stuck", lambda task: executor.replace(task, "was too slow"))
        assert (stuck.lost, stuck.blame, stuck.cause, stuck.noted) == (True, CRASHED, "was too slow", b"stuck")
        killed = lost("killed", lambda _: os.kill(executor.processes[0], signal.SIGKILL))
        assert (killed.lost, killed.blame, killed.noted) == (True, KILLED, b"killed")
        (tmp_path / "go").touch()
        channel.submit([Task(0, 0, (str(tmp_path), b"last"))])
        assert next_outcome(channel).result == "last" and not executor.notes()
    told = capfd.readouterr()
    assert "begun" in told.err and "begun" not in told.out
