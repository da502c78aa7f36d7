"""An entry on its way into the cache, and the threads that wait for it."""

from __future__ import annotations

import threading
import time

from ..errors import StokerError
from .cache_file import read_fully
from .cache_folder import Claim


class Flight:
    """An entry that is being fetched in this process. Other threads read from the same file what is there already."""

    def __init__(self, ahead: bool) -> None:
        self._moved = threading.Condition()
        self._ready = 0  # bytes, from the entry's first on; -1: no more reading
        self._readers = 0
        self._done = False
        #: whether nothing waits for it yet; guarded, like the table of flights, by the cache
        self.ahead = ahead
        #: whether a thread is at it
        self.begun = False
        #: whether the threads that were to fetch it have gone
        self.left = False
        #: how it ended
        self.kept = False
        self.error: StokerError | None = None
        self.claim: Claim | None = None

    def read(self, offset: int, view: memoryview, wait_s: float) -> bool:
        """Fill the view as soon as its bytes are there; returns False when they will not be, or not in time."""
        deadline = time.monotonic() + wait_s
        with self._moved:
            while 0 <= self._ready < offset + len(view) and not self._done:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._moved.wait(left)
            if self.claim is None or self._ready < offset + len(view):
                self._wait_for_end(deadline)
                return False
            self._readers += 1
            fd = self.claim.fd
        try:
            return read_fully(fd, offset, view)
        finally:
            with self._moved:
                self._readers -= 1
                self._moved.notify_all()

    def progress(self, ready: int) -> None:
        with self._moved:
            self._ready = ready
            self._moved.notify_all()

    def seal(self) -> None:
        """Allow no new readers, and wait for present ones: they copy bytes that are there, and end soon."""
        with self._moved:
            self._ready = -1
            while self._readers:
                self._moved.wait(1.0)

    def land(self) -> None:
        with self._moved:
            self._done = True
            self._moved.notify_all()

    def _wait_for_end(self, deadline: float) -> None:
        while not self._done and (left := deadline - time.monotonic()) > 0:
            self._moved.wait(left)
