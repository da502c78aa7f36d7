"""Memory shared by several processes: files without a name, which disappear with the last process that has them open.

A file grows by extents, each of which is mapped once by every process that needs it. Memory is reserved before use, so running
out of it is an error here and does not kill the process that touches it. Unlike /dev/shm in containers, it has no size limit.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
import threading
import weakref
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_PAGE = mmap.PAGESIZE
#: the least that an arena grows by, and what it keeps of memory that nobody uses unless it is told, beside what was in use lately
_GROW, _KEEP = 8 << 20, 32 << 20
#: blocks begin at multiples of this, and sizes are rounded up so that few of them differ: by an eighth at most
_ALIGN = 64
#: blocks of at least this many bytes consist of whole pages, and can be given back to the system
_PAGES = 16 * _PAGE


class Extent(NamedTuple):
    """A stretch of a memory file, and which file."""

    file: int
    offset: int
    nbytes: int


class Place(NamedTuple):
    """Some bytes of an extent."""

    extent: Extent
    start: int
    nbytes: int


_numbers = count()  # of files that this process has made


class MemoryFile:
    """One file of memory. The process that made it may let it grow; others attach it by a descriptor that they received."""

    def __init__(self, number: int | None = None, fd: int | None = None, size: int = 0) -> None:
        self.number, self.size = next(_numbers) if number is None else number, size
        self.fd = _nameless() if fd is None else fd
        self._maps: dict[Extent, mmap.mmap] = {}
        self._mapped: dict[Extent, Bytes] = {}
        self.maps = 0  # how many there ever were

    def extend(self, nbytes: int) -> Extent:
        """A new extent; it has no memory yet."""
        extent = Extent(self.number, self.size, -(-nbytes // _PAGE) * _PAGE)
        os.ftruncate(self.fd, self.size + extent.nbytes)
        self.size += extent.nbytes
        return extent

    def reserve(self, place: Place) -> None:
        """Reserve memory for some bytes; raises MemoryError if there is not enough."""
        try:
            os.posix_fallocate(self.fd, place.extent.offset + place.start, place.nbytes)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG):
                raise MemoryError(f"there is no memory for {place.nbytes:,} bytes that processes share") from error
            raise

    def give_back(self, place: Place) -> None:
        """Let the system have the memory of whole pages; their place stays."""
        self.map(place.extent)
        self._maps[place.extent].madvise(mmap.MADV_REMOVE, place.start, place.nbytes)

    def map(self, extent: Extent) -> Bytes:
        """An extent as this process sees it."""
        mapped = self._mapped.get(extent)
        if mapped is None:
            memory = self._maps[extent] = mmap.mmap(self.fd, extent.nbytes, offset=extent.offset)
            mapped = self._mapped[extent] = np.frombuffer(memory, np.uint8)
            self.maps += 1
        return mapped

    def view(self, place: Place) -> Bytes:
        """Some bytes of an extent."""
        return self.map(place.extent)[place.start : place.start + place.nbytes]

    def private(self, places: list[Place]) -> list[Bytes]:
        """Places of one extent as this process alone sees them: a page is copied when it is written to, and not before."""
        first = min(place.start for place in places) // _PAGE * _PAGE
        stop = max(place.start + place.nbytes for place in places)
        offset = places[0].extent.offset + first
        memory = np.frombuffer(mmap.mmap(self.fd, stop - first, access=mmap.ACCESS_COPY, offset=offset), np.uint8)
        return [memory[place.start - first : place.start - first + place.nbytes] for place in places]

    @property
    def mapped(self) -> list[tuple[int, Extent]]:
        """What this process has mapped: addresses, and what is there."""
        return [(array.ctypes.data, extent) for extent, array in self._mapped.items()]

    def close(self) -> None:
        """Let go of it; what is mapped and used somewhere stays until it is not."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)
        self._mapped.clear()
        self._maps.clear()


