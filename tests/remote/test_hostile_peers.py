"""Whoever reaches the port with a wrong key, none, or bytes that are no messages gets nothing, and others are served."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

import stoker
from stoker.loader import Loader
from stoker.loader.remote_work import handshake_of, stoker_version
from stoker.remote.curve_keys import make_keys
from stoker.remote.frames import MAX_BUFFER, MAX_GREETING, MAX_HEADER, PROTOCOL, Beat, Hello, packed

from ..loader.runs import epochs_of, sha_of_run
from . import serving as served
from .serving import HERE, executor_of, serving, until, workers_of
from .test_worker_faults import garbage, peer, port_of, quick

#: what a stranger may hear at most: a greeting, and that it is not wanted
HEARD = 512


def greeting(mechanism: bytes) -> bytes:
    """What ZeroMQ's protocol begins with: signature, version 3.1, how to show who one is, and that one is not the server."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


def command(body: bytes) -> bytes:
    return b"\x04" + bytes([len(body)]) + body


def frame(announced: int, body: bytes = b"", flags: int = 0) -> bytes:
    """A frame that says how many bytes it has, and has others."""
    return bytes([flags | 2]) + struct.pack(">Q", announced) + body


READY = command(b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0")
OPEN, SECRET = greeting(b"NULL") + READY, greeting(b"CURVE")
SAID = packed(Beat())

#: bytes that somebody may send, by what is wrong with them; those that the library must answer by hanging up come second
LEFT_OPEN: dict[str, bytes] = {
    "nothing": b"",
    "half a greeting": SECRET[:11],
    "a greeting and nothing more": SECRET,
    "a frame that ends early": OPEN + frame(100, b"ten bytes."),
    "a message that ends early": OPEN + frame(len(SAID), SAID, flags=1),
    "a buffer that never comes": OPEN + frame(len(SAID), SAID, flags=1) + frame(MAX_BUFFER, bytes(1000)),
}
HUNG_UP: dict[str, bytes] = {
    "a buffer that is too large": OPEN + frame(len(SAID), SAID, flags=1) + frame(MAX_BUFFER + 1, bytes(1000)),
    "a huge length": OPEN + frame(1 << 62, bytes(1000)),
    "a negative length": OPEN + frame((1 << 64) - 1, bytes(1000)),
    "a huge length before the handshake": SECRET + frame(1 << 62, bytes(1000), flags=4),
    "no such mechanism": greeting(b"PLAIN") + command(b"\x05HELLO\x05admin\x05admin"),
    "no such command": greeting(b"NULL") + command(b"\x05STEAL") + READY,
    "a web browser": b"GET / HTTP/1.1\r\nHost: trainer\r\n\r\n" + bytes(80),
}


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may open some thousand files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"this process may open {hard} files, and the test needs 4096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Strangers:
    """Connections without a library, and what they heard."""

    def __init__(self, loader: Loader) -> None:
        self._at, self._open = port_of(loader), ExitStack()
        self._made: list[socket.socket] = []

    def __enter__(self) -> Strangers:
        return self

    def __exit__(self, *_: Any) -> None:
        self._open.close()

    def say(self, data: bytes) -> socket.socket:
        made = self._open.enter_context(socket.create_connection(self._at, timeout=served.DEADLINE_S))
        try:
            made.sendall(data)
        except OSError as error:  # hung up on while it spoke
            assert error.errno in (errno.EPIPE, errno.ECONNRESET)
        self._made.append(made)
        return made

    def hung_up(self, on: socket.socket) -> bool:
        """Whether the other side ends the connection; all that is heard until then is a few bytes."""
        heard = 0
        try:
            while data := on.recv(1 << 16):
                heard += len(data)
                assert heard <= HEARD
        except ConnectionResetError:
            pass
        return True

    def heard(self) -> int:
        """The most that one of those who are still connected heard."""
        most = 0
        for each in self._made:
            each.setblocking(False)
            try:
                most = max(most, len(each.recv(1 << 16)))
            except OSError:
                continue
        return most


def sha_of(loader: Loader) -> str:
    return hashlib.sha256(repr(epochs_of(loader, 1)).encode()).hexdigest()


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no keys"])
def test_strangers_hear_nothing_while_a_worker_is_served(keyed: bool, tmp_path: Path, many_files: None) -> None:
    """Five hundred idle connections, half of them in the middle of a handshake, and every kind of nonsense."""
    make_keys(tmp_path, ["worker"])
    trainer, worker = (tmp_path / "trainer.key", tmp_path / "worker.key") if keyed else (None, None)
    with (
        quick().loader(threads=0, workers_at=HERE, worker_keys=trainer) as loader,
        Strangers(loader) as strangers,
        serving(quick(), loader, keys=worker),
    ):
        for number in range(500):
            strangers.say(SECRET if number % 2 else b"")
        for data in (*LEFT_OPEN.values(), *garbage()):
            strangers.say(data)
        refused = [strangers.say(data) for data in HUNG_UP.values()]
        assert sha_of(loader) == sha_of_run(quick(), executor="inline", epochs=1)
        assert sum(each.parcels for each in executor_of(loader).remote_workers) > 0
        assert all(strangers.hung_up(each) for each in refused)
        with serving(quick(), loader, keys=worker):
            assert workers_of(loader) == 2, "another comes in beside them"
        assert strangers.heard() <= HEARD


@pytest.mark.parametrize("data", [OPEN, SECRET + command(b"\x05HELLO" + bytes(194)), SECRET + command(bytes(200))], ids=range(3))
def test_who_has_no_key_is_hung_up_on(data: bytes, tmp_path: Path) -> None:
    make_keys(tmp_path, ["worker"])
    with (
        quick().loader(threads=1, workers_at=HERE, worker_keys=tmp_path / "trainer.key") as loader,
        Strangers(loader) as strangers,
    ):
        assert strangers.hung_up(strangers.say(data + frame(len(SAID), SAID)))
        assert workers_of(loader) == 0


def joined(loader: Loader, socket: zmq.Socket[bytes]) -> None:
    socket.send(packed(Hello(PROTOCOL, stoker_version(), handshake_of(quick().plan), 1, "evil", 1)))
    until(lambda: workers_of(loader) == 1, "it to join")


def test_a_header_that_is_too_large_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        quick().loader(threads=0, workers_at=HERE) as loader,
        peer(loader) as evil,
    ):
        joined(loader, evil)
        evil.send(bytes(MAX_HEADER + 1))
        until(lambda: "more than the 16,777,216 that a frame may have" in caplog.text, "it to be dropped")
        assert workers_of(loader) == 0
        assert sha_of(loader) == sha_of_run(quick(), executor="inline", epochs=1)


