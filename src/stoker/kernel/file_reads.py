"""The memory that files are read into: names on one side, bytes on the other."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

#: the most bytes a sample's file may have: it is read whole, and a sparse file of any size costs nothing to make
MAX_FILE_BYTES = 1 << 32
#: what an arena begins with
_FIRST_BYTES = 1 << 18


class Paths:
    """Many file names as one buffer, made once and shared by every read.

    >>> Paths([b"a.jpg", b"b.jpg"]).path(1)
    b'b.jpg'
    """

    def __init__(self, paths: Sequence[bytes]) -> None:
        if any(b"\0" in path for path in paths):
            raise ValueError("a file name holds a NUL byte")
        self.starts = np.zeros(len(paths) + 1, np.int64)
        np.cumsum(np.fromiter((len(path) + 1 for path in paths), np.int64, len(paths)), out=self.starts[1:])
        self.names = np.frombuffer(b"\0".join(paths) + b"\0", np.uint8)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def path(self, i: int) -> bytes:
        """Return path `i`."""
        if not 0 <= i < len(self):
            raise IndexError(f"path {i} of {len(self)}")
        return self.names[self.starts[i] : self.starts[i + 1] - 1].tobytes()


def _empty(nbytes: int) -> NDArray[np.uint8]:
    return np.empty(nbytes, np.uint8)


class Buffers:
    """Memory of earlier reads, kept for reuse: fresh memory costs a page fault every 4 KiB, as much as reading.

    The holder of an array from `take` (the array itself, or a memoryview of it) owns its memory. When it is dropped the memory
    comes back here, up to `most` bytes of it. `make` allocates what is missing, or raises MemoryError.
    """

    def __init__(self, most: int, make: Callable[[int], NDArray[np.uint8]] = _empty) -> None:
        self._most, self._make = most, make
        self._lock = threading.Lock()
        self._free: list[NDArray[np.uint8]] = []
        self._lent: dict[int, tuple[weakref.ref[NDArray[np.uint8]], NDArray[np.uint8]]] = {}

    def take(self, capacity: int, slack: int = 4) -> NDArray[np.uint8]:
        """An array of at least `capacity` bytes, and at most `slack` times that, with undefined content."""
        with self._lock:
            fitting = [at for at, memory in enumerate(self._free) if capacity <= memory.size <= slack * capacity]
            memory = self._free.pop(min(fitting, key=lambda at: self._free[at].size)) if fitting else None
        if memory is None:
            memory = self._fresh(capacity)
        # A view of it, because its death can be noticed while the memory itself lives on.
        array = memory[:]
        key = id(array)
        self._lent[key] = weakref.ref(array, lambda _: self._back(key)), memory
        return array

    def _fresh(self, capacity: int) -> NDArray[np.uint8]:
        try:
            return self._make(capacity)
        except MemoryError:
            with self._lock:
                self._free.clear()  # what is kept for later may be what is missing now
            return self._make(capacity)

    def renew_lock(self) -> None:
        self._lock = threading.Lock()

    def _back(self, key: int) -> None:
        # Called from wherever the last reference was dropped, perhaps in the middle of `take`: a lock could be held already.
        _, memory = self._lent.pop(key)
        if self._lock.acquire(blocking=False):
            try:
                if sum(other.size for other in self._free) + memory.size <= self._most:
                    self._free.append(memory)
            finally:
                self._lock.release()


_buffers = Buffers(256 << 20)
os.register_at_fork(after_in_child=_buffers.renew_lock)  # a thread of the parent may have held it


class Arena:
    """A buffer that grows and is used again; what was read into it is valid until the next read."""

    def __init__(self, capacity: int = _FIRST_BYTES) -> None:
        self.buffer: NDArray[np.uint8] = _buffers.take(capacity)

    def grow(self, capacity: int, keep: int) -> None:
        """Make room for `capacity` bytes, keeping the first `keep`. Arrays handed out before stay valid."""
        # What has to be kept grows by doubling, so that it is not copied again and again. Else a little more than is needed will
        # do: what is read may be left to a batch, and a buffer twice as large as its content would be a waste there.
        wanted = max(capacity, 2 * self.buffer.size) if keep else capacity + capacity // 8
        try:
            larger = _buffers.take(wanted)
        except MemoryError:
            larger = _buffers.take(capacity)
        larger[:keep] = self.buffer[:keep]
        self.buffer = larger

    def room_for_file(self, capacity: int, keep: int) -> int:
        """Grow for a file that follows the first `keep` bytes; returns 0, or the errno that says why there is no room for it.

        If there is not enough memory for it and those before it together, a MemoryError is raised, because the file is not at
        fault.
        """
        if capacity - keep > MAX_FILE_BYTES:
            return errno.EFBIG
        try:
            self.grow(capacity, keep)
        except MemoryError:
            if keep:
                self.buffer = _buffers.take(_FIRST_BYTES)  # reading them one at a time needs the memory
                raise
            return errno.ENOMEM
        return 0

    def part_with(self, data: NDArray[np.uint8]) -> None:
        """Leave `data` to its holder: if it is this arena's buffer, the next read goes to another."""
        if data is self.buffer:
            try:
                self.buffer = _buffers.take(data.size)
            except MemoryError:
                self.buffer = _buffers.take(_FIRST_BYTES)  # it grows when it has to
