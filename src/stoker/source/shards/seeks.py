"""Seek indices of JPEGs on their way to the decoder: where they are stored, and which belong to the rows of a column.

A seek index lets the decoder start just before the crop instead of at the first pixel. It changes speed, never pixels. So a bad
one is never an error: it is ignored, counted, and reported once.

A column of pictures carries `Seeks` (`seekrows.py`), a table and row numbers. Nothing is read until the image stage asks, so
reading pictures as bytes costs nothing extra. Stages that pass a picture on pass its number on; a function that makes new bytes
makes a new column without any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernel.file_reads import Arena
from ...kernel.native import Spans
from ...kernel.records import RecordTable, crc32c_spans
from ...kernel.render import StoredSeeks
from ...storage.blob import Blob
from ...storage.fetch import fetch
from ...storage.local import HeldFiles, LocalBlob
from ...storage.scratch import Scratch
from ..chunk import BytesColumn, Ints
from .shard_index import ShardIndex

_NONE: Ints = np.empty(0, np.int64)


class SeekTable:
    """Where the seek indices of some records are: `length` bytes (-1: there is none) at `start`, in tails of index files.

    The records of file i end before record ``ends[i]``. Every string is compared with its CRC-32C when it is read. `pictures`, if
    given, are length and CRC-32C of the pictures they were made for: the pictures that were read must match.
    """

    def __init__(
        self,
        blobs: Sequence[Blob],
        start: Ints,
        length: Ints,
        crc: NDArray[np.uint32],
        ends: Ints,
        pictures: tuple[Ints, NDArray[np.uint32]] | None = None,
    ) -> None:
        self._blobs, self._start, self._length, self._crc, self._ends = tuple(blobs), start, length, crc, ends
        self._pictures = pictures
        self._table = RecordTable(start[:, None], length[:, None], crc[:, None], ends)
        self._files = HeldFiles(self._blobs)
        self._local = all(isinstance(blob, LocalBlob) for blob in self._blobs)
        self.count = int((length > 0).sum())

    def __reduce__(self) -> tuple[Any, ...]:
        # Made again there: the table has the same arrays in another shape, which would travel twice.
        return SeekTable, (self._blobs, self._start, self._length, self._crc, self._ends, self._pictures)

    def __len__(self) -> int:
        return len(self._start)

    @property
    def lengths(self) -> Ints:
        """Of each record's; -1: it has none."""
        return self._length

    def read(self, rows: Ints, column: BytesColumn, scratch: Scratch) -> tuple[Spans | None, Ints]:
        """The seek indices of the pictures in `column`, which are those of the given records; and the rows whose do not fit.

        Those are omitted. None if there is none at all. The bytes are in the worker's memory until its next task.
        """
        lengths = self._length[rows]
        wrong = _NONE
        if self._pictures is not None:
            lengths, wrong = self._fitting(rows, lengths, column)
        return self._read(rows, lengths, wrong, scratch)

    def stored(self, scratch: Scratch) -> StoredSeeks | None:
        """The table in the form of the native call that reads and decodes; None if it must be read in advance."""
        fds = self._files.descriptors() if self._local else None
        if fds is None:
            return None
        found: StoredSeeks = scratch.keep(self, lambda: self._stored(fds))
        return found

    def _stored(self, fds: NDArray[np.int32]) -> StoredSeeks:
        sums = None if self._pictures is None else self._pictures[1]
        return StoredSeeks(self._table, fds, int(self._length.max(initial=0)), sums)

    def strings(self, rows: Ints, scratch: Scratch) -> tuple[list[bytes], Ints]:
        """The seek indices of the given records as stored, and the rows whose indices cannot be read, which are empty."""
        spans, wrong = self._read(rows, self._length[rows], _NONE, scratch)
        if spans is None:
            return [b""] * len(rows), wrong
        return BytesColumn(*spans).own(), wrong

    def _read(self, rows: Ints, lengths: Ints, wrong: Ints, scratch: Scratch) -> tuple[Spans | None, Ints]:
        if not (lengths > 0).any():
            return None, wrong
        data, at, bad = self._fetched(rows, lengths, scratch)
        lengths = np.maximum(lengths, 0)
        if bad.any():
            lengths[bad] = 0
            wrong = np.concatenate([wrong, np.flatnonzero(bad)])
        return Spans(data, at, lengths), wrong

    def _fitting(self, rows: Ints, lengths: Ints, column: BytesColumn) -> tuple[Ints, Ints]:
        assert self._pictures is not None
        sizes, sums = self._pictures
        asked = np.flatnonzero(lengths > 0)
        right = sizes[rows[asked]] == column.lengths[asked]
        seen = crc32c_spans(column.data, column.starts[asked], np.where(right, column.lengths[asked], 0))
        right &= seen == sums[rows[asked]]
        if right.all():
            return lengths, _NONE
        wrong = asked[~right]
        lengths[wrong] = -1
        return lengths, wrong

    def _fetched(self, rows: Ints, lengths: Ints, scratch: Scratch) -> tuple[NDArray[np.uint8], Ints, NDArray[np.bool_]]:
        """Bytes, places in them, and which could not be had or do not match their checksum."""
        arena: Arena = scratch.keep(SeekTable, Arena)
        fds = self._files.descriptors() if self._local else None
        if fds is not None:
            at, _, status = self._table.read(fds, rows, np.zeros(1, np.int64), arena, 0, LocalBlob.gap)
            return arena.buffer, at[:, 0], (status[:, 0] != 0) & (lengths > 0)
        asked = np.flatnonzero(lengths > 0)
        records, sizes = rows[asked], lengths[asked]
        got = fetch(self._blobs, np.searchsorted(self._ends, records, side="right"), self._start[records], sizes, arena)
        wrong = crc32c_spans(got.data, got.at, sizes) != self._crc[records]
        wrong[list(got.errors)] = True
        at, bad = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        at[asked], bad[asked] = got.at, wrong
        return got.data, at, bad