def test_who_is_not_known_cannot_make_the_trainer_read_much() -> None:
    """A greeting is small. One that is not, of whatever protocol, is dropped unread; the next is answered."""
    with quick().loader(threads=0, workers_at=HERE) as loader, peer(loader) as stranger:
        large = {"type": "hello", "protocol": 99, "version": "9", "more": bytes(MAX_GREETING)}
        stranger.send(msgspec.msgpack.encode(large))
        stranger.send(msgspec.msgpack.encode({**large, "protocol": 98, "more": b""}))
        assert stranger.poll(1000 * int(served.DEADLINE_S))
        assert b"protocol 98" in stranger.recv()


#: connects as often as it is told to, says so, and holds on until its input ends
FLOOD = """
import select, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
made = [socket.socket() for _ in range(count)]
for each in made:
    each.setblocking(False)
    each.connect_ex((host, port))
print("all", flush=True)
sys.stdin.read()
"""


def can_open(count: int = 64) -> bool:
    try:
        with ExitStack() as files:
            return all(files.enter_context(open(os.devnull)) for _ in range(count))
    except OSError:
        return False


@pytest.mark.faults
def test_connections_do_not_take_the_files_that_the_program_needs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Four times as many as it may open files: it goes on reading, and workers come in afterwards."""
    for number in range(48):
        (tmp_path / f"{number}.txt").write_bytes(bytes(number))
    pipeline = stoker.files(sorted(tmp_path.glob("*.txt")), labels=np.arange(48)).shuffle(seed=3).batch(6)
    oracle = sha_of_run(pipeline, executor="inline", epochs=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 400 + len(os.listdir("/proc/self/fd"))  # whatever tests before this one have left open
    with (
        ExitStack() as later,
        caplog.at_level(logging.WARNING, "stoker"),
        pipeline.loader(threads=1, workers_at=HERE) as loader,
        serving(pipeline, loader),
    ):
        door = executor_of(loader)._exchange.port._door
        assert door is not None
        door._most = 200  # about what it is where the limit is that before it is made
        later.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        host, port = port_of(loader)
        with subprocess.Popen(
            [sys.executable, "-c", FLOOD, host, str(port), str(min(4 * few, hard - 100 if hard > 0 else 4 * few))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as flood:
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
            try:
                until(lambda: "no more are" in caplog.text, "the door to be shut")
                until(can_open, "those who came while nobody looked to be hung up on")
                assert sha_of(loader) == oracle
            finally:
                flood.kill()
        with serving(pipeline, loader):
            until(lambda: workers_of(loader) == 2, "both workers")
