"""The seam every storage backend fills: one stored file, read by ranges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import ReadError


@dataclass(frozen=True, slots=True)
class Stat:
    """The length of a file, and what identifies its content among past and future ones.

    `version` is the ETag (or Last-Modified) of a remote file, the modification time in nanoseconds of a local one.
    """

    size: int
    version: str


class Blob(ABC):
    """One stored file, opened when it is first needed, safe for many threads at once."""

    #: for messages; never holds a secret
    url: str
    #: the last part of its path
    name: str
    #: a gap of up to this many bytes is read along, because one more request would cost about as much
    gap: int = 1 << 18

    @abstractmethod
    def stat(self) -> Stat:
        """Size and version, as they were when first asked for."""

    @abstractmethod
    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill the whole view, or raise (RemoteError, ReadError, ShardChanged)."""

    @abstractmethod
    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview | bytes]:
        """From `offset` to the end, each byte once. A piece may be overwritten by the next."""

    def read_all(self, limit: int) -> bytes:
        """The whole of a small file; SourceNotFound when it is not there."""
        size = self.stat().size
        if size > limit:
            raise ReadError(f"{self.url}: has {size:,} bytes, more than the {limit:,} that are read at once", origin=self.url)
        data = bytearray(size)
        self.read_into(0, memoryview(data))
        return bytes(data)

    @abstractmethod
    def sibling(self, suffix: str) -> Blob:
        """The file next to it whose name is this one's and `suffix`; never cached."""

    def hold(self) -> int:
        """A descriptor of a local file with these very bytes at these very offsets, open until `release`; -1: there is none."""
        return -1

    def release(self, fd: int) -> None:
        """Give back what `hold` gave."""

    def close(self) -> None:
        """Close connections and descriptors; it may be used again."""
