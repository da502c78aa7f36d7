"""The line between this process and one worker: frames over a socket, with arrays next to them in shared memory.

A frame is a kind, places in memory files, and a body. If a process dies in the middle of a frame, the stream ends without a whole
frame: nothing half-written is ever accepted, and no lock is shared with a process that can die.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from .function_wire import Packed, pack, unpack
from .shared_memory import BlockArena, Extent, Place

_HEAD = struct.Struct("<IIQQ")
_PLACE = struct.Struct("<qqqqq")
_READ = 1 << 18
#: arrays of fewer bytes are part of the body; a larger body is sent next to the frame, too
SMALL, _LARGE = 4096, 1 << 16
#: marks a kind whose last place is the body
_BODY_BESIDE = 1 << 16
_DESCRIPTORS = 4
_ALIGN = 64
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
    REFUSED = 13  # a group of tasks, by its tag: it could not be read
    TAKEN = 14  # the next work, or the fault that says why it could not be made


#: the memory of some places, as this process sees it
Views = Callable[[list[Place]], list[Any]]
#: takes the memory of arrays to where the other process sees it
Put = Callable[[list[memoryview]], list[Place]]


class Frame(NamedTuple):
    kind: Kind
    places: list[Place]
    body: bytes
    beside: bool  # the body is in the last place
    tag: int = 0  # what can be said of it even if its value cannot be read

    def value(self, views: Views) -> Any:
        """What it says."""
        if not self.places:
            return unpack(self.body)
        buffers = views(self.places)
        body = buffers.pop() if self.beside else self.body
        return unpack(body, buffers)


def frame(
    kind: Kind, value: Any, put: Put | None = None, packer: Callable[[Any, int | None], Packed] = pack, tag: int = 0
) -> bytes:
    """A frame with a value, whose arrays `put` sends next to it; None: they are part of it."""
    body, memory = packer(value, None if put is None else SMALL)
    if put is not None and len(body) >= _LARGE:
        return head(kind | _BODY_BESIDE, put([*memory, memoryview(body)]), tag=tag)
    return head(kind, put(memory) if put is not None and memory else (), body, tag)


def head(kind: int, places: Sequence[Place] = (), body: bytes = b"", tag: int = 0) -> bytes:
    """A frame of bytes."""
    packed = b"".join([_PLACE.pack(*extent, start, nbytes) for extent, start, nbytes in places])
    return b"".join((_HEAD.pack(kind, len(places), len(body), tag), packed, body))


class Frames:
    """The frames in a stream of bytes, which comes in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> Iterator[Frame]:
        """Take in a piece; gives the frames that are whole now."""
        self._data += data
        at = 0
        while len(self._data) - at >= _HEAD.size:
            kind, count, nbytes, tag = _HEAD.unpack_from(self._data, at)
            first = at + _HEAD.size
            stop = first + count * _PLACE.size + nbytes
            if len(self._data) < stop:
                break
            packed = bytes(self._data[first : stop - nbytes])
            places = [Place(Extent(file, offset, size), *span) for file, offset, size, *span in _PLACE.iter_unpack(packed)]
            body = bytes(self._data[stop - nbytes : stop])
            at = stop
            yield Frame(Kind(kind & ~_BODY_BESIDE), places, body, bool(kind & _BODY_BESIDE), tag)
        del self._data[:at]


def write_block(arena: BlockArena, memory: list[memoryview]) -> tuple[Place, list[Place]]:
    """Put arrays into a block, one after another; the block, and where each of them is."""
    starts, size = [], 0
    for raw in memory:
        starts.append(size)
        size += -(-raw.nbytes // _ALIGN) * _ALIGN
    block = arena.take(size)
    view, places = arena.view(block), []
    for raw, start in zip(memory, starts):
        view[start : start + raw.nbytes] = np.frombuffer(raw, np.uint8)
        places.append(Place(block.extent, block.start + start, raw.nbytes))
    return block, places


class HomeLine:
    """The end of the process that started the worker: never blocks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        self.socket = sock
        self._frames = Frames()
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()  # frames to be sent, and descriptors with them

    def send(self, data: bytes, descriptors: list[int] | None = None) -> None:
        # Of descriptors, copies: who owns them may close them before they are sent, and their numbers become those of others.
        self._waiting.append((memoryview(data), [os.dup(fd) for fd in descriptors or ()]))
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
                self._forget()
                return True
            if sent == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = (data[sent:], [])
            for fd in descriptors:  # last: an interruption before must not have them closed twice
                os.close(fd)
        return True

    def receive(self) -> Iterator[Frame | None]:
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
            yield from self._frames.add(data)

    def close(self) -> None:
        self._forget()
        self.socket.close()

    def _forget(self) -> None:
        while self._waiting:
            for fd in self._waiting.popleft()[1]:
                os.close(fd)


class WorkerLine:
    """The end of a worker: one thread receives, several send."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._frames = Frames()
        self._lock = threading.Lock()  # dies with this process
        #: descriptors that came and were not taken
        self.descriptors: deque[int] = deque()

    def send(self, data: bytes) -> None:
        """Send a frame. If nothing is left to receive it, this process is about to be killed, and that is not an error."""
        with self._lock, suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def receive(self) -> Iterator[Frame]:
        """Frames until the other end is closed."""
        while data := self._read():
            yield from self._frames.add(data)

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
