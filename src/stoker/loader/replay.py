"""Runs the bad samples of a quarantine file again, one by one in the caller's thread, where prints show and a debugger stops.

The file is the one that `on_error("skip", quarantine=...)` writes (`bad_samples.py`).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..faults import RunAgain
from ..plan.order import MAX_LENGTH, Order, Places
from ..plan.plan import Plan
from ..source.chunk import Chunk, chunk_of
from ..source.source import Source
from ..source.streams.stream import StreamSource
from ..stage.runner import Runner
from ..storage.names import AnyPath, file_name, printable
from ..storage.scratch import Scratch
from .build import compile_work, layout_of

#: positions that are looked through at once
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class QuarantineLine:
    """A bad sample, as described by line `number` of the file."""

    number: int
    key: str
    index: int
    epoch: int
    position: int
    stage: str
    error: str
    reason: str
    source: str


def read_quarantine(path: AnyPath) -> list[QuarantineLine]:
    """All lines of a quarantine file; a line that is anything else is a ConfigError."""
    name = file_name(path)
    try:
        with open(name, "rb") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise ConfigError(
            f"{printable(name)}: {error.strerror}; pass a file that on_error('skip', quarantine=...) wrote"
        ) from error
    return [_line(line, number, printable(name)) for number, line in enumerate(lines, 1) if line.strip()]


def _line(line: bytes, number: int, told: str) -> QuarantineLine:
    try:
        entry = json.loads(line)
        texts = {name: entry[name] for name in ("key", "stage", "error", "reason", "source")}
        counts = {name: entry[name] for name in ("index", "epoch", "position")}
    except (ValueError, TypeError, KeyError):
        texts = counts = {}
    whole = [type(value) is int and value >= 0 for value in counts.values()]
    if not texts or not all(isinstance(text, str) for text in texts.values()) or not all(whole):
        raise ConfigError(f"{told}: line {number} is not a line that on_error('skip', quarantine=...) wrote")
    return QuarantineLine(number, **texts, **counts)


def find_samples(source: Source, lines: Collection[QuarantineLine]) -> dict[int, int]:
    """Where the samples of some lines are in a source, by the number of the line; missing ones are omitted.

    For the same data the line says where. For other data, such as a repaired data set, the samples are searched by their keys.
    """
    same = source.fingerprint()
    found = {line.number: line.index for line in lines if line.source == same and line.index < len(source)}
    left: dict[str, list[int]] = {}
    for line in lines:
        if line.number in found:
            continue
        if line.index < len(source) and source.key(line.index) == line.key:
            found[line.number] = line.index
        else:
            left.setdefault(line.key, []).append(line.number)
    for index in range(len(source)) if left else ():
        for number in left.pop(source.key(index), ()):
            found[number] = index
        if not left:
            break
    return found


class Replay:
    """Runs single samples through the stages of a plan, at the epoch and the position they had."""

    def __init__(self, plan: Plan) -> None:
        if any(segment.unit for segment in plan.segments):
            raise ConfigError(
                "this pipeline joins samples before unbatch(), so no sample can be run alone; use loader(executor='inline')"
            )
        self._plan = replace(plan, policy=None)
        final, segments = compile_work(self._plan, layout_of(plan, 1))
        self._source = final.source
        self._runners: list[Runner] = [*(work.runner for work in segments), final.runner]

    def find(self, lines: Collection[QuarantineLine]) -> dict[int, int]:
        """As `find_samples`; in a stream samples are where they were."""
        source = self._plan.source
        return find_samples(source, lines) if isinstance(source, Source) else {line.number: line.index for line in lines}

    def run(self, line: QuarantineLine, index: int) -> BaseException | None:
        """What is wrong with a sample now; None: nothing."""
        scratch = Scratch()
        try:
            while True:
                try:
                    return self._run(line, index, scratch)
                except RunAgain:  # a function was seen drawing random numbers that were not seeded: now they are
                    continue
        finally:
            scratch.close()

    def _run(self, line: QuarantineLine, index: int, scratch: Scratch) -> BaseException | None:
        rows: list[Any] = [self._start(line, index)]
        for number, runner in enumerate(self._runners):
            made: list[Chunk] = []
            for row in rows:
                chunk, report = runner.run(row, {}, scratch)
                if report.failure is not None:
                    return report.failure.error()
                made.append(chunk.own())
            # Whichever of the samples made of it was the bad one had this position after it was numbered again.
            rows = [chunk.take(np.array([at])) for chunk in made for at in range(len(chunk))]
            if number < len(self._plan.segments):
                for row in rows:
                    row.positions = np.array([line.position], np.int64)
        return None

    def _start(self, line: QuarantineLine, index: int) -> Places | Chunk:
        source, order = self._plan.source, self._plan.order
        if isinstance(source, StreamSource):
            sample = next(islice(source.open(), index, None), None)
            if sample is None:
                raise ConfigError(
                    f"line {line.number}: {source.title} ends before sample {index:,}; its data have changed since the list "
                    "was written"
                )
            return chunk_of([sample], line.epoch, index, [source.key(sample, index)], [source.origin(sample, index)])
        position = line.position & (MAX_LENGTH - 1)
        if order is not None and self._plan.segments:
            position = _position_of(order, line.epoch, index, position)
        return Places(np.array([position], np.int64), np.array([index], np.int64), line.epoch)


def _position_of(order: Order, epoch: int, index: int, likely: int) -> int:
    """The source position of a sample in an epoch: random numbers are drawn by it, until samples are numbered again."""
    length = MAX_LENGTH if order.length is None else order.length
    if likely < length and order.places(np.array([likely], np.int64), epoch).indices[0] == index:
        return likely
    for first in range(0, min(length, 2 * order.source_length), _BLOCK):
        places = order.places(np.arange(first, min(first + _BLOCK, length), dtype=np.int64), epoch)
        at = np.flatnonzero(places.indices == index)
        if len(at):
            return first + int(at[0])
    return likely
