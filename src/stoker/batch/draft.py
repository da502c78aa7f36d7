"""A batch in the making: tasks write their rows into it, in any order, from any thread; `finish` joins them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError
from ..source.chunk import OBJECT, BytesColumn, Chunk, Column, FieldSpec, Ints
from ..source.sample_names import Names
from .collate import collate
from .slab import Lease, SlabPool
from .strings import ByteStrings


class Draft:
    """Rows of one batch, `rows` of them when complete.

    Fixed fields go straight to the slab. Others are kept per task and joined by `finish`, as `rules` say (None: into lists).
    Rows that were skipped leave holes, which `finish` closes.
    """

    def __init__(self, rows: int, pool: SlabPool, specs: Mapping[str, FieldSpec] | None, rules: Mapping[str, Any] | None) -> None:
        self.rows = rows
        self._pool, self._specs, self._rules = pool, specs, rules
        self._needed = frozenset(specs or ())
        self._slab = pool.take()
        self._parts: dict[int, _Part] = {}  # by first row; a task adds its own in one assignment, so there is no lock

    def targets(self, first: int, stop: int) -> dict[str, NDArray[Any]]:
        """The memory of rows `first` to `stop`, by field: whoever makes a row may write it there."""
        return {name: array[first:stop] for name, array in self._slab.arrays.items()}

    def write(self, first: int, targets: Mapping[str, NDArray[Any]], chunk: Chunk) -> int:
        """Take in a finished chunk whose rows belong at ``first + chunk.slots``; returns the bytes it added beside the slab."""
        if not len(chunk):
            return 0  # every row was left out, perhaps before all stages ran: there is nothing to write
        loose: dict[str, Any] = {}
        for name, column in chunk.columns.items():
            target = targets.get(name)
            if target is None:
                loose[name] = _lasting(column)
            elif column is not target:
                _copy_rows(name, target, chunk, column)
        if not self._needed <= chunk.columns.keys():
            missing = sorted(self._needed - chunk.columns.keys())
            raise BatchError(f"the field {missing[0]!r} is gone; the samples here have {', '.join(chunk.columns)}")
        self._parts[first] = _Part(chunk.slots, loose, chunk.names)
        return sum(column_bytes(column) for column in loose.values()) if loose else 0

    def finish(self, stop: int | None = None) -> tuple[dict[str, Any], int, Callable[[], list[str]], Ints | None]:
        """Columns, number of rows, keys, and which rows they are (None: all). Call once, when every task has written.

        With `stop` only the rows before that one, when what follows failed.
        """
        parts = [self._parts[first] for first in sorted(self._parts)]
        kept = None
        if stop is not None or sum(len(part.slots) for part in parts) < self.rows:
            kept = self._cut(stop)
        counts = [(part.names, len(part.slots)) for part in parts]

        def keys() -> list[str]:
            return [names.key(row) for names, count in counts for row in range(count)]

        rows = self.rows if kept is None else len(kept)
        columns = self._slab_columns(kept, rows)
        for name in self._loose_fields(parts):
            values = _joined([(part.loose[name], len(part.slots)) for part in parts])
            spec = (self._specs or {}).get(name, OBJECT)
            columns[name] = values if self._rules is None else collate(name, values, spec, self._rules, lambda row: keys()[row])
        order = list(self._specs) if self._specs is not None and parts else list(columns)
        return {name: columns[name] for name in order}, rows, keys, kept

    def _cut(self, stop: int | None) -> Ints | None:
        """Leave out the rows from `stop` on; returns which rows there are, None when they are all."""
        kept = [np.empty(0, np.int64)]
        for first, part in sorted(self._parts.items()):
            if stop is not None:
                part.slots = part.slots[part.slots < stop - first]
            kept.append(first + part.slots)
        rows = np.concatenate(kept)
        return None if len(rows) == self.rows else rows

    def _slab_columns(self, kept: Ints | None, rows: int) -> dict[str, Any]:
        if kept is not None:
            for array in self._slab.arrays.values():
                array[:rows] = array[kept]
        slab, self._slab = self._slab, None  # type: ignore[assignment]  # from here on the lease owns it
        arrays = Lease(slab, self._pool).arrays()
        if rows == self._pool.layout.rows:
            return dict(arrays)
        return {name: array[:rows] for name, array in arrays.items()}

    @staticmethod
    def _loose_fields(parts: list[_Part]) -> list[str]:
        if not parts:
            return []
        names = parts[0].loose.keys()
        for part in parts:
            if part.loose.keys() != names:
                odd = sorted(part.loose.keys() ^ names)[0]
                raise BatchError(f"some samples have the field {odd!r} and some do not, e.g. {part.names.key(0)!r}")
        return list(names)


class _Part:
    """What one task wrote: the rows it filled, counted from its first; their loose columns; their names."""

    __slots__ = ("loose", "names", "slots")

    def __init__(self, slots: Ints, loose: dict[str, Any], names: Names) -> None:
        self.slots, self.loose, self.names = slots, loose, names


def _copy_rows(name: str, target: NDArray[Any], chunk: Chunk, column: Column) -> None:
    values = column.own() if isinstance(column, BytesColumn) else column
    try:
        if len(chunk) == len(target):
            target[...] = values
        else:
            target[chunk.slots] = values
    except (ValueError, TypeError) as error:
        raise BatchError(f"field {name!r}: {error} (sample {chunk.name(0)!r} and those with it)") from error


def _lasting(column: Column) -> Any:
    return column.lasting() if isinstance(column, BytesColumn) else column


def _joined(parts: list[tuple[Any, int]]) -> Any:
    """The first rows, as many as said, of each column."""
    if all(isinstance(column, BytesColumn) for column, _ in parts):
        return ByteStrings([column if len(column) == count else column.take(np.arange(count)) for column, count in parts])
    return [value for column, count in parts for value in (column if isinstance(column, list) else list(column))[:count]]


def column_bytes(column: Any) -> int:
    """About how much memory a column takes."""
    if isinstance(column, BytesColumn):
        return column.data.size  # it may hold more than its rows
    listed = isinstance(column, list) or (isinstance(column, np.ndarray) and column.dtype == object)
    return sum(map(_value_bytes, column)) if listed else _value_bytes(column)


#: about what a small object takes
_SMALL = 64


def _value_bytes(value: Any, depth: int = 4) -> int:
    """About how much memory a user's value takes: arrays and tensors have `nbytes`, Pillow's images a size and bands."""
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    try:
        nbytes = getattr(value, "nbytes", None)
    except Exception:  # noqa: BLE001  a sparse tensor raises a RuntimeError, and what else a user's value may do nobody knows
        nbytes = None
    if isinstance(nbytes, int):
        return nbytes
    if isinstance(value, Mapping) and depth:
        return sum(_value_bytes(inner, depth - 1) for inner in value.values())
    if isinstance(value, (list, tuple)) and value and depth:
        # Long lists are of one kind, tokens for instance: a few values speak for all, because this is done for every row.
        some = value[:8]
        return sum(_value_bytes(inner, depth - 1) for inner in some) * len(value) // len(some)
    if hasattr(value, "getbands"):
        return int(value.width) * int(value.height) * len(value.getbands())
    return _SMALL
