"""What the tests of storage share."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from stoker.storage.http import HttpRemote
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Clock, Patience

from .server import Server
from .tls import self_signed


@pytest.fixture
def server() -> Iterator[Server]:
    """A web server that does what it is told."""
    with Server() as running:
        yield running


@pytest.fixture
def quick() -> Patience:
    """Pauses of a millisecond. A server may take as long for an answer as a busy machine makes it."""
    return Patience(first_delay_s=0.001, longest_delay_s=0.002, longest_retry_after_s=0.05)


@pytest.fixture
def hasty(quick: Patience) -> Patience:
    """Silence and slowness are noticed within a second too: for servers that say nothing."""
    return replace(quick, silence_s=0.75, least_bytes_per_s=1000, rate_window_s=0.75)


@pytest.fixture
def nothing_is_left_open() -> Iterator[None]:
    """After each test this process has no more descriptors than before it."""
    gc.collect()
    before = open_files()
    yield
    gc.collect()
    deadline = time.monotonic() + 10
    while len(open_files()) > len(before) and time.monotonic() < deadline:
        time.sleep(0.01)  # threads of a server that has been told to end
    left = open_files()
    assert len(left) <= len(before), left


def open_files() -> list[str]:
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return names


def in_child(question: Callable[[], bool], limit_s: float = 30) -> bool:
    """The answer of a forked child, which is killed when it takes too long."""

    def answer() -> None:
        signal.alarm(int(limit_s))
        assert question()

    return os.waitstatus_to_exitcode(os.waitpid(fork(answer), 0)[1]) == 0


def fork(work: Callable[[], None]) -> int:
    """The number of a forked child that does some work and ends, with 0 unless it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads; the child uses none of them
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


class FakeClock(Clock):
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float, stop: threading.Event) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def chance(self) -> float:
        return 1.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate for 127.0.0.1 that nobody vouches for, and its key, in one file."""
    return str(self_signed(tmp_path_factory.mktemp("tls") / "loopback.pem"))


def secure_server(certificate: str) -> Server:
    """A server with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return Server(context=context)


def read_url(url: str, patience: Patience) -> bytes:
    """All of a file on a web server."""
    blob = RemoteBlob(HttpRemote(url), patience)
    try:
        return blob.read_all(1 << 20)
    finally:
        blob.close()
