"""`filter`, `flat_map`, `unbatch`, and inner batches: stages that change how many samples there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from typing import Any

import numpy as np

from ..batch.collate import collate
from ..batch.fields import Batch
from ..errors import BatchError
from ..plan.nodes import Filter, FlatMap, Function, MapBatch, Regroup, describe_function
from ..source.chunk import OBJECT, Chunk, Ints
from ..source.sample_names import KEY, NamedColumns, Names, key_text
from ..storage.scratch import Scratch
from ..units import counted
from .base import Stage, Targets, each_row, function_error, samples_of
from .fields import arrange
from .map import fill
from .pytrees import introduce


class FilterStage(Stage):
    """Keeps rows for which ``fn(sample)`` is true."""

    def __init__(self, node: Filter) -> None:
        self.name = "filter"
        self._fn = node.fn

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        sample = samples_of(chunk)
        keep = each_row(chunk, lambda row: bool(self._fn(sample(row))), self._fn)
        # A row that failed stays, so that its failure is told.
        rows = [row for row, wanted in enumerate(keep) if wanted or row in chunk.failures]
        return chunk if len(rows) == len(chunk) else chunk.take(np.asarray(rows, np.int64))


class FlatMapStage(Stage):
    """``fn(sample)`` gives an iterable of samples; theirs follow each other in order."""

    def __init__(self, node: FlatMap) -> None:
        self.name = "flat_map"
        self._fn = node.fn

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        sample = samples_of(chunk)
        groups = each_row(chunk, lambda row: list(_samples(self._fn(sample(row)), self._fn)), self._fn)
        return _expand(chunk, groups)


class UnbatchStage(Stage):
    """Every field is split along its first axis; all fields of a sample must be equally long."""

    name = "unbatch"

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        return _expand(chunk, each_row(chunk, lambda row: _split(chunk.row(row)), _split))


class RegroupStage(Stage):
    """An inner batch: rows are joined, functions applied to the whole, and the result is split again."""

    whole = True

    def __init__(self, node: Regroup) -> None:
        self.name = f"batch {node.batch.size}, unbatch"
        self._node = node

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        rules = dict(self._node.batch.pad)
        columns = {
            name: collate(name, [column[row] for row in range(len(chunk))], OBJECT, rules, chunk.name)
            for name, column in chunk.columns.items()
        }
        given: list[str] | None = None  # keys that a function gave
        for node in self._node.inner:
            if isinstance(node, MapBatch):
                count = _count(columns, len(chunk))
                columns = map_batch(node.fn, columns, count, partial(_keys, chunk.names, len(chunk), count, given))
                given = columns.pop(KEY, given)
            else:
                columns = arrange(node, columns)
        if given is not None and len(given) == _count(columns, len(chunk)):  # a later function may have changed the rows
            columns = {**columns, KEY: given}
        rows = _split(columns)
        # Each new row belongs to the source row it stands for, as far as there is one.
        parents = np.minimum(np.arange(len(rows), dtype=np.int64), len(chunk) - 1)
        return _rows_chunk(chunk, rows, parents)


#: makes the list of a batch's keys
Keys = Callable[[], "list[str]"]


def map_batch(fn: Function, columns: dict[str, Any], rows: int, keys: Keys) -> dict[str, Any]:
    """What a user's function makes of a batch; ``__key__`` is there if it gave keys, a list of them."""
    introduce()
    try:
        result = fn(NamedColumns.of(columns, rows, keys))
    except Exception as error:
        which = f" that begins with sample {names[0]!r}" if (names := keys()) else ""
        raise function_error(error, f"the batch of {rows}{which}", fn) from error
    if isinstance(result, Batch):
        result = dict(result.items())
    if not isinstance(result, Mapping):
        told = type(result).__name__
        raise BatchError(f"{describe_function(fn)} must return a mapping of field names to columns, not {told}")
    made = dict(result)
    if KEY in made:
        given = _key_list(made.pop(KEY), fn)
        if len(given) != (count := _count(made, rows)):
            raise BatchError(
                f"{describe_function(fn)} gave {counted(len(given), 'key')} for {counted(count, 'row')}; "
                "'__key__' must be a list with a key per row"
            )
        made[KEY] = given
    return made


def _key_list(given: Any, fn: Function) -> list[str]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise BatchError(f"{describe_function(fn)} gave as '__key__' a {type(given).__name__}; it must be a list, a key per row")
    return [key_text(key) for key in given]


def _keys(names: Names, rows: int, count: int, given: list[str] | None) -> list[str]:
    """The keys of an inner batch of `count` rows: as given, or those of the `rows` source rows they stand for."""
    if given is not None and len(given) == count:
        return given
    return [names.key(min(row, rows - 1)) for row in range(count)]


def _count(columns: Mapping[str, Any], default: int) -> int:
    """How many rows an inner batch has; functions may change that."""
    first = next(iter(columns.values()), None)
    return len(first) if isinstance(first, Sized) else default


def _samples(result: Any, fn: Function) -> Iterable[Mapping[str, Any]]:
    for sample in result:
        if not isinstance(sample, Mapping):
            raise TypeError(f"{describe_function(fn)} must give samples (mappings), not {type(sample).__name__}")
        yield sample


def _split(sample: Mapping[str, Any]) -> list[dict[str, Any]]:
    lengths = {name: len(value) if hasattr(value, "__len__") else None for name, value in sample.items()}
    if None in lengths.values() or len(set(lengths.values())) != 1:
        raise BatchError(f"unbatch() needs fields of one length, but they have {lengths}")
    return [{name: value[row] for name, value in sample.items()} for row in range(next(iter(lengths.values())) or 0)]


def _expand(chunk: Chunk, groups: list[list[Mapping[str, Any]] | None]) -> Chunk:
    """A chunk with group i's samples in place of row i; a failed row keeps one place, so that its failure is told."""
    rows: list[Any] = []
    parents: list[int] = []
    for row, group in enumerate(groups):
        members: list[Any] = [None] if row in chunk.failures else list(group or ())
        rows += members
        parents += [row] * len(members)
    return _rows_chunk(chunk, rows, np.asarray(parents, np.int64))


def _rows_chunk(chunk: Chunk, rows: list[Any], parents: Ints) -> Chunk:
    """New rows standing for the given rows of `chunk`, which name them.

    Rows of one parent get positions of their own (the number among them goes above bit 40), so that they draw different numbers.
    """
    grown = chunk.take(parents)
    fill(grown, rows)
    starts = np.flatnonzero(np.diff(parents, prepend=-1))
    number = np.arange(len(parents)) - np.repeat(starts, np.diff(np.append(starts, len(parents))))
    grown.positions = grown.positions + (number.astype(np.int64) << 40)
    return grown
