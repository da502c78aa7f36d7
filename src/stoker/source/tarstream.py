"""Tar shards read from the first byte to the last: pipes, compressed shards, and whoever needs no index."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptShard, MissingExtra
from ..kernel.records import TarScan
from ..storage.blob import Blob
from .paths import printable
from .sniff import BEGIN, GZIP, ZSTD, seen_as

Piece = Union[bytes, memoryview]

#: bytes taken from a pipe or a file at once
PIECE = 1 << 20
#: a compressed shard that grows by more than this factor is refused (zeros compress a thousandfold; photographs do not)
MAX_RATIO = 2000


@dataclass(frozen=True, slots=True)
class TarSample:
    """One sample of a tar: its key, its fields' bytes, and where its first header stands."""

    key: bytes
    fields: dict[str, bytes]
    offset: int


def tar_samples(pieces: Iterable[Piece], told: str) -> Iterator[TarSample]:
    """The samples of a tar that comes in pieces, in order. Memory: the largest sample.

    Strict: whatever contradicts the format raises CorruptShard with the place, and so does an archive without its end. `told`
    names the shard in messages.
    """
    return _Samples(told).of(pieces)


def is_compressed(name: str) -> bool:
    """Whether a name says that its bytes must be unpacked, and so cannot be read at random."""
    return _unpacker_of(name) is not None


def check_unpacker(blob: Blob) -> None:
    """Raise MissingExtra when what a shard's name says it is packed with cannot be unpacked here."""
    if _unpacker_of(blob.name) is _unzstd:
        _zstandard(blob.url)


def open_pieces(blob: Blob) -> Iterator[Piece]:
    """The bytes of a tar shard, unpacked where its name says that it is packed."""
    unpack = _unpacker_of(blob.name)
    pieces: Iterator[Piece] = blob.stream(0, PIECE)
    return pieces if unpack is None else unpack(pieces, blob.url)


def standard_input() -> Iterator[Piece]:
    """The bytes of standard input, unpacked if they begin as gzip or zstd do."""
    stream: Any = sys.stdin.buffer
    first = stream.peek(4)[:4]
    pieces = iter(lambda: stream.read1(PIECE), b"")
    if first.startswith(GZIP):
        return _gunzip(pieces, "standard input")
    return _unzstd(pieces, "standard input") if first.startswith(ZSTD) else pieces


class _Samples:
    """Cuts samples out of the pieces. Bytes are kept from the end of the last member on, because the next may have begun."""

    def __init__(self, told: str) -> None:
        self._told = told
        self._scan = TarScan(checksums=False)
        self._held = bytearray()
        self._base = 0  # offset of the first held byte in the tar
        self._number = -1  # of the sample being gathered
        self._key = b""
        self._fields: dict[str, bytes] = {}
        self._offset = 0
        self._names: tuple[str, ...] = ()

    def of(self, pieces: Iterable[Piece]) -> Iterator[TarSample]:
        begin = b""
        for piece in pieces:
            begin = begin or bytes(piece[:BEGIN])
            yield from self._take(piece, begin)
        if not begin:
            raise CorruptShard(f"{self._told}: is empty; even a tar without samples has an end: write it again", shard=self._told)
        try:
            self._scan.finish()
        except CorruptShard as error:
            raise self._named(error, begin) from error
        if self._fields:
            yield self._sample()

    def _take(self, piece: Piece, begin: bytes) -> Iterator[TarSample]:
        try:
            members = self._scan.feed(piece)
        except CorruptShard as error:
            raise self._named(error, begin) from error
        self._held += piece
        if len(members):
            yield from self._cut(members)
        if self._scan.ended:
            self._drop(self._scan.position)  # nothing but zeros comes behind the end, perhaps without end

    def _cut(self, members: NDArray[np.void]) -> Iterator[TarSample]:
        first = int(members["sample"][0])
        names, ends = self._scan.keys(first)
        bounds = [0, *ends.tolist()]
        if len(self._scan.fields) > len(self._names):
            self._names = tuple(map(printable, self._scan.fields))
        for header, start, length, number, field, _ in members.tolist():
            if number != self._number:
                if self._fields:
                    yield self._sample()
                self._number, self._fields, self._offset = number, {}, header
                self._key = names[bounds[number - first] : bounds[number - first + 1]].tobytes()
            at = start - self._base
            self._fields[self._names[field]] = bytes(memoryview(self._held)[at : at + length])
        self._scan.forget(self._number)
        self._drop(start + length)

    def _drop(self, before: int) -> None:
        del self._held[: before - self._base]
        self._base = before

    def _sample(self) -> TarSample:
        return TarSample(self._key, self._fields, self._offset)

    def _named(self, error: CorruptShard, begin: bytes) -> CorruptShard:
        known = seen_as("tar", begin) if (error.offset or 0) < BEGIN else ""
        return CorruptShard(f"{self._told}: {known or error}", shard=self._told, offset=error.offset)


