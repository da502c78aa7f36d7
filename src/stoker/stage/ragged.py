"""`filter`, `flat_map`, `unbatch`, and inner batches: stages that change the number of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set, Sized
from functools import partial
from typing import Any

import numpy as np

from ..batch.batch import Batch
from ..batch.collate import collate
from ..errors import BatchError, RecordError, StokerError, message_of
from ..faults import RunAgain
from ..plan.columns import Step
from ..plan.nodes import Filter, FlatMap, Function, MapBatch, Regroup, Unbatch, describe_function
from ..sizes import a_type, counted
from ..source.chunk import OBJECT, Chunk, Ints
from ..source.sample_names import KEY, NamedColumns, Names, key_text
from ..storage.scratch import Scratch
from .fields import arranged
from .map_functions import fill, short_name
from .pytrees import introduce
from .stage import Stage, Targets, each_row, function_error, samples_of
from .user_function import UserFunction


class FilterStage(Stage):
    """Keeps rows for which ``fn(sample)`` is true."""

    def __init__(self, step: Step[Filter], seed: int) -> None:
        self.name = "filter"
        self.functions = (UserFunction(step.node.fn, seed, step.streams[0], step.node.seeded),)

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        (function,), sample = self.functions, samples_of(chunk)
        keep = self.call_rows(function, chunk, lambda row: bool(function.fn(sample(row))), scratch)
        # A row that failed stays, so that its failure is reported.
        rows = [row for row, wanted in enumerate(keep) if wanted or row in chunk.failures]
        return chunk if len(rows) == len(chunk) else chunk.take(np.asarray(rows, np.int64))


class FlatMapStage(Stage):
    """``fn(sample)`` gives an iterable of samples; theirs follow each other in order."""

    def __init__(self, step: Step[FlatMap], seed: int) -> None:
        self.name = "flat_map"
        self.functions = (UserFunction(step.node.fn, seed, step.streams[0], step.node.seeded),)

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        (function,), sample = self.functions, samples_of(chunk)
        fn = function.fn
        return _expand(chunk, self.call_rows(function, chunk, lambda row: list(_samples(fn(sample(row)), fn)), scratch))


class UnbatchStage(Stage):
    """Every field is split along its first axis; a sample whose fields are not equally long is bad."""

    def __init__(self, step: Step[Unbatch], seed: int) -> None:
        self.name = "unbatch"

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        def split(row: int) -> list[dict[str, Any]]:
            return _split(chunk.row(row), f"sample {chunk.name(row)!r}", RecordError)

        return _expand(chunk, each_row(chunk, split, split))


class RegroupStage(Stage):
    """An inner batch: rows are joined, functions applied to the whole, and the result is split again."""

    whole = True

    def __init__(self, step: Step[Regroup], seed: int) -> None:
        self._node = step.node
        inner = [node for node in step.node.inner if isinstance(node, MapBatch)]
        functions = [f"map_batch {short_name(node.fn)}" for node in inner]
        self.name = ", ".join([f"batch {step.node.batch.size}", *functions, "unbatch"])
        self.functions = tuple(UserFunction(node.fn, seed, own, node.seeded) for node, own in zip(inner, step.streams))

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        rules = dict(self._node.batch.pad)
        columns = {
            name: collate(name, [column[row] for row in range(len(chunk))], OBJECT, rules, chunk.name)
            for name, column in chunk.columns.items()
        }
        given: list[str] | None = None  # keys that a function gave
        functions, place = iter(self.functions), (chunk.epoch, int(chunk.positions[0]))
        for node in self._node.inner:
            if isinstance(node, MapBatch):
                count = _count(columns, len(chunk))
                keys = partial(_keys, chunk.names, len(chunk), count, given)
                columns = map_batch(next(functions), columns, count, keys, place, scratch.again)
                given = columns.pop(KEY, given)
            else:
                columns = arranged(node, columns)
        if given is not None and len(given) == _count(columns, len(chunk)):  # a later function may have changed the rows
            columns = {**columns, KEY: given}
        rows = _split(columns, f"the batch that starts with sample {chunk.name(0)!r}", BatchError)
        # Each new row belongs to the source row it comes from, if there is one.
        parents = np.minimum(np.arange(len(rows), dtype=np.int64), len(chunk) - 1)
        return _rows_chunk(chunk, rows, parents)


#: makes the list of a batch's keys
Keys = Callable[[], "list[str]"]


def map_batch(
    function: UserFunction, columns: dict[str, Any], rows: int, keys: Keys, place: tuple[int, int], again: bool
) -> dict[str, Any]:
    """What a user's function makes of a batch; ``__key__`` is there if it gave keys, a list of them.

    `place` are the epoch and the position of its first row.
    """
    introduce()
    fn = function.fn
    try:
        result = function.once(*place, lambda: fn(NamedColumns.of(columns, rows, keys)), again)
    except RunAgain:
        raise
    except Exception as error:
        which = f" that starts with sample {names[0]!r}" if (names := keys()) else ""
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
                "'__key__' must be a list with one key per row"
            )
        made[KEY] = given
    return made


def _key_list(given: Any, fn: Function) -> list[str]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise BatchError(f"{describe_function(fn)} gave as '__key__' {a_type(given)}; it must be a list with one key per row")
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
            raise TypeError(f"{describe_function(fn)} must yield samples (mappings), not {type(sample).__name__}")
        yield sample


def _split(sample: Mapping[str, Any], which: str, kind: type[StokerError]) -> list[dict[str, Any]]:
    """The rows of a sample or a batch, `which` by name; raises a `kind` of error where it cannot be split."""
    try:
        uneven = _uneven(sample)
        if uneven is None:
            rows = len(next(iter(sample.values())))
            return [{name: value[row] for name, value in sample.items()} for row in range(rows)]
    except Exception as error:  # values may be of any type
        raise kind(f"unbatch() cannot split {which}: a field raised {type(error).__name__}: {message_of(error)}") from error
    raise kind(f"unbatch() cannot split {which}: {uneven}")


def _uneven(sample: Mapping[str, Any]) -> str | None:
    """Why a sample cannot be split into rows, and what to do; None: it can."""
    if not sample:
        return "it has no fields"
    lengths = {name: _length(value) for name, value in sample.items()}
    for name, length in lengths.items():
        if length is None:
            single = f"its field {name!r} is a single value ({type(sample[name]).__name__})"
            return f"{single}; repeat it for each row with map(), or drop() it before unbatch()"
    if len(set(lengths.values())) == 1:
        return None
    found = ", ".join(f"{name!r} has {length:,}" for name, length in lengths.items())
    return f"its fields differ in length ({found}); make them equally long with map(), or drop() some before unbatch()"


def _length(value: Any) -> int | None:
    """How many rows a field is split into; None: it cannot be."""
    if getattr(value, "shape", None) == () or isinstance(value, (Mapping, Set)) or not isinstance(value, Sized):
        return None
    return len(value)


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
