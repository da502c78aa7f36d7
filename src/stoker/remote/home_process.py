"""Where the training program makes rows at which a worker ended: in a process of its own, which ends instead of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.executor import CRASHED, Outcome, Task
from ..engine.process_executor import ProcessExecutor
from ..storage.plain_values import Unstorable
from .carrier import Carrier, make_results
from .frames import FrameError, Results, RowsTask, packed

#: what that process gives: the header of results and their buffers; None: they cannot be sent
Packed = tuple[bytes, list[NDArray[np.uint8]]]
#: seconds between two looks whether anybody still waits
_LOOK_S = 0.2


class HomeProcess:
    """A worker process with one thread, which is started when it is needed. Parcels are made one after another."""

    def __init__(self, make_scratch: Callable[[], Any]) -> None:
        self._make_scratch = make_scratch
        self._works: dict[Carrier, _PackedRows] = {}
        self._turn = threading.Lock()
        self._executor: ProcessExecutor | None = None
        self._at_work, self._stuck = False, ""  # whether there is a parcel, and why it is given up
        self._closed = False

    @property
    def starting(self) -> bool:
        """Whether the process is only just starting."""
        executor = self._executor
        return executor is not None and executor.starting

    def make(self, carrier: Carrier, asked: list[RowsTask], wanted: Callable[[], bool]) -> Outcome[Any, Packed | None] | None:
        """What became of a parcel, which may be lost; None: nobody wants it any more. Raises ConfigError if it cannot be sent."""
        with self._turn:
            task: Task[Any] = Task(0, 0, asked, alone=True)
            if self._closed:
                return None
            if self._executor is None:
                self._executor = ProcessExecutor(1, self._make_scratch)
            executor, outcomes = self._executor, list[Outcome[Any, Any]]()
            try:
                channel = executor.channel(self._works.setdefault(carrier, _PackedRows(carrier)))
                self._at_work, self._stuck = True, ""
                channel.submit([task])
                while not (outcomes or self._stuck or self._closed or executor.stopped) and wanted():
                    outcomes = channel.collect(_LOOK_S)
                channel.cancel()
            finally:
                self._at_work = False
                if not outcomes:  # it may never come to its end
                    self._executor = None
                    executor.close()
            if not outcomes and self._stuck:
                return Outcome(task, lost=True, blame=CRASHED, cause=self._stuck)
            return outcomes[0] if outcomes else None

    def end_stuck(self, cause: str) -> bool:
        """Give up the parcel at work, because nothing moves any more. Whether there is one."""
        self._stuck = cause
        return self._at_work

    def close(self) -> None:
        """End it, and let whoever waits for it go."""
        self._closed = True
        if (executor := self._executor) is not None:
            executor.close()


class _PackedRows:
    """The work of that process."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    def __call__(self, asked: list[RowsTask], scratch: Any) -> Packed | None:
        try:
            results, buffers = make_results(self._carrier, asked, scratch)
            return packed(Results(0, results, 0, 0.0)), [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        except (Unstorable, FrameError):
            return None
