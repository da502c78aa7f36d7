"""Decompresses shards piece by piece: gzip, zlib and zstd. What the data claim never makes it take more memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, Union

from ...errors import CorruptShard
from ...registry import needed
from ..sniff import BEGIN, seen_packed
from .zstd_frames import ZstdFrames

Piece = Union[bytes, memoryview]

#: bytes taken from a pipe or a file at once, and given at once
PIECE = 1 << 20
#: a compressed shard that grows by more than this factor, and by more than `FREE_BYTES`, is refused. Deflate ends at 1,032, and
#: nothing but zeros reaches about 1,028; empty masks of 1024 x 1024 reach 924, with one disc each 640, photographs 1.1. By zstd
#: zeros grow 21,000 times, masks with one disc each 2,300
MAX_RATIO = {"gzip": 1000, "zlib": 1000, "zstd": 5000}
#: few, where a bomb is hardly above the factor: with these, zeros are refused after about 40 MB
FREE_BYTES = {"gzip": 1 << 20, "zlib": 1 << 20, "zstd": 1 << 24}
#: bytes of one member or record that is read in sequence, and so held in memory, however large it says it is
MAX_MEMBER = 1 << 30
_ENDINGS = {
    ".gz": "gzip", ".tgz": "gzip", ".zlib": "zlib", ".zst": "zstd", ".zstd": "zstd", ".tzst": "zstd",
}  # fmt: skip
#: what zlib is to expect: a header of gzip's, or one of its own
_HEADERS = {"gzip": 31, "zlib": 15}
_CUT = "it ends in the middle"
#: bytes that zstd gets at once: so much may pass before growth is noticed
_ZSTD_READ = 1 << 14


def packing_of(name: str) -> str | None:
    """What a name says its bytes are packed with: ``gzip``, ``zlib`` or ``zstd``; None: they are not.

    >>> packing_of("a.tar.gz"), packing_of("a.tar")
    ('gzip', None)
    """
    lower = name.lower()
    return next((packing for ending, packing in _ENDINGS.items() if lower.endswith(ending)), None)


def check_unpacker(packing: str | None, told: str) -> None:
    """Raise MissingExtra if the compression of `told` is not supported here."""
    if packing == "zstd":
        _zstandard(told)


def unpacked(pieces: Iterator[Piece], packing: str | None, told: str) -> Iterator[Piece]:
    """The decompressed bytes, at most `PIECE` at once; CorruptShard with the name `told` if they are damaged."""
    return pieces if packing is None else _unpacked(pieces, packing, told)


def _unpacked(pieces: Iterator[Piece], packing: str, told: str) -> Iterator[Piece]:
    first = next(pieces, b"")
    if known := seen_packed(packing, bytes(first[:BEGIN])):
        raise CorruptShard(f"{told}: {known}", shard=told, offset=0)
    pieces = chain([first], pieces)
    yield from _unzstd(pieces, told) if packing == "zstd" else _inflated(pieces, packing, told)


class _Growth:
    """Notices a small file that unpacks without end."""

    def __init__(self, packing: str, told: str) -> None:
        self._packing, self._told, self._taken, self._given = packing, told, 0, 0

    def taken(self, count: int) -> None:
        self._taken += count

    def given(self, count: int) -> None:
        self._given += count
        ratio = MAX_RATIO[self._packing]
        if self._given > ratio * self._taken + FREE_BYTES[self._packing]:
            raise CorruptShard(
                f"{self._told}: {self._taken:,} bytes unpack to more than {self._given:,}, and {self._packing} may grow "
                f"{ratio:,} times; this looks like a decompression bomb; if you trust it, decompress it yourself",
                shard=self._told,
                offset=self._taken,
            )


def _inflated(pieces: Iterator[Piece], packing: str, told: str) -> Iterator[Piece]:
    growth, engine = _Growth(packing, told), zlib.decompressobj(_HEADERS[packing])
    fresh = True
    for piece in pieces:
        data: Piece = piece
        while data:
            if fresh and not data[0]:
                data = bytes(data).lstrip(b"\0")  # padding after the last member, which begins with no zero
                continue
            try:
                out = engine.decompress(data, PIECE)
            except zlib.error as error:
                raise _unpackable(told, packing, error) from error
            rest = engine.unused_data if engine.eof else engine.unconsumed_tail
            growth.taken(len(data) - len(rest))
            growth.given(len(out))
            if out:
                yield out
            data, fresh = rest, engine.eof
            if fresh:
                engine = zlib.decompressobj(_HEADERS[packing])
    if not fresh:
        raise _unpackable(told, packing, _CUT)


def _unzstd(pieces: Iterator[Piece], told: str) -> Iterator[Piece]:
    zstandard = _zstandard(told)
    growth, frames = _Growth("zstd", told), ZstdFrames()
    # A reader, because it gives at most as much as it is asked for, however much a few bytes unpack to. Where the data end in the
    # middle it just ends; so whether that is the end of a frame is found out beside it.
    with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        _Reading(pieces, growth, frames), read_size=_ZSTD_READ, read_across_frames=True
    ) as reader:
        while True:
            try:
                out = reader.read(PIECE)
            except zstandard.ZstdError as error:
                raise _unpackable(told, "zstd", error) from error
            if not out:
                break
            growth.given(len(out))
            yield out
    if not frames.whole:
        raise _unpackable(told, "zstd", _CUT)


def _zstandard(told: str) -> Any:
    return needed("zstandard", "zstd", told)


class _Reading:
    """Pieces as a file to read from."""

    def __init__(self, pieces: Iterator[Piece], growth: _Growth, frames: ZstdFrames) -> None:
        self._pieces, self._growth, self._frames = pieces, growth, frames
        self._rest: memoryview = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        rest = self._rest or memoryview(bytes(next(self._pieces, b"")))
        out = bytes(rest[:size]) if size >= 0 else bytes(rest)
        self._rest = rest[len(out) :]
        self._growth.taken(len(out))
        self._frames.take(out)
        return out


def _unpackable(told: str, kind: str, why: object) -> CorruptShard:
    return CorruptShard(f"{told}: cannot be unpacked as {kind}: {why}; fetch or make it again", shard=told)
