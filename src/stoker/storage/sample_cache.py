"""Computed samples by their number: values of any length in one file, in memory or on disk, shared by several processes.

Two files: *values*, one after the other, never moved and never overwritten; and an *index* with an entry for each sample: where
its value is, its length, its checksum, and a checksum of the entry. An entry is written after its value. Readers take no lock: an
entry that is half written, or that was removed meanwhile, fails a checksum, and that sample is computed again. So whatever a
process was doing when it was killed, and whatever happened to the files, no wrong value is returned.

Room is taken in blocks, under a lock of the index file, which is released when its process ends. Nobody waits for it: a process
that does not get it stores nothing this time. Values of at least `_ALONE` bytes have pages of their own, which are given back
when they are removed; smaller ones stay, and a cache full of them stores no more.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, WriteError
from ..kernel.records import crc32c, crc32c_spans
from ..sizes import show_bytes
from .scratch import Scratch

_log = logging.getLogger("stoker")
Ints = NDArray[np.int64]

#: of the files; a cache of another format lies in another folder
FORMAT = 1
_ENTRY = np.dtype([("offset", "<i8"), ("length", "<i8"), ("crc", "<u4"), ("check", "<u4")])
#: the first page of an index: the number of entries, bytes of values that are taken, where the next block begins, and whether
#: there was no room for a value
_HEAD_BYTES, _USED, _TAIL, _REFUSED = 4096, 1, 2, 3
_PAGE = 4096
#: values of at least so many bytes begin at a page
_ALONE = 4 * _PAGE
#: room is taken so many bytes at a time, and in a small cache less
_BLOCK = 4 << 20
#: how long to wait for whoever makes the files at the same time
_OPEN_S = 30.0
#: no room, for whatever reason: the files stay as they are
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


class SampleCache:
    """Values by number. Threads may share it; other processes get one of their own over the same files, by pickle.

    The files are closed when nobody has it any more: a worker that is late must not meet another file under an old descriptor.
    """

    def __init__(self, values: int, index: int, count: int, limit: int, names: tuple[str, str]) -> None:
        self._values, self._index, self._count, self.limit, self._names = values, index, count, limit, names
        self._map = mmap.mmap(index, _HEAD_BYTES + count * _ENTRY.itemsize)
        self._head: Ints = np.frombuffer(self._map, np.int64, _HEAD_BYTES // 8)
        self._entries: NDArray[Any] = np.frombuffer(self._map, _ENTRY, count, _HEAD_BYTES)
        self._at = self._end = 0  # what is left of this process's block
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._ended = False  # no more is stored
        self._holes = True  # whether the room of removed values can be given back, as far as is known
        weakref.finalize(self, _close, values, index).atexit = False

    @classmethod
    def in_memory(cls, count: int, limit: int) -> SampleCache:
        """Files of memory without a name, gone with the last process that has them."""
        if not hasattr(os, "memfd_create"):
            raise ConfigError("cache('memory') needs memory files, which this system does not have; use a folder instead")
        values, index = os.memfd_create("stoker-values"), os.memfd_create("stoker-index")
        try:
            _reserve(index, count)
        except OSError as error:
            _close(values, index)
            raise ConfigError(f"cache('memory'): there is no memory for {count:,} entries ({error.strerror})") from error
        names = tuple(f"/proc/{os.getpid()}/fd/{fd}" for fd in (values, index))
        return cls(values, index, count, limit, (names[0], names[1]))

    @classmethod
    def in_folder(cls, folder: str, count: int, limit: int | None) -> SampleCache:
        """Files of a folder, which is made; what they hold already is found. No limit: what is free, but for a tenth."""
        names = (str(Path(folder) / "values"), str(Path(folder) / "index"))
        fds: list[int] = []
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name in names:
                fds.append(_open(name, os.O_CREAT))
            values, index = fds
            with _waiting(index):
                _reserve(index, count)
            alone = _begin(values)
            cache = cls(values, index, count, limit or 0, names)
            fds = []  # they are its own now
            if alone:
                cache._recount()
                _patiently(values, fcntl.LOCK_SH)
            free = os.statvfs(folder)
        except OSError as error:
            _close(*fds)
            where = os.fsdecode(error.filename or folder)
            raise WriteError(f"cache: {where}: {_why(error)}; use a writable folder") from error
        if limit is None:
            cache.limit = cache.used + free.f_bavail * free.f_frsize // 10 * 9
        return cache

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._names, (_identity(self._values), _identity(self._index)), self._count, self.limit)

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def read(self, indices: Ints, scratch: Scratch) -> list[memoryview | None]:
        """The values of some samples, in memory of the worker that its next call overwrites; None: it is not there."""
        found: list[memoryview | None] = [None] * len(indices)
        entries = self._entries[indices]  # a copy
        good = np.flatnonzero((entries["length"] > 0) & (entries["check"] == _checks(indices, entries)))
        if not len(good):
            return found
        lengths: Ints = entries["length"][good]
        ends = np.cumsum(lengths)
        buffer = _buffer_of(scratch, int(ends[-1]))
        whole, starts = memoryview(cast(Any, buffer)), ends - lengths
        for at, offset, start, end in zip(good.tolist(), entries["offset"][good].tolist(), starts.tolist(), ends.tolist()):
            if _pread(self._values, whole[start:end], offset):
                found[at] = whole[start:end]
        wrong = crc32c_spans(buffer, starts, lengths) != entries["crc"][good]
        for at in good[wrong].tolist():
            found[at] = None
        return found

    def missing(self, indices: Ints) -> NDArray[np.bool_]:
        """Which of some samples have no value, as far as the index says."""
        absent: NDArray[np.bool_] = self._entries["length"][indices] <= 0
        return absent

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        return int(self._head[_USED])

    @property
    def full(self) -> bool:
        """Whether some value has found no room."""
        return bool(self._head[_REFUSED])

    # ---- writing -------------------------------------------------------------------------------------------------------------

    def write(self, numbers: Ints, values: Iterable[Sequence[Any]]) -> int:
        """Keep the values of some samples, each given as byte strings or arrays of bytes; returns how many were stored."""
        if self._ended or os.getpid() != self._process:  # a forked child has the lock of its parent
            return 0
        rows: list[tuple[int, int, int, int]] = []
        stored: list[int] = []
        try:
            for number, parts in zip(numbers.tolist(), values):
                value = b"".join(parts)
                offset = self._place(len(value))
                if offset is not None:
                    _pwrite(self._values, value, offset)
                    rows.append((offset, len(value), crc32c(value), 0))
                    stored.append(number)
        except OSError as error:
            self._stop(error)
        if rows:
            self._enter(np.array(stored), np.array(rows, _ENTRY))
        return len(rows)

    def _enter(self, indices: Ints, entries: NDArray[Any]) -> None:
        entries["check"] = _checks(indices, entries)
        there = self._entries["length"][indices] > 0  # a value was damaged, or somebody was quicker
        self._entries[indices[~there]] = entries[~there]
        if there.any():
            with self._lock, self._locked() as locked:  # room that two gave back would be counted twice
                if locked:
                    self._replace(indices[there], entries[there])

    def _replace(self, indices: Ints, entries: NDArray[Any]) -> None:
        """Other entries for some samples, or none; the room of their values is given back. In the lock."""
        before = self._entries[indices]
        self._entries[indices] = entries
        self._give_back(indices, before)

    def remove(self, indices: Ints) -> None:
        """Forget some samples, and give their room back; nothing happens where the lock is not to be had."""
        if os.getpid() != self._process:  # a forked child has the locks of its parent
            return
        with self._lock, self._locked() as locked:
            for some in (indices[:1], indices[1:]):  # one shows whether room can be given back at all
                if locked and self._holes:
                    self._replace(some, np.zeros(len(some), _ENTRY))

    def kept(self) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """The samples that have a value, the bytes each takes, and which can be removed."""
        lengths = self._entries["length"]
        indices = np.flatnonzero(lengths > 0)
        sizes = _sizes(lengths[indices])
        return indices, sizes, (sizes >= _ALONE) & self._holes

    def release(self) -> None:
        """Store no more; memory goes back at once, though somebody may still have this cache."""
        self._ended = True
        if os.getpid() != self._process:
            return
        with self._lock:
            left, self._at, self._end = self._end - self._at, 0, 0
            if left > 0:
                with self._locked() as locked:
                    self._head[_USED] -= left if locked else 0
        if self._names[0].startswith("/proc/") and int(self._names[0].split("/")[2]) == self._process:
            os.ftruncate(self._values, 0)  # who reads it finds nothing

    def _place(self, length: int) -> int | None:
        """Where a value of so many bytes goes; None: nowhere."""
        size = _pages(length) if length >= _ALONE else length
        with self._lock:
            at = _pages(self._at) if size >= _ALONE else self._at
            if at + size > self._end:
                if not self._take_block(size):
                    return None
                at = self._at
            self._at = at + size
            return at

    def _take_block(self, size: int) -> bool:
        """A new block for values, the next of `size` bytes."""
        block = _pages(max(size, min(_BLOCK, self.limit // 1024)))
        if self.used + block > self.limit:
            block = _pages(size)
            if self.used + block > self.limit:
                self._head[_REFUSED] = 1
                return False
        with self._locked() as locked:
            left = self._end - self._at
            if not locked or self.used - left + block > self.limit:
                return False
            self._at = max(int(self._head[_TAIL]), _pages(os.fstat(self._values).st_size))
            self._end = self._at + block
            self._head[_TAIL] = self._end
            self._head[_USED] += block - left
        return True

    def _give_back(self, indices: Ints, entries: NDArray[Any]) -> None:
        """The room of removed values that have pages of their own; in the lock. What a damaged entry says may be another's."""
        sizes = _sizes(entries["length"])
        alone = (sizes >= _ALONE) & (entries["check"] == _checks(indices, entries))
        for offset, size in zip(entries["offset"][alone].tolist(), sizes[alone].tolist()):
            if not self._free(offset, size):
                return  # its room is lost
            self._head[_USED] -= size

    def _free(self, offset: int, size: int) -> bool:
        """Give pages of the values back; False where the file system cannot."""
        size = min(size, os.fstat(self._values).st_size - offset)  # the last value does not fill its last page
        try:
            if size > 0:
                with mmap.mmap(self._values, size, offset=offset) as pages:
                    pages.madvise(mmap.MADV_REMOVE)
        except (OSError, ValueError, AttributeError):
            self._holes = False
        return self._holes

    def _recount(self) -> None:
        """Count again what is taken, and give back what nobody knows of: half written, or lost when two wrote the same.

        Only where nobody else uses the files: others have blocks that are not written yet.
        """
        every, stored = np.arange(self._count), os.fstat(self._values).st_size
        entries = self._entries
        good = (entries["length"] > 0) & (entries["check"] == _checks(every, entries))
        good &= entries["offset"] + entries["length"] <= stored
        entries[np.flatnonzero(~good & (entries["length"] != 0))] = np.zeros((), _ENTRY)
        order = np.argsort(entries["offset"][good])
        starts, sizes = entries["offset"][good][order], _sizes(entries["length"][good][order])
        self._head[_USED], self._head[_REFUSED] = sizes.sum(), 0
        ends = _pages(np.maximum.accumulate(np.concatenate([[0], starts + sizes])))
        self._head[_TAIL] = ends[-1]
        os.ftruncate(self._values, min(int(ends[-1]), stored))
        if os.fstat(self._values).st_blocks * 512 > self.used:
            gaps = starts // _PAGE * _PAGE - ends[:-1]
            for at in np.flatnonzero(gaps > 0).tolist():
                if not self._free(int(ends[at]), int(gaps[at])):
                    break

    def _stop(self, error: OSError) -> None:
        if not self._ended:
            why = "there is no room" if error.errno in _FULL else _why(error)
            where = "memory" if self._names[0].startswith("/proc/") else self._names[0]
            _log.warning("cache: %s: %s at %s; no more samples are stored", where, why, show_bytes(self.used))
        self._ended = True

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """The lock over room and removal, among processes; False: another has it. Threads have `_lock`, which comes first."""
        try:
            fcntl.flock(self._index, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._index, fcntl.LOCK_UN)


