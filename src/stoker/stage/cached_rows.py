"""`cache`: rows of a chunk to the bytes that are kept for a sample, and back.

A sample of the source is kept as the rows it became: usually one, but none or several after `filter` or `flat_map`. Its value
is a JSON header, followed by the bytes of arrays and byte strings. Rows of one shape and type have equal headers, which are
read once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError, ConfigError
from ..plan.columns import Step
from ..plan.nodes import Cached, describe_function
from ..plan.order import Places
from ..source.chunk import BytesColumn, Chunk, Column, Ints, join_chunks
from ..source.sample_names import Names, RenamedNames, SourceNames
from ..source.source import Source
from ..storage.plain_values import Unstorable, read_value, write_array, write_value
from ..storage.sample_cache import SampleCache
from ..storage.scratch import Scratch
from .stage import Stage, Targets
from .user_function import UserFunction

#: bytes that say how long a header is
_HEAD = 4


class CacheStage(Stage):
    """Where rows are found and kept; the runner does both, and rows that come this far pass."""

    def __init__(self, step: Step[Cached], seed: int) -> None:
        self.name = "cache"

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        return chunk


class RowCache:
    """What a runner asks for rows before it makes them, and gives those that it made.

    `columns` are those that are looked at later; None: all. `makes` are those of them that belong to the batch's memory as they
    are, as {column: final field}. `functions` ran on what is kept.
    """

    def __init__(
        self,
        store: SampleCache | None,
        source: Source,
        columns: set[str] | None,
        makes: dict[str, str],
        functions: Sequence[UserFunction],
    ) -> None:
        self.store, self.makes = store, makes  # no store: its files could not be opened in this process
        self._source, self._columns, self._functions = source, columns, tuple(functions)

    def find(self, places: Places, targets: Targets, scratch: Scratch) -> tuple[Chunk | None, Ints]:
        """The rows that are kept, None if there are none; and the numbers, among `places`, of those that are not.

        Rows are written to `targets` if all are there.
        """
        if self.store is None:
            return None, np.arange(len(places))
        try:
            values = self.store.read(places.indices, scratch)
            slots = np.array([at for at, value in enumerate(values) if value is not None], np.int64)
            missing = np.array([at for at, value in enumerate(values) if value is None], np.int64)
            found = [_rows_of(value) for value in values if value is not None]
            chunk = self._chunk(places, slots, found, NO_TARGETS if len(missing) else targets) if found else None
        except MemoryError:  # making the rows again shows which sample needs too much
            return None, np.arange(len(places))
        notes = scratch.notes
        notes.cache_hits += len(slots)
        notes.cache_misses += len(missing)
        return chunk, missing

    def keep(self, places: Places, chunk: Chunk, bad: Iterable[int], stop: int) -> None:
        """Keep what became of places before `stop`, but for the samples of the source that are `bad`."""
        for function in self._functions:
            if function.draws:
                raise ConfigError(
                    f"cache() comes after {describe_function(function.fn)}, which draws random numbers, so every epoch would "
                    "repeat those of the first; put cache() before it"
                )
        if self.store is None:
            return
        stored = np.ones(len(places), np.bool_) if places.stores is None else places.stores.copy()
        stored[stop:] = False
        for index in bad:
            stored[places.indices == index] = False
        slots = np.flatnonzero(stored)
        slots = slots[np.sort(np.unique(places.indices[slots], return_index=True)[1])]  # a task may have a sample twice
        starts, stops = np.searchsorted(chunk.slots, slots), np.searchsorted(chunk.slots, slots, "right")
        keyed = not isinstance(chunk.names, SourceNames)
        bounds = zip(starts.tolist(), stops.tolist(), places.positions[slots].tolist())
        values = (_value_of(chunk, range(first, last), position, keyed) for first, last, position in bounds)
        self.store.write(places.indices[slots], values)

    def narrowed(self, chunk: Chunk) -> Chunk:
        """The chunk without columns that later steps do not use, as it will be when it is found in the cache."""
        if self._columns is not None and self._columns != chunk.columns.keys() and len(chunk):
            chunk.columns = {name: column for name, column in chunk.columns.items() if name in self._columns}
        return chunk

    def _chunk(self, places: Places, slots: Ints, found: list[_Rows], targets: Targets) -> Chunk:
        rows = [row for rows in found for row in rows]
        counts = [len(rows) for rows in found]
        slots = slots if len(rows) == len(slots) == sum(count == 1 for count in counts) else np.repeat(slots, counts)
        parents = places.positions[slots]
        names: Names = SourceNames(self._source, places.indices[slots])
        offsets = np.array([row.offset for row in rows], np.int64)
        if keys := {at: row.key for at, row in enumerate(rows) if row.key is not None}:
            names = RenamedNames(names, keys)
        columns = _columns_of(rows, self.makes, targets, names)
        return Chunk(columns, parents + offsets, slots, parents, places.epoch, names)


NO_TARGETS: Targets = {}


def join_in_order(one: Chunk, other: Chunk) -> Chunk:
    """The rows of both by their slots."""
    joined = join_chunks([one, other])
    return joined.take(np.argsort(joined.slots, kind="stable"))


class _Row(NamedTuple):
    """A kept row: by how much its position differs from that of its sample, its key if a function gave one, and its columns.

    `at` says where the bytes of each column begin in `data`.
    """

    offset: int
    key: str | None
    columns: dict[str, Any]
    at: dict[str, int]
    data: memoryview


_Rows = list[_Row]


def _value_of(chunk: Chunk, rows: range, position: int, keyed: bool) -> list[Any]:
    header: list[Any] = []
    buffers: list[Any] = [b"", b""]
    for row in rows:
        columns = {name: _written(chunk, name, column, row, buffers) for name, column in chunk.columns.items()}
        header.append([int(chunk.positions[row]) - position, chunk.name(row) if keyed else None, columns])
    text = json.dumps(header, separators=(",", ":")).encode()
    buffers[:2] = [len(text).to_bytes(_HEAD, "little"), text]
    return buffers


def _written(chunk: Chunk, name: str, column: Column, row: int, buffers: list[Any]) -> Any:
    """What the header says of a value: the kind of its column, the bytes that it takes among the buffers, and what they are."""
    before = len(buffers)
    try:
        if isinstance(column, np.ndarray):
            dtype, shape, nbytes = write_array(column[row, ...], buffers)
            return ["a", nbytes, dtype, shape]
        if isinstance(column, BytesColumn):
            start, length = int(column.starts[row]), int(column.lengths[row])
            buffers.append(column.data[start : start + length])
            return ["b", length]
        tree = write_value(column[row], buffers)
    except Unstorable as error:
        raise BatchError(
            f"cache(): field {name!r} of sample {chunk.name(row)!r} is {error}, which cannot be kept; put cache() before the "
            "step that makes it, or drop() the field"
        ) from None
    return ["v", sum(len(buffer) for buffer in buffers[before:]), tree]


def _rows_of(value: memoryview) -> _Rows:
    begin = _HEAD + int.from_bytes(value[:_HEAD], "little")
    data = value[begin:]
    return [_Row(*row, data) for row in _header(bytes(value[_HEAD:begin]))]


@lru_cache(256)
def _header(text: bytes) -> list[tuple[int, str | None, dict[str, Any], dict[str, int]]]:
    rows, at = [], 0
    for offset, key, columns in json.loads(text):
        starts = {}
        for name, about in columns.items():
            starts[name] = at
            at += about[1]
        rows.append((offset, key, columns, starts))
    return rows


def _columns_of(rows: _Rows, makes: dict[str, str], targets: Targets, names: Names) -> dict[str, Column]:
    for at, row in enumerate(rows):
        if row.columns.keys() != rows[0].columns.keys():
            odd = sorted(row.columns.keys() ^ rows[0].columns.keys())[0]
            raise BatchError(f"some samples have the field {odd!r} and some do not, e.g. {names.key(at)!r}")
    return {name: _column_of(name, rows, targets.get(makes.get(name, ""))) for name in (rows[0].columns if rows else ())}


def _column_of(name: str, rows: _Rows, target: NDArray[Any] | None) -> Column:
    first = rows[0].columns[name]
    kind = first[0]
    if kind == "a" and all(row.columns[name] == first for row in rows):
        return _array_of(name, rows, first, target)
    if kind == "b" and all(row.columns[name][0] == "b" for row in rows):
        return BytesColumn.of([row.data[row.at[name] : row.at[name] + row.columns[name][1]] for row in rows])
    return [_single(name, row) for row in rows]


def _array_of(name: str, rows: _Rows, about: Any, target: NDArray[Any] | None) -> NDArray[Any]:
    _, nbytes, dtype, shape = about
    whole = (len(rows), *shape)
    fits = target is not None and target.shape == whole and target.dtype == dtype and target.flags.c_contiguous
    array: NDArray[Any] = target if fits and target is not None else np.empty(whole, dtype)
    if nbytes:
        flat = memoryview(cast(Any, array.reshape(-1).view(np.uint8)))
        for number, row in enumerate(rows):
            at = row.at[name]
            flat[number * nbytes : (number + 1) * nbytes] = row.data[at : at + nbytes]
    return array


def _single(name: str, row: _Row) -> Any:
    kind, nbytes, *about = row.columns[name]
    at = row.at[name]
    data = row.data[at : at + nbytes]
    if kind == "b":
        return bytes(data)
    if kind == "a":
        array = np.frombuffer(data, about[0]).reshape(about[1]).copy()
        return array if about[1] else array[()]

    taken = 0

    def take(count: int) -> memoryview:
        nonlocal taken
        taken += count
        return data[taken - count : taken]

    return read_value(about[0], take)
