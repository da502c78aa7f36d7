"""A batch in the making: tasks write rows in any order, the consumer keeps track of them, and `join` makes columns of them.

Only `Draft` stays with the consumer. The others are functions of values, and run wherever a worker is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError
from ..source.chunk import OBJECT, BytesColumn, Chunk, Column, FieldSpec, Ints
from ..source.sample_names import Names
from ..source.source import Source
from .collate import collate, plain
from .slab import Lease, Slab, SlabPool
from .strings import ByteStrings
from .written_rows import Placed, Report, WrittenRows


@dataclass(slots=True)
class BatchJoin:
    """Rows that become `rows` rows of a batch: what a finishing task starts from.

    `taken` are their rows in the slab; None: all, in order. `repeated` are the rows of the parts, if some are repeated for
    others; None: each once. The first `real` rows are not padding. `position` is that of the unit's first row. `device` is the
    draft's.
    """

    memory: Slab | Lease
    parts: list[WrittenRows]
    rows: int
    taken: Ints | None
    repeated: Ints | None
    real: int
    epoch: int
    position: int
    device: Any = None

    def keys(self, source: Source | None) -> Callable[[], list[str]]:
        """What makes the list of keys; it holds names, and no columns."""
        return partial(_keys, [(part.names, len(part.slots)) for part in self.parts], self.repeated, source)


class Draft:
    """The account of one batch, `rows` rows when complete, and its slab.

    Fixed fields go straight to the slab; others come with what tasks have `WrittenRows`. Rows that were skipped leave holes. With
    `fill` they are filled with the nearest good row before them, or else the first good row; without, they are closed.
    """

    def __init__(self, rows: int, pool: SlabPool, fill: bool = False, device: Any = None) -> None:
        self.rows, self.slab = rows, pool.take()
        #: memory on a device for one of its fields (`DeviceBatch`); None: all are in the slab
        self.device = device
        #: the rows that were not skipped; None: all. Known when they are joined
        self.kept: Ints | None = None
        #: what tasks have written, by their first row
        self.written: dict[int, WrittenRows] = {}
        self._pool, self._fill = pool, fill
        self._lease: Lease | None = None

    def add(self, first: int, written: WrittenRows) -> int:
        """Take in what the task from row `first` on has written; returns the bytes it added. Done again, it counts once."""
        before = self.written.get(first)
        self.written[first] = written
        return written.nbytes if before is None else written.nbytes - before.nbytes

    def joining(self, epoch: int, position: int, padded: int, stop: int | None = None) -> BatchJoin:
        """What is to be joined when every task has written; the last `padded` rows only pad. From here on a lease owns the slab.

        With `stop` only the rows before that one, when what follows failed.
        """
        parts, rows = [self.written[first] for first in sorted(self.written)], self.rows
        if stop is not None or sum([len(part.slots) for part in parts]) < rows:
            parts, self.kept = self._kept(stop)
        kept, real = self.kept, rows - padded
        lease = self._lease = self._lease or Lease(self.slab, self._pool)
        device = self.device
        if kept is None:
            return BatchJoin(lease, parts, rows, None, None, real, epoch, position, device)
        if self._fill and len(kept):
            repeated = np.maximum(np.searchsorted(kept, np.arange(rows), side="right") - 1, 0)
            return BatchJoin(lease, parts, rows, kept[repeated], repeated, real, epoch, position, device)
        return BatchJoin(lease, parts, len(kept), kept, None, int((kept < real).sum()), epoch, position, device)

    def _kept(self, stop: int | None) -> tuple[list[WrittenRows], Ints | None]:
        """What tasks wrote before `stop`, without those that wrote nothing; and which rows these are, None when they are all."""
        parts, kept = [], [np.empty(0, np.int64)]
        for first, part in sorted(self.written.items()):
            slots = part.slots if stop is None else part.slots[part.slots < stop - first]
            if len(slots):
                parts.append(replace(part, slots=slots))
                kept.append(first + slots)
        rows: Ints = np.concatenate(kept)
        return parts, None if len(rows) == self.rows else rows

    def valid(self, padded: int) -> NDArray[np.bool_] | None:
        """Which rows of the joined batch are real samples; None: all."""
        if not padded and (self.kept is None or not self._fill):
            return None
        valid = np.arange(self.rows) < self.rows - padded
        if self.kept is None:
            return valid
        if not self._fill or not len(self.kept):
            return valid[self.kept]
        good = np.zeros(self.rows, np.bool_)
        good[self.kept] = True
        return valid & good


def write_rows(
    first: int, targets: Mapping[str, NDArray[Any]], hoped: frozenset[str], chunk: Chunk, needed: frozenset[str], report: Report
) -> WrittenRows:
    """Put a finished chunk into its place: row i of the targets, which begin at row `first` of the slab, is slot i.

    Fields without a target, and `hoped` fields that do not fit, are kept outside the slab.
    """
    if not len(chunk):
        # Every row was skipped, perhaps before all stages ran: there is nothing to write.
        return WrittenRows(first, chunk.slots, {}, 0, chunk.names, report)
    loose: dict[str, Column | Placed] = {}
    columns = chunk.columns
    for name, column in columns.items():
        target = targets.get(name)
        if target is None:
            loose[name] = _lasting(column)
        elif name in hoped:
            loose[name] = Placed.PLACED if _place_rows(target, chunk.slots, column) else _lasting(column)
        elif column is not target:
            _copy_rows(name, target, chunk, column)
    if not needed <= columns.keys():
        missing = sorted(needed - columns.keys())
        raise BatchError(f"the field {missing[0]!r} is gone; the samples here have {', '.join(columns)}")
    nbytes = sum(column_bytes(column) for column in loose.values() if not isinstance(column, Placed)) if loose else 0
    return WrittenRows(first, chunk.slots, loose, nbytes, chunk.names, report)


def _place_rows(target: NDArray[Any], slots: Ints, column: Any) -> bool:
    """Write rows to the slab if they all have the shape and type of their places."""
    if not isinstance(column, list):
        return False
    rows = [plain(value) for value in column]
    shape, dtype = target.shape[1:], target.dtype
    if not all(isinstance(row, np.ndarray) and row.shape == shape and row.dtype == dtype for row in rows):
        return False
    for slot, row in zip(slots.tolist(), rows):
        target[slot] = row
    return True


def join(
    joining: BatchJoin,
    specs: Mapping[str, FieldSpec] | None,
    rules: Mapping[str, Any] | None,
    keys: Callable[[], list[str]],
) -> dict[str, Any]:
    """The columns of a batch: those of the slab, and the others joined as `rules` say (None: into lists)."""
    parts, repeated = joining.parts, joining.repeated
    loose = _loose_fields(parts, keys)
    beside = {name: _rows_of(name, joining) for name in loose}  # first: closing gaps moves the rows of the slab
    columns = _slab_columns(joining)
    placed = {name: columns.pop(name) for name in joining.memory.layout.hoped}
    if not loose:
        return columns  # which a slab has in the order of the fields
    for name, values in beside.items():
        if values is None:
            columns[name] = placed[name]
            continue
        if repeated is not None:
            values = values.take(repeated) if isinstance(values, ByteStrings) else [values[row] for row in repeated.tolist()]
        spec = (specs or {}).get(name, OBJECT)
        columns[name] = values if rules is None else collate(name, values, spec, rules, lambda row: keys()[row])
    order = list(specs) if specs is not None and parts else list(columns)
    return {name: columns[name] for name in order}


def _rows_of(name: str, joining: BatchJoin) -> Any:
    """The values of a field that are beside the slab; None: all its rows are in the slab."""
    columns: list[Any] = [part.loose[name] for part in joining.parts]
    placed = sum(isinstance(column, Placed) for column in columns)
    if placed == len(columns):
        return None
    if placed:
        slab = joining.memory.fields()[name]
        pairs = zip(joining.parts, columns)
        columns = [list(slab[part.first + part.slots]) if isinstance(column, Placed) else column for part, column in pairs]
    return _joined([(column, len(part.slots)) for part, column in zip(joining.parts, columns)])


def _slab_columns(joining: BatchJoin) -> dict[str, Any]:
    arrays, rows = joining.memory.fields(), joining.rows
    if joining.taken is not None:
        for array in arrays.values():
            array[:rows] = array[joining.taken]
    if rows == joining.memory.layout.rows:
        return arrays
    return {name: array[:rows] for name, array in arrays.items()}


def _loose_fields(parts: list[WrittenRows], keys: Callable[[], list[str]]) -> list[str]:
    if not [part for part in parts if part.loose]:
        return []
    names = parts[0].loose.keys()
    for number, part in enumerate(parts):
        if part.loose.keys() != names:
            odd = sorted(part.loose.keys() ^ names)[0]
            first = sum(len(before.slots) for before in parts[:number])
            raise BatchError(f"some samples have the field {odd!r} and some do not, e.g. {keys()[first]!r}")
    return list(names)


def _keys(parts: list[tuple[Names, int]], repeated: Ints | None, source: Source | None) -> list[str]:
    bound = [(names.bound(source), rows) for names, rows in parts]
    keys = [names.key(row) for names, rows in bound for row in range(rows)]
    return keys if repeated is None else [keys[row] for row in repeated.tolist()]


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
    except Exception:  # noqa: BLE001  a sparse tensor raises a RuntimeError, other values may raise anything
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