_Identity = tuple[int, int]


def _attach(names: tuple[str, str], which: tuple[_Identity, _Identity], count: int, limit: int) -> SampleCache | None:
    """The same cache in another process; None where its files cannot be had, and then every sample is computed."""
    fds: list[int] = []
    try:
        for name in names:
            fds.append(_open(name, 0, link=name.startswith("/proc/")))
        if (_identity(fds[0]), _identity(fds[1])) != which:  # others have their names by now
            raise OSError(errno.ESTALE, "they were replaced")
        if os.fstat(fds[1]).st_size < _HEAD_BYTES + count * _ENTRY.itemsize:
            raise OSError(errno.ENODATA, "the index is cut")
        if not names[0].startswith("/proc/"):
            _begin(fds[0], alone=False)
        return SampleCache(fds[0], fds[1], count, limit, names)
    except OSError as error:
        _close(*fds)
        _log.warning(
            "cache: its files cannot be opened in a worker process (%s); this process continues without the cache", _why(error)
        )
        return None


def _open(name: str, flags: int, link: bool = False) -> int:
    """Open a file of a cache. Whoever may write to its folder must not lead elsewhere by a link."""
    return os.open(name, os.O_RDWR | os.O_CLOEXEC | flags | (0 if link else os.O_NOFOLLOW), 0o644)


