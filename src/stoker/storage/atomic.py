"""Files that appear whole or not at all.

A file is written under a temporary name in the same folder, and renamed when it is complete and on the disk. The temporary name
begins with a dot and ends in ``.part``, so that no ``*.tar`` matches it. Its writer holds a lock on it, which the kernel releases
when the process ends for any reason; so the next writer in that folder can tell what a dead process left, and removes it. Nothing
else is ever removed, and an existing file is replaced only on request.
"""
# pathlib takes no bytes, so
# ruff: noqa: PTH104, PTH105, PTH108, PTH114, PTH118, PTH120, PTH208

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import weakref
from collections.abc import Iterator
from types import TracebackType

from ..errors import ClosedError, WriteError
from ..kernel.library import Bytes
from ..sizes import show_bytes
from .names import AnyPath, absolute, printable
from .open_files import files

_LEFTOVER = re.compile(rb"\.stoker-([0-9a-f]{8})-[0-9]+-[0-9a-f]{16}\.part")
#: what another machine left is removed when it was not touched for so long: not every network file system shares its locks
_FOREIGN_NS = 24 * 3600 * 10**9
#: how long to wait for a descriptor where the process has none left
_WAIT_S = 1.0
#: what a file system answers that has no hard links
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EMLINK}
_REMEDIES = {
    errno.EDQUOT: "your disk quota is used up; free some of it, or write elsewhere",
    errno.EROFS: "the file system is read-only; write elsewhere",
    errno.EACCES: "you may not write into this folder; change its permissions, or write elsewhere",
    errno.EISDIR: "it is a folder; use the name of a file",
    errno.EPERM: "you may not write into this folder; change its permissions, or write elsewhere",
    errno.ENOENT: "its folder does not exist; make it first",
    errno.ENOTDIR: "a part of the path is not a folder; check the spelling",
    errno.ENAMETOOLONG: "the name is too long for this file system; choose a shorter one",
    errno.EFBIG: "the file system, or `ulimit -f`, does not allow a larger file; write smaller ones, as with max_bytes",
    errno.EPIPE: "its reader has closed it",
    errno.EIO: "the disk reported an error; check it before you trust it with data",
}


#: files that have not appeared yet
_unfinished: set[bytes] = set()


class AtomicFile:
    """A file being written; `publish` makes it appear, `abandon` removes every trace; a ``with`` block does one or the other.

    Not for several threads at once. Every failure is a WriteError that names the path and what to do, and leaves nothing behind.

    >>> import tempfile, pathlib
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> with AtomicFile(place) as file:
    ...     file.write(b"all of it")
    >>> place.read_text()
    'all of it'
    """

    def __init__(self, path: AnyPath, *, overwrite: bool = False, clean: bool = True) -> None:
        self.path = absolute(path)
        if overwrite and os.path.islink(self.path):
            self.path = os.path.realpath(self.path)  # what the link points to is replaced, not the link
        self.told = printable(self.path)
        self.size = 0
        self.temporary = b""
        self._overwrite, self._fd, self._finished = overwrite, -1, False
        self._folder = os.path.dirname(self.path)
        self.refuse_existing()
        with self._failing(0):
            while not self._create():
                pass
        if clean:
            sweep(self._folder, os.fstat(self._fd).st_mtime_ns)

    def fileno(self) -> int:
        """The descriptor, for writing through it; -1 when closed."""
        return self._fd

    def write(self, data: Bytes) -> None:
        """Append bytes, all of them."""
        if self._fd < 0 or self._finished:
            raise ClosedError(
                f"{self.told}: this file is complete or was discarded, so nothing more can be written to it; write a new one"
            )
        view = memoryview(data)  # type: ignore[arg-type]  # NumPy's arrays are buffers before Python 3.12 says so
        with self._failing(len(view)):
            while view:
                done = os.write(self._fd, view)
                self.size += done
                view = view[done:]

    def finish(self) -> os.stat_result:
        """Bring all bytes to the disk; what the file is then, and will be when it has appeared."""
        with self._failing(0):
            os.fsync(self._fd)
            about = os.fstat(self._fd)
        self._finished = True
        return about

    def publish(self, sync: bool = True) -> None:
        """Make the file appear under its name; for good, unless its folder is not to be brought to the disk."""
        if not self._finished:
            self.finish()
        with self._failing(0):
            self._appear()
        self._net.detach()
        _unfinished.discard(self.temporary)
        self._close()
        if sync:
            sync_folder(self._folder)

    def abandon(self) -> None:
        """Remove what was written so far; nothing when the file has appeared, or was abandoned before."""
        if self._fd < 0:
            return
        self._net()
        self._close()  # after the removal: while the lock is held, the file does not count as a leftover

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._fd >= 0:
            self.publish()
        else:
            self.abandon()

    def refuse_existing(self) -> None:
        """Raise WriteError, and give this one up, when something is in its place that may not be replaced."""
        try:
            mode = os.lstat(self.path).st_mode
        except OSError:
            return  # nothing there; why nothing can be, will be told when it is tried
        if stat.S_ISDIR(mode):
            self.abandon()
            raise WriteError(f"{self.told}: cannot be written, because this is a folder; use the name of a file")
        if not self._overwrite:
            self.abandon()
            raise WriteError(f"{self.told}: already exists and was not changed; use another name, or overwrite=True")

    def _create(self) -> bool:
        """Make a new file and lock it; False when it was swept away before it was locked."""
        name = b".stoker-%b-%d-%b.part" % (_host(), os.getpid(), secrets.token_hex(8).encode())
        self.temporary = os.path.join(self._folder, name)
        # Before there is a file: a signal may end the program at any moment from here to the `with` of a caller. At exit too.
        self._net = weakref.finalize(self, _remove, self.temporary, os.getpid())
        _unfinished.add(self.temporary)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = files.patiently(lambda: os.open(self.temporary, flags, 0o666), _WAIT_S)
        with contextlib.suppress(OSError):  # a file system without locks: left-overs are not removed there
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.abandon()  # somebody sweeps, and was faster than our lock: it removes the file
                return False
        if os.fstat(self._fd).st_nlink:
            return True
        self.abandon()  # swept before our lock
        return False

    def _close(self) -> None:
        fd, self._fd = self._fd, -1  # first: should a signal end this, the number may be another file's when it is tried again
        os.close(fd)

    def _appear(self) -> None:
        if self._overwrite:
            os.replace(self.temporary, self.path)
            return
        try:
            os.link(self.temporary, self.path)  # unlike a rename, this replaces nothing
        except FileExistsError:
            self.refuse_existing()
            raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.refuse_existing()
            os.rename(self.temporary, self.path)
            return
        with contextlib.suppress(OSError):  # the file is there; its second name goes with the next sweep at the latest
            os.unlink(self.temporary)

    @contextlib.contextmanager
    def _failing(self, more: int) -> Iterator[None]:
        """Turn whatever ends this into a file that was never there, and an OSError into a WriteError."""
        try:
            yield
        except OSError as error:
            if isinstance(error, WriteError):
                raise
            self.abandon()
            raise write_error(error, self.told, self._folder, self.size, more) from error
        except BaseException:
            self.abandon()
            raise


