"""The cache's folder, shared by any number of processes that may be killed at any moment.

A process that adds or removes a file holds the flock of ``books`` meanwhile, briefly; no download happens under it. The books
hold the total size of all files, and who is fetching what. They begin with ``!`` while they are being changed: a process that
finds that, or nothing readable, counts the folder again. So a kill at any instruction leaves nothing wrong that is trusted.

An entry that is being fetched is a ``.part`` file of full length, so its size counts from the start. Its owner holds a flock on
it, which the kernel releases when the owner dies: a part without a lock is garbage.

Invariant: entries and parts together never exceed the limit. Only files that a cache made, by name and content, are ever deleted.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from .cache_file import Identity, identity_of, is_entry
from .open_files import files

#: what the books and the tag may take of the limit
BOOKS_BYTES = 8192
#: the longest wait for the books; they are held for milliseconds
_LOCK_S = 20.0
#: the same, for what may as well be left undone
_BRIEF_S = 0.1
#: the longest wait for a descriptor, where the process has none left
_DESCRIPTOR_S = 1.0
_ENTRY = re.compile(r"([0-9a-f]{48})\.unit")
_PART = re.compile(r"([0-9a-f]{48})\.[0-9]+-[0-9a-f]{16}\.part")
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Files fetched by Stoker. All of it may be deleted at any time.\n"
#: when room is made, up to this part of the limit more is freed, so that a cache of many small entries is not counted for each
_SLACK = 64

#: (name, stamp) -> what goes first, smallest first; None: it must stay
Order = Callable[[str, int], "tuple[int, int] | None"]


class Refusal(Enum):
    """Why an entry is not ours to fetch."""

    HERE = "it is in the cache"
    BUSY = "another process is fetching it"
    NO_ROOM = "there is no room for it"


@dataclass(slots=True)
class Claim:
    """An entry that this process is fetching: the part file, its descriptor with the lock on it, its size."""

    name: str
    path: Path
    fd: int
    size: int

    def let_go(self) -> None:
        """Close the descriptor; the part, if it is still there, is rubbish from now on."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1  # first: closed again after an interruption, the number may be another file's
            os.close(fd)


@dataclass(slots=True)
class _Books:
    total: int = 0
    stamp: int = 0
    parts: dict[str, str] = field(default_factory=dict)  # name of the entry -> its part file
    changed: bool = False


