"""Memory of a worker or pool that trainers on its machine see: rows lie there once, and each trainer copies those it wants.

It has no name, so nothing is left of it when all of them have ended. A trainer opens it through the other's process, read-only:
it cannot spoil what others get.
"""

from __future__ import annotations

import mmap
import os
import secrets
import select
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..engine.shared_memory import AddressBook, BlockArena, Bytes, MemoryFile, ReturnedPlace, lend, never_shrinks
from .frames import Buffer, FrameError, MemoryAt

_TOKEN = 32
#: what the system calls such a file
_NAME = "/memfd:stoker"
#: Linux's MADV_POPULATE_READ, which maps many pages at once, and bytes from which it is worth the call
_POPULATE_READ, _FAULTS = 22, 256 << 10


class PoolMemory:
    """The side of who makes rows; `keep` are bytes that stay with it while nobody uses them. Threads may share it."""

    def __init__(self, keep: int) -> None:
        self._file = MemoryFile()
        self._arena, self._book = BlockArena(self._file, keep), AddressBook({self._file.number: self._file})
        self._returned: deque[ReturnedPlace] = deque()
        self._lock = threading.Lock()  # of what is mapped
        self._token = secrets.token_bytes(_TOKEN)
        self._arena.view(self._arena.take(_TOKEN))[:_TOKEN] = np.frombuffer(self._token, np.uint8)

    @property
    def at(self) -> MemoryAt | None:
        """Where trainers find it; None: this system has no way to."""
        with suppress(OSError):
            if str(Path(f"/proc/self/fd/{self._file.fd}").readlink()).startswith(_NAME):
                return MemoryAt(os.getpid(), self._file.fd, self._token)
        return None

    def allocate(self, nbytes: int) -> Bytes:
        """Some bytes; they are free again when nobody holds them."""
        while self._returned:
            with suppress(IndexError):  # another thread was faster
                self._arena.give(self._returned.popleft().place)
        place = self._arena.take(nbytes)
        with self._lock:  # what is mapped twice has two addresses, of which only one is known
            view = self._arena.view(place)
        return lend(view, place, self._returned)[:nbytes]

    def own(self, buffer: Buffer) -> memoryview:
        """The same bytes in this memory: where they are, or copied there."""
        data = np.frombuffer(buffer, np.uint8)
        if len(data) and self._place_of(data.data) is None:
            copy = self.allocate(len(data))
            copy[:] = data
            data = copy
        return data.data

    def place(self, buffer: memoryview) -> tuple[int, int]:
        """Offset and size of what `own` gave."""
        return (0, 0) if not len(buffer) else self._place_of(buffer) or (0, 0)

    def _place_of(self, buffer: memoryview) -> tuple[int, int] | None:
        with self._lock:
            place = self._book.place_of(buffer)
        return None if place is None else (place.extent.offset + place.start, place.nbytes)

    def close(self) -> None:
        self._file.close()


def watch_of(pid: int) -> int:
    """A descriptor of a process, which tells when that has ended; -1: it is not seen from here."""
    with suppress(OSError, OverflowError, AttributeError):
        return os.pidfd_open(pid)
    return -1


def has_ended(watch: int) -> bool:
    """Whether the process of this descriptor is gone. `select` does not take descriptors from 1024 on."""
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    return bool(poll.poll(0))


class AbsentReaders:
    """Trainers that are not heard of any more while their processes live on: they may still be reading what they were lent.

    Until one has ended, or calls again and so has let go, its memory is not used for anything else.
    """

    def __init__(self) -> None:
        self._readers: list[tuple[Hashable, int, object]] = []

    def __len__(self) -> int:
        return len(self._readers)

    def add(self, name: Hashable, watch: int, lent: object) -> None:
        """`watch` is a descriptor of its process (`watch_of`), and closed with it; without one it reads nothing."""
        if watch >= 0:
            self._readers.append((name, watch, lent))

    def back(self, name: Hashable) -> None:
        """This one is here again."""
        self._forget(lambda reader, _: reader == name)

    def look(self) -> None:
        """Forget those whose processes have ended."""
        self._forget(lambda _, watch: has_ended(watch))

    def close(self) -> None:
        self._forget(lambda *_: True)

    def _forget(self, over: Callable[[Hashable, int], bool]) -> None:
        gone = [reader for reader in self._readers if over(*reader[:2])]
        self._readers = [reader for reader in self._readers if reader not in gone]
        for _, watch, _ in gone:
            os.close(watch)


class SeenMemory:
    """The trainer's side."""

    def __init__(self, descriptor: int, token: bytes) -> None:
        self._descriptor, self.token = descriptor, token
        self._ends: list[int] = []  # of what is mapped, piece by piece, as the memory has grown
        self._pieces: list[tuple[mmap.mmap, Bytes]] = []
        self._read: set[int] = set()  # offsets of places whose pages are known to be mapped

    @classmethod
    def open(cls, at: MemoryAt) -> SeenMemory | None:
        """The memory of a pool; None: it cannot be seen from here."""
        path = Path(f"/proc/{at.pid}/fd/{at.descriptor}")
        try:
            if not str(path.readlink()).startswith(_NAME):
                return None
            found = cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), at.token)
        except OSError:
            return None
        with suppress(OSError, FrameError):
            if never_shrinks(found._descriptor) and bytes(found.buffers([(0, _TOKEN)])[0]) == at.token:
                return found
        found.close()
        return None

    def buffers(self, places: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes at these places; raises FrameError where there are none."""
        return [self._buffer(*place) for place in places]

    def _buffer(self, offset: int, nbytes: int) -> memoryview:
        if offset + nbytes > (self._ends[-1] if self._ends else 0):
            self._map_more(offset + nbytes)
        piece = bisect_right(self._ends, offset)
        if piece == len(self._ends):  # nothing, at the end
            return memoryview(b"")
        memory, mapped = self._pieces[piece]
        start = offset - (self._ends[piece] - len(mapped))
        if start + nbytes > len(mapped):  # memory is given out in parts of a piece
            raise FrameError(f"a place at byte {offset:,} that nobody could have been given")
        if nbytes >= _FAULTS and offset not in self._read:
            self._read.add(offset)
            first = start - start % mmap.PAGESIZE
            with suppress(OSError):  # an older system maps page by page, as they are read
                memory.madvise(_POPULATE_READ, first, start + nbytes - first)
        return mapped[start : start + nbytes].data

    def _map_more(self, end: int) -> None:
        """Map what the memory has grown by. What is mapped stays: to map it again would cost all its pages once more."""
        begin, size = self._ends[-1] if self._ends else 0, os.fstat(self._descriptor).st_size
        if end > size:
            raise FrameError(f"a place up to byte {end:,} of a memory of {size:,} bytes")
        memory = mmap.mmap(self._descriptor, size - begin, access=mmap.ACCESS_READ, offset=begin)
        self._pieces.append((memory, np.frombuffer(memory, np.uint8)))
        self._ends.append(size)

    def close(self) -> None:
        """Let go of it; idempotent. What is used somewhere stays until it is not."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
        self._ends, self._pieces = [], []
