"""`map`: users' functions over samples or single fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import BatchError
from ..plan.columns import Step
from ..plan.nodes import Function, Map, MapFields, describe_function
from ..plan.seeds import SampleRandom
from ..source.chunk import Chunk, Column
from ..source.sample_names import KEY, RenamedNames, key_text
from ..storage.scratch import Scratch
from .stage import Stage, Targets, samples_of
from .user_function import UserFunction


class MapStage(Stage):
    """``fn(sample)`` or ``fn(sample, rng)`` gives the new sample."""

    def __init__(self, step: Step[Map], seed: int) -> None:
        node = step.node
        self.name = f"map {short_name(node.fn)}"
        *self._streams, own = step.streams
        self._fn, self._seed = node.fn, seed
        self.functions = (UserFunction(node.fn, seed, own, node.seeded),)

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        fn, sample = self._fn, samples_of(chunk)
        if self._streams:
            random = scratch.keep(self, lambda: SampleRandom(self._seed, *self._streams))
            positions = chunk.positions.tolist()

            def act(row: int) -> Any:
                return _mapping(fn(sample(row), random.at(chunk.epoch, positions[row])), fn)
        else:

            def act(row: int) -> Any:
                return _mapping(fn(sample(row)), fn)

        fill(chunk, self.call_rows(self.functions[0], chunk, act, scratch))
        return chunk


class MapFieldsStage(Stage):
    """``field = fn(value)`` for some fields, several functions in turn."""

    def __init__(self, step: Step[MapFields], seed: int) -> None:
        self.name = f"map {', '.join(name for name, _ in step.node.fields)}"
        named = [(step.column(name), fn) for name, functions in step.node.fields for fn in functions]
        own = step.streams[-len(named) :]
        self._columns = [column for column, _ in named]
        self._seed, self._streams = seed, step.streams[: -len(named)]
        self.functions = tuple(UserFunction(fn, seed, stream, step.node.seeded) for (_, fn), stream in zip(named, own))

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        streams = iter(self._streams)  # one for each function, or none
        for column, function in zip(self._columns, self.functions):
            act = self._act(function.fn, chunk.columns[column], chunk, next(streams, None), scratch)
            chunk.columns[column] = self.call_rows(function, chunk, act, scratch)
        return chunk

    def _act(self, fn: Function, column: Column, chunk: Chunk, stream: int | None, scratch: Scratch) -> Callable[[int], Any]:
        if stream is None:
            return lambda row: fn(column[row])
        random = scratch.keep((self, stream), lambda: SampleRandom(self._seed, stream))
        positions = chunk.positions.tolist()
        return lambda row: fn(column[row], random.at(chunk.epoch, positions[row]))


def fill(chunk: Chunk, samples: list[Any]) -> None:
    """Make samples the rows of a chunk; a ``__key__`` among their entries is their new key. Rows that failed hold None."""
    good = [row for row in range(len(samples)) if row not in chunk.failures]
    keyed = {row: samples[row][KEY] for row in good if KEY in samples[row]}
    for row in keyed:
        samples[row] = {name: value for name, value in samples[row].items() if name != KEY}
    if keyed:
        chunk.names = RenamedNames(chunk.names, {row: key_text(key) for row, key in keyed.items() if key is not None})
    chunk.columns = _columns_of(samples, good, chunk) if good else dict.fromkeys(chunk.columns, [None] * len(samples))


def _columns_of(samples: list[Any], good: list[int], chunk: Chunk) -> dict[str, Column]:
    fields = list(samples[good[0]])
    for row in good:
        if samples[row].keys() != set(fields):
            odd = sorted(set(samples[row]) ^ set(fields))[0]
            raise BatchError(
                f"samples must agree on their fields: {odd!r} is in only one of {chunk.name(good[0])!r} and {chunk.name(row)!r}"
            )
    return {name: [None if row in chunk.failures else samples[row][name] for row in range(len(samples))] for name in fields}


def _mapping(result: Any, fn: Function) -> Mapping[str, Any]:
    if isinstance(result, Mapping) and all(isinstance(name, str) for name in result):
        return result
    found = "one whose names are not all text" if isinstance(result, Mapping) else type(result).__name__
    raise TypeError(
        f"{describe_function(fn)} must return the new sample, a mapping of field names to values, not {found}; to change one "
        "field use .map(field=fn)"
    )


def short_name(fn: Function) -> str:
    return describe_function(fn).rsplit(".", 1)[-1]
