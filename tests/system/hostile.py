"""Servers on the loopback that misbehave: a behaviour is a function of one connection, run in a thread for each.

    with Hostile() as hostile:
        port = hostile.listen(behave, data)     # behave(peer), each time somebody connects
        ...                                     # hostile.requests[port] is what was asked

A behaviour returns, which closes its connection, or is ended by `Gone` when the other end went or the server stops. So a
behaviour that goes on for ever is written as one.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import NoReturn

#: seconds between two bytes that are dripped: often enough that a wait for the next byte never ends
DRIP_S = 0.02


class Gone(Exception):
    """The other end of a connection went away, or the server stops."""


@dataclass(frozen=True)
class Request:
    """What was asked."""

    method: str
    #: path and query
    path: str
    headers: dict[str, str]
    #: which request to this port it is, from 0
    number: int

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last byte of the range asked for."""
        words = self.headers.get("range", "").removeprefix("bytes=").split("-")
        return (int(words[0]), int(words[1])) if len(words) == 2 else None

    @property
    def is_for_bytes(self) -> bool:
        """Whether the content of the shard is asked for, not its size and not its index."""
        return self.method == "GET" and ".stk" not in self.path


class Peer:
    """The other end of one connection, for the function that misbehaves."""

    def __init__(self, connection: socket.socket, data: bytes, log: list[Request], stopping: threading.Event) -> None:
        self.connection, self.data = connection, data
        self._log, self._stopping, self._held = log, stopping, b""

    def request(self) -> Request:
        """Wait for the next request."""
        while b"\r\n\r\n" not in self._held:
            self._held += self._receive()
        head, self._held = self._held.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        request = Request(method, path, headers, len(self._log))
        self._log.append(request)
        return request

    def send(self, *parts: bytes | str) -> None:
        """Send some bytes, at once."""
        try:
            self.connection.sendall(b"".join(part.encode("latin-1") if isinstance(part, str) else part for part in parts))
        except OSError:
            raise Gone from None

    def drip(self, data: Iterable[int]) -> None:
        """Send these bytes one at a time, slowly."""
        self.pour((bytes([byte]) for byte in data), DRIP_S)

    def drip_endlessly(self, data: bytes) -> NoReturn:
        """The same, again and again."""
        self.drip(cycle(data))
        raise AssertionError("for ever is over")

    def pour(self, parts: Iterable[bytes], pause_s: float = 0.0005) -> None:
        """Send one part after the other; the short pauses leave the processor to others."""
        for part in parts:
            self.send(part)
            if self._stopping.wait(pause_s):
                raise Gone

    def pour_endlessly(self, part: bytes) -> NoReturn:
        """Send the same part again and again, fast."""
        self.pour(repeat(part))
        raise AssertionError("for ever is over")

    def hang(self) -> NoReturn:
        """Say nothing until the other end goes."""
        while True:
            self._receive()

    def reset(self) -> None:
        """End the connection by a reset, which overtakes what was sent before."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def wait_for_stop(self) -> None:
        """Do not even read."""
        self._stopping.wait(600)

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        try:
            self.connection = context.wrap_socket(self.connection, server_side=True)
        except OSError:
            raise Gone from None

    def end(self) -> None:
        """Wake up whoever waits on the connection."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)  # of TLS nothing is said any more

    def _receive(self) -> bytes:
        try:
            data = self.connection.recv(1 << 16)
        except OSError:
            raise Gone from None
        if not data:
            raise Gone
        return data


Behaviour = Callable[[Peer], object]


class Hostile:
    """Any number of ports, each with a behaviour of its own."""

    def __init__(self) -> None:
        self.requests: dict[int, list[Request]] = defaultdict(list)
        #: what behaviours raised besides `Gone`: mistakes of theirs
        self.mistakes: list[str] = []
        self._behaviours: dict[int, tuple[Behaviour, bytes]] = {}
        self._peers: dict[threading.Thread, Peer] = {}
        self._stopping = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def listen(self, behave: Behaviour, data: bytes = b"") -> int:
        """The port of a new server, which behaves so and has these data. Call it before `with`."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        port: int = listener.getsockname()[1]
        self._behaviours[port] = behave, data
        self._selector.register(listener, selectors.EVENT_READ, port)
        return port

    def __enter__(self) -> Hostile:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close all ports and connections; once more does nothing."""
        self._stopping.set()
        self._acceptor.join(60)
        for thread, peer in list(self._peers.items()):
            peer.end()
            thread.join(60)
        for key in list((self._selector.get_map() or {}).values()):
            self._selector.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                connection, _ = key.fileobj.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                behave, data = self._behaviours[key.data]
                peer = Peer(connection, data, self.requests[key.data], self._stopping)
                thread = threading.Thread(target=self._run, args=(behave, peer), daemon=True)
                self._peers[thread] = peer
                thread.start()

    def _run(self, behave: Behaviour, peer: Peer) -> None:
        try:
            behave(peer)
        except Gone:
            pass
        except Exception as error:
            self.mistakes.append(f"{behave}: {error!r}")
        finally:
            peer.connection.close()
            self._peers.pop(threading.current_thread(), None)