#: folders that `publish` has looked through for what dead writers left
_swept: set[bytes] = set()


def publish(path: bytes, *parts: bytes, mode: int | None = None) -> None:
    """Write a small file in one go, in the place of what is there; raises WriteError and leaves nothing when it cannot."""
    folder = os.path.dirname(path)
    with AtomicFile(path, overwrite=True, clean=folder not in _swept) as file:
        _swept.add(folder)
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        for part in parts:
            file.write(part)
        file.publish(sync=False)


def write_error(error: OSError, told: str, folder: bytes | None, written: int, more: int) -> WriteError:
    """The error for an OSError while writing `told`: after some bytes, with (at least) some left.

    `folder` None: it goes into a pipe, from which nothing can be taken back, and whose disk, if it ends on one, is unknown.
    """
    if error.errno == errno.ENOSPC:
        remedy = f"the disk is full{_free(folder)}; make room, or write elsewhere"
    else:
        remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    where = (
        f"after {show_bytes(written)}" + (f", with {show_bytes(more)} more at hand" if more else "") if written or more else ""
    )
    left = "No part of it remains"
    if folder is None:
        left = "What was written of it is incomplete" if written else "Nothing was written"
    return WriteError(f"{told}: cannot be written{' ' + where if where else ''}: {remedy}. {left}")


def _remove(temporary: bytes, process: int) -> None:
    """Remove a file that is not to appear; a forked child leaves its parent's alone."""
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        _unfinished.discard(temporary)


def remove_unfinished() -> None:
    """Remove what this process was writing; for one that is about to end in the middle of it."""
    for temporary in _unfinished.copy():
        _remove(temporary, os.getpid())


def sweep(folder: bytes, now_ns: int) -> int:
    """Remove what dead writers left in a folder; how many files that were.

    A file is theirs when its name says so and its lock is free. `now_ns` is the time by the clock that dates the folder's files.
    """
    removed = 0
    try:
        names = os.listdir(folder)
    except OSError:
        return 0  # a folder may be written to and not listed
    for name in names:
        found = _LEFTOVER.fullmatch(name)
        if found is not None:
            removed += _remove_dead(os.path.join(folder, name), found[1] != _host(), now_ns)
    return removed


def sync_folder(folder: bytes) -> None:
    """Flush the names in a folder to the disk, if the file system can."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # a folder may be written to and not read
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            told = printable(folder)
            raise WriteError(f"{told}: its files are written, but could be lost in a power failure: {error.strerror}") from error
    finally:
        os.close(fd)


def _remove_dead(path: bytes, foreign: bool, now_ns: int) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or (foreign and about.st_mtime_ns > now_ns - _FOREIGN_NS):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        return False  # its writer lives, or it is not ours to remove
    finally:
        os.close(fd)
    return True


def _host() -> bytes:
    return hashlib.blake2s(os.fsencode(os.uname().nodename), digest_size=4).hexdigest().encode()


def _free(folder: bytes | None) -> str:
    try:
        about = None if folder is None else os.statvfs(folder)
    except OSError:
        about = None
    if about is None:
        return ""
    return f" ({show_bytes(about.f_bavail * about.f_frsize)} free)"
