"""Samples that can be read again at random, and an order for any number of them, in little memory: for `stoker tar sort`."""

from __future__ import annotations

import heapq
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from ...errors import ReadError, ShardChanged, WriteError
from ...source.paths import printable
from ...source.tarstream import Piece, TarSample, tar_samples
from .inputs import plain_file, shard_pieces, told

#: what ends an archive
_END = bytes(1024)


class Place(NamedTuple):
    """Where a sample lies: its first header, and the bytes up to the next sample's."""

    file: int
    start: int
    length: int


class Shelf:
    """Shards whose samples can be read again: plain files as they are, the rest copied to a file that has no name.

    A file without a name is gone with the process, however it ends.
    """

    def __init__(self) -> None:
        self._files: list[tuple[int, str]] = []
        self._copy: BinaryIO | None = None
        self._copied = self._copy_number = 0

    def samples(self, name: str) -> Iterator[tuple[TarSample, Place]]:
        """The samples of a shard, and where to find them again."""
        fd = plain_file(name)
        if fd is not None:
            self._files.append((fd, told(name)))
            number, base, pieces = len(self._files) - 1, 0, shard_pieces(name)
        else:
            number, base, pieces = self._own_file(), self._copied, self._copying(shard_pieces(name))
        before: TarSample | None = None
        for sample in tar_samples(pieces, told(name)):
            if before is not None:
                yield before, Place(number, base + before.offset, sample.offset - before.offset)
            before = sample
        if before is not None:
            end = os.fstat(fd).st_size if fd is not None else self._copied
            yield before, Place(number, base + before.offset, end - base - before.offset)

    def read(self, place: Place) -> TarSample:
        """A sample again, exactly as it was."""
        fd, name = self._files[place.file]
        if fd < 0:
            assert self._copy is not None
            fd = self._copy.fileno()
        found = list(tar_samples([_pread(fd, place, name), _END], name))
        if len(found) != 1:
            raise ShardChanged(
                f"{name}: was changed while it was read; try again when nobody writes to it", shard=name, offset=place.start
            )
        return found[0]

    def close(self) -> None:
        """Close all files."""
        for fd, _ in self._files:
            if fd >= 0:
                os.close(fd)
        self._files = []
        if self._copy is not None:
            self._copy.close()

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _own_file(self) -> int:
        if self._copy is None:
            self._copy = tempfile.TemporaryFile(prefix="stoker-sort-", buffering=0)  # noqa: SIM115  closed with the shelf
            self._copy_number = len(self._files)
            self._files.append((-1, "a copy of the input"))
        return self._copy_number

    def _copying(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        assert self._copy is not None
        for piece in pieces:
            _write_all(self._copy, piece)
            self._copied += len(piece)
            yield piece


class Order:
    """Sorts entries of a rank and a place: runs of them, sorted, go to a file that has no name, and are merged when read.

    Equal ranks keep their order. Memory is one run, whatever the number of entries.
    """

    def __init__(self, value: Callable[[bytes], Any], reverse: bool, run: int = 100_000, run_bytes: int = 64 << 20) -> None:
        self._value, self._reverse, self._most, self._most_bytes = value, reverse, run, run_bytes
        self._entries: list[tuple[bytes, Place]] = []
        self._held = 0
        self._file: BinaryIO | None = None
        self._runs: list[tuple[int, int]] = []

    def add(self, rank: bytes, place: Place) -> None:
        """One more entry."""
        self._entries.append((rank, place))
        self._held += len(rank)
        if len(self._entries) >= self._most or self._held >= self._most_bytes:
            self._spill()

    def __iter__(self) -> Iterator[tuple[bytes, Place]]:
        self._sort()
        runs: list[Iterator[tuple[bytes, Place]]] = [self._read(*run) for run in self._runs]
        return heapq.merge(*runs, iter(self._entries), key=self._by_value, reverse=self._reverse)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Order:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _by_value(self, entry: tuple[bytes, Place]) -> Any:
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

    def _read(self, start: int, end: int) -> Iterator[tuple[bytes, Place]]:
        assert self._file is not None
        fd, held, at = self._file.fileno(), b"", 0
        while start < end or at < len(held):
            if len(held) - at < _ENTRY.size or len(held) - at < _ENTRY.size + _ENTRY.unpack_from(held, at)[0]:
                more = os.pread(fd, min(1 << 16, end - start), start)
                held, at, start = held[at:] + more, 0, start + len(more)
                continue
            length, *place = _ENTRY.unpack_from(held, at)
            at += _ENTRY.size
            yield held[at : at + length], Place(*place)
            at += length


_ENTRY = struct.Struct("<Iqqq")


def _pread(fd: int, place: Place, name: str) -> bytes:
    parts, at, end = [], place.start, place.start + place.length
    try:
        while at < end and (part := os.pread(fd, end - at, at)):
            parts.append(part)
            at += len(part)
    except OSError as error:
        raise ReadError(f"{name}: {error.strerror} at byte {at:,}", origin=name) from error
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
