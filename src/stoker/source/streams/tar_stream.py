"""Tar shards read from the first byte to the last: pipes, compressed shards, and shards read without an index."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptShard
from ...kernel.records import TarScan
from ...sizes import show_bytes
from ...storage.blob import Blob
from ..paths import printable
from ..sniff import BEGIN, GZIP, ZSTD, seen_as
from . import unpack
from .unpack import Piece, packing_of, unpacked

_BLOCK = 512
#: when so much is held, what the member says of its size is looked at
_LOOK = 1 << 24
#: bytes that the headers in front of a member's content may take
_HEADERS = 1 << 22


@dataclass(frozen=True, slots=True)
class TarSample:
    """One sample of a tar: its key, its fields' bytes, the place of its first header, and where the bytes after it begin."""

    key: bytes
    fields: dict[str, bytes]
    offset: int
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all its fields."""
        return sum(map(len, self.fields.values()))


def tar_samples(pieces: Iterable[Piece], told: str) -> Iterator[TarSample]:
    """The samples of a tar that comes in pieces, in order. Memory: the largest sample, of members of up to `unpack.MAX_MEMBER`.

    Strict: whatever contradicts the format raises CorruptShard with the place, and so does an archive without its end. `told`
    names the shard in messages.
    """
    return _Samples(told).of(pieces)


def is_compressed(name: str) -> bool:
    """Whether a name says that its bytes must be unpacked, and so cannot be read at random."""
    return packing_of(name) is not None


def open_pieces(blob: Blob) -> Iterator[Piece]:
    """The bytes of a tar shard, unpacked where its name says that it is packed."""
    return unpacked(blob.stream(0, unpack.PIECE), packing_of(blob.name), blob.url)


def standard_input() -> Iterator[Piece]:
    """The bytes of standard input, decompressed if they begin like gzip or zstd."""
    stream: Any = sys.stdin.buffer
    first = stream.peek(4)[:4]
    packing = "gzip" if first.startswith(GZIP) else "zstd" if first.startswith(ZSTD) else None
    return unpacked(iter(lambda: stream.read1(unpack.PIECE), b""), packing, "standard input")


class _Samples:
    """Cuts samples out of the pieces. Bytes are kept from the end of the last member on, because the next may have begun."""

    def __init__(self, told: str) -> None:
        self._told = told
        self._scan = TarScan(checksums=False)
        self._held = bytearray()
        self._base = 0  # offset of the first held byte in the tar
        self._look = _LOOK  # when so much is held, its size is looked at
        self._number = -1  # of the sample being gathered
        self._key = b""
        self._fields: dict[str, bytes] = {}
        self._offset = self._start = 0
        self._names: tuple[str, ...] = ()

    def of(self, pieces: Iterable[Piece]) -> Iterator[TarSample]:
        begin = b""
        for piece in pieces:
            begin = begin or bytes(piece[:BEGIN])
            yield from self._take(piece, begin)
        if not begin:
            raise CorruptShard(
                f"{self._told}: is empty (even a tar without samples has an end mark); fetch or make it again", shard=self._told
            )
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
            self._drop(self._scan.position)  # nothing but zeros comes after the end, perhaps without end
        elif len(self._held) > self._look:
            self._check_size()

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
                self._number, self._fields, self._offset, self._start = number, {}, header, start
                self._key = names[bounds[number - first] : bounds[number - first + 1]].tobytes()
            at = start - self._base
            self._fields[self._names[field]] = bytes(memoryview(self._held)[at : at + length])
        self._scan.forget(self._number)
        self._drop(start + length)

    def _drop(self, before: int) -> None:
        del self._held[: before - self._base]
        self._base, self._look = before, _LOOK

    def _check_size(self) -> None:
        """Refuse a member that is too large to be held: when that much has come, and as soon as its header can be read."""
        at, most = -self._base % _BLOCK, unpack.MAX_MEMBER
        name, size = _first_member(bytes(memoryview(self._held)[at : at + _HEADERS]))
        if max(size, len(self._held) - _HEADERS) > most:
            raise CorruptShard(
                f"{self._told}: the member {name!r} at byte {self._base + at:,} has more than {show_bytes(most)}, the most that "
                "is read in sequence; decompress the shard and read it with an index, or store the member in parts",
                shard=self._told,
                offset=self._base + at,
            )
        self._look = most + _HEADERS

    def _sample(self) -> TarSample:
        return TarSample(self._key, self._fields, self._offset, self._start)

    def _named(self, error: CorruptShard, begin: bytes) -> CorruptShard:
        known = seen_as("tar", begin) if (error.offset or 0) < BEGIN else ""
        return CorruptShard(f"{self._told}: {known or error}", shard=self._told, offset=error.offset)


def _first_member(begin: bytes) -> tuple[str, int]:
    """Name and size of the member whose headers these bytes begin with; for a message, so that nothing is checked again."""
    try:
        with tarfile.open(fileobj=io.BytesIO(begin), mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
            first = archive.next()
    except tarfile.TarError:
        first = None
    return ("", 0) if first is None else (printable(first.name.encode("utf-8", "surrogateescape")), first.size)
