"""Work that goes on beside the tasks: threads that run one function until they are told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: how long `close` waits for a thread that is in the middle of something; it is a daemon, and ends with the process at the latest
_JOIN_S = 5.0


class Background:
    """Threads running ``work(stop)``, which returns soon after the event `stop` is set."""

    def __init__(self, work: Callable[[threading.Event], None], threads: int, name: str) -> None:
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=work, args=(self._stop,), name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Tell them to stop, and do not wait."""
        self._stop.set()

    def close(self) -> None:
        """Stop them; idempotent."""
        self.stop()
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._threads = []
