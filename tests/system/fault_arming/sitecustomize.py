"""Arms one fault point in a Python that the fault lab started, and in every worker of it: `fault_lab.Fault` says which.

Python imports this file by its name, before all else, where the lab has put this folder on PYTHONPATH.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time

ACTIONS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(0),
    "abort": os.abort,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: time.sleep(10**6),
}


def arm(point: str, action: str, after: int, times: int, ledger: str) -> None:
    """At the place of that name, the `after`-th time a process comes there, fail; in all processes together `times` times."""
    seen = 0

    def fault_point(name: str) -> None:
        nonlocal seen
        if name != point:
            return
        seen += 1
        if seen <= after:
            return
        with open(ledger, "ab") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.tell() >= times:
                return
            file.write(b"x")
        ACTIONS[action]()

    import stoker.engine.fault_points

    stoker.engine.fault_points.fault_point = fault_point


if "FAULT_LAB_FAULT" in os.environ:
    arm(**json.loads(os.environ["FAULT_LAB_FAULT"]))
