"""Chunks: some samples as columns, the unit that moves through Python."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import SKIP, BatchError, ReadError, SampleError
from ..kernel.file_reads import Arena
from .sample_names import KEY, ListedNames, NamedSample, Names, join_names
from .shards.seekrows import Seeks, merged

Ints = NDArray[np.int64]


_NUMBERS: Ints = np.arange(4096, dtype=np.int64)
_NUMBERS.flags.writeable = False


def numbers(count: int) -> Ints:
    """0 to `count`, read-only. Cached, because `np.arange` releases the GIL, and a worker may wait long to get it back."""
    return _NUMBERS[:count] if count <= len(_NUMBERS) else np.arange(count, dtype=np.int64)


def fits(number: int) -> bool:
    """Whether a number fits 64 bits with a sign."""
    return -(1 << 63) <= number < 1 << 63


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What is known of a field before the first byte moves.

    `kind` is ``"array"`` (dtype and shape; None in the shape varies from sample to sample), ``"bytes"``, or ``"object"``
    (whatever a user's function made).
    """

    kind: str
    dtype: str = ""
    shape: tuple[int | None, ...] = ()

    @property
    def fixed(self) -> bool:
        """Whether every sample has the same dtype and shape, so that memory can be allocated in advance."""
        return self.kind == "array" and None not in self.shape

    @property
    def nbytes(self) -> int:
        """Bytes of one sample; 0 unless fixed."""
        size = 1
        for extent in self.shape:
            size *= extent or 0
        return size * np.dtype(self.dtype).itemsize if self.fixed else 0

    def __str__(self) -> str:
        if self.kind != "array":
            return self.kind
        return f"{np.dtype(self.dtype).name}[{', '.join('?' if n is None else str(n) for n in self.shape)}]"


BYTES = FieldSpec("bytes")
OBJECT = FieldSpec("object")


def array_spec(dtype: Any, *shape: int | None) -> FieldSpec:
    """The spec of an array field."""
    return FieldSpec("array", np.dtype(dtype).str, shape)


