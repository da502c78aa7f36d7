"""Units of the cache that are open for reading: few at a time, and none is closed under a reader."""

from __future__ import annotations

import resource
import threading
import weakref
from collections import OrderedDict
from pathlib import Path

from .cache_file import UnitFile
from .local import NO_MORE, keeps_idle, patiently


def _most_open() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 128 if soft == resource.RLIM_INFINITY else max(8, min(128, soft // 8))


def _close_all(files: dict[int, UnitFile]) -> None:
    """Close what a cache left behind that nobody holds any more."""
    while files:
        files.popitem()[1].close()


class OpenUnits:
    """Descriptors by name, at most so many that nobody uses.

    Invariant: a descriptor with pins stays open, so its number cannot come to mean another file while somebody reads. What was
    checked of a file is remembered after it is closed.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or _most_open()
        self._lock = threading.Lock()
        self._open: OrderedDict[str, UnitFile] = OrderedDict()
        self._closed: dict[str, UnitFile] = {}
        self._by_fd: dict[int, UnitFile] = {}
        weakref.finalize(self, _close_all, self._by_fd).atexit = False
        keeps_idle(self, OpenUnits.close)

    def pin(self, name: str, path: Path, digest: bytes, spare: bool = False) -> UnitFile | None:
        """The file of a unit, open until `unpin`; None: it is not there. Raises OSError, and Damaged.

        With `spare` the caller can do without it, and may have others pinned: where there are enough of them it is None, and
        nobody waits for a descriptor.
        """
        with self._lock:
            file = self._open.get(name)
            if file is not None:
                if not file.is_stale():
                    self._open.move_to_end(name)
                    file.pins += 1
                    return file
                self._drop(name)
            if spare and len(self._open) >= self._most and all(other.pins for other in self._open.values()):
                return None
            known = self._closed.pop(name, None)

        def opened() -> UnitFile:
            return known if known is not None and known.reopen(path) else UnitFile(path, digest)

        try:
            file = opened() if spare else patiently(opened, 0.0)
        except FileNotFoundError:
            return None
        except OSError as error:
            if spare and error.errno in NO_MORE:
                return None
            raise
        with self._lock:
            other = self._open.get(name)
            if other is not None:  # another thread was faster
                file.close()
                file = other
            else:
                self._open[name] = self._by_fd[file.fd] = file
            file.pins += 1
            self._shrink()
            return file

    def unpin(self, file: UnitFile) -> None:
        with self._lock:
            file.pins -= 1
            if file.dropped and not file.pins:
                self._close(file)
            self._shrink()

    def unpin_fd(self, fd: int) -> None:
        self.unpin(self._by_fd[fd])

    def drop(self, name: str, file: UnitFile) -> None:
        """Forget a file, if it is still the one of that name; its descriptor goes with the last pin."""
        with self._lock:
            if self._open.get(name) is file:
                self._drop(name)

    def drop_stale(self) -> None:
        """Close what was deleted meanwhile: the disk space is free only then."""
        with self._lock:
            for name in [name for name, file in self._open.items() if file.is_stale()]:
                self._drop(name)

    def has(self, name: str) -> bool:
        return name in self._open

    def close(self) -> int:
        """Close what nobody uses, and say how many these were."""
        with self._lock:
            idle = [name for name, file in self._open.items() if not file.pins]
            for name in idle:
                self._put_away(name)
            return len(idle)

    def renew(self) -> None:
        """In a forked child: the parent's readers do not live here."""
        self._lock = threading.Lock()
        for file in list(self._by_fd.values()):
            file.pins = 0
            if file.dropped:
                self._close(file)

    def _shrink(self) -> None:
        idle = [name for name, file in self._open.items() if not file.pins] if len(self._open) > self._most else []
        for name in idle[: len(self._open) - self._most]:
            self._put_away(name)

    def _put_away(self, name: str) -> None:
        file = self._open.pop(name)
        self._close(file)
        self._closed[name] = file

    def _drop(self, name: str) -> None:
        file = self._open.pop(name)
        file.dropped = True
        if not file.pins:
            self._close(file)

    def _close(self, file: UnitFile) -> None:
        self._by_fd.pop(file.fd, None)
        file.close()
