"""The trainer's connections to pools. Used by one thread; of what frames mean it knows only that a pool has to be called."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Hashable, Iterator, Sequence
from typing import Any

import zmq

from ..engine.wake_pipe import WakePipe
from .calling_socket import CallingSocket
from .curve_keys import CallerKeys
from .frames import MAX_BUFFERS, Buffer
from .listening_port import Port

_log = logging.getLogger("stoker")
#: seconds until a pool that has not answered is called again, and between attempts while there is no connection
_AGAIN_S, _ATTEMPT_S = 1.0, 0.02
#: milliseconds for last words
_LINGER_MS = 200
#: messages that are taken in from one pool before others get their turn
_AT_ONCE = 32


class PoolLink(Port):
    """Connections to the pools at these addresses. `call` is what a pool is told first, and whenever it is not known any more."""

    def __init__(self, addresses: Sequence[str], keys: CallerKeys | None, wake: WakePipe, call: bytes) -> None:
        self.address = ", ".join(addresses)
        self._call, self._wake = call, wake
        self._context = zmq.Context(io_threads=1)
        self._poller = zmq.Poller()
        self._poller.register(wake.end, zmq.POLLIN)
        self._sockets: dict[bytes, CallingSocket] = {}
        self._due: dict[bytes, float] = {}  # when to call it
        self._told: set[str] = set()
        for address in addresses:
            self._sockets[address.encode()] = CallingSocket(self._context, address, keys, self._poller, waits=False)
            self._due[address.encode()] = 0.0

    def wait(self, seconds: float, known: Container[Hashable] = ()) -> None:
        """The pools that are not `known` are called."""
        now = time.monotonic()
        for address, due in self._due.items():
            if address in known:
                self._due[address] = 0.0
                continue
            if now >= due:
                self._due[address] = now + (_AGAIN_S if self.send(address, self._call) else _ATTEMPT_S)
            seconds = min(seconds, max(0.0, self._due[address] - now))
        self._poller.poll(max(1, int(1000 * seconds)))
        self._wake.heard()

    def received(self) -> Iterator[tuple[bytes, Buffer, list[Buffer]]]:
        for address, connection in self._sockets.items():
            self._tell(address, connection.refusals())
            for _ in range(_AT_ONCE):
                try:
                    frames: list[Any] = connection.socket.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    break
                if len(frames) <= MAX_BUFFERS + 1:
                    yield address, frames[0].buffer, [frame.buffer for frame in frames[1:]]

    def _tell(self, address: bytes, refusals: list[str]) -> None:
        for refusal in refusals:
            text = f"the pool at {address.decode()} {refusal}"
            if text not in self._told:
                self._told.add(text)
                _log.warning("%s", text)

    def send(self, address: Any, header: bytes, buffers: Sequence[Buffer] = ()) -> bool:
        try:
            self._sockets[address].socket.send_multipart([header, *buffers], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close(_LINGER_MS)
        self._sockets.clear()
        self._context.term()
