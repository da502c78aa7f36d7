"""Files that appear whole or not at all: indexes, reports, whatever is written in one go."""
# pathlib takes no bytes, so
# ruff: noqa: PTH104, PTH108

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator

from ..errors import WriteError
from .open_files import files

#: how long to wait for a descriptor where the process has none left
_WAIT_S = 1.0
#: a temporary file so old has no writer any more
_LEFT_S = 3600.0
_LEFTOVER = re.compile(rb"\.stoker-[0-9a-f]{16}\.tmp")
#: folders that were looked through for such files
_swept: set[bytes] = set()


def publish(path: bytes, *parts: bytes, mode: int | None = None) -> None:
    """Write a file so that it appears whole or not at all; raises WriteError and leaves nothing when it cannot.

    Where the file system can, the file has no name until it is complete, so that nothing is left of it however the process ends.
    """
    try:
        files.patiently(lambda: _write(path, parts, mode), _WAIT_S)
    except OSError as error:
        raise WriteError(f"{os.fsdecode(path)}: {error.strerror}") from error


def _write(path: bytes, parts: tuple[bytes, ...], mode: int | None) -> None:
    with _nameless(path) as fd:
        if fd is not None:
            _fill(fd, parts, mode)
            if _name(fd, path):
                return
    with _temporary(path) as name, _created(name) as fd:
        _fill(fd, parts, mode)
        _rename(fd, name, path)


def _fill(fd: int, parts: tuple[bytes, ...], mode: int | None) -> None:
    if mode is not None:
        os.fchmod(fd, mode)
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]
    os.fsync(fd)


@contextlib.contextmanager
def _nameless(path: bytes) -> Iterator[int | None]:
    """A new file where `path` is to be, without a name; None where the system, or the file system, has no such files."""
    fd = None
    with contextlib.suppress(AttributeError, OSError):
        fd = os.open(_folder(path), os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _name(fd: int, path: bytes) -> bool:
    """Give a complete file its name, in the place of what has it; False where that cannot be: without /proc, say."""
    with contextlib.suppress(FileExistsError):
        return _linked(fd, path)
    with _temporary(path) as name:  # a link replaces nothing, and a rename does
        if not _linked(fd, name):
            return False
        _rename(fd, name, path)
    return True


def _linked(fd: int, path: bytes) -> bool:
    try:
        # With a descriptor Python calls linkat(), which follows the link in /proc to the file; an absolute path does not use it.
        os.link(b"/proc/self/fd/%d" % fd, path, src_dir_fd=fd, follow_symlinks=True)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        return False
    return True


@contextlib.contextmanager
def _temporary(path: bytes) -> Iterator[bytes]:
    """A name beside `path` that nobody else uses, for a file that is then renamed; it is removed after any exception."""
    name = os.path.join(_folder(path), b".stoker-%b.tmp" % secrets.token_hex(8).encode())  # noqa: PTH118
    try:
        yield name
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def _created(name: bytes) -> Iterator[int]:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def _rename(fd: int, name: bytes, path: bytes) -> None:
    os.rename(name, path)
    _sweep(_folder(path), os.fstat(fd).st_mtime)  # by the clock that dates the folder's files


def _sweep(folder: bytes, now: float) -> None:
    """Remove what this user's killed processes left in a folder, once per process. By age: the folder may be shared by hosts."""
    if folder in _swept:
        return
    _swept.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _LEFTOVER.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    if about.st_uid == os.geteuid() and about.st_mtime < now - _LEFT_S:
                        os.unlink(entry.path)


def _folder(path: bytes) -> bytes:
    return os.path.dirname(path) or b"."  # noqa: PTH120
