"""A file reached over a network, as a `Blob`: one backend (`Remote`) and the retries to read it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from ..errors import RemoteError, ShardChanged
from .blob import Blob, Stat
from .fork import after_fork
from .retry import Clock, Patience, RangeReader, Remote, ask, read_range
from .traffic import Traffic


class RemoteBlob(Blob):
    """One remote file. Any number of threads may read it; each read is a separate request."""

    def __init__(self, remote: Remote, patience: Patience | None = None, clock: Clock | None = None) -> None:
        self._remote = remote
        self._patience = patience or Patience()
        self._clock = clock or Clock()
        self.url, self.name, self.address = remote.url, remote.name, remote.address
        self._stat: Stat | None = None
        self._closing = threading.Event()
        #: of `read_into` in this process
        self.traffic = Traffic()
        self._renew()
        after_fork(self, RemoteBlob._renew)

    def stat(self) -> Stat:
        with self._lock:  # so that many threads ask once
            if self._stat is None:
                self._stat = ask(
                    self._remote,
                    lambda limit_s: self._remote.head(self._patience, limit_s),
                    self._patience,
                    self._clock,
                    self._closing,
                )
            return self._stat

    def read_into(
        self,
        offset: int,
        view: memoryview,
        stopped: threading.Event | None = None,
        moved: Callable[[], None] | None = None,
    ) -> None:
        """Fill the whole view, or raise; soon after `stopped` is set, in place of `close`, unless nothing comes at all.

        `moved` is called whenever some bytes have come.
        """
        if not view.nbytes:
            return
        stat, stop = self._covering(offset, offset + view.nbytes), offset + view.nbytes
        stopped = stopped or self._closing
        took = read_range(self._remote, offset, stop, view.cast("B"), stat, self._patience, self._clock, stopped, moved)
        with self._counting:
            self.traffic = self.traffic.and_also(took)

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview]:
        """Pieces in one buffer, which the next piece overwrites; one request, unless it breaks."""
        size = self.stat().size
        buffer = memoryview(bytearray(min(piece, max(0, size - offset))))
        reader = RangeReader(self._remote, offset, size, self.stat(), self._patience, self._clock, self._closing)
        try:
            while reader.at < size:
                view = buffer[: size - reader.at]
                reader.fill(view)
                yield view
        finally:
            reader.close()

    def read_all(self, limit: int) -> bytes:
        size = self.stat().size
        if size > limit:
            raise RemoteError(f"{self.url}: has {size:,} bytes, more than the {limit:,} that are read at once", url=self.url)
        data = bytearray(size)
        self.read_into(0, memoryview(data))
        return bytes(data)

    def sibling(self, suffix: str) -> RemoteBlob:
        return RemoteBlob(self._remote.sibling(suffix), self._patience, self._clock)

    def close(self) -> None:
        """Close idle connections and end running reads; it may be used again."""
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._remote.close()

    def __repr__(self) -> str:
        return f"RemoteBlob({self.url!r})"

    def __reduce__(self) -> tuple[Callable[..., RemoteBlob], tuple[Remote, Patience, Stat | None]]:
        return _known_blob, (self._remote, self._patience, self._stat)  # which need not be asked for again

    def _covering(self, start: int, stop: int) -> Stat:
        stat = self.stat()
        if not 0 <= start <= stop <= stat.size:
            raise ShardChanged(
                f"{self.url}: has {stat.size:,} bytes, but {start:,} to {stop:,} were requested; its index belongs to "
                "another file",
                shard=self.url,
                offset=start,
            )
        return stat

    def _renew(self) -> None:
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._closing = threading.Event()


def _known_blob(remote: Remote, patience: Patience, stat: Stat | None) -> RemoteBlob:
    blob = RemoteBlob(remote, patience)
    blob._stat = stat
    return blob
