"""The command, as tests call it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoker.cli.main import app

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_width_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have set one, and tables would be cut to it."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def stoker() -> Command:
    """Run the command in this process; the result has `exit_code`, `stdout` and `stderr`."""

    def run(*words: object) -> Any:
        result = CliRunner().invoke(app, [str(word) for word in words], prog_name="stoker")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def stoker_json(stoker: Command) -> Command:
    """Run the command with ``--json`` and give what it printed."""

    def run(*words: object) -> Any:
        result = stoker(*words, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return run


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start the command as a process of its own."""

    def run(*words: object, cwd: Path | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "stoker.cli.main", *map(str, words)]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment)

    return run


def in_terminal(*words: str, until: bytes, then: bytes) -> tuple[bytes, int]:
    """What the command shows in a terminal, and its exit status; when it has shown `until`, `then` is typed."""
    leader, follower = os.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "stoker.cli.main", *words]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(follower)
    told, typed = b"", False
    with os.fdopen(leader, "r+b", buffering=0) as terminal:
        while True:
            try:
                part = terminal.read(65536)
            except OSError:  # nobody has it open any more
                break
            told += part or b""
            if not typed and until in told:
                typed = True
                terminal.write(then)
    return told, process.wait(60)


@pytest.fixture
def module(tmp_path: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's file with pipelines in it; it leaves a mark when it has been imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "user_pipelines.py"
    path.write_text(
        f"""
from pathlib import Path

import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

train = stoker.files({str(image_folder)!r}).shuffle(seed=5).image("image", RandomResizedCrop(32), HorizontalFlip()).batch(6)
endless = train.repeat()
number = 5

def made():
    return train

def wants(something):
    return train

def broken():
    return 1 / 0

def angry(sample):
    raise ValueError("no such luck")

failing = stoker.files({str(image_folder)!r}).map(angry).batch(4)
Path(__file__).with_suffix(".imported").touch()
"""
    )
    yield path
    for name in [name for name in sys.modules if "user_pipelines" in name]:
        del sys.modules[name]