def _unpacker_of(name: str) -> Any:
    lower = name.lower()
    if lower.endswith((".tgz", ".gz")):
        return _gunzip
    return _unzstd if lower.endswith((".zst", ".zstd", ".tzst")) else None


class _Growth:
    """Notices a small file that unpacks without end."""

    def __init__(self, told: str) -> None:
        self._told, self._taken, self._given = told, 0, 0

    def taken(self, count: int) -> None:
        self._taken += count

    def given(self, count: int) -> None:
        self._given += count
        if self._given > MAX_RATIO * self._taken + (1 << 24):
            raise CorruptShard(
                f"{self._told}: {self._taken:,} bytes unpack to more than {self._given:,}; this looks like a bomb: refused",
                shard=self._told,
                offset=self._taken,
            )


def _gunzip(pieces: Iterator[Piece], told: str) -> Iterator[Piece]:
    growth, engine = _Growth(told), zlib.decompressobj(31)
    fresh = True
    for piece in pieces:
        growth.taken(len(piece))
        data: Piece = piece
        while data:
            if fresh and not bytes(data[:2]).strip(b"\0"):
                break  # padding behind the last member
            try:
                out = engine.decompress(data, PIECE)
            except zlib.error as error:
                raise _unpackable(told, "gzip", error) from error
            fresh = False
            growth.given(len(out))
            if out:
                yield out
            data = engine.unconsumed_tail
            if engine.eof:
                data, engine, fresh = engine.unused_data, zlib.decompressobj(31), True
    if not fresh:
        raise _unpackable(told, "gzip", "it ends in the middle")


def _unzstd(pieces: Iterator[Piece], told: str) -> Iterator[Piece]:
    zstandard = _zstandard(told)
    growth = _Growth(told)
    # A reader, because it gives at most as much as it is asked for, however much a few bytes unpack to. Where the data end in the
    # middle it just ends, and then the tar in it has no end either.
    with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        _Reading(pieces, growth), read_across_frames=True
    ) as reader:
        while True:
            try:
                out = reader.read(PIECE)
            except zstandard.ZstdError as error:
                raise _unpackable(told, "zstd", error) from error
            if not out:
                return
            growth.given(len(out))
            yield out


def _zstandard(told: str) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(f"{told}: to read zstd, pip install 'stoker[zstd]'") from error
    return zstandard


class _Reading:
    """Pieces as a file to read from."""

    def __init__(self, pieces: Iterator[Piece], growth: _Growth) -> None:
        self._pieces, self._growth = pieces, growth
        self._rest: Piece = b""

    def read(self, size: int = -1) -> bytes:
        rest = self._rest or next(self._pieces, b"")
        out = bytes(rest[:size]) if size >= 0 else bytes(rest)
        self._rest = bytes(rest[len(out) :])
        self._growth.taken(len(out))
        return out


def _unpackable(told: str, kind: str, why: object) -> CorruptShard:
    return CorruptShard(f"{told}: cannot be unpacked as {kind}: {why}; fetch or make it again", shard=told)
