"""One file of the cache: an entry's bytes, followed by what proves that they are right.

::

    data      the entry's bytes, from byte 0 on, so that a reader needs no arithmetic
    checksums CRC-32C of each MiB of data, 4 bytes each
    footer    magic, version, bytes per checksum, length, which entry this is, CRC-32C of checksums and footer

A file appears under its name only when all of it is on the disk. Bytes are checked the first time a process reads them, and again
when the file's modification time shows that it was written to.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from ..kernel.records import crc32c
from .open_files import PooledFile

PIECE = 1 << 20
_MAGIC = b"STOKERCU"
_VERSION = 1
_FOOTER = struct.Struct("<8sIIQ32sI")

#: what tells a file from another of the same name, and from itself before it was written to: inode, modification time, size
Identity = tuple[int, int, int]


class ReplacedError(Exception):
    """Another file has taken the place of one that was read before. Stays inside the cache."""


class DamagedError(Exception):
    """A file of the cache does not hold what it should. Stays inside the cache, which fetches the entry again."""


def file_bytes(length: int) -> int:
    """How long the file of an entry of `length` bytes is."""
    return length + 4 * -(-length // PIECE) + _FOOTER.size


def is_entry(path: Path) -> bool:
    """Whether a file is one of ours, by its footer: the cache deletes nothing else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        size = os.fstat(fd).st_size
        return size >= _FOOTER.size and os.pread(fd, len(_MAGIC), size - _FOOTER.size) == _MAGIC
    except OSError:
        return False
    finally:
        os.close(fd)


def identity_of(about: os.stat_result) -> Identity:
    return about.st_ino, about.st_mtime_ns, about.st_size


class EntryWriter:
    """Writes an entry into an open file of the right size, front to back. `written` bytes are there to be read."""

    def __init__(self, fd: int, length: int) -> None:
        self._fd, self._length = fd, length
        self._crcs: list[int] = []
        self._crc = 0
        self.written = 0

    def add(self, data: memoryview | bytes) -> None:
        """Write the bytes that come next; raises OSError."""
        view = memoryview(data)
        if self.written + len(view) > self._length:
            raise ValueError(f"more than the {self._length} bytes of the entry")
        while view:
            part = view[: PIECE - self.written % PIECE]
            _write(self._fd, part, self.written)
            self._crc = crc32c(part, self._crc)
            self.written += len(part)
            if not self.written % PIECE or self.written == self._length:
                self._crcs.append(self._crc)
                self._crc = 0
            view = view[len(part) :]

    def finish(self, digest: bytes) -> None:
        """Write checksums and footer, and wait until all of it is on the disk."""
        if self.written != self._length:
            raise ValueError(f"{self.written} bytes of {self._length}")
        crcs = np.array(self._crcs, "<u4").tobytes()
        head = _FOOTER.pack(_MAGIC, _VERSION, PIECE, self._length, digest, 0)[:-4]
        _write(self._fd, memoryview(crcs + head + struct.pack("<I", crc32c(head, crc32c(crcs)))), self._length)
        os.fsync(self._fd)


class EntryFile(PooledFile):
    """An entry of the cache; many threads may read it while they have it pinned. Reading continues when it is deleted."""

    def __init__(self, path: Path, digest: bytes) -> None:
        super().__init__()
        self._path, self._digest = path, digest
        #: while it is pinned
        self.fd = -1
        #: on a monotonic clock, when its use was last noted
        self.noted_s = float("-inf")
        self.identity: Identity | None = None
        self._next_unchecked = 0

    def open(self) -> int:
        """Open it; raises OSError, and DamagedError when it is not what its name says.

        Opened again it must be the same file: what was checked of it stays checked. ReplacedError: it is another.
        """
        fd = _open(self._path)
        try:
            about = os.fstat(fd)
            identity = identity_of(about)
            if self.identity is None:
                self.length, self._crcs = _read_footer(fd, about.st_size, self._digest)
                #: which pieces this process has checked
                self._checked = bytearray(len(self._crcs))
                self.identity = identity
            elif identity != self.identity:
                raise ReplacedError
        except BaseException:
            os.close(fd)
            raise
        return fd

    def is_replaced(self) -> bool:
        """Whether it was deleted or written to since it was first opened, as its folder says."""
        try:
            return identity_of(self._path.lstat()) != self.identity
        except OSError:
            return True

    def is_stale(self) -> bool:
        """Whether it was deleted or written to since it was opened."""
        about = os.fstat(self.fd)
        return about.st_nlink == 0 or identity_of(about) != self.identity

    def check(self, start: int, stop: int) -> None:
        """Raise DamagedError unless bytes `start` up to `stop` are what was fetched."""
        if not 0 <= start <= stop <= self.length:
            raise DamagedError(f"bytes {start} to {stop} of {self.length}")
        if start == stop:
            return
        for piece in range(start // PIECE, (stop - 1) // PIECE + 1):
            if not self._checked[piece]:
                self._check_piece(piece)

    def check_more(self, most: int) -> bool:
        """Check up to `most` pieces that were not checked yet; returns whether all are checked now."""
        while self._next_unchecked < len(self._checked):
            if not self._checked[self._next_unchecked]:
                if not most:
                    return False
                self._check_piece(self._next_unchecked)
                most -= 1
            self._next_unchecked += 1
        return True

    def read(self, offset: int, view: memoryview) -> None:
        """Fill the view, after `check`."""
        if not read_fully(self.fd, offset, view):
            raise DamagedError("it was cut")

    def note_use(self, stamp: int) -> None:
        """Leave word for all processes that it was used: a count, in place of the time of access."""
        assert self.identity is not None
        os.utime(self.fd, ns=(stamp * 10**9, self.identity[1]))

    def _check_piece(self, piece: int) -> None:
        start = piece * PIECE
        data = memoryview(bytearray(min(PIECE, self.length - start)))
        if not read_fully(self.fd, start, data) or crc32c(data) != self._crcs[piece]:
            raise DamagedError(f"bytes {start} to {start + len(data)} do not match their checksum")
        self._checked[piece] = 1


def _open(path: Path) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOATIME)  # the time of access is ours to set
    except PermissionError:  # another user's
        return os.open(path, flags)


def read_fully(fd: int, offset: int, view: memoryview) -> bool:
    """Fill a view from a file; returns False when the file ends or cannot be read there."""
    while view:
        try:
            count = os.preadv(fd, [view], offset)
        except OSError:
            return False
        if not count:
            return False
        view, offset = view[count:], offset + count
    return True


def _read_footer(fd: int, size: int, digest: bytes) -> tuple[int, list[int]]:
    """Length and checksums of an entry, proved by the checksum over them."""
    footer = os.pread(fd, _FOOTER.size, max(0, size - _FOOTER.size))
    if len(footer) != _FOOTER.size:
        raise DamagedError("it is too short")
    magic, version, piece, length, whose, crc = _FOOTER.unpack(footer)
    if (magic, version, piece, whose) != (_MAGIC, _VERSION, PIECE, digest) or size != file_bytes(length):
        raise DamagedError("its footer is of another file")
    crcs = os.pread(fd, size - length - _FOOTER.size, length)
    if crc32c(footer[:-4], crc32c(crcs)) != crc:
        raise DamagedError("its checksums do not match their own")
    return length, [int(value) for value in np.frombuffer(crcs, "<u4")]


def _write(fd: int, view: memoryview, offset: int) -> None:
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count
