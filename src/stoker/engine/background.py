"""Background work next to the tasks: threads that run one function until they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import ConfigError
from .daemons import Daemons

#: how long `close` waits for a thread that is in the middle of something; it is a daemon, and ends with the process at the latest
_JOIN_S = 1.0


class Background:
    """Threads running ``work(stop)``, which returns soon after the event `stop` is set."""

    def __init__(self, work: Callable[[threading.Event], None], threads: int, name: str) -> None:
        stop = threading.Event()
        self._daemons = Daemons(stop.set)
        try:
            for number in range(threads):
                self._daemons.start(f"background thread {number + 1} of {threads}", f"{name}-{number}", work, stop)
        except ConfigError:
            self.stop()
            raise

    def stop(self) -> None:
        """Signal them to stop, without waiting."""
        self._daemons.stop()

    def close(self) -> None:
        """Stop them; idempotent."""
        self._daemons.close(_JOIN_S)