class Folder:
    """The files of a cache. All methods raise OSError when the folder cannot be used."""

    def __init__(self, folder: Path, limit: int, evicted: Callable[[], None]) -> None:
        """`evicted` is called after entries were deleted: their disk space is free only when no process has them open."""
        # Our own folder within the named one, which may be a home folder. One for each user, who alone can enter it.
        self.path = folder / f"stoker-cache-{os.geteuid()}"
        self._parent, self._limit, self._after_eviction = folder, limit, evicted
        self._lock = threading.Lock()
        self._lock_fd = -1
        self._ready = False
        self._ticked_s = float("-inf")
        #: the last stamp this process saw; the higher, the later
        self.stamp = 0
        self.evicted = 0

    def entry_path(self, name: str) -> Path:
        return self.path / f"{name}.unit"

    def claim(self, name: str, size: int, order: Order) -> Claim | Refusal:
        """Make room for an entry and begin its file, unless it is here or another process is at it."""
        claim: Claim | None = None
        try:
            with self._books() as books:
                if self.entry_path(name).exists():
                    return Refusal.HERE
                part = books.parts.get(name)
                if part is not None:
                    if self._is_alive(part):
                        return Refusal.BUSY
                    self._change(books)
                    self._remove_part(books, name, part)
                if not self._make_room(books, size, order):
                    return Refusal.NO_ROOM
                self._change(books)
                claim = self._begin(books, name, size)
        except BaseException:
            if claim is not None:  # the books could not be written; they are marked, and the part is rubbish once it is closed
                claim.let_go()
            raise
        return claim

    def allocate(self, claim: Claim, order: Order) -> None:
        """Take the disk space of a claim; if the disk is full before the limit is reached, other entries are removed."""
        for last in (False, False, True):
            try:
                os.posix_fallocate(claim.fd, 0, claim.size)
                return
            except OSError as error:
                if last or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
            with self._books() as books:
                disk = os.statvfs(claim.fd)
                ours = books.total - claim.size
                if disk.f_bavail * disk.f_frsize + ours < claim.size or not self._evict(books, claim.size, order, full=True):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def publish(self, claim: Claim) -> None:
        """Give a written part its name."""
        with self._books() as books:
            self._change(books)
            books.stamp += 1
            os.utime(claim.fd, ns=(books.stamp * 10**9, os.fstat(claim.fd).st_mtime_ns))
            target = self.entry_path(claim.name)
            with suppress(FileNotFoundError):
                books.total -= target.lstat().st_size  # replaced by ours
            claim.path.rename(target)
            books.parts.pop(claim.name, None)
        claim.let_go()

    def abandon(self, claim: Claim) -> None:
        """Delete a part that will not be finished."""
        try:
            with suppress(OSError), self._books() as books:
                self._change(books)
                self._remove_part(books, claim.name, claim.path.name)
        finally:
            claim.let_go()

    def discard(self, name: str, identity: Identity) -> bool:
        """Delete a damaged entry; returns False when it is gone already, or another file has taken its place."""
        path = self.entry_path(name)
        with self._books() as books:
            try:
                about = path.lstat()
            except FileNotFoundError:
                return False
            if identity_of(about) != identity or not stat.S_ISREG(about.st_mode):
                return False
            self._change(books)
            path.unlink()
            books.total -= about.st_size
            return True

    def tick(self, every_s: float) -> int:
        """The stamp for what is used now: higher than all before, but made no more often than `every_s`."""
        now = time.monotonic()
        if now - self._ticked_s >= every_s:
            self._ticked_s = now
            with self._books(_BRIEF_S) as books:
                self._change(books)
                books.stamp += 1
        return self.stamp

    def renew(self) -> None:
        """In a forked child: forget the parent's locks."""
        self._lock = threading.Lock()
        if self._lock_fd >= 0:
            fd, self._lock_fd = self._lock_fd, -1
            os.close(fd)

    # ---- the books ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _books(self, wait_s: float | None = None) -> Iterator[_Books]:
        """The books, ours alone. If anything is raised while they are changed, they stay marked, and are made again next time."""
        wait_s = _LOCK_S if wait_s is None else wait_s
        if not self._lock.acquire(timeout=wait_s):
            raise OSError(errno.ETIMEDOUT, f"another thread had the books of {self.path} for {wait_s:.0f} s")
        try:
            fd = self._lock_fd = self._open_locked(wait_s)
            try:
                books = self._read_books(fd)
                yield books
                if books.changed:
                    _write_books(fd, books)
                self.stamp = books.stamp
            finally:
                self._lock_fd = -1
                # Unlocked explicitly and not just closed: a child forked in the meantime has this descriptor too.
                with suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)
        finally:
            self._lock.release()

    def _open_locked(self, wait_s: float) -> int:
        deadline, pause = time.monotonic() + wait_s, 0.001
        path = self.path / "books"
        while True:
            self._prepare()
            fd = _made(path)
            try:
                while not _try_lock(fd):
                    if time.monotonic() > deadline:
                        raise OSError(errno.ETIMEDOUT, f"{path} was locked by another process for {wait_s:.0f} s")
                    time.sleep(pause)
                    pause = min(0.02, pause * 1.5)
                with suppress(FileNotFoundError):
                    if os.fstat(fd).st_ino == path.lstat().st_ino:
                        return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # it was deleted while we waited: what we locked has no name any more
            self._ready = False
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, f"{path} is deleted again and again")

    def _prepare(self) -> None:
        if self._ready and self.path.is_dir():
            return
        self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.path.mkdir(mode=0o700)
        about = self.path.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise PermissionError(errno.EPERM, f"{self.path} must be a folder of mode 0700 that belongs to you")
        with suppress(FileExistsError):
            fd = os.open(self.path / "CACHEDIR.TAG", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, _TAG)
            finally:
                os.close(fd)

    def _read_books(self, fd: int) -> _Books:
        text = os.pread(fd, 1 << 22, 0)
        books = _parse_books(text)
        if books is not None and self._ready:
            return books
        # Counted once a process in any case: that sweeps what killed ones left, and notices what others deleted.
        found = books or _Books()
        os.pwrite(fd, b"!", 0)
        found.changed = True
        self._count(found)
        if found.total + BOOKS_BYTES > self._limit:
            self._evict(found, found.total + BOOKS_BYTES - self._limit, lambda name, stamp: (0, stamp))
        self._ready = True
        return found

    def _change(self, books: _Books) -> None:
        if not books.changed:
            os.pwrite(self._lock_fd, b"!", 0)
            books.changed = True

    # ---- files; all of these with the books held ---------------------------------------------------------------------------

    def _begin(self, books: _Books, name: str, size: int) -> Claim:
        part = f"{name}.{os.getpid()}-{secrets.token_hex(8)}.part"
        fd = _made(self.path / part, os.O_EXCL)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, size)
        except BaseException:
            with suppress(OSError):
                (self.path / part).unlink()
            os.close(fd)
            raise
        books.parts[name] = part
        books.total += size
        return Claim(name, self.path / part, fd, size)

    def _make_room(self, books: _Books, size: int, order: Order) -> bool:
        room = self._limit - BOOKS_BYTES - size
        if books.total > room >= 0:
            self._evict(books, books.total - room, order)
        return books.total <= room

    def _count(self, books: _Books) -> list[tuple[str, int, int]]:
        """Count all files, delete parts whose owner is dead; returns name, size and stamp of each entry."""
        entries, total, parts = [], 0, {}
        with os.scandir(self.path) as listing:
            for listed in listing:
                entry, part = _ENTRY.fullmatch(listed.name), _PART.fullmatch(listed.name)
                if entry is None and part is None:
                    continue
                try:
                    about = listed.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not stat.S_ISREG(about.st_mode):
                    continue
                if part is not None:
                    if not self._is_alive(listed.name):
                        with suppress(FileNotFoundError):
                            (self.path / listed.name).unlink()
                        continue
                    parts[part[1]] = listed.name
                elif entry is not None:
                    entries.append((entry[1], about.st_size, about.st_atime_ns // 10**9))
                total += about.st_size
        books.total, books.parts = total, parts
        books.stamp = max([books.stamp, *(stamp for _, _, stamp in entries if stamp < 1 << 33)])
        return entries

    def _evict(self, books: _Books, need: int, order: Order, *, full: bool = False) -> int:
        """Delete entries in order until `need` bytes are free, or all that may go are gone; returns the bytes freed.

        What is found missing when the folder is counted is free already; unless the disk itself is `full`.
        """
        self._change(books)
        before = books.total
        entries = self._count(books)
        freed = 0 if full else before - books.total
        slack = need + (0 if full else self._limit // _SLACK)
        ranked = sorted((rank, name, size) for name, size, stamp in entries if (rank := order(name, stamp)) is not None)
        for _, name, size in ranked:
            if freed >= need and freed + size > slack:
                break
            path = self.entry_path(name)
            if not is_entry(path):
                continue
            path.unlink(missing_ok=True)
            freed += size
            books.total -= size
            self.evicted += 1
        self._after_eviction()
        return freed

    def _remove_part(self, books: _Books, name: str, part: str) -> None:
        path = self.path / part
        with suppress(FileNotFoundError):
            size = path.lstat().st_size
            path.unlink()
            books.total -= size
        if books.parts.get(name) == part:
            del books.parts[name]

    def _is_alive(self, part: str) -> bool:
        """Whether the process that made a part still lives."""
        try:
            fd = os.open(self.path / part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _try_lock(fd)
        finally:
            os.close(fd)


def _made(path: Path, flags: int = 0) -> int:
    return files.patiently(
        lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600), _DESCRIPTOR_S
    )


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parse_books(text: bytes) -> _Books | None:
    if not text.startswith(b" ") or not text.endswith(b"\n"):
        return None
    try:
        found: Any = json.loads(text)
        parts = {name: part for name, part in found["parts"].items() if _PART.fullmatch(part)}
        return _Books(int(found["total"]), int(found["stamp"]), parts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _write_books(fd: int, books: _Books) -> None:
    """Write them, and take the mark away last. Padded, so that they need no more space on a disk that is full."""
    text = b"!" + json.dumps({"total": books.total, "stamp": books.stamp, "parts": books.parts}).encode()
    text = text.ljust(-(-(len(text) + 1) // 4096) * 4096 - 1) + b"\n"
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))
    os.pwrite(fd, b" ", 0)
