"""A work as workers receive it: bytes, and memory next to them that is shared until somebody writes to it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from ..sizes import show_bytes
from .executor import TaskWork, WritingWork
from .function_wire import pack_work
from .machine import Machine
from .process_line import SMALL, Frame, Frames, Kind, frame, write_block
from .shared_memory import BlockArena, Bytes, Place

C = TypeVar("C")
R = TypeVar("R")

#: memory that is compared at a time
_COMPARED = 1 << 24


class PackedWork(Generic[C, R]):
    """What a work was when this was made, whatever becomes of it since. ConfigError says why a work cannot be packed."""

    def __init__(self, work: TaskWork[C, R], arena: BlockArena) -> None:
        self.work, self._arena = work, arena
        #: the frame that a worker process is sent
        self.data = frame(Kind.WORK, work, self._put, pack_work, tag=int(isinstance(work, WritingWork)))

    def _put(self, memory: list[memoryview]) -> list[Place]:
        """Take arrays to shared memory, where they stay; refused where that is more than there is."""
        nbytes, left = sum(raw.nbytes for raw in memory), Machine.read().memory_left
        if left is not None and nbytes > left:
            raise MemoryError(
                f"its arrays take {show_bytes(nbytes)}, and for a copy that workers see {show_bytes(left)} are free"
            )
        return write_block(self._arena, memory)[1]

    def copy(self) -> TaskWork[C, R]:
        """The work as a worker has it: what becomes of the copy is not seen in the work itself, nor in other copies."""
        copy: TaskWork[C, R] = self._frame().value(self._arena.file.private)
        return copy

    def unchanged(self) -> bool:
        """Whether the work is still what it was, arrays included."""
        sent = self._frame()
        views: list[Any] = [self._arena.view(place) for place in sent.places]
        body = views.pop() if sent.beside else np.frombuffer(sent.body, np.uint8)
        now, memory = pack_work(self.work, SMALL)
        pairs = [(memoryview(now), body), *zip(memory, views)]
        return len(memory) == len(views) and all(_same(np.frombuffer(raw, np.uint8), view) for raw, view in pairs)

    def _frame(self) -> Frame:
        [sent] = Frames().add(self.data)
        return sent


def _same(first: Bytes, second: Bytes) -> bool:
    pieces = range(0, len(first), _COMPARED)
    return len(first) == len(second) and all(
        np.array_equal(first[at : at + _COMPARED], second[at : at + _COMPARED]) for at in pieces
    )
