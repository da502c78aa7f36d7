"""`map`: users' functions over samples or single fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import BatchError
from ..plan.nodes import Function, Map, MapFields, describe_function
from ..plan.seeds import SampleRandom
from ..source.chunk import Chunk, Column
from ..storage.scratch import Scratch
from .base import Stage, Targets, each_row


class MapStage(Stage):
    """``fn(sample)`` or ``fn(sample, rng)`` gives the new sample."""

    def __init__(self, node: Map, seed: int, stream: int) -> None:
        self.name = f"map {short_name(node.fn)}"
        self._fn, self._rng, self._seed, self._stream = node.fn, node.rng, seed, stream

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        fn = self._fn
        if self._rng:
            random = scratch.keep(self, lambda: SampleRandom(self._seed, self._stream))
            positions = chunk.positions.tolist()
            samples = each_row(chunk, lambda row: _mapping(fn(chunk.row(row), random.at(chunk.epoch, positions[row])), fn), fn)
        else:
            samples = each_row(chunk, lambda row: _mapping(fn(chunk.row(row)), fn), fn)
        chunk.columns = columns_of(samples, chunk)
        return chunk


class MapFieldsStage(Stage):
    """``field = fn(value)`` for some fields, several functions in turn."""

    def __init__(self, node: MapFields, seed: int, stream: int) -> None:
        self.name = f"map {', '.join(name for name, _ in node.fields)}"
        self._node, self._seed, self._stream = node, seed, stream

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        stream = self._stream  # every function draws numbers of its own
        for name, functions in self._node.fields:
            if name not in chunk.columns:
                raise BatchError(f"map names the field {name!r}, but the samples have {', '.join(chunk.columns)}")
            for fn in functions:
                chunk.columns[name] = each_row(chunk, self._act(fn, chunk.columns[name], chunk, stream, scratch), fn)
                stream += 1
        return chunk

    def _act(self, fn: Function, column: Column, chunk: Chunk, stream: int, scratch: Scratch) -> Callable[[int], Any]:
        if not self._node.rng:
            return lambda row: fn(column[row])
        random = scratch.keep((self, stream), lambda: SampleRandom(self._seed, stream))
        positions = chunk.positions.tolist()
        return lambda row: fn(column[row], random.at(chunk.epoch, positions[row]))


def columns_of(samples: list[Any], chunk: Chunk) -> dict[str, Column]:
    """Samples as columns; rows that failed hold None."""
    good = [row for row in range(len(samples)) if row not in chunk.failures]
    if not good:
        return dict.fromkeys(chunk.columns, [None] * len(samples))
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
    raise TypeError(
        f"{describe_function(fn)} must return the new sample, a mapping of field names to values, not {type(result).__name__}; "
        "to change one field use .map(field=fn)"
    )


def short_name(fn: Function) -> str:
    return describe_function(fn).rsplit(".", 1)[-1]
