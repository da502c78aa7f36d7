"""The line between this process and one worker: frames over a socket, arrays beside them in shared memory.

A frame is a kind, places in memory files, and a body. A process that dies in the middle of one leaves an end of the stream and no
whole frame: nothing half-written is ever taken for whole, and no lock is shared with a process that can die.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from .function_wire import Beside, pack, unpack
from .shared_memory import Extent, Place

_HEAD = struct.Struct("<IIQ")
_PLACE = struct.Struct("<qqqqq")
_READ = 1 << 18
#: arrays of fewer bytes are part of the body; a larger body goes beside the frame, too
SMALL, _LARGE = 4096, 1 << 16
#: marks a kind whose last place is the body
_BODY_BESIDE = 1 << 16
_DESCRIPTORS = 4
_BUFFER = 1 << 20


class Kind(IntEnum):
    """What a frame says. Down to a worker: up to END; up from it: the others."""

    ATTACH = 1  # a memory file, whose descriptor comes with it
    START = 2  # what makes a thread's scratch
    WORK = 3
    OPEN = 4  # a channel, and its work
    TASKS = 5
    CANCEL = 6  # a channel
    FREE = 7  # blocks of the worker's own memory
    RECALL = 8  # give back some tasks that were not begun
    END = 9
    READY = 10
    OUTCOMES = 11
    RETURNED = 12  # tasks that were not begun
    REFUSED = 13  # a work that cannot be made here


class Frame(NamedTuple):
    kind: Kind
    places: list[Place]
    body: Any

    def value(self, view: Callable[[Place], Any]) -> Any:
        """What it says; `view` gives the memory of its places."""
        return unpack(self.body, [view(place) for place in self.places])


def frame(kind: Kind, value: Any, put: Callable[[Any], Place | None], packer: Callable[[Any, Beside], bytes] = pack) -> bytes:
    """A frame with a value. `put` takes the memory of an array to where the other process sees it; None: it is to be sent."""
    places: list[Place] = []

    def beside(buffer: Any) -> bool:
        raw = buffer.raw()
        place = put(raw) if raw.nbytes >= SMALL else None
        if place is None:
            return True
        places.append(place)
        return False

    body = packer(value, beside)
    if len(body) >= _LARGE and (place := put(memoryview(body))) is not None:
        return head(kind | _BODY_BESIDE, [*places, place], b"")
    return head(kind, places, body)


def head(kind: int, places: list[Place] = [], body: bytes = b"") -> bytes:  # noqa: B006  never changed
    """A frame of bytes."""
    packed = b"".join([_PLACE.pack(*extent, start, nbytes) for extent, start, nbytes in places])
    return b"".join((_HEAD.pack(kind, len(places), len(body)), packed, body))


class Frames:
    """The frames in a stream of bytes, which comes in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes, view: Callable[[Place], Any]) -> Iterator[Frame]:
        """Take in a piece; gives the frames that are whole now."""
        self._data += data
        at = 0
        while len(self._data) - at >= _HEAD.size:
            kind, count, nbytes = _HEAD.unpack_from(self._data, at)
            first = at + _HEAD.size
            stop = first + count * _PLACE.size + nbytes
            if len(self._data) < stop:
                break
            places = [
                Place(Extent(*fields[:3]), *fields[3:])
                for fields in _PLACE.iter_unpack(bytes(self._data[first : first + count * _PLACE.size]))
            ]
            body: Any = bytes(self._data[stop - nbytes : stop])
            at = stop
            if kind & _BODY_BESIDE:
                body = view(places.pop())
            yield Frame(Kind(kind & ~_BODY_BESIDE), places, body)
        del self._data[:at]


class HomeLine:
    """The end of whoever started the worker: never blocks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        self.socket = sock
        self._frames = Frames()
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()  # frames to be sent, and descriptors with them

    def send(self, data: bytes, descriptors: list[int] | None = None) -> None:
        self._waiting.append((memoryview(data), descriptors or []))
        self.flush()

    def flush(self) -> bool:
        """Send what the socket takes now; whether that is all. A worker that is gone is noticed elsewhere."""
        while self._waiting:
            data, descriptors = self._waiting[0]
            try:
                if descriptors:
                    sent = socket.send_fds(self.socket, [data], descriptors)
                else:
                    sent = self.socket.send(data, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                self._waiting.clear()
                return True
            if sent == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = (data[sent:], [])
        return True

    def receive(self, view: Callable[[Place], Any]) -> Iterator[Frame | None]:
        """All frames that have come; None last when the worker's end is closed."""
        while True:
            try:
                data = self.socket.recv(_READ)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                yield None
                return
            yield from self._frames.add(data, view)

    def close(self) -> None:
        self.socket.close()


class WorkerLine:
    """The end of a worker: one thread receives, several send."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._frames = Frames()
        self._lock = threading.Lock()  # dies with this process
        #: descriptors that came and were not taken
        self.descriptors: deque[int] = deque()

    def send(self, data: bytes) -> None:
        with self._lock:
            self._socket.sendall(data)

    def receive(self, view: Callable[[Place], Any]) -> Iterator[Frame]:
        """Frames until the other end is closed."""
        while data := self._read():
            yield from self._frames.add(data, view)

    def _read(self) -> bytes:
        size = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_READ, size, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        except ConnectionError:
            return b""
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                for fd in fds:
                    os.set_inheritable(fd, False)
                    self.descriptors.append(fd)
        return data


def copy_into(target: Any, raw: Any) -> None:
    """Put the memory of an array where it belongs."""
    target[: raw.nbytes] = np.frombuffer(raw, np.uint8)
