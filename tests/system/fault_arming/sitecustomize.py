"""Arms one fault in a Python that the fault lab started, and in every worker of it: `fault_lab.Fault` says which.

Python imports this file by its name, before all else, where the lab has put this folder on PYTHONPATH. It waits for the module
that has the fault's place to be imported, and puts a function around the one of that name. So Stoker itself holds no such places.
"""

from __future__ import annotations

import fcntl
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import time
from typing import Any

#: the places where a process can fail, by name: module, function, and whether before, in the midst of or after a call of it
POINTS = {
    "worker starts": ("stoker.engine.process_worker", "main", "before"),
    "worker has read tasks": ("stoker.engine.process_worker", "_Worker._take_tasks", "before"),
    "worker has done a task": ("stoker.engine.process_worker", "_Worker._send", "before"),
    "worker sends": ("stoker.engine.process_line", "WorkerLine.send", "in the midst"),
    "worker has sent": ("stoker.engine.process_line", "WorkerLine.send", "after"),
    "home sends": ("stoker.engine.process_line", "HomeLine.send", "in the midst"),
}
ACTIONS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(0),
    "abort": os.abort,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


class Armed:
    """A function that fails the `after`-th time a process calls it; `times` times in all processes together."""

    def __init__(self, function: Any, when: str, action: str, after: int, times: int, ledger: str) -> None:
        self.function, self.when, self.action = function, when, ACTIONS[action]
        self.after, self.times, self.ledger = after, times, ledger
        self.calls = 0

    def __get__(self, owner: Any, kind: Any) -> Any:
        return lambda *arguments, **options: self(owner, *arguments, **options)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        due = self.calls > self.after and self.has_turn()
        if due and self.when == "in the midst":
            line, data, *rest = arguments
            self.function(line, bytes(data[: len(data) // 2]), *rest, **options)
        elif due and self.when == "after":
            self.function(*arguments, **options)
        if due:
            self.action()
            time.sleep(60)  # until it takes effect
        return self.function(*arguments, **options)

    def has_turn(self) -> bool:
        with open(self.ledger, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.tell() >= self.times:
                return False
            file.write(b"x")
            return True


class Watch(importlib.abc.MetaPathFinder):
    """Sees the module being imported, and arms its function."""

    def __init__(self, fault: dict[str, Any]) -> None:
        self.module, self.name, when = POINTS[fault.pop("point")]
        self.how = {"when": when, **fault}

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        run = spec.loader.exec_module

        def run_and_arm(module: Any) -> None:
            run(module)
            *holders, last = self.name.split(".")
            holder = module
            for each in holders:
                holder = getattr(holder, each)
            setattr(holder, last, Armed(getattr(holder, last), **self.how))

        spec.loader.exec_module = run_and_arm  # type: ignore[method-assign]
        return spec


if "FAULT_LAB_FAULT" in os.environ:
    sys.meta_path.insert(0, Watch(json.loads(os.environ["FAULT_LAB_FAULT"])))
