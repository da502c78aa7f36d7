"""Wakes a thread that waits for descriptors."""

from __future__ import annotations

import os
from contextlib import suppress


class WakePipe:
    """A pipe, one end of which that thread waits for. Any thread may ring, a finalizer or a signal's handler too."""

    def __init__(self) -> None:
        #: what to wait for: there is something to be read once somebody has rung
        self.end, self._bell = os.pipe()
        for each in (self.end, self._bell):
            os.set_blocking(each, False)

    def ring(self) -> None:
        """Wake the waiting thread; does nothing once it is closed."""
        if self._bell >= 0:
            with suppress(OSError):  # it is full, so it was rung
                os.write(self._bell, b"!")

    def heard(self) -> None:
        """Called by the woken thread."""
        if self._bell >= 0:
            with suppress(BlockingIOError):
                os.read(self.end, 4096)

    def close(self) -> None:
        """Close it; idempotent."""
        if self._bell >= 0:
            bell, self._bell = self._bell, -1
            os.close(bell)
            os.close(self.end)
