"""Measures how many of the machine's cores were idle while a loader worked, and how much was read from a disk."""

from __future__ import annotations

import resource
import time

from ..engine.resources import idle_seconds, usable_cores

#: how often it is asked how long cores were idle
_IDLE_S = 0.5


class IdleCores:
    """How many cores had nothing to do while batches were handed out; not in pauses, and not after the last batch."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._idle_s, self._disk_bytes = idle_seconds(), _disk_bytes()
        self._seen_s = self._seen_idle_s = 0.0

    def look(self, now: float, paused: bool) -> None:
        """Called when batches have been handed out; `paused`: there was a pause since the last call."""
        if now < self._at + _IDLE_S:
            return
        idle_s = idle_seconds()
        if not paused and idle_s is not None and self._idle_s is not None:
            self._seen_s += now - self._at
            self._seen_idle_s += max(0.0, idle_s - self._idle_s)
        self._at, self._idle_s = now, idle_s

    def disk_bytes(self) -> int:
        """What this process had to get from a disk since then; what lies in memory already is not part of it."""
        return _disk_bytes() - self._disk_bytes

    def mean(self) -> float | None:
        return min(float(usable_cores()), self._seen_idle_s / self._seen_s) if self._seen_s else None


def _disk_bytes() -> int:
    return 512 * resource.getrusage(resource.RUSAGE_SELF).ru_inblock
