"""A file on this machine. Read with `pread`, so any number of threads, and processes after a fork, may share it."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import stat
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ReadError, ShardChanged, SourceNotFound, StokerError
from .blob import Blob, Stat
from .names import printable

Result = TypeVar("Result")

#: what the system answers when it has no more descriptors for this process, or for anybody
NO_MORE = (errno.EMFILE, errno.ENFILE)
#: how long to wait for one
_WAIT_S = 10.0


_Keeper = TypeVar("_Keeper")
#: who else keeps idle descriptors, and what closes them
_keepers: weakref.WeakKeyDictionary[Any, Callable[[Any], int]] = weakref.WeakKeyDictionary()


def keeps_idle(keeper: _Keeper, close: Callable[[_Keeper], int]) -> None:
    """Have ``close(keeper)`` called when the process runs out of descriptors; it says how many it closed."""
    _keepers[keeper] = close


class _OpenFiles:
    """Open descriptors of this process, at most so many; those in use are never closed.

    A data set may have more shards than a process may have files open. Invariant: a descriptor with pins stays open, so its
    number cannot come to mean another file while somebody reads. Who may do without one gets none where all are in use; who may
    not gets one more, and waits where the process has no more: whoever waits here has no pin, so that others go on.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.renew()
        self._open: OrderedDict[int, list[int]] = OrderedDict()  # number of blob -> [descriptor, pins]
        self._forgotten: deque[int] = deque()

    def pin(self, blob: LocalBlob) -> int:
        """A descriptor that stays open until `unpin`."""
        return self.patiently(lambda: self._pinned(blob), _WAIT_S)

    def pin_spare(self, blob: LocalBlob) -> int:
        """The same if there is one to spare, else -1."""
        with self._lock:
            return -1 if blob._number not in self._open and self._is_full() else self._pin(blob)

    def patiently(self, work: Callable[[], Result], wait_s: float) -> Result:
        """Do what opens a file. Where the process has no descriptors left, close idle ones of ours, and wait until others do."""
        deadline = time.monotonic() + wait_s
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in NO_MORE:
                    raise
                if self._close_idle():
                    continue
                if time.monotonic() >= deadline:
                    raise
                with self._lock:
                    self._unpinned.wait(0.02)  # what others than us have open is closed without a word

    def _close_idle(self) -> int:
        """Close what nobody uses, here and at all who keep descriptors, and say how many these were."""
        with self._lock:
            closed = self._shrink(0)
        keepers = [keeper for reference in _keepers.keyrefs() if (keeper := reference()) is not None]
        return closed + sum(_keepers[keeper](keeper) for keeper in keepers)

    def _pinned(self, blob: LocalBlob) -> int:
        with self._lock:
            return self._pin(blob)

    def _pin(self, blob: LocalBlob) -> int:
        self._sweep()
        entry = self._open.get(blob._number)
        if entry is None:
            self._shrink(self._most - 1)
            entry = self._open[blob._number] = [blob._open(), 0]
        else:
            self._open.move_to_end(blob._number)
        entry[1] += 1
        return entry[0]

    def _is_full(self) -> bool:
        return len(self._open) >= self._most and all(pins for _, pins in self._open.values())

    def unpin(self, blob: LocalBlob) -> None:
        with self._lock:
            self._open[blob._number][1] -= 1
            if len(self._open) > self._most:
                self._shrink(self._most)
            self._unpinned.notify()

    def drop(self, blob: LocalBlob) -> None:
        with self._lock:
            self._close(blob._number)

    def forget(self, number: int) -> None:
        """Close what a blob left behind.

        The collector calls this at any moment, also in a thread that holds the lock. So nobody waits here: what cannot be closed
        now is closed by the next who opens a file.
        """
        self._forgotten.append(number)
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._forgotten:
            self._close(self._forgotten.popleft())

    def _close(self, number: int) -> None:
        entry = self._open.get(number)
        if entry is not None and not entry[1]:
            os.close(self._open.pop(number)[0])

    def _shrink(self, most: int) -> int:
        """Close idle ones until there are so many, and say how many were closed."""
        surplus = max(0, len(self._open) - most)
        idle = list(itertools.islice((key for key, (_, pins) in self._open.items() if not pins), surplus))
        for key in idle:
            os.close(self._open.pop(key)[0])
        return len(idle)

    def renew(self) -> None:
        """In a forked child: the fork may have come while another thread held the lock."""
        self._lock = threading.Lock()
        self._unpinned = threading.Condition(self._lock)


