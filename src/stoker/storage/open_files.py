"""The open file descriptors of this process: one pool for local shards, cache files, and all threads.

A data set may have more shards than a process may have files open. Invariant: a descriptor that is pinned or held stays open, so
its number cannot come to mean another file during a read.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..errors import StokerError

Result = TypeVar("Result")
_Keeper = TypeVar("_Keeper")

#: what the system answers when it has no more descriptors for this process, or for anybody
NO_MORE = (errno.EMFILE, errno.ENFILE)
#: how long to wait for one
WAIT_S = 10.0

#: who else keeps idle descriptors, and what closes them
_keepers: weakref.WeakKeyDictionary[Any, Callable[[Any], int]] = weakref.WeakKeyDictionary()
#: what tells files apart; an address would come to mean another
_numbers = itertools.count()


def keeps_idle(keeper: _Keeper, close: Callable[[_Keeper], int]) -> None:
    """Have ``close(keeper)`` called when the process runs out of descriptors; it says how many it closed."""
    _keepers[keeper] = close


class PooledFile(ABC):
    """A file whose descriptor is in the pool, if it is open at all."""

    def __init__(self) -> None:
        self.number = next(_numbers)

    @abstractmethod
    def open(self) -> int:
        """A new descriptor."""

    def __del__(self) -> None:
        files.forget(self.number)


class _Descriptor:
    __slots__ = ("dropped", "fd", "holds", "pins")

    def __init__(self, fd: int) -> None:
        self.fd, self.pins, self.holds, self.dropped = fd, 0, 0, False

    @property
    def is_idle(self) -> bool:
        return not self.pins and not self.holds


class OpenFiles:
    """Open descriptors, limited in number; those in use are never closed.

    A caller that can do without a descriptor gets none if all are in use. A caller that cannot gets one more, and waits if the
    process has no more: it has no pin while it waits, so that others make progress.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[int, _Descriptor] = OrderedDict()
        self._held = 0
        self._forgotten: deque[int] = deque()
        self._let_go: deque[int] = deque()
        self.renew()

    def pin(self, file: PooledFile, wait_s: float = WAIT_S) -> int:
        """A descriptor that stays open until `unpin`."""
        return self.patiently(lambda: self._pin(file), wait_s)

    def pin_spare(self, file: PooledFile) -> int:
        """The same if there is one to spare, else -1."""
        with self._lock:
            full = file.number not in self._open and len(self._open) >= self._most
            if full and not any(descriptor.is_idle for descriptor in self._open.values()):
                return -1
        return self._pin(file)

    def unpin(self, file: PooledFile) -> None:
        with self._lock:
            self._open[file.number].pins -= 1
            self._settle(file.number)
            if len(self._open) > self._most:
                self._shrink(self._most)
            self._unpinned.notify()

    def hold(self, wanted: Sequence[PooledFile]) -> list[int] | None:
        """Descriptors that stay open until `let_go`, -1 for those that cannot be opened; None: they are too many."""
        with self._lock:
            self._sweep()
            if self._held + len(wanted) > self._most // 2:
                return None
            self._held += len(wanted)
        fds = [self._hold(file) for file in wanted]
        with self._lock:
            self._held -= fds.count(-1)
        return fds

    def _hold(self, file: PooledFile) -> int:
        try:
            fd = self._pin(file)
        except StokerError:
            return -1  # reported when it is read
        with self._lock:
            descriptor = self._open[file.number]
            descriptor.pins -= 1
            descriptor.holds += 1
        return fd

    def let_go(self, numbers: list[int]) -> None:
        """Give back what `hold` gave, of files by their numbers; for the collector, as `forget` is."""
        self._let_go.extend(numbers)
        self._sweep_if_free()

    def has(self, file: PooledFile) -> bool:
        """Whether it is open."""
        return file.number in self._open

    def drop(self, file: PooledFile) -> None:
        """Close it, when it is no longer used."""
        with self._lock:
            self._drop(file.number)

    def forget(self, number: int) -> None:
        """Close descriptors of a file object that is gone.

        The collector calls this at any moment, also in a thread that holds the lock. So it never waits: what cannot be closed now
        is closed by the next caller that opens a file.
        """
        self._forgotten.append(number)
        self._sweep_if_free()

    def patiently(self, work: Callable[[], Result], wait_s: float) -> Result:
        """Run a function that opens a file.

        If the process has no descriptors left, close idle ones of ours, and wait until others do.
        """
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

    def renew(self) -> None:
        """In a forked child: the fork may have come while another thread held the lock, and such threads do not live here."""
        self._lock = threading.Lock()
        self._unpinned = threading.Condition(self._lock)
        for descriptor in self._open.values():
            descriptor.pins = 0

    def _pin(self, file: PooledFile) -> int:
        with self._lock:
            self._sweep()
            descriptor = self._open.get(file.number)
            if descriptor is not None:
                self._open.move_to_end(file.number)
                descriptor.pins += 1
                return descriptor.fd
            self._shrink(self._most - 1)
        fd = file.open()
        with self._lock:
            if (descriptor := self._open.get(file.number)) is None:
                descriptor = self._open[file.number] = _Descriptor(fd)
            else:
                os.close(fd)  # another thread was faster
            descriptor.pins += 1
            return descriptor.fd

    def _close_idle(self) -> int:
        """Close what nobody uses, here and at all who keep descriptors, and say how many these were."""
        with self._lock:
            closed = self._shrink(0)
        keepers = [keeper for reference in _keepers.keyrefs() if (keeper := reference()) is not None]
        return closed + sum(_keepers[keeper](keeper) for keeper in keepers)

    def _sweep_if_free(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._let_go:
            number = self._let_go.popleft()
            self._held -= 1
            if number in self._open:
                self._open[number].holds -= 1
                self._settle(number)
        while self._forgotten:
            self._drop(self._forgotten.popleft())

    def _drop(self, number: int) -> None:
        if number in self._open:
            self._open[number].dropped = True
            self._settle(number)

    def _settle(self, number: int) -> None:
        descriptor = self._open[number]
        if descriptor.dropped and descriptor.is_idle:
            os.close(self._open.pop(number).fd)

    def _shrink(self, most: int) -> int:
        """Close idle ones until there are so many, and say how many were closed."""
        surplus = max(0, len(self._open) - most)
        idle = list(itertools.islice((number for number, descriptor in self._open.items() if descriptor.is_idle), surplus))
        for number in idle:
            os.close(self._open.pop(number).fd)
        return len(idle)


def _most_open() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, min(2048, soft // 4)) if soft != resource.RLIM_INFINITY else 2048


files = OpenFiles(_most_open())
os.register_at_fork(after_in_child=files.renew)


def descriptors_at_once(most: int) -> int:
    """How many things, up to `most`, may be under way that take a descriptor each."""
    return min(most, _most_open())
