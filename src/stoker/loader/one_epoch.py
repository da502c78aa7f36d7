"""One epoch with a loader of its own: what iterating a pipeline gives."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ClosedError
from .loader import Loader

#: how often a thread that waits for another to make the loader looks whether there is that other
_TURN_S = 1.0


class OneEpoch(Iterator[Any]):
    """The batches of a loader that is made when the first of them is asked for, and closed when the iteration ends.

    Several threads may share it: each batch goes to exactly one of them. A generator would refuse the second thread.
    """

    def __init__(self, make: Callable[[], Loader]) -> None:
        self._make = make
        self._lock, self._process = threading.RLock(), os.getpid()
        self._loader: Loader | None = None
        self._batches: Iterator[Any] | None = None
        self._closed = False

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        try:
            return next(self._batches or self._begin())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the iteration; idempotent. Nothing comes after it."""
        self._closed = True
        if self._loader is not None:
            self._loader.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()  # after `break` too: what a stream's function does in the end, it has done then

    def _begin(self) -> Iterator[Any]:
        while not self._lock.acquire(timeout=_TURN_S):
            if self._process != os.getpid():
                raise ClosedError("this iterator was started in another process; make a new one with iter(pipeline)")
        try:
            if self._closed:
                raise StopIteration
            if self._batches is None:
                self._loader = self._make()
                self._batches = iter(self._loader)
            return self._batches
        finally:
            self._lock.release()
