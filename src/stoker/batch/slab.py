"""Slabs: the memory of one batch, laid out beforehand, leased to the user, and used again when the last reference is gone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..source.chunk import FieldSpec

_ALIGN = 64

#: where slabs get their memory: a number of bytes -> an array of them
Allocate = Callable[[int], NDArray[np.uint8]]


def plain_memory(nbytes: int) -> NDArray[np.uint8]:
    return np.empty(nbytes, np.uint8)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each fixed field lies in a slab of `rows` rows."""

    rows: int
    fields: tuple[tuple[str, str, tuple[int, ...], int], ...]  # name, dtype, shape with rows, offset
    nbytes: int

    @classmethod
    def of(cls, specs: Mapping[str, FieldSpec], rows: int) -> Layout:
        fields, offset = [], 0
        for name, spec in specs.items():
            if spec.fixed:
                shape = (rows, *(n for n in spec.shape if n is not None))
                fields.append((name, spec.dtype, shape, offset))
                offset += -(-spec.nbytes * rows // _ALIGN) * _ALIGN
        return cls(rows, tuple(fields), offset)

    def arrays(self, memory: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Views of `memory`, one a field."""
        return {name: np.ndarray(shape, dtype, memory, offset) for name, dtype, shape, offset in self.fields}


class Slab:
    """The memory of one batch, and its fields' arrays for the workers to write to."""

    __slots__ = ("arrays", "interface", "layout", "memory")

    def __init__(self, layout: Layout, allocate: Allocate) -> None:
        raw = allocate(layout.nbytes + _ALIGN)
        start = -raw.ctypes.data % _ALIGN
        self.layout = layout
        self.memory = raw[start : start + layout.nbytes]
        self.arrays = layout.arrays(self.memory)
        self.interface = self.memory.__array_interface__  # made once: asking NumPy for it costs microseconds


class Lease:
    """A slab in the user's hands.

    Every array handed out is a view whose base is this object, so it lives until the last of them is dropped, whatever the user
    did with them (slices, torch tensors, other threads). Then the slab goes back to its pool; if the pool is gone, or this is
    never called, the memory is simply freed.
    """

    __slots__ = ("__array_interface__", "_pool", "_slab")

    def __init__(self, slab: Slab, pool: SlabPool) -> None:
        self._slab, self._pool = slab, pool
        self.__array_interface__ = slab.interface

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._slab.layout.arrays(np.asarray(self)) if self._slab.layout.fields else {}

    def __del__(self) -> None:
        self._pool.give(self._slab)


class SlabPool:
    """Slabs of one layout. Invariant: a slab is in the pool, in a unit being made, or leased; never in two of these."""

    def __init__(self, layout: Layout, keep: int, allocate: Allocate = plain_memory) -> None:
        self.layout = layout
        self._allocate = allocate
        self._free: deque[Slab] = deque(maxlen=keep)  # a full deque lets the oldest go

    def take(self) -> Slab:
        try:
            returned = self._free.pop()  # the last one back is the warmest in cache
        except IndexError:
            returned = None
        # Not where that error is handled: what goes wrong here, or interrupts it, would be told as a consequence of it.
        return Slab(self.layout, self._allocate) if returned is None else returned

    def give(self, slab: Slab) -> None:
        self._free.append(slab)