def seek_tables(indexes: Sequence[ShardIndex], ends: Ints, *, far: bool = False) -> dict[str, SeekTable]:
    """A table for each field for which some shard's index has seek indices that can be read from a local disk.

    Over a network each would be one more request per sample, which costs more than it saves; so those of a remote shard are used
    only if the shard has a cache, or if they were made on this machine; with `far`, always.
    """
    total, found = int(ends[-1]), dict[str, list[tuple[ShardIndex, int]]]()
    for index, end in zip(indexes, ends.tolist()):
        blob = index.tail.blob
        if isinstance(blob, LocalBlob) or hasattr(blob, "cache") or (far and blob is not None):
            for name in index.seeks or {}:
                found.setdefault(name, []).append((index, end))
    return {name: _table(name, shards, total) for name, shards in found.items()}


def _table(name: str, shards: Sequence[tuple[ShardIndex, int]], total: int) -> SeekTable:
    """The table of one field. A shard without any has no file here: its records count with the next one's, or the last."""
    start, length, crc = np.zeros(total, np.int64), np.full(total, -1, np.int64), np.zeros(total, np.uint32)
    for index, end in shards:
        here = slice(end - len(index), end)
        start[here], length[here], crc[here] = places(index, name)
    blobs = [index.tail.blob for index, _ in shards if index.tail.blob is not None]
    ends = np.array([*(end for _, end in shards[:-1]), total], np.int64)
    return SeekTable(blobs, start, length, crc, ends)


def places(index: ShardIndex, name: str) -> tuple[Ints, Ints, NDArray[np.uint32]]:
    """Where in its file the seek indices of a field are, their lengths (-1: there is none), and their CRC-32C."""
    begin = index.tail.at
    for other, column in (index.seeks or {}).items():
        length = column.length.astype(np.int64)
        if other == name:
            return begin + np.cumsum(length) - length, np.where(length, length, -1), column.crc
        begin += int(length.sum())
    raise KeyError(name)
