"""Run something until a signal says that it is to end."""

from __future__ import annotations

import signal
import threading
from typing import Any, Protocol


class Service(Protocol):
    """Runs until it is told to leave."""

    def run(self) -> int | None: ...

    def leave(self) -> None: ...


def until_told(service: Service) -> int | None:
    """Run a service, and give what that gives; Ctrl-C, SIGTERM or SIGHUP let it leave, and a second one ends it at once."""
    asked = 0

    def leave(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt  # who asks twice does not want to wait
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
