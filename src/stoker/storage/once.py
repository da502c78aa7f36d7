"""Warnings about something that many shards have in common."""

from __future__ import annotations

import logging
import threading

_log = logging.getLogger("stoker")


class Once:
    """Logs each warning once, for the first shard that has its reason. Any thread may warn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def warn(self, message: str, *args: object) -> None:
        """Log a warning, unless there was one of the same `message` before."""
        with self._lock:
            if message in self._said:
                return
            self._said.add(message)
        _log.warning(message, *args)

    def __reduce__(self) -> tuple[type[Once], tuple[()]]:
        return Once, ()
