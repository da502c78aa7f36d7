"""Seek indices of JPEGs as they are written: what makes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernel import native
from ...kernel.example_columns import BYTES as BYTES_LIST
from ...kernel.example_columns import ExampleStats, Wanted, parse_examples
from ...kernel.library import Bytes
from ...source.paths import printable
from ...source.shards.tfrecord_source import RECORD
from ...storage.scratch import Scratch
from ..jobs.spares import Spares

_JPEG = b"\xff\xd8\xff"
_PROGRAM = native.Program()


def make_seek(data: Bytes, scratch: Scratch, step: int = native.SEEK_STEP) -> bytes:
    """The seek index of a JPEG; nothing for other data, for a JPEG that cannot have one, or for a damaged one."""
    if bytes(memoryview(data)[:3]) != _JPEG:  # type: ignore[arg-type]  # NumPy's arrays are buffers before Python 3.12 says so
        return b""
    return scratch.decoder.seek_index(_PROGRAM, data, step)[0]


class SeekMaker:
    """Makes seek indices with an entry every `step` MCUs, in any number of threads at once."""

    def __init__(self, step: int = native.SEEK_STEP) -> None:
        self._spares, self._step = Spares(), step

    def __call__(self, data: Bytes) -> bytes:
        """See `make_seek`."""
        with self._spares.one() as scratch:
            return make_seek(data, scratch, self._step)

    def fields(self, fields: Any) -> dict[str, bytes]:
        """Those of the JPEGs among some fields, (name, value) each."""
        made = ((name, self(value)) for name, value in fields if isinstance(value, bytes))
        return {name: seek for name, seek in made if seek}

    def example(self, record: bytes) -> dict[str, bytes]:
        """Those of a tf.train.Example's features that are a single JPEG, by the features' names; or of a record that is one."""
        if whole := self(record):
            return {RECORD: whole}
        data, span = np.frombuffer(record, np.uint8), (np.zeros(1, np.int64), np.array([len(record)], np.int64))
        stats = ExampleStats()
        stats.add(data, *span)
        if stats.others:
            return {}
        wanted = [Wanted(found.name, BYTES_LIST, 1) for found in stats.features if found.kind == BYTES_LIST and found.most == 1]
        columns = parse_examples(data, *span, wanted).columns
        spans = [(wish.name, int(starts[0]), int(lengths[0])) for wish, (starts, lengths) in zip(wanted, columns)]
        made = ((name, self(record[start : start + length])) for name, start, length in spans)
        return {printable(name): seek for name, seek in made if seek}
