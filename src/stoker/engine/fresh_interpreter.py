"""Processes of ours that are fresh interpreters: how they are started, how they end with who started them, and how they ended."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

_F_SETSIG = 10  # Linux; Python has no name for it
#: It finds what the process that starts it finds, wherever that was; and it steps back before it imports anything
_PROGRAM = """
import os, sys
os.nice({nice})
sys.path[:] = filter(None, sys.path)  # not what lies in the working folder
import json
words = json.loads(sys.argv[1])
sys.path[:] = words.pop(0)
from {module} import main
main(*words)
"""


def command_line(module: str, *words: Any, nice: int = 0) -> list[str]:
    """What runs ``main(*words)`` of a module in a fresh interpreter; `nice`: how far it steps back for others."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    program = _PROGRAM.format(module=module, nice=nice)
    return [sys.executable, *flags, "-c", program, json.dumps([sys.path, *words])]


def end_with(lifeline: int) -> None:
    """Be killed when the other end of this pipe closes, which only the process that started this one has."""
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)  # it closed before


def ended_in_words(status: int) -> str:
    """How a process ended, in words that follow its name."""
    if status >= 0:
        return f"exited with code {status}"
    known = -status in signal.Signals._value2member_map_
    return f"was killed by signal {-status}" + (f" ({signal.Signals(-status).name})" if known else "")
