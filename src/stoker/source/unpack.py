"""Compressed shards, unpacked piece by piece: gzip, zlib and zstd. Nothing here takes more memory because data say so."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, Union

from ..errors import CorruptShard, MissingExtra
from .sniff import BEGIN, seen_packed

Piece = Union[bytes, memoryview]

#: bytes taken from a pipe or a file at once, and given at once
PIECE = 1 << 20
#: a compressed shard that grows by more than this factor is refused (zeros compress a thousandfold; photographs do not)
MAX_RATIO = 2000
_ENDINGS = {
    ".gz": "gzip", ".tgz": "gzip", ".zlib": "zlib", ".zst": "zstd", ".zstd": "zstd", ".tzst": "zstd",
}  # fmt: skip
#: what zlib is to expect: a header of gzip's, or one of its own
_HEADERS = {"gzip": 31, "zlib": 15}


def packing_of(name: str) -> str | None:
    """What a name says its bytes are packed with: ``gzip``, ``zlib`` or ``zstd``; None: they are not.

    >>> packing_of("a.tar.gz"), packing_of("a.tar")
    ('gzip', None)
    """
    lower = name.lower()
    return next((packing for ending, packing in _ENDINGS.items() if lower.endswith(ending)), None)


def check_unpacker(packing: str | None, told: str) -> None:
    """Raise MissingExtra when what `told` is packed with cannot be unpacked here."""
    if packing == "zstd":
        _zstandard(told)


def unpacked(pieces: Iterator[Piece], packing: str | None, told: str) -> Iterator[Piece]:
    """The bytes that were packed, at most `PIECE` at once; CorruptShard with the name `told` where they are damaged."""
    return pieces if packing is None else _unpacked(pieces, packing, told)


def _unpacked(pieces: Iterator[Piece], packing: str, told: str) -> Iterator[Piece]:
    first = next(pieces, b"")
    if known := seen_packed(packing, bytes(first[:BEGIN])):
        raise CorruptShard(f"{told}: {known}", shard=told, offset=0)
    pieces = chain([first], pieces)
    yield from _unzstd(pieces, told) if packing == "zstd" else _inflated(pieces, packing, told)


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


def _inflated(pieces: Iterator[Piece], packing: str, told: str) -> Iterator[Piece]:
    growth, engine = _Growth(told), zlib.decompressobj(_HEADERS[packing])
    fresh = True
    for piece in pieces:
        growth.taken(len(piece))
        data: Piece = piece
        while data:
            if fresh and not bytes(data[:2]).strip(b"\0"):
                break  # padding after the last member
            try:
                out = engine.decompress(data, PIECE)
            except zlib.error as error:
                raise _unpackable(told, packing, error) from error
            fresh = False
            growth.given(len(out))
            if out:
                yield out
            data = engine.unconsumed_tail
            if engine.eof:
                data, engine, fresh = engine.unused_data, zlib.decompressobj(_HEADERS[packing]), True
    if not fresh:
        raise _unpackable(told, packing, "it ends in the middle")


def _unzstd(pieces: Iterator[Piece], told: str) -> Iterator[Piece]:
    zstandard = _zstandard(told)
    growth = _Growth(told)
    # A reader, because it gives at most as much as it is asked for, however much a few bytes unpack to. Where the data end in the
    # middle it just ends, and then what is in it has no end either.
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
