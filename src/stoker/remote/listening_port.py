"""A socket that others connect to: who may, and frames in and out. Used by one thread; what frames mean is not known here.

A trainer has one for its workers, and a pool one for its trainers.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Container, Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import zmq
from zmq.utils import z85

from ..engine.resources import usable_cores
from ..engine.wake_pipe import WakePipe
from ..errors import ConfigError
from .curve_keys import ListenerKeys
from .frames import MAX_BUFFER, MAX_BUFFERS, Buffer
from .message_memory import keep_message_memory
from .open_door import Door

_log = logging.getLogger("stoker")

#: milliseconds in which somebody who has connected must have said who it is, and between signs of life of a connection
_HANDSHAKE_MS, _HEARTBEAT_MS = 5_000, 5_000
#: milliseconds for last words
_LINGER_MS = 200
#: messages that are taken in before others get their turn
_AT_ONCE = 32
#: connections that the system holds until they are taken in: of more, each would be tried again after a second
_BACKLOG = 1024
#: addresses of strangers that are logged
_MOST_STRANGERS = 100
_ZAP = "inproc://zeromq.zap.01"


class Port(Protocol):
    """Messages to and from addresses, whoever has connected to whom."""

    address: str

    def wait(self, seconds: float, known: Container[Hashable] = ()) -> None:
        """Until something comes, or somebody wakes this thread. `known` are the addresses that have said hello."""

    def received(self) -> Iterator[tuple[bytes, Buffer, list[Buffer]]]:
        """Messages that have come: from whom, header and buffers."""

    def send(self, address: Any, header: bytes, buffers: Sequence[Buffer] = ()) -> bool:
        """Whether somebody is at that address. Buffers are not copied: nobody may write to them any more."""

    def close(self) -> None:
        """Let last words go out; idempotent."""


class ListeningPort(Port):
    """The socket gives out the addresses. `asked` is what the user wrote, for messages."""

    def __init__(self, address: str, keys: ListenerKeys | None, wake: WakePipe, asked: str) -> None:
        keep_message_memory()
        # One thread takes in about 2 GB/s; the connections are shared out among them.
        self._context = zmq.Context(io_threads=min(4, 1 + usable_cores() // 8))
        self._socket = self._context.socket(zmq.ROUTER)
        self._zap: zmq.Socket[bytes] | None = None
        self._door: Door | None = None
        self._path = Path(address.removeprefix("ipc://")) if address.startswith("ipc://") else None
        self._own = -1  # the number of that file
        self._strangers: set[str] = set()  # that were logged
        self._allowed = {z85.decode(public.encode()): name for name, public in keys.accepts.items()} if keys else {}
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
                (zmq.BACKLOG, _BACKLOG),
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
            raise ConfigError(f"{asked}: cannot listen there: {error.strerror or error}; {_remedy(error.errno)}") from error
        self._wake = wake
        self._poller.register(wake.end, zmq.POLLIN)
        self._poller.register(self._socket, zmq.POLLIN)
        if self._path is None:  # only this user reaches a file
            self._door = Door(self._socket, self.address)
            self._poller.register(self._door.monitor, zmq.POLLIN)

    def wait(self, seconds: float, known: Container[Hashable] = ()) -> None:
        ready = dict(self._poller.poll(max(0, int(1000 * seconds))))
        if self._wake.end in ready:
            self._wake.heard()
        if self._zap is not None and self._zap in ready:
            self._admit(self._zap)
        if self._door is not None and (self._door.shut or self._door.monitor in ready):
            self._door.look()

    def received(self) -> Iterator[tuple[bytes, Buffer, list[Buffer]]]:
        for _ in range(_AT_ONCE):
            try:
                frames: list[Any] = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if 2 <= len(frames) <= MAX_BUFFERS + 2:
                yield frames[0].bytes, frames[1].buffer, [frame.buffer for frame in frames[2:]]

    def send(self, address: Any, header: bytes, buffers: Sequence[Buffer] = ()) -> bool:
        try:
            self._socket.send_multipart([address, header, *buffers], zmq.NOBLOCK, copy=not buffers)
        except zmq.ZMQError:
            return False
        return True

    def _admit(self, zap: zmq.Socket[bytes]) -> None:
        """Say of somebody who connects whether it may: whose key is in the key file."""
        with suppress(zmq.Again):
            while True:
                request = zap.recv_multipart(zmq.NOBLOCK)
                version, serial, _, origin, _, mechanism, *credentials = request
                name = self._allowed.get(credentials[0]) if mechanism == b"CURVE" and credentials else None
                if name is None:
                    self._tell_of(origin.decode("ascii", "replace"))
                    answer = [b"400", b"unknown key", b"", b""]
                else:
                    answer = [b"200", b"", name.encode(), b""]
                zap.send_multipart([version, serial, *answer])

    def _tell_of(self, stranger: str) -> None:
        """Log once that somebody was refused, who will try again every few seconds."""
        if stranger not in self._strangers and len(self._strangers) < _MOST_STRANGERS:
            self._strangers.add(stranger)
            _log.warning("refused a connection from %s: its key is not in the key file (logged once)", stranger)

    def close(self) -> None:
        if self._zap is not None:
            self._zap.close(linger=0)
        if self._door is not None:
            self._door.close()
        self._socket.close()
        self._context.term()
        with suppress(OSError):
            if self._path is not None and self._path.stat().st_ino == self._own:
                self._path.unlink()


def _remedy(number: int | None) -> str:
    """What to do where nobody can listen, by the system's number of the error."""
    if number in (errno.EADDRNOTAVAIL, errno.ENODEV, errno.EINVAL):
        return "use an address of this machine, or tcp://0.0.0.0:PORT for all it has"
    if number in (errno.ENOENT, errno.ENOTDIR, errno.EROFS):
        return "make the folder of the socket, or use another"
    if number in (errno.EACCES, errno.EPERM):
        return "use a port from 1024 on, or a folder that you may write to"
    return "choose another port, or :0 for any that is free; for ipc:// another path"


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
