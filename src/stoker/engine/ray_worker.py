"""A worker on Ray, from the inside: an actor that runs groups of tasks, sequentially or in several threads.

It shares no memory with the program it works for. Tasks write their part of a batch into memory of the actor, which returns
through the object store unchanged.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import message_of
from ..turns import TURNS
from .executor import FarWork, Task, TaskWork
from .function_wire import Packed, pack, unpack
from .process_worker import UntidyWork
from .run_task import LONG_S, run_task
from .sent_values import check_sendable, received_work, without_refused
from .task_notes import NoteBoard, NoteRow, note_in

#: arrays of at least this many bytes are sent next to the pickle, and are not copied on their way into the object store
BESIDE = 4096
#: seconds that tasks wait for their work, which comes by another way and may have to travel
_WORK_S = 600.0
#: methods that are answered while tasks run
CONTROL = "control"

#: some bytes, and arrays next to them
Parcel = tuple[bytes, list[NDArray[np.uint8]]]


def parcel(packed: Packed) -> Parcel:
    """What Ray carries without looking into it."""
    data, memory = packed
    return data, [np.frombuffer(raw, np.uint8) for raw in memory]


class FarAddress:
    """The address of memory that no worker sees: each uses its own memory instead, for the duration of the task."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def open(self) -> NDArray[np.uint8]:
        return np.empty(self.nbytes, np.uint8)


class _Workplace:
    """What one thread works with."""

    def __init__(self, scratch: Any, row: NoteRow) -> None:
        self.scratch, self.row = scratch, row


class RayWorker:
    """Runs tasks. Ray makes it an actor; methods but `run` are answered while tasks run."""

    def __init__(self, number: int, threads: int, make_scratch: bytes, paths: list[str], folder: str, aside: bool) -> None:
        """`paths` are where the program finds modules, `folder` is where it is; `aside`: functions print to standard error."""
        with suppress(OSError):  # another machine may not have it
            os.chdir(folder)
        sys.path += [path for path in paths if path not in sys.path]
        if aside:
            sys.stdout = sys.stderr
        TURNS.private = True
        self._number = number
        self._board = NoteBoard(np.zeros(NoteBoard.size(threads), np.uint8))
        make = unpack(make_scratch)
        self._places = deque(_Workplace(make(), self._board.row(row)) for row in range(threads))
        self._works: dict[int, TaskWork[Any, Any]] = {}
        self._arrived = threading.Condition()
        self._ended: set[int] = set()

    def __repr__(self) -> str:
        return f"stoker-worker-{self._number}"

    def about(self) -> dict[str, Any]:
        """What the program wants to know of a worker that has started."""
        return {"version": version("stoker"), "pid": os.getpid(), "machine": os.uname().nodename}

    def take_work(self, number: int, sent: Parcel) -> None:
        """The work of tasks that will come; its arrays stay in the object store, where all workers of a machine read them."""
        data, memory = sent
        work = received_work(lambda: unpack(data, memory))
        with self._arrived:
            self._works[number] = work
            self._arrived.notify_all()

    def end(self, channel: int) -> None:
        """Tasks of this channel are not to be begun any more."""
        self._ended.add(channel)

    def run(self, channel: int, work: int, sent: Parcel, careful: bool) -> Any:
        """What became of a group of tasks, or of the first, as a parcel, and the memory they wrote; a text: it was not read."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: work in self._works, _WORK_S):
                return f"its pipeline did not arrive within {_WORK_S:g} s"
        data, memory = sent
        try:
            group = unpack(data, [array.copy() for array in memory])  # functions may change what they get, or keep it
        except Exception as error:  # noqa: BLE001  a user's value may raise anything when it is read
            return message_of(error) or type(error).__name__
        place = self._places.popleft()
        note_in(place.row)
        try:
            return self._ran(channel, self._works[work], group, place, careful)
        finally:
            self._places.append(place)

    def _ran(
        self, channel: int, work: TaskWork[Any, Any], group: Sequence[Any], place: _Workplace, careful: bool
    ) -> tuple[Parcel, list[list[NDArray[Any]]]]:
        told: list[Any] = []
        written: list[list[NDArray[Any]]] = []
        for serial, unit, number, content in group:
            if channel in self._ended:
                break
            place.row.begin(serial)
            outcome = run_task(work, Task(unit, number, content), place.scratch, self._number)
            place.row.end()
            result, fault = outcome.result, outcome.fault
            try:
                if careful:
                    check_sendable(result)
            except Exception as error:  # noqa: BLE001
                result, fault = without_refused(work, content, result, error)
            told.append((result, fault, outcome.lost, outcome.start_s, outcome.stop_s, outcome.cpu_s))
            filled = work.written(content) if isinstance(work, FarWork) and result is not None else None
            written.append(filled or [])
            if outcome.stop_s - outcome.start_s > LONG_S:
                break  # what is done does not wait for the rest, which comes again
        return self._packed(work, group, told), written

    def _packed(self, work: TaskWork[Any, Any], group: Sequence[Any], told: list[Any]) -> Parcel:
        try:
            return parcel(pack(told, BESIDE))
        except Exception:  # noqa: BLE001  a user's value may raise anything when it is pickled
            for at, (result, _, *times) in enumerate(told):
                try:
                    pack(result, BESIDE)
                except Exception as error:  # noqa: BLE001
                    told[at] = (*without_refused(work, group[at][3], result, error), *times)
            return parcel(pack(told, BESIDE))

    def notes(self) -> list[tuple[int, float, int, int, bytes]]:
        """The tasks in its hands by serial number: seconds since they last got on, samples, bytes, the sample they are at."""
        now = time.monotonic()
        return [(serial, now - noted.since_s, *noted[1:]) for serial, noted in self._board.read()]

    def stacks(self) -> str:
        """What its threads are doing."""
        own = threading.get_ident()
        frames = {thread: frame for thread, frame in sys._current_frames().items() if thread != own}
        ours = [stack for frame in frames.values() if __file__ in (stack := "".join(traceback.format_stack(frame)))]
        return "\n".join(ours) or "  (waiting for work)\n"

    def clean_up(self) -> None:
        """Remove what interrupted works have left."""
        for work in list(self._works.values()):
            if isinstance(work, UntidyWork):
                work.clean_up()