def _identity(fd: int) -> _Identity:
    about = os.fstat(fd)
    return about.st_dev, about.st_ino


def _why(error: OSError) -> str:
    return "is a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)


def _reserve(index: int, count: int) -> None:
    """Make an index, or one of another number of entries empty.

    Its room is taken at once, and it is never cut: whoever has it mapped would end at a page that cannot be had.
    """
    before, nbytes = os.fstat(index).st_size, _HEAD_BYTES + count * _ENTRY.itemsize
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(index, 0, nbytes)
    elif before < nbytes:
        os.ftruncate(index, nbytes)
    if int.from_bytes(os.pread(index, 8, 0), "little") != count:
        for at in range(0, min(before, nbytes), _BLOCK):
            os.pwrite(index, bytes(min(_BLOCK, before - at)), at)
        os.pwrite(index, count.to_bytes(8, "little"), 0)


def _begin(values: int, alone: bool = True) -> bool:
    """Become one of those who use a folder's files; True: the only one, as nobody else can before it says so."""
    if alone:
        try:
            fcntl.flock(values, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
    _patiently(values, fcntl.LOCK_SH)
    return False


@contextmanager
def _waiting(fd: int) -> Iterator[None]:
    _patiently(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _patiently(fd: int, kind: int) -> None:
    until = time.monotonic() + _OPEN_S
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError(errno.ETIMEDOUT, "another process holds its files") from None
            time.sleep(0.01)
        else:
            return


_Count = TypeVar("_Count", int, Ints)


def _pages(nbytes: _Count) -> _Count:
    """As many bytes in whole pages."""
    return -(-nbytes // _PAGE) * _PAGE


def _sizes(lengths: NDArray[Any]) -> Ints:
    """What values take: those with pages of their own whole pages."""
    lengths = lengths.astype(np.int64)
    return np.where(lengths >= _ALONE, _pages(lengths), lengths)


def _checks(indices: NDArray[Any], entries: NDArray[Any]) -> NDArray[np.uint32]:
    """A checksum of each entry, as that of this sample."""
    mixed = indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for name in ("offset", "length", "crc"):
        mixed ^= entries[name].astype(np.uint64) + (mixed >> np.uint64(29))
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
    checks: NDArray[np.uint32] = (mixed >> np.uint64(32)).astype(np.uint32)
    return checks


class _ValueBuffer:
    """A worker's memory for values, which grows."""

    def __init__(self) -> None:
        self.data = np.empty(0, np.uint8)


def _buffer_of(scratch: Scratch, nbytes: int) -> NDArray[np.uint8]:
    buffer: _ValueBuffer = scratch.keep(_ValueBuffer, _ValueBuffer)
    if len(buffer.data) < nbytes:
        buffer.data = np.empty(nbytes + nbytes // 4, np.uint8)
    return buffer.data


def _pread(fd: int, into: memoryview, offset: int) -> bool:
    """Fill some memory from a file; False where it ends before, or cannot be read."""
    try:
        while len(into):
            count = os.preadv(fd, [into], offset)
            if not count:
                return False
            into, offset = into[count:], offset + count
    except OSError:
        return False
    return True


def _pwrite(fd: int, value: bytes, offset: int) -> None:
    count = os.pwrite(fd, value, offset)
    while count < len(value):
        count += os.pwrite(fd, memoryview(value)[count:], offset + count)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
