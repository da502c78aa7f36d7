"""A file on this machine. Read with `pread`, so any number of threads, and processes after a fork, may share it."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ReadError, ShardChanged, SourceNotFound, StokerError
from .blob import Blob, Stat
from .names import printable
from .open_files import PooledFile, files


class HeldFiles:
    """Descriptors of many files at once, opened when first asked for and held as long as this lives."""

    def __init__(self, blobs: Sequence[Blob]) -> None:
        self._blobs = blobs
        self._fds: NDArray[np.int32] | None = None
        self._may = all(isinstance(blob, LocalBlob) for blob in blobs)

    def descriptors(self) -> NDArray[np.int32] | None:
        """One for each file, -1 for those that cannot be opened; None: they are too many, or not all on this machine."""
        if self._fds is None and self._may:
            with _holding:  # so that many threads ask once
                if self._fds is None and self._may:
                    self._hold()
        return self._fds

    def _hold(self) -> None:
        local = [blob for blob in self._blobs if isinstance(blob, LocalBlob)]
        fds = files.hold(local)
        if fds is None:
            self._may = False
            return
        numbers = [blob.number for blob, fd in zip(local, fds) if fd >= 0]
        weakref.finalize(self, files.let_go, numbers).atexit = False
        self._fds = np.asarray(fds, np.int32)

    def __reduce__(self) -> tuple[type[HeldFiles], tuple[Sequence[Blob]]]:
        return HeldFiles, (self._blobs,)


_holding = threading.Lock()


def _renew() -> None:
    global _holding
    _holding = threading.Lock()  # a fork may have come while another thread held it


os.register_at_fork(after_in_child=_renew)


class LocalBlob(Blob, PooledFile):
    """One file, opened when it is first read. If it is replaced or changed while a run is on, reading it says so."""

    gap = 1 << 12

    def __init__(self, path: bytes) -> None:
        PooledFile.__init__(self)
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
                raise ReadError(f"{self.url}: is a folder, a pipe or a device, not a file", origin=self.url)
            self._stat = _stat_of(about)
        return self._stat

    def sibling(self, suffix: str) -> LocalBlob:
        return LocalBlob(self.path + suffix.encode())

    def pin(self) -> int:
        """A descriptor, open until `release`; raises if there is none."""
        return files.pin(self)

    def hold(self) -> int:
        try:
            return files.pin_spare(self)
        except StokerError:
            return -1  # reported when it is read

    def release(self, fd: int) -> None:
        files.unpin(self)

    def read_into(self, offset: int, view: memoryview) -> None:
        fd, done = files.pin(self), 0
        try:
            while done < len(view):
                count = os.preadv(fd, [view[done:]], offset + done)
                if not count:
                    raise ShardChanged(
                        f"{self.url}: ends at byte {offset + done:,}, before the end of the requested range; it is truncated, "
                        "or still being written",
                        shard=self.url,
                        offset=offset + done,
                    )
                done += count
        except OSError as error:
            raise ReadError(f"{self.url}: {error.strerror} at byte {offset + done:,}", origin=self.url) from error
        finally:
            files.unpin(self)

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview]:
        """Pieces in one buffer, which the next piece overwrites."""
        buffer = memoryview(bytearray(piece))
        size = self.stat().size
        while offset < size:
            view = buffer[: min(piece, size - offset)]
            self.read_into(offset, view)
            yield view
            offset += len(view)

    def close(self) -> None:
        files.drop(self)

    def __reduce__(self) -> tuple[Callable[..., LocalBlob], tuple[bytes, str, Stat | None]]:
        return _known_file, (self.path, self.url, self._stat)  # so that a change is noticed there, too

    def open(self) -> int:
        told = self.stat()
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # pipes are not waited for
        except FileNotFoundError as error:
            raise SourceNotFound(f"{self.url}: this file no longer exists; restore it") from error
        except OSError as error:
            refused = ReadError(f"{self.url}: {error.strerror}", origin=self.url)
            refused.errno = error.errno
            raise refused from error
        if _stat_of(os.fstat(fd)) != told:
            os.close(fd)
            why = "was changed or replaced since it was first looked at; create the pipeline again"
            raise ShardChanged(f"{self.url}: {why}", shard=self.url)
        return fd


def _known_file(path: bytes, url: str, stat: Stat | None) -> LocalBlob:
    blob = LocalBlob(path)
    blob.url, blob._stat = url, stat
    return blob


def _stat_of(about: os.stat_result) -> Stat:
    return Stat(about.st_size, str(about.st_mtime_ns))
