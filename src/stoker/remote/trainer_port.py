"""The trainer's socket: who may connect, and frames in and out. Used by one thread; what frames mean is not known here."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from ..engine.resources import usable_cores
from ..errors import ConfigError
from .curve_keys import TrainerKeys
from .frames import MAX_BUFFER, MAX_BUFFERS, Buffer

_log = logging.getLogger("stoker")

#: milliseconds in which somebody who has connected must have said who it is, and between signs of life of a connection
_HANDSHAKE_MS, _HEARTBEAT_MS = 5_000, 5_000
#: milliseconds for last words
_LINGER_MS = 200
#: messages that are taken in before others get their turn
_AT_ONCE = 32
_ZAP = "inproc://zeromq.zap.01"


class TrainerPort:
    """A socket that workers connect to. Messages go to and come from addresses, which the socket gives out."""

    def __init__(self, address: str, keys: TrainerKeys | None, wake: int) -> None:
        # One thread takes in about 2 GB/s; the connections are shared out among them.
        self._context = zmq.Context(io_threads=min(4, 1 + usable_cores() // 8))
        self._socket = self._context.socket(zmq.ROUTER)
        self._zap: zmq.Socket[bytes] | None = None
        self._path = Path(address.removeprefix("ipc://")) if address.startswith("ipc://") else None
        self._own = -1  # the number of that file
        self._allowed = {z85.decode(public.encode()): name for name, public in keys.workers.items()} if keys else {}
        self._poller = zmq.Poller()
        try:
            if keys is not None:
                self._zap = self._context.socket(zmq.REP)
                self._zap.bind(_ZAP)
                self._poller.register(self._zap, zmq.POLLIN)
                self._socket.curve_server = True
                self._socket.curve_publickey, self._socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
                self._socket.zap_domain = b"stoker"
            for option, value in (
                (zmq.LINGER, _LINGER_MS),
                (zmq.ROUTER_MANDATORY, 1),
                (zmq.SNDHWM, 0),  # what is asked for is bounded
                (zmq.MAXMSGSIZE, MAX_BUFFER),
                (zmq.HANDSHAKE_IVL, _HANDSHAKE_MS),
                (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
                (zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS),
                (zmq.IPV6, int("[" in address)),
            ):
                self._socket.setsockopt(option, value)
            if self._path is not None:
                _check_free(self._path)
            self._socket.bind(address)
            self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
            if self._path is not None:
                self._path.chmod(0o600)
                self._own = self._path.stat().st_ino
        except (zmq.ZMQError, OSError) as error:
            self.close()
            raise ConfigError(
                f"loader(workers_at={address!r}): cannot listen there: {error.strerror or error}; choose another port, or :0 for "
                "any that is free"
            ) from error
        self._wake = wake
        self._poller.register(wake, zmq.POLLIN)
        self._poller.register(self._socket, zmq.POLLIN)

    def wait(self, seconds: float) -> None:
        """Until something comes, or somebody wakes this thread."""
        ready = dict(self._poller.poll(max(0, int(1000 * seconds))))
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._zap is not None and self._zap in ready:
            self._admit(self._zap)

    def received(self) -> Iterator[tuple[bytes, Buffer, list[Buffer]]]:
        """Messages that have come: from whom, header and buffers."""
        for _ in range(_AT_ONCE):
            try:
                frames: list[Any] = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if 2 <= len(frames) <= MAX_BUFFERS + 2:
                yield frames[0].bytes, frames[1].buffer, [frame.buffer for frame in frames[2:]]

    def send(self, address: Any, header: bytes) -> bool:
        """Whether somebody is at that address."""
        try:
            self._socket.send_multipart([address, header], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def _admit(self, zap: zmq.Socket[bytes]) -> None:
        """Say of somebody who connects whether it may: whose key is in the trainer's file."""
        with suppress(zmq.Again):
            while True:
                request = zap.recv_multipart(zmq.NOBLOCK)
                version, serial, _, origin, _, mechanism, *credentials = request
                name = self._allowed.get(credentials[0]) if mechanism == b"CURVE" and credentials else None
                if name is None:
                    _log.warning(
                        "somebody at %s wanted to work here, whose key is not in the key file", origin.decode("ascii", "replace")
                    )
                    answer = [b"400", b"unknown key", b"", b""]
                else:
                    answer = [b"200", b"", name.encode(), b""]
                zap.send_multipart([version, serial, *answer])

    def close(self) -> None:
        """Let last words go out; idempotent."""
        if self._zap is not None:
            self._zap.close(linger=0)
        self._socket.close()
        self._context.term()
        with suppress(OSError):
            if self._path is not None and self._path.stat().st_ino == self._own:
                self._path.unlink()


def _check_free(path: Path) -> None:
    """Raise where something is at a path that the library would replace: a file that is not a socket, or a socket in use."""
    if not path.exists():
        return
    if not path.is_socket():
        raise FileExistsError(errno.EEXIST, "a file is there that is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return  # left by a program that was killed
    raise OSError(errno.EADDRINUSE, "another program listens there")
