"""Where this user's files of ours live, when they may not lie beside the data; and how such files, and indexes, are written."""
# pathlib takes no bytes, so
# ruff: noqa: PTH104, PTH108, PTH116

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from ..errors import WriteError
from .local import patiently

#: how long to wait for a descriptor where the process has none left
_WAIT_S = 1.0
#: how often to try to replace a file that others replace too
_TRIES = 100


def cache_home() -> Path:
    """The user's cache folder for Stoker, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(base) / "stoker"


def index_home(url: str) -> Path:
    """Where the index of a shard is kept whose own folder cannot be written to."""
    return cache_home() / "index" / f"{hashlib.sha256(url.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}.stk"


def publish(path: bytes, *parts: bytes, mode: int | None = None) -> None:
    """Write a file so that it appears whole or not at all; raises WriteError and leaves nothing when it cannot.

    Where the file system can, the file has no name until it is complete, so that nothing is left of it however the process ends.
    """
    try:
        patiently(lambda: _write(path, parts, mode), _WAIT_S)
    except OSError as error:
        raise WriteError(f"{os.fsdecode(path)}: {error.strerror}") from error


def _write(path: bytes, parts: tuple[bytes, ...], mode: int | None) -> None:
    with _nameless(path) as fd:
        if fd is not None:
            _fill(fd, parts, mode)
            if _name(fd, path):
                return
    with _named(path) as (fd, temporary):
        _fill(fd, parts, mode)
        os.rename(temporary, path)


def _fill(fd: int, parts: tuple[bytes, ...], mode: int | None) -> None:
    if mode is not None:
        os.fchmod(fd, mode)
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]
    os.fsync(fd)


def _temporary(path: bytes, more: str = "") -> bytes:
    """A name beside `path`. It is the same for everybody who writes that file, so that the next one uses up what is left of one
    that was killed, and nobody has to look for it."""
    folder, _, name = path.rpartition(b"/")
    return (folder or b".") + b"/." + name + more.encode() + b".tmp"


@contextlib.contextmanager
def _nameless(path: bytes) -> Iterator[int | None]:
    """A new file where `path` is to be, without a name; None where the system, or the file system, has no such files."""
    fd = None
    with contextlib.suppress(AttributeError, OSError):
        fd = os.open(path.rpartition(b"/")[0] or b".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _name(fd: int, path: bytes) -> bool:
    """Give a complete file its name, in the place of what has it; False where that cannot be: without /proc, say."""
    with contextlib.suppress(FileExistsError):
        return _linked(fd, path)
    # A link replaces nothing; so it gets another name, and is renamed. Several processes may do so at once: whatever has that
    # name is complete, and who finds it gone or taken tries again.
    temporary = _temporary(path)
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        with contextlib.suppress(FileExistsError, FileNotFoundError), _removed(temporary):
            if not _linked(fd, temporary):
                return False
            os.rename(temporary, path)
            return True
    return False


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
def _named(path: bytes) -> Iterator[tuple[int, bytes]]:
    """A new file beside `path`, and its name, to be renamed; it is gone when the block ends by an exception.

    Its writer holds a lock, which ends with the process. Where there are no locks, or another process writes the same file, it
    gets a name of its own.
    """
    temporary = _temporary(path)
    with _opened(temporary, os.O_NONBLOCK) as fd:
        if _owned(fd, temporary):
            with _removed(temporary):
                os.ftruncate(fd, 0)
                yield fd, temporary
            return
    own = _temporary(path, f".{os.getpid()}-{secrets.token_hex(6)}")
    with _removed(own), _opened(own, os.O_EXCL) as fd:
        yield fd, own


@contextlib.contextmanager
def _opened(name: bytes, flags: int) -> Iterator[int]:
    fd = os.open(name, flags | os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def _owned(fd: int, name: bytes) -> bool:
    """Whether this process may write the file of this name: nobody else has its lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = os.fstat(fd)
        # Else its writer has just renamed it; or another user made it, perhaps as one more name of a file that is precious.
        return os.path.samestat(about, os.stat(name)) and about.st_nlink == 1 and about.st_uid == os.geteuid()
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)  # where there are no locks, this name is nobody's
        return False


@contextlib.contextmanager
def _removed(name: bytes) -> Iterator[None]:
    """Remove a file where the block ends by an exception, whichever."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
