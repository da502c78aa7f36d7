"""Running one task: time it, and turn whatever happens into exactly one outcome."""

from __future__ import annotations

import time
from typing import Any

from .executor import Outcome, Task, Work


def run_task(work: Work, task: Task, scratch: Any, worker: int) -> Outcome:
    outcome = Outcome(task, worker=worker)
    cpu = time.thread_time()
    outcome.start_s = time.monotonic()
    try:
        outcome.result = work(task.content, scratch)
    except BaseException as error:  # noqa: BLE001  a worker answers for every task, sys.exit() in a user's function included
        outcome.error = error
    outcome.stop_s = time.monotonic()
    outcome.cpu_s = time.thread_time() - cpu
    return outcome
