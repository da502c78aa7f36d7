"""Samples that can be read again in any order, and the order itself, in little memory: for `stoker tar sort`."""

from __future__ import annotations

import heapq
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from ...errors import CorruptShard, ShardChanged, WriteError
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample, open_pieces, tar_samples
from ...source.streams.unpack import Piece
from ...storage.blob import Blob
from .inputs import plain_file, shard_pieces, told

#: what ends an archive
_END = bytes(1024)
#: how many samples, and of how many bytes, are read again together
_BATCH, _BATCH_BYTES = 256, 4 << 20
#: the number of the file that has no name
_COPY = -1


class TarExtent(NamedTuple):
    """Where a sample is stored: the place of its first header, and the bytes up to the next sample."""

    file: int
    start: int
    length: int


class Shelf:
    """Shards whose samples can be read again: plain files directly, the rest copied to a file without a name.

    A file without a name disappears with the process, however it ends.
    """

    def __init__(self) -> None:
        self._files: list[Blob] = []
        self._copy: BinaryIO | None = None
        self._copied = 0

    def samples(self, name: str) -> Iterator[tuple[TarSample, TarExtent]]:
        """The samples of a shard, and where to find them again."""
        blob = plain_file(name)
        if blob is not None:
            self._files.append(blob)
            number, base, pieces = len(self._files) - 1, 0, open_pieces(blob)
        else:
            number, base, pieces = _COPY, self._copied, self._copying(shard_pieces(name))
        before: TarSample | None = None
        for sample in tar_samples(pieces, told(name)):
            if before is not None:
                yield before, TarExtent(number, base + before.offset, sample.offset - before.offset)
            before = sample
        if before is not None:
            end = blob.stat().size if blob is not None else self._copied - base
            yield before, TarExtent(number, base + before.offset, end - before.offset)

    def read(self, places: Iterable[TarExtent]) -> Iterator[TarSample]:
        """Samples again, exactly as they were, in the order of the places."""
        batch: list[TarExtent] = []
        size = 0
        for place in places:
            if batch and (len(batch) == _BATCH or size + place.length > _BATCH_BYTES):
                yield from self._read(batch)
                batch, size = [], 0
            batch.append(place)
            size += place.length
        yield from self._read(batch)

    def _read(self, batch: list[TarExtent]) -> list[TarSample]:
        """Some samples, as if they were adjacent in one archive: that is much faster than one by one.

        It goes wrong where one brings the end of its shard along, or two of the same key meet. Then one by one they are right.
        """
        spans = [self._span(place) for place in batch]
        try:
            found = list(tar_samples([b"".join(spans), _END], ""))
            if len(found) == len(batch):
                return found
        except CorruptShard:
            pass
        return [self._single(place, span) for place, span in zip(batch, spans)]

    def _single(self, place: TarExtent, span: bytes) -> TarSample:
        name = self._files[place.file].url if place.file != _COPY else "the copy of the input"
        found = list(tar_samples([span, _END], name))
        if len(found) != 1:
            raise ShardChanged(
                f"{name}: changed while it was read; try again when no other program writes to it",
                shard=name,
                offset=place.start,
            )
        return found[0]

    def _span(self, place: TarExtent) -> bytes:
        if place.file == _COPY:
            assert self._copy is not None
            return _pread(self._copy.fileno(), place.start, place.length)
        data = bytearray(place.length)
        self._files[place.file].read_into(place.start, memoryview(data))
        return bytes(data)

    def close(self) -> None:
        """Close all files."""
        for blob in self._files:
            blob.close()
        if self._copy is not None:
            self._copy.close()

    def _copying(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        if self._copy is None:
            self._copy = tempfile.TemporaryFile(prefix="stoker-sort-", buffering=0)  # noqa: SIM115  closed with the shelf
        for piece in pieces:
            _write_all(self._copy, piece)
            self._copied += len(piece)
            yield piece


class SampleSorter:
    """Sorts entries of a rank and a place: runs of them, sorted, go to a file that has no name, and are merged when read.

    Equal ranks keep their order. Memory is one run, whatever the number of entries.
    """

    def __init__(self, value: Callable[[bytes], Any], reverse: bool, run: int = 100_000, run_bytes: int = 64 << 20) -> None:
        self._value, self._reverse, self._most, self._most_bytes = value, reverse, run, run_bytes
        self._entries: list[tuple[bytes, TarExtent]] = []
        self._held = 0
        self._file: BinaryIO | None = None
        self._runs: list[tuple[int, int]] = []

    def add(self, rank: bytes, place: TarExtent) -> None:
        """One more entry."""
        self._entries.append((rank, place))
        self._held += len(rank)
        if len(self._entries) >= self._most or self._held >= self._most_bytes:
            self._spill()

    def __iter__(self) -> Iterator[tuple[bytes, TarExtent]]:
        self._sort()
        runs: list[Iterator[tuple[bytes, TarExtent]]] = [self._read(*run) for run in self._runs]
        return heapq.merge(*runs, iter(self._entries), key=self._by_value, reverse=self._reverse)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _by_value(self, entry: tuple[bytes, TarExtent]) -> Any:
        return self._value(entry[0])

    def _sort(self) -> None:
        self._entries.sort(key=self._by_value, reverse=self._reverse)

    def _spill(self) -> None:
        self._sort()
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="stoker-sort-")  # noqa: SIM115  closed with this
        start = self._file.tell()
        try:
            for rank, place in self._entries:
                self._file.write(_ENTRY.pack(len(rank), *place) + rank)
            self._file.flush()
        except OSError as error:
            raise _no_room(error) from error
        self._runs.append((start, self._file.tell()))
        self._entries, self._held = [], 0

    def _read(self, start: int, end: int) -> Iterator[tuple[bytes, TarExtent]]:
        assert self._file is not None
        fd, held, at = self._file.fileno(), b"", 0
        while start < end or at < len(held):
            if len(held) - at < _ENTRY.size or len(held) - at < _ENTRY.size + _ENTRY.unpack_from(held, at)[0]:
                more = _pread(fd, start, min(1 << 16, end - start))
                held, at, start = held[at:] + more, 0, start + len(more)
                continue
            length, *place = _ENTRY.unpack_from(held, at)
            at += _ENTRY.size
            yield held[at : at + length], TarExtent(*place)
            at += length


_ENTRY = struct.Struct("<Iqqq")


def _pread(fd: int, start: int, length: int) -> bytes:
    """All of it, also where one call does not give as much."""
    parts = []
    while length:
        part = os.pread(fd, length, start)
        assert part  # this file is private
        parts.append(part)
        start, length = start + len(part), length - len(part)
    return b"".join(parts)


def _write_all(file: BinaryIO, data: Piece) -> None:
    view = memoryview(data).cast("B")
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise _no_room(error) from error


def _no_room(error: OSError) -> WriteError:
    folder = printable(os.fsencode(tempfile.gettempdir()))
    return WriteError(f"{folder}: cannot hold what is being sorted: {error.strerror}; set TMPDIR to a folder with more room")
