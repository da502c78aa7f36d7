"""Verbs over samples that are counted as they come: `take`, `skip` and the window shuffle after a `filter` or on a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from ..kernel import native
from ..plan.nodes import Shuffle, Skip, Take
from ..plan.order import window_blocks
from ..plan.seeds import key_of
from ..source.chunk import Chunk, join_chunks


class Tail(ABC):
    """Chunks in, chunks out, in order."""

    #: it needs nothing more: what goes in now would not come out
    full = False

    @abstractmethod
    def push(self, chunk: Chunk) -> list[Chunk]: ...

    def end(self) -> list[Chunk]:
        """What was held back, now that nothing more comes in."""
        return []


class TakeTail(Tail):
    def __init__(self, count: int) -> None:
        self._left = count
        self.full = count == 0

    def push(self, chunk: Chunk) -> list[Chunk]:
        rows = min(self._left, len(chunk))
        self._left -= rows
        self.full = self._left == 0
        return [chunk if rows == len(chunk) else chunk.take(np.arange(rows))] if rows else []


class SkipTail(Tail):
    def __init__(self, count: int) -> None:
        self._left = count

    def push(self, chunk: Chunk) -> list[Chunk]:
        rows = min(self._left, len(chunk))
        self._left -= rows
        return [chunk.take(np.arange(rows, len(chunk)))] if rows < len(chunk) else []


class BlockShuffleTail(Tail):
    """One of the two passes of a window shuffle, over rows as they come; see `plan.order.window_shuffle`."""

    def __init__(self, block: int, shift: int, key: int) -> None:
        self._block, self._key = block, key
        self._held: list[Chunk] = []
        self._number = 1 if shift == block else 0
        self._size = block - shift or block

    def push(self, chunk: Chunk) -> list[Chunk]:
        self._held.append(chunk)
        out = []
        while sum(map(len, self._held)) >= self._size:
            rows = join_chunks(self._held)
            out.append(self._permuted(rows.take(np.arange(self._size))))
            self._held = [rows.take(np.arange(self._size, len(rows)))]
            self._number, self._size = self._number + 1, self._block
        return out

    def end(self) -> list[Chunk]:
        rows = join_chunks(self._held) if self._held else None
        self._held = []
        return [self._permuted(rows)] if rows is not None and len(rows) else []

    def _permuted(self, rows: Chunk) -> Chunk:
        return rows.take(native.permute(len(rows), key_of(self._key, self._number), np.arange(len(rows))))


class Tails:
    """Several of them in a row."""

    def __init__(self, nodes: Iterable[Take | Skip | Shuffle], epoch: int) -> None:
        self._tails: list[Tail] = []
        for node in nodes:
            if isinstance(node, Take):
                self._tails.append(TakeTail(node.count))
            elif isinstance(node, Skip):
                self._tails.append(SkipTail(node.count))
            else:
                passes = window_blocks(node.window or 1, node.seed, node.epoch_of(epoch))
                self._tails += [BlockShuffleTail(*pass_) for pass_ in reversed(passes)]

    @property
    def full(self) -> bool:
        return any(tail.full for tail in self._tails)

    def push(self, chunk: Chunk) -> list[Chunk]:
        return self._through(0, [chunk])

    def end(self) -> list[Chunk]:
        out: list[Chunk] = []
        for at, tail in enumerate(self._tails):
            out += self._through(at + 1, tail.end())
        return out

    def _through(self, at: int, chunks: list[Chunk]) -> list[Chunk]:
        for tail in self._tails[at:]:
            chunks = [out for chunk in chunks if len(chunk) for out in tail.push(chunk)]
        return chunks
