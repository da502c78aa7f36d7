"""Runs something until a signal ends it."""

from __future__ import annotations

import signal
import threading
from typing import Any, Protocol


class Service(Protocol):
    """Runs until it is asked to stop."""

    def run(self) -> int | None: ...

    def leave(self) -> None: ...


def until_told(service: Service) -> int | None:
    """Run a service, and give what that gives; Ctrl-C, SIGTERM or SIGHUP let it leave, and a second one ends it at once."""
    asked = 0

    def leave(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt  # a second signal means: do not wait
        asked = number
        service.leave()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN and threading.current_thread() is threading.main_thread():
            signal.signal(number, leave)
    status = service.run()
    if asked and status == 128 + signal.SIGTERM:  # a process that it had asked to leave had begun nothing that it could finish
        if asked == signal.SIGINT:
            raise KeyboardInterrupt
        return 128 + asked
    return status
