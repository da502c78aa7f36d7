"""The seam between work and the wire: which tasks can be done elsewhere, how they are asked for, and what becomes of answers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..faults import RunAgain, TaskFault
from ..storage.plain_values import Unstorable
from .frames import MAX_BUFFERS, Buffer, BufferQueue, FaultResult, FrameError, RowsResult, RowsTask
from .row_frames import fault_frame

#: how often a task that asks for it is run again
_AGAIN = 16


class Carrier(ABC):
    """Carries the tasks of one kind of work. Trainer and workers have one each, made of their own code."""

    #: the kind of work, as both sides call it
    kind: str

    @abstractmethod
    def asked(self, content: Any) -> RowsTask | None:
        """What to ask a worker for, to have this task done; None: it has to be done at home."""

    @abstractmethod
    def nbytes(self, content: Any) -> int:
        """About how many bytes will come back."""

    @abstractmethod
    def make(self, task: RowsTask, scratch: Any) -> tuple[RowsResult, list[Buffer]]:
        """Do it, in memory of its own. Raises Unstorable where the result cannot be sent, and FrameError for what is no task."""

    @abstractmethod
    def received(self, content: Any, result: RowsResult, buffers: BufferQueue) -> Callable[[], Any]:
        """Check what came back; raises FrameError. What is returned puts it where it belongs, and gives the task's result.

        Nothing is written before that is called, and it does not fail.
        """


def make_results(carrier: Carrier, tasks: list[RowsTask], scratch: Any) -> tuple[list[RowsResult | FaultResult], list[Buffer]]:
    """Do a parcel of tasks: a result each, whatever happens, and the buffers of all. Raises what `Carrier.make` does."""
    results: list[RowsResult | FaultResult] = []
    buffers: list[Buffer] = []
    for task in tasks:
        clock = time.perf_counter(), time.thread_time()
        result: RowsResult | FaultResult
        try:
            result, own = _made(carrier, task, scratch)
            buffers += own
        except (Unstorable, FrameError):
            raise
        except BaseException as error:  # noqa: BLE001  a worker answers for every task, sys.exit() in a user's function included
            result = FaultResult(fault_frame(TaskFault.of(error)))
        result.wall_s, result.cpu_s = time.perf_counter() - clock[0], max(0.0, time.thread_time() - clock[1])
        results.append(result)
    if len(buffers) > MAX_BUFFERS:
        raise Unstorable(f"a parcel of {len(buffers):,} buffers")
    return results, buffers


def _made(carrier: Carrier, task: RowsTask, scratch: Any) -> tuple[RowsResult, list[Buffer]]:
    for _ in range(_AGAIN):
        try:
            return carrier.make(task, scratch)
        except RunAgain:
            continue
    return carrier.make(task, scratch)