class BytesColumn:
    """Byte strings in one buffer: row i is ``data[starts[i] : starts[i] + lengths[i]]``.

    `arena` is the worker's memory that the buffer belongs to, valid until that worker's next task; `lasting()` returns one that
    stays valid. `seeks` are the seek indices of its rows, if they are JPEGs that have some.
    """

    __slots__ = ("arena", "data", "lengths", "seeks", "starts")

    def __init__(
        self,
        data: NDArray[np.uint8],
        starts: Ints,
        lengths: Ints,
        arena: Arena | None = None,
        seeks: Seeks | None = None,
    ) -> None:
        self.data, self.starts, self.lengths, self.arena, self.seeks = data, starts, lengths, arena, seeks

    @classmethod
    def of(cls, values: Iterable[bytes | memoryview], seeks: Seeks | None = None) -> BytesColumn:
        parts = list(values)
        lengths = np.fromiter((len(part) for part in parts), np.int64, len(parts))
        starts = np.zeros(len(parts), np.int64)
        np.cumsum(lengths[:-1], out=starts[1:])
        return cls(np.frombuffer(b"".join(parts), np.uint8), starts, lengths, None, seeks)

    def __len__(self) -> int:
        return len(self.starts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Elsewhere it has the bytes of its rows alone, in memory of their own; seek indices, which only save time, stay here.
        return BytesColumn.of, (self.own(),)

    def __getitem__(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    @property
    def nbytes(self) -> int:
        return int(self.lengths.sum())

    def take(self, rows: Any) -> BytesColumn:
        seeks = None if self.seeks is None else self.seeks.take(rows)
        return BytesColumn(self.data, self.starts[rows], self.lengths[rows], self.arena, seeks)

    def own(self) -> list[bytes]:
        return [view.tobytes() for view in self.views()]

    def views(self) -> list[memoryview]:
        """The rows without copying them; they hold the buffer."""
        whole = memoryview(cast(Any, self.data))
        return [whole[start:end] for start, end in zip(self.starts.tolist(), (self.starts + self.lengths).tolist())]

    def lasting(self) -> BytesColumn:
        """A column that no later task overwrites: its buffer is taken from the worker or, if that is mostly empty, copied."""
        if self.arena is None:
            return self
        if 3 * self.nbytes >= self.data.size:
            self.arena.part_with(self.data)
            return BytesColumn(self.data, self.starts, self.lengths, None, self.seeks)
        first = int(self.starts.min(initial=self.data.size))
        last = int((self.starts + self.lengths).max(initial=0))
        if last - first <= 2 * self.nbytes:
            return BytesColumn(self.data[first:last].copy(), self.starts - first, self.lengths, None, self.seeks)
        return BytesColumn.of(self.own(), self.seeks)


Column = Union[NDArray[Any], BytesColumn, "list[Any]"]


def take_rows(column: Column, rows: Ints) -> Column:
    """The given rows of a column, in that order."""
    if isinstance(column, list):
        return [column[row] for row in rows.tolist()]
    return column.take(rows) if isinstance(column, BytesColumn) else column[rows]


@dataclass(slots=True)
class Chunk:
    """Some samples as columns of equal length.

    `positions` are their places in the epoch, the identity all randomness is drawn from. `slots` are the rows of the task they
    fill; `parents` the source positions they came from (they differ from `positions` after `filter` or `flat_map`). Rows that
    failed are in `failures`, and their values in the columns mean nothing.
    """

    columns: dict[str, Column]
    positions: Ints
    slots: Ints
    parents: Ints
    epoch: int
    names: Names
    failures: dict[int, SampleError] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.positions)

    def name(self, row: int) -> str:
        """The key of a row."""
        return self.names.key(row)

    def place(self, row: int) -> str:
        """Where a row is stored."""
        return self.names.origin(row)

    def row(self, row: int) -> NamedSample:
        """One sample, as the mapping users meet."""
        try:
            values = {name: column[row] for name, column in self.columns.items()}
        except MemoryError as error:
            raise self.out_of_memory(row, error) from error
        return NamedSample.of(values, self.names, row)

    def out_of_memory(self, row: int, cause: MemoryError, beside: str = "") -> ReadError:
        """The error of a row for which there is no memory; `beside` says what else is there."""
        told = f"there is not enough memory for this sample{beside}{f' ({cause})' if str(cause) else ''}"
        error = ReadError(f"{self.place(row)}: {told}; make it smaller, or {SKIP}")
        error.errno, error.__cause__ = errno.ENOMEM, cause
        return error

    def fail(self, row: int, error: SampleError) -> None:
        """Mark a row as bad; the first reason counts."""
        if row not in self.failures:
            error.key = error.key or self.name(row)
            error.origin = error.origin or self.place(row)
            if error.position is None:
                error.position = int(self.positions[row])
            if error.index is None:
                error.index = self.names.index(row)
            self.failures[row] = error

    def take(self, rows: Ints) -> Chunk:
        """A chunk of the given rows, with their failures."""
        failed = enumerate(rows.tolist()) if self.failures else ()
        return Chunk(
            {field: take_rows(column, rows) for field, column in self.columns.items()},
            self.positions[rows],
            self.slots[rows],
            self.parents[rows],
            self.epoch,
            self.names.take(rows),
            {at: self.failures[row] for at, row in failed if row in self.failures},
        )

    def part(self, first: int, stop: int) -> Chunk:
        """Rows `first` to `stop` for a separate task, sharing memory."""
        names = self.names if stop - first == len(self) else self.names.take(np.arange(first, stop, dtype=np.int64))
        here = slice(first, stop)
        columns: dict[str, Column] = {
            field: column.take(here) if isinstance(column, BytesColumn) else column[here]
            for field, column in self.columns.items()
        }
        return Chunk(columns, self.positions[here], numbers(stop - first), self.parents[here], self.epoch, names)

    def own(self) -> Chunk:
        """This chunk with nothing left in a worker's arena."""
        columns: dict[str, Column] = {
            field: column.lasting() if isinstance(column, BytesColumn) else column for field, column in self.columns.items()
        }
        return Chunk(columns, self.positions, self.slots, self.parents, self.epoch, self.names, self.failures)


def join_columns(columns: list[Column]) -> Column:
    """Columns one after another."""
    if len(columns) == 1:
        return columns[0]
    bounds = np.cumsum([0, *map(len, columns)])
    places = [np.arange(*bounds[at : at + 2]) for at in range(len(columns))]
    return spread_columns(list(zip(places, columns)), int(bounds[-1]))


def spread_columns(pieces: Sequence[tuple[Ints, Column]], rows: int, out: NDArray[Any] | None = None) -> Column:
    """Columns as one, each row at its place; to `out`, if that is given. What all of them are, arrays or bytes, it is too."""
    arrays = [column for _, column in pieces if isinstance(column, np.ndarray)]
    if len(arrays) == len(pieces) and (out is not None or len({(array.dtype, array.shape[1:]) for array in arrays}) == 1):
        joined = np.empty((rows, *arrays[0].shape[1:]), arrays[0].dtype) if out is None else out
        for (places, _), array in zip(pieces, arrays):
            joined[places] = array
        return joined
    encoded = [(places, column) for places, column in pieces if isinstance(column, BytesColumn)]
    values: list[Any] = [None] * rows
    if len(encoded) == len(pieces):
        for places, strings in encoded:
            for place, view in zip(places.tolist(), strings.views()):
                values[place] = view
        return BytesColumn.of(values, merged([(places, strings.seeks) for places, strings in encoded], rows))
    for places, column in pieces:
        for row, place in enumerate(places.tolist()):
            values[place] = column[row]
    return values


def join_chunks(chunks: list[Chunk]) -> Chunk:
    """Chunks of the same fields, one after another; one without rows may have any fields."""
    chunks = [chunk for chunk in chunks if len(chunk)] or chunks[:1]
    if len(chunks) == 1:
        return chunks[0]
    for chunk in chunks[1:]:
        if chunk.columns.keys() != chunks[0].columns.keys():
            odd = sorted(chunk.columns.keys() ^ chunks[0].columns.keys())[0]
            raise BatchError(f"some samples have the field {odd!r} and some do not, e.g. {chunk.name(0)!r}")
    return Chunk(
        {name: join_columns([chunk.columns[name] for chunk in chunks]) for name in chunks[0].columns},
        np.concatenate([chunk.positions for chunk in chunks]),
        np.concatenate([chunk.slots for chunk in chunks]),
        np.concatenate([chunk.parents for chunk in chunks]),
        chunks[0].epoch,
        join_names([(chunk.names, len(chunk)) for chunk in chunks]),
    )


def chunk_of(samples: list[Mapping[str, Any]], epoch: int, first: int, keys: list[str], origins: list[str]) -> Chunk:
    """A chunk of ready-made samples, numbered from `first`; the entry ``__key__`` is not a field."""
    fields = [name for name in samples[0] if name != KEY]
    for number, sample in enumerate(samples):
        if {name for name in sample if name != KEY} != set(fields):
            odd = sorted((set(sample) ^ set(fields)) - {KEY})[0]
            raise BatchError(f"some samples have the field {odd!r} and some do not, e.g. sample {keys[number]!r}")
    positions = np.arange(first, first + len(samples), dtype=np.int64)
    return Chunk(
        {name: [sample[name] for sample in samples] for name in fields},
        positions,
        np.arange(len(samples), dtype=np.int64),
        positions,
        epoch,
        ListedNames(keys, origins, range(first, first + len(samples))),
    )