class BlockArena:
    """Blocks of a memory file, taken and given back in any order.

    Freed blocks are used again for the same size. Beyond some, their memory goes back to the system. Threads may share it.
    """

    def __init__(self, file: MemoryFile, keep: int = _KEEP) -> None:
        self.file, self._keep = file, keep
        self._free: dict[int, list[Place]] = {}
        self._empty: dict[int, list[Place]] = {}  # free, and without memory
        self._kept = 0  # bytes of the free ones that have memory
        self._extent: Extent | None = None
        self._used = 0  # of that extent
        self._in_use = self._usual = 0  # bytes of blocks; and the most of that, lately
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Place:
        """A block of at least so many bytes."""
        with self._lock:
            return self._take(block_size(nbytes))

    def _take(self, size: int) -> Place:
        if free := self._free.get(size):
            place = free.pop()
            self._kept -= size
        else:
            empty = self._empty.get(size)
            place = empty[-1] if empty else self._new(size)
            self.file.reserve(place)
            if empty:
                empty.pop()
        self._in_use += size
        self._usual = max(self._usual, self._in_use)
        return place

    def _new(self, size: int) -> Place:
        start = -(-self._used // _PAGE) * _PAGE if size >= _PAGES else self._used
        if self._extent is None or start + size > self._extent.nbytes:
            # Each as large as all before it: there are few, because each costs every process that maps it a descriptor.
            self._extent, start = self.file.extend(max(_GROW, self.file.size, size)), 0
        self._used = start + size
        return Place(self._extent, start, size)

    def give(self, place: Place) -> None:
        """That block is free."""
        with self._lock:
            self._in_use -= place.nbytes
            self._usual += (self._in_use - self._usual) // 1024
            kept = self._kept + place.nbytes
            if kept > max(self._keep, self._usual - self._in_use) and place.nbytes >= _PAGES:
                self.file.give_back(place)
                self._empty.setdefault(place.nbytes, []).append(place)
            else:
                self._kept = kept
                self._free.setdefault(place.nbytes, []).append(place)

    def view(self, place: Place) -> Bytes:
        return self.file.view(place)


def block_size(nbytes: int) -> int:
    """A number of bytes, rounded up."""
    if nbytes <= 1024:
        return -(-max(nbytes, 1) // _ALIGN) * _ALIGN
    step = max(_ALIGN, 1 << (nbytes.bit_length() - 4))
    if nbytes >= _PAGES:
        step = max(step, _PAGE)
    return -(-nbytes // step) * step


class ReturnedPlace(weakref.ref["Loan"]):
    __slots__ = ("place",)
    place: Place


class AddressBook(dict[int, MemoryFile]):
    """Memory files by number; finds the place of some memory of this process in them."""

    _known: tuple[int, ...] = ()  # what it was looked up in
    _starts: list[int]
    _extents: list[Extent]

    def place_of(self, raw: memoryview) -> Place | None:
        """Where these bytes are; None: in no file."""
        known = tuple([file.maps << 32 | number for number, file in self.items()])
        if known != self._known:
            found = sorted(pair for file in self.values() for pair in file.mapped)
            self._known, self._starts, self._extents = known, [start for start, _ in found], [extent for _, extent in found]
        address = int(np.frombuffer(raw, np.uint8).__array_interface__["data"][0])
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address + raw.nbytes > self._starts[at] + self._extents[at].nbytes:
            return None
        return Place(self._extents[at], address - self._starts[at], raw.nbytes)


class Loan:
    """A block of memory in use. Arrays are made of it; when the last of them is dropped, its place is added to `returned`.

    As with a batch's lease, what happens then is one call of a deque's own `append`, which no Ctrl-C can interrupt.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_returned", "_view")

    def __init__(self, view: Bytes, place: Place, returned: deque[ReturnedPlace]) -> None:
        self._returned = ReturnedPlace(self, returned.append)
        self._returned.place = place
        self._view = view  # holds the mapping
        self.__array_interface__ = view.__array_interface__


def lend(view: Bytes, place: Place, returned: deque[ReturnedPlace]) -> Bytes:
    """The bytes of a block, on loan."""
    return np.asarray(Loan(view, place, returned))


#: the memory files that this process, a worker, was handed
_attached: dict[int, MemoryFile] = {}


def attach(file: MemoryFile) -> None:
    _attached[file.number] = file


def attached(places: list[Place]) -> list[Bytes]:
    """The bytes of places in files that were attached."""
    return [_attached[place.extent.file].view(place) for place in places]


def attached_privately(places: list[Place]) -> list[Bytes]:
    """The same for one extent, copy-on-write: what is written to it is seen by nobody else."""
    return _attached[places[0].extent.file].private(places)


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """The address of memory, for workers."""

    place: Place

    def open(self) -> Bytes:
        return attached([self.place])[0]


def never_shrinks(descriptor: int) -> bool:
    """Whether the system guarantees that a memory file does not shrink: reading what was cut off would end a process."""
    try:
        return bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except (OSError, AttributeError):
        return False


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("stoker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with suppress(OSError):  # some systems have no seals
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return descriptor
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