def _most_open() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, min(2048, soft // 4)) if soft != resource.RLIM_INFINITY else 2048


#: what tells blobs apart; an address would come to mean another blob
_numbers = itertools.count()
_files = _OpenFiles(_most_open())
os.register_at_fork(after_in_child=_files.renew)


def patiently(work: Callable[[], Result], wait_s: float) -> Result:
    """Do what opens a file; where the process has no descriptors left, close idle ones, and try again for so long."""
    return _files.patiently(work, wait_s)


def descriptors_at_once(most: int) -> int:
    """How many things, up to `most`, may be under way that take a descriptor each."""
    return min(most, _most_open())


class _Allowance:
    """How many descriptors all `HeldFiles` of this process may have together.

    What one gives back is only noted, because the collector does it, at any moment, and must not wait for a lock.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._returned: deque[int] = deque()
        self.lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Whether so many may be opened; the lock must be held."""
        while self._returned:
            self._left += self._returned.popleft()
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        self._returned.append(count)

    def renew(self) -> None:
        self.lock = threading.Lock()  # a fork may have come while another thread held it


_allowance = _Allowance(_most_open() // 2)
os.register_at_fork(after_in_child=_allowance.renew)


class HeldFiles:
    """Descriptors of many files at once, opened when first asked for and held as long as this lives.

    Not from the pool above: they are closed by the collector, which may come at any moment and must not wait for a lock.
    """

    def __init__(self, blobs: Sequence[Blob]) -> None:
        self._blobs = blobs
        self._fds: NDArray[np.int32] | None = None
        self._may = all(isinstance(blob, LocalBlob) for blob in blobs)

    def descriptors(self) -> NDArray[np.int32] | None:
        """One for each file, -1 for those that cannot be opened; None: they are too many, or not all on this machine."""
        if self._fds is None and self._may:
            with _allowance.lock:
                if self._fds is None and self._may:
                    self._may = _allowance.take(len(self._blobs))
                    if self._may:
                        self._open_all()
        return self._fds

    def _open_all(self) -> None:
        fds = np.asarray([_own(blob) for blob in self._blobs], np.int32)
        weakref.finalize(self, _close_all, fds).atexit = False
        self._fds = fds

    def __reduce__(self) -> tuple[type[HeldFiles], tuple[Sequence[Blob]]]:
        return HeldFiles, (self._blobs,)


def _own(blob: Blob) -> int:
    assert isinstance(blob, LocalBlob)
    try:
        return blob._open()
    except StokerError:
        return -1  # told when it is read


def _close_all(fds: NDArray[np.int32]) -> None:
    for fd in fds.tolist():
        if fd >= 0:
            os.close(fd)
    _allowance.give_back(len(fds))


class LocalBlob(Blob):
    """One file, opened when it is first read. If it is replaced or changed while a run is on, reading it says so."""

    gap = 1 << 12

    def __init__(self, path: bytes) -> None:
        self._number = next(_numbers)
        # The same file, wherever the process goes.
        self.path = path if path[:1] == b"/" else os.getcwdb() + b"/" + path  # noqa: PTH109  a path of bytes
        self.url = printable(path)
        self.name = printable(path.rsplit(b"/", 1)[-1])
        self._stat: Stat | None = None

    def stat(self) -> Stat:
        if self._stat is None:
            try:
                about = os.stat(self.path)  # noqa: PTH116  a path of bytes
            except FileNotFoundError as error:
                told = "there is no such file; check the spelling, and that the disk is mounted"
                raise SourceNotFound(f"{self.url}: {told}") from error
            except OSError as error:
                raise ReadError(f"{self.url}: {error.strerror}", origin=self.url) from error
            if not stat.S_ISREG(about.st_mode):
                raise ReadError(f"{self.url}: is not a file but a folder, a pipe or a device", origin=self.url)
            self._stat = _stat_of(about)
        return self._stat

    def sibling(self, suffix: str) -> LocalBlob:
        return LocalBlob(self.path + suffix.encode())

    def pin(self) -> int:
        """A descriptor, open until `release`; raises where there is none."""
        return _files.pin(self)

    def hold(self) -> int:
        try:
            return _files.pin_spare(self)
        except StokerError:
            return -1  # told when it is read

    def release(self, fd: int) -> None:
        _files.unpin(self)

    def read_into(self, offset: int, view: memoryview) -> None:
        fd, done = _files.pin(self), 0
        try:
            while done < len(view):
                count = os.preadv(fd, [view[done:]], offset + done)
                if not count:
                    raise ShardChanged(
                        f"{self.url}: ends at byte {offset + done:,}, before what was to be read there; it was cut, or is still "
                        "being written",
                        shard=self.url,
                        offset=offset + done,
                    )
                done += count
        except OSError as error:
            raise ReadError(f"{self.url}: {error.strerror} at byte {offset + done:,}", origin=self.url) from error
        finally:
            _files.unpin(self)

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview]:
        """Pieces in one buffer, which the next piece overwrites."""
        buffer = memoryview(bytearray(piece))
        size = self.stat().size
        while offset < size:
            view = buffer[: min(piece, size - offset)]
            self.read_into(offset, view)
            yield view
            offset += len(view)

    def read_all(self, limit: int) -> bytes:
        size = self.stat().size
        if size > limit:
            raise ReadError(f"{self.url}: has {size:,} bytes, and at most {limit:,} are read at once", origin=self.url)
        data = bytearray(size)
        self.read_into(0, memoryview(data))
        return bytes(data)

    def close(self) -> None:
        _files.drop(self)

    def __del__(self) -> None:
        _files.forget(self._number)

    def __reduce__(self) -> tuple[type[LocalBlob], tuple[bytes]]:
        return LocalBlob, (self.path,)

    def _open(self) -> int:
        told = self.stat()
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # nobody waits for a pipe
        except FileNotFoundError as error:
            raise SourceNotFound(f"{self.url}: there is no such file any more; put it back") from error
        except OSError as error:
            refused = ReadError(f"{self.url}: {error.strerror}", origin=self.url)
            refused.errno = error.errno
            raise refused from error
        if _stat_of(os.fstat(fd)) != told:
            os.close(fd)
            why = "was changed or replaced since it was first looked at; create the pipeline again"
            raise ShardChanged(f"{self.url}: {why}", shard=self.url)
        return fd


def _stat_of(about: os.stat_result) -> Stat:
    return Stat(about.st_size, str(about.st_mtime_ns))
