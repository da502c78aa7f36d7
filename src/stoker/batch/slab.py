"""Slabs: the memory of one batch, allocated in advance, leased to the user, and reused when the last reference is gone."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError
from ..sizes import counted, show_bytes
from ..source.chunk import FieldSpec

_ALIGN = 64


class Openable(Protocol):
    """The address of memory, for workers that do not see this process's memory: a value that can be pickled."""

    def open(self) -> NDArray[np.uint8]: ...


#: where slabs get their memory: a number of bytes -> an array of them, and its address if it has one
Allocate = Callable[[int], "tuple[NDArray[np.uint8], Openable | None]"]


def plain_memory(nbytes: int) -> tuple[NDArray[np.uint8], None]:
    return np.empty(nbytes, np.uint8), None


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of each fixed field in a slab of `rows` rows.

    `hoped` are fields whose rows have had one shape so far, without a guarantee: rows of that shape are written here, others stay
    outside the slab.
    """

    rows: int
    fields: tuple[tuple[str, str, tuple[int, ...], int], ...]  # name, dtype, shape with rows, offset
    nbytes: int
    hoped: frozenset[str] = frozenset()

    @classmethod
    def of(cls, specs: Mapping[str, FieldSpec], rows: int) -> Layout:
        fields, offset = [], 0
        for name, spec in specs.items():
            if spec.fixed:
                shape = (rows, *(n for n in spec.shape if n is not None))
                fields.append((name, spec.dtype, shape, offset))
                offset += -(-spec.nbytes * rows // _ALIGN) * _ALIGN
        return cls(rows, tuple(fields), offset)

    def hoping(self, columns: Mapping[str, NDArray[Any]]) -> Layout:
        """The same, with room for rows of these columns' shapes."""
        fields, offset = list(self.fields), self.nbytes
        for name, column in columns.items():
            fields.append((name, column.dtype.str, (self.rows, *column.shape[1:]), offset))
            offset += -(-column.nbytes // len(column) * self.rows // _ALIGN) * _ALIGN
        return Layout(self.rows, tuple(fields), offset, frozenset(columns))

    def arrays(self, memory: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Views of `memory`, one per field."""
        return {name: np.ndarray(shape, dtype, memory, offset) for name, dtype, shape, offset in self.fields}


class SlabView(NamedTuple):
    """An array within a slab, as another process sends it."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Slab:
    """The memory of one batch, and its fields' arrays for the workers to write to. It is pickled as its address."""

    __slots__ = ("address", "arrays", "interface", "kind", "layout", "memory")

    def __init__(self, layout: Layout, raw: NDArray[np.uint8], address: Openable | None = None, kind: int = 0) -> None:
        start = -raw.ctypes.data % _ALIGN
        self.layout, self.address, self.kind = layout, address, kind
        self.memory = raw[start : start + layout.nbytes]
        self.arrays = layout.arrays(self.memory)
        self.interface = self.memory.__array_interface__  # made once: asking NumPy for it costs microseconds

    def fields(self) -> dict[str, NDArray[Any]]:
        """The arrays of all rows, by field."""
        return dict(self.arrays)

    def view_of(self, column: Any) -> SlabView | None:
        """The description of an array in this slab; None if it is elsewhere."""
        if not isinstance(column, np.ndarray) or not np.may_share_memory(column, self.memory):
            return None
        offset = column.ctypes.data - self.memory.ctypes.data
        return SlabView(offset, column.dtype, column.shape, column.strides)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.address is None:
            raise BatchError("this batch's memory has no address, so it cannot be sent to another process")
        return _slab_at, (self.layout, self.address)


def _slab_at(layout: Layout, address: Openable) -> Slab:
    return Slab(layout, address.open(), address)


class Returned(weakref.ref["Lease"]):
    """A reference to a lease, which is put back into the pool, with the slab, when the lease ends."""

    __slots__ = ("slab",)
    slab: Slab


class Lease:
    """A slab in the user's hands.

    Every array handed out is a view whose base is this object, so it lives until the last of them is dropped, whatever the user
    did with them (slices, torch tensors, other threads). Then the slab returns to its pool; if the pool is gone, or the garbage
    collector had to find this, the memory is simply freed.

    No Python code runs at that moment, which comes once per batch: Python loses a Ctrl-C that arrives during a finalizer, and the
    training loop would continue. So the callback of the reference is the `append` of the pool's deque itself.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_returned")

    def __init__(self, slab: Slab, pool: SlabPool) -> None:
        self._returned = Returned(self, pool.give)
        self._returned.slab = slab
        self.__array_interface__ = slab.interface

    @property
    def layout(self) -> Layout:
        return self._returned.slab.layout

    def fields(self) -> dict[str, NDArray[Any]]:
        """The arrays of all rows, by field."""
        layout = self._returned.slab.layout
        return layout.arrays(np.asarray(self)) if layout.fields else {}

    def column(self, view: SlabView) -> NDArray[Any]:
        """An array that a worker described."""
        column: NDArray[Any] = np.ndarray(view.shape, view.dtype, np.asarray(self), view.offset, view.strides)
        return column

    def __reduce__(self) -> tuple[Any, ...]:
        return self._returned.slab.__reduce__()  # another process gets the slab, not the lease


class SlabPool:
    """Slabs of one layout. Invariant: a slab is in the pool, in a unit being made, or leased; never in two of these."""

    def __init__(self, layout: Layout, keep: int, allocate: Allocate = plain_memory) -> None:
        self.layout = layout
        self._allocate, self._kind = allocate, 0
        self._free: deque[Returned] = deque(maxlen=keep)  # a full deque drops the oldest
        self._earlier: deque[Returned] = deque()  # where earlier leases return to
        self.give = self._free.append

    def keep(self, slabs: int) -> None:
        """Keep at least `slabs` free slabs."""
        if self._free.maxlen is not None and slabs > self._free.maxlen:
            self._earlier, self._free = self._free, deque(self._free, max(slabs, 2 * self._free.maxlen))
            self._earlier.clear()
            self.give = self._free.append

    def start_over(self, layout: Layout | None = None) -> None:
        """Reuse none of the present slabs, including leased ones: new ones are of another kind, or have another layout."""
        self.layout = layout or self.layout
        self._kind += 1
        self._free.clear()
        self._earlier.clear()

    def take(self) -> Slab:
        if self._earlier:
            self._free.append(self._earlier.pop())
        try:
            slab = self._free.pop().slab  # the last one back is the warmest in cache
            while slab.kind != self._kind:
                slab = self._free.pop().slab
        except (IndexError, AttributeError):  # there is none; or one whose lease was interrupted before it began
            slab = None
        # Outside the handler: otherwise an error or interrupt here would be shown as a consequence of the one above.
        try:
            return slab or Slab(self.layout, *self._allocate(self.layout.nbytes + _ALIGN), self._kind)
        except (MemoryError, ValueError) as error:  # NumPy raises ValueError for sizes that no computer has
            rows, nbytes = counted(self.layout.rows, "sample"), show_bytes(self.layout.nbytes)
            raise BatchError(
                f"there is not enough memory for another batch ({rows}, {nbytes}); use a smaller batch, or make fewer batches "
                "ahead, as in loader(memory='500MB')"
            ) from error
