"""A batch in the making: tasks write their rows into it, in any order, from any thread; `finish` joins them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError
from ..source.chunk import OBJECT, BytesColumn, Chunk, Column, FieldSpec, Ints
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
        self._slab = pool.take()
        self._lock = threading.Lock()
        self._loose: dict[int, tuple[Ints, dict[str, Any]]] = {}  # first row -> rows and their loose columns
        self._names: dict[int, Callable[[int], str]] = {}

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
        missing = set(self._specs or ()) - set(chunk.columns)
        if missing:
            raise BatchError(f"the field {sorted(missing)[0]!r} is gone; the samples here have {', '.join(chunk.columns)}")
        with self._lock:
            self._loose[first] = (first + chunk.slots, loose)
            self._names[first] = chunk.name
        return sum(column_bytes(column) for column in loose.values())

    def finish(self, stop: int | None = None) -> tuple[dict[str, Any], int, Callable[[], list[str]], Ints | None]:
        """Columns, number of rows, keys, and which rows they are (None: all). Call once, when every task has written.

        With `stop` only the rows before that one, when what follows failed.
        """
        parts = [
            (first, (rows if stop is None else rows[rows < stop], loose)) for first, (rows, loose) in sorted(self._loose.items())
        ]
        names = [(self._names[first], len(rows)) for first, (rows, _) in parts]

        def keys() -> list[str]:
            return [name(row) for name, count in names for row in range(count)]

        kept = np.concatenate([rows for _, (rows, _) in parts]) if parts else np.empty(0, np.int64)
        complete = len(kept) == self.rows
        columns = self._slab_columns(kept, complete)
        for name in self._loose_fields(parts):
            values = _joined([(loose[name], len(rows)) for _, (rows, loose) in parts])
            spec = (self._specs or {}).get(name, OBJECT)
            columns[name] = values if self._rules is None else collate(name, values, spec, self._rules, lambda row: keys()[row])
        order = list(self._specs) if self._specs is not None and parts else list(columns)
        return {name: columns[name] for name in order}, len(kept), keys, None if complete else kept

    def _slab_columns(self, kept: Ints, complete: bool) -> dict[str, Any]:
        if not complete:
            for array in self._slab.arrays.values():
                array[: len(kept)] = array[kept]
        slab, self._slab = self._slab, None  # type: ignore[assignment]  # from here on the lease owns it
        arrays = Lease(slab, self._pool).arrays()
        if len(kept) == self._pool.layout.rows:
            return dict(arrays)
        return {name: array[: len(kept)] for name, array in arrays.items()}

    def _loose_fields(self, parts: list[tuple[int, tuple[Ints, dict[str, Any]]]]) -> list[str]:
        if not parts:
            return []
        names = list(parts[0][1][1])
        for first, (_, loose) in parts:
            if set(loose) != set(names):
                odd = sorted(set(loose) ^ set(names))[0]
                raise BatchError(f"some samples have the field {odd!r} and some do not, e.g. {self._names[first](0)!r}")
        return names


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
    if isinstance(column, np.ndarray):
        return column.nbytes
    return sum(
        value.nbytes if isinstance(value, np.ndarray) else len(value) if isinstance(value, bytes) else 64 for value in column
    )
