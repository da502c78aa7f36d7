"""Runs one task: measures its time, and turns whatever happens into exactly one outcome."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from ..errors import FunctionError, message_of
from ..faults import RunAgain, TaskFault
from .executor import Outcome, Task, TaskWork

C = TypeVar("C")
R = TypeVar("R")
#: a task that takes longer is handed over at once, and not with the others that were handed out with it
LONG_S = 0.1


def run_task(work: TaskWork[C, R], task: Task[C], scratch: Any, worker: int) -> Outcome[C, R]:
    outcome: Outcome[C, R] = Outcome(task, worker=worker)
    cpu = time.thread_time()
    outcome.start_s = time.monotonic()
    try:
        outcome.result = work(task.content, scratch)
    except RunAgain:
        outcome.lost = True  # and no task is to blame
    except BaseException as error:  # noqa: BLE001  a worker answers for every task, sys.exit() in a user's function included
        outcome.fault = TaskFault.of(error)
    outcome.stop_s = time.monotonic()
    outcome.cpu_s = time.thread_time() - cpu
    return outcome


def presentable(error: BaseException) -> Exception:
    """An error fit to be raised in the consumer's thread: sys.exit() in a worker must not end the training program."""
    if isinstance(error, Exception):
        return error
    wrapped = FunctionError(f"a function of the pipeline raised {type(error).__name__}({message_of(error)}) in its worker")
    wrapped.__cause__ = error
    return wrapped
