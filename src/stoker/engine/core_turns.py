"""Limits how many threads compute at a time, among threads that mostly wait for something else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CoreTurns:
    """At most a fixed number of threads compute at a time; the others wait, or have called `aside`."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Compute, when it is this thread's turn."""
        with self._free:
            yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within `mine`: wait for something, while others have their turn."""
        self._free.release()
        try:
            yield
        finally:
            self._free.acquire()
