"""Signals end a command, soon, whoever of its threads they come to; and not where it would leave something behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.engine.signals import uninterrupted

from ..support import until
from .tar.conftest import ENVIRONMENT, STOKER, make_tar, some_samples


@pytest.fixture
def other_thread() -> Iterator[int]:
    """A thread that does nothing, for the kernel to give a signal to."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(60,))
    thread.start()
    yield thread.ident or 0
    over.set()
    thread.join()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_command_that_it_did_not_wake(tmp_path: Path, number: int, status: int) -> None:
    """One that comes to another thread leaves the main thread asleep, as one does that comes just before it falls asleep."""
    make_tar(tmp_path / "in.tar", some_samples(40, size=2000))
    data = (tmp_path / "in.tar").read_bytes()
    out = tmp_path / "out"
    out.mkdir()
    with subprocess.Popen(
        [*STOKER, "tar", "split", "-n", "4", "-o", str(out / "x")],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(data[: len(data) // 2])
        process.stdin.flush()
        until(lambda: len(list(out.glob("x-*.tar.stk"))) >= 4)
        time.sleep(0.3)  # it reads the rest, and waits for more
        others = [int(name) for name in os.listdir(f"/proc/{process.pid}/task") if int(name) != process.pid]
        assert others
        assert ctypes.CDLL(None).tgkill(process.pid, others[-1], number) == 0
        try:
            assert process.wait(timeout=60) == status
        finally:
            process.kill()
        assert b"Traceback" not in process.stderr.read()
    assert not [name for name in os.listdir(out) if name.startswith(".")]


def test_what_must_not_be_interrupted_is_not(other_thread: int) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted():
            signal.pthread_kill(other_thread, signal.SIGINT)
            time.sleep(0.1)
            done.append("all of it")
        done.append("not this")
    assert done == ["all of it"]


def test_what_nobody_interrupts_ends_as_ever() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with uninterrupted():
        done = True
    assert done
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_an_error_in_what_must_not_be_interrupted_comes_out() -> None:
    with pytest.raises(ValueError, match="own"), uninterrupted():
        raise ValueError("own")


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}
    with subprocess.Popen(
        [sys.executable, "-m", "stoker", "--version"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        try:
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, told) == (130, b"")
