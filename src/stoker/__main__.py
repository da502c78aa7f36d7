"""The command: the `stoker` script, and `python -m stoker` where that is not on the path."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def main() -> None:
    """Import the command, which takes a moment, and run it. Ctrl-C before it is there ends the program without a word."""
    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if waits:
        signal.signal(signal.SIGINT, _leave)  # an exception would come out in the middle of an import
    from .cli.main import main as command

    if waits:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def _leave(*_: object) -> NoReturn:
    os._exit(130)


if __name__ == "__main__":
    main()
