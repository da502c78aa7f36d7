"""A file read through a cache, and the entries it is cut into."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import RemoteError, StokerError
from .blob import Blob, Stat
from .remote import RemoteBlob

if TYPE_CHECKING:
    from .cache import Cache

#: bytes asked for at once while a block is fetched
_REQUEST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """What the cache keeps or drops as one: `length` bytes of a blob from `start` on. Entries of the same bytes are equal."""

    name: str
    digest: bytes = field(compare=False, repr=False)
    blob: Blob = field(compare=False, repr=False)
    start: int = field(compare=False)
    length: int = field(compare=False)


class CachedBlob(Blob):
    """A file read through a cache. Index files next to it, and a file whose server reports no version, are not cached."""

    gap = 1 << 14

    def __init__(self, cache: Cache, inner: Blob) -> None:
        self._cache, self._inner = cache, inner
        self.url, self.name = inner.url, inner.name
        self._entries: list[CacheEntry] | None = None

    @property
    def cache(self) -> Cache:
        return self._cache

    def stat(self) -> Stat:
        return self._inner.stat()

    def entries(self, offset: int = 0, length: int | None = None) -> Sequence[CacheEntry]:
        """The entries that contain some bytes (by default all), in order: what `Cache.foresee` takes."""
        entries = self._all_entries()
        if length is None:
            length = self.stat().size - offset
        if not entries or length <= 0:
            return ()
        size = entries[0].length
        return entries[offset // size : (offset + length - 1) // size + 1]

    def read_into(self, offset: int, view: memoryview) -> None:
        view = view.cast("B")
        if offset < 0 or offset + len(view) > self.stat().size:
            self._inner.read_into(offset, view)  # says what is wrong
            return
        entries = self.entries(offset, len(view))
        if not entries:
            self._inner.read_into(offset, view)
        for entry in entries:
            first = max(offset, entry.start)
            part = view[first - offset : entry.start + entry.length - offset]
            if not self._cache.read(entry, first - entry.start, part):
                self._inner.read_into(first, part)

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview | bytes]:
        """Pieces in one buffer, which the next piece overwrites."""
        buffer = memoryview(bytearray(piece))
        for entry in self.entries(offset):
            while offset < entry.start + entry.length:
                view = buffer[: entry.start + entry.length - offset]
                if not self._cache.read(entry, offset - entry.start, view, in_order=True):
                    yield from self._inner.stream(offset, piece)
                    return
                yield view
                offset += len(view)
        if offset < self.stat().size:
            yield from self._inner.stream(offset, piece)

    def read_all(self, limit: int) -> bytes:
        return self._inner.read_all(limit)

    def sibling(self, suffix: str) -> Blob:
        return self._inner.sibling(suffix)

    def hold(self) -> int:
        try:
            entries = self._all_entries()
            return self._cache.hold(entries[0]) if len(entries) == 1 else -1
        except StokerError:
            return -1  # reported when it is read

    def release(self, fd: int) -> None:
        self._cache.release(fd)

    def close(self) -> None:
        self._inner.close()

    def __repr__(self) -> str:
        return f"CachedBlob({self.url!r})"

    def __reduce__(self) -> tuple[type[CachedBlob], tuple[Cache, Blob]]:
        return CachedBlob, (self._cache, self._inner)

    def _all_entries(self) -> list[CacheEntry]:
        entries = self._entries
        if entries is None:
            entries = self._entries = self._make_entries()
        return entries

    def _make_entries(self) -> list[CacheEntry]:
        stat, block = self.stat(), self._cache.block
        if not stat.version:
            message = (
                "%s is read past the cache: the server sends neither ETag nor Last-Modified, so an old copy could not be detected"
            )
            self._cache.warn_once("version", message, self.url)
            return []
        address = self._inner.address if isinstance(self._inner, RemoteBlob) else self.url
        entries = []
        for start in range(0, stat.size, block or stat.size or 1):
            length = min(block or stat.size, stat.size - start)
            text = "\0".join((address, stat.version, str(stat.size), str(start), str(length)))
            digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
            entries.append(CacheEntry(digest.hex()[:48], digest, self._inner, start, length))
        return entries


def pieces(entry: CacheEntry) -> Iterator[memoryview | bytes]:
    """An entry's bytes from their origin. A whole file is one request, a block one for each `_REQUEST_BYTES`."""
    if not entry.start and entry.length == entry.blob.stat().size:
        try:
            yield from entry.blob.stream()
        except RemoteError as error:
            error.moved = False  # nothing else of the file can be had through the cache either
            raise
        return
    buffer = memoryview(bytearray(min(entry.length, _REQUEST_BYTES)))
    for start in range(entry.start, entry.start + entry.length, len(buffer)):
        view = buffer[: entry.start + entry.length - start]
        entry.blob.read_into(start, view)
        yield view
