"""Notes that tasks make while they run, in shared memory, so that they can be read after their worker died.

Each thread of a worker has one row: its current task, when that last made progress, and what it says of itself.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: bytes of a row: the task's serial number, nanoseconds, samples, bytes, the length of a name, and the name
_ROW = 1024
_TASK, _NOTE, _NAME = struct.Struct("qq"), struct.Struct("qqqq"), 40
_NONE = bytes(_NAME)
_here = threading.local()


class TaskNote(NamedTuple):
    """How far a task is, by its own account."""

    since_s: float  # when it was begun, or noted something; monotonic
    samples: int
    nbytes: int
    at: bytes  # the sample it is at, or as much of its name as there is room for


class NoteBoard:
    """The rows of a worker's threads."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._rows = [memory[start : start + _ROW].data for start in range(0, len(memory), _ROW)]

    @staticmethod
    def size(threads: int) -> int:
        return _ROW * threads

    def row(self, number: int) -> NoteRow:
        """The row of a thread, for itself."""
        return NoteRow(self._rows[number])

    def read(self) -> Iterator[tuple[int, TaskNote]]:
        """The tasks that are being done, by serial number."""
        for row in self._rows:
            serial, since_ns = _TASK.unpack_from(row)
            if serial and since_ns:
                _, samples, nbytes, length = _NOTE.unpack_from(row, 8)
                yield serial, TaskNote(since_ns / 1e9, samples, nbytes, row[_NAME : _NAME + length].tobytes())


class NoteRow:
    """The row of one thread. Its owner may be killed at any step, so a name has a length only while it is whole."""

    def __init__(self, row: memoryview) -> None:
        self._row = row

    def begin(self, serial: int) -> None:
        _TASK.pack_into(self._row, 0, serial, time.monotonic_ns())

    def note(self, samples: int, nbytes: int, at: bytes) -> None:
        at = at[: _ROW - _NAME]
        self._row[32:_NAME] = bytes(8)
        self._row[_NAME : _NAME + len(at)] = at
        _NOTE.pack_into(self._row, 8, time.monotonic_ns(), samples, nbytes, len(at))

    def end(self) -> None:
        self._row[:_NAME] = _NONE


def note_in(row: NoteRow) -> None:
    """From now on, what tasks of this thread note goes there."""
    _here.row = row


def note(samples: int, nbytes: int, at: bytes) -> None:
    """Note that the task this thread is at has got on, and which sample it is at. Nothing happens outside of a worker process."""
    row: Any = getattr(_here, "row", None)
    if row is not None:
        row.note(samples, nbytes, at)
