"""Blocks of remote files in memory, fetched ahead of the plan: remote storage at the speed of a local disk, without a cache.

A request per sample costs its time to the first byte, and a tenth of a millisecond on a core. If the order needs neighbouring
samples within a short time (in sequence, in a window, or because all of it fits in memory), blocks of some megabytes are fetched
instead, each once. Threads next to the workers do that, in the order of need; a block is dropped when nothing foreseen needs it.

A block that cannot be had, for lack of room or because its server failed, is not an error: its records are read one by one, and
those that fail are named then. The memory of blocks is reused, also by the next loader, because new pages from the system for
each block cost more than receiving it (measured: three times as much).

Invariant: blocks that are here or on their way never take more than `limit` bytes.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..errors import StokerError
from ..kernel.file_reads import Buffers
from ..kernel.library import place
from ..kernel.records import Blocks
from .fetch import Ints
from .remote import RemoteBlob

#: bytes of a block: the first of these with which all that is needed at once fits. A request costs both sides, so few are better
BLOCKS = (8 << 20, 4 << 20)
#: the number of a block within its file is in the lower bits of its key
_BITS = 32
#: bytes for which blocks are fetched before anybody needs them, but no more than a quarter of the limit
_AHEAD_BYTES = 128 << 20
#: the longest wait for a block, and while not a byte of any comes; then its records are read one by one. With the patience that
#: takes, a server that is silent is named before the loader's watchdog speaks, which does not know it
_WAIT_S, _SILENCE_S = 20.0, 10.0
#: how often those who wait look up
_LOOK_S = 0.1
_HUGE = 2 << 20


def _huge_pages(nbytes: int) -> NDArray[np.uint8]:
    """Memory that begins where a huge page does: the system gives those in a fraction of the time."""
    try:
        # Private: of memory that processes could share, the system makes no huge pages unless it was configured to.
        pages = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    first = -memory.ctypes.data % _HUGE
    return memory[first : first + nbytes]


def _offer(memory: NDArray[np.uint8]) -> None:
    """Let the system have this memory if it runs short, until it is written to again; that costs nothing where it did not."""
    whole = cast("NDArray[np.uint8]", memory.base)
    pages = getattr(whole.base, "obj", None)
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_FREE"):
        with suppress(OSError):
            pages.madvise(mmap.MADV_FREE, memory.ctypes.data - whole.ctypes.data, memory.size)


#: memory of blocks, kept for the loaders that come: so much as one of the usual `memory` takes
MEMORY = Buffers(512 << 20, _huge_pages)
os.register_at_fork(after_in_child=MEMORY.renew_lock)  # a thread of the parent may have held it


class _Block:
    """A block that is here, or on its way."""

    __slots__ = ("here", "length", "memory", "place", "readers")

    def __init__(self, memory: NDArray[np.uint8], length: int) -> None:
        self.memory, self.length, self.here, self.readers = memory, length, False, 0
        self.place = place(memory)


class HeldBlocks:
    """Blocks that stay until they are released, for the native library to read; `waited_s` went by until they were there."""

    __slots__ = ("_ahead", "_held", "blocks", "waited_s")

    def __init__(self, ahead: ReadAhead, held: dict[int, _Block], waited_s: float) -> None:
        self._ahead, self._held, self.waited_s = ahead, held, waited_s
        keys = sorted(held)
        there = [held[key] for key in keys]
        self.blocks = Blocks(ahead.block, keys, [block.place for block in there], [block.length for block in there])

    def release(self) -> None:
        self._ahead._let_go(self._held)


class ReadAhead:
    """The blocks of some remote files that are needed next, at most `limit` bytes of them. For one loader."""

    def __init__(self, blobs: Sequence[RemoteBlob], limit: int, block: int) -> None:
        self._blobs, self._limit, self.block = blobs, limit, block
        self._process = os.getpid()
        lock = threading.RLock()  # guards what follows; its owner never waits for the network
        self._moved = threading.Condition(lock)  # blocks have come, or will not; for those who read
        self._more = threading.Condition(lock)  # there is more to fetch, or memory for it; for those who fetch
        self._blocks: dict[int, _Block] = {}
        self._free: list[NDArray[np.uint8]] = []  # memory of blocks that are gone
        self._needed: set[int] = set()
        self._coming: deque[int] = deque()
        self._urgent: deque[int] = deque()
        self._failed: set[int] = set()  # not tried again until more is foreseen
        self._fetchers = 0
        self._moved_s = 0.0  # when bytes of some block came last

    # ---- what the source calls ---------------------------------------------------------------------------------------------

    def cost(self, files: Ints, starts: Ints, stops: Ints) -> tuple[int, int]:
        """How many blocks contain these spans, and their bytes."""
        blocks = np.unique(self._keys(files, starts, stops)[0])
        sizes = {int(file): self._blobs[file].stat().size for file in np.unique(files)}
        return len(blocks), sum(min(self.block, sizes[int(key) >> _BITS] - self._start(int(key))) for key in blocks)

    def holds(self, files: Ints, starts: Ints, stops: Ints) -> bool:
        """Whether all blocks that contain these spans fit at once."""
        return len(files) > 0 and self.cost(files, starts, stops)[0] * self.block <= self._limit

    def foresee(self, files: Ints, starts: Ints, stops: Ints, lead: int = 0) -> None:
        """Spans of files that will be read, in this order; the first `lead` of them soon. Earlier announcements are dropped.

        If none are foreseen, threads that were asked to stop do so at once.
        """
        keys, spans = self._keys(files, starts, stops)
        blocks, at = np.unique(keys, return_index=True)
        # In the order in which they are first needed, as far as is to be fetched before that.
        order = np.argsort(at)
        soon = lead + np.searchsorted(np.cumsum(stops[lead:] - starts[lead:]), min(_AHEAD_BYTES, self._limit // 4))
        coming = blocks[order[spans[at[order]] <= soon]]
        with self._moved:
            self._needed = set(blocks.tolist())
            self._coming = deque(key for key in coming.tolist() if key not in self._blocks)
            self._failed.clear()
            self._drop(self._blocks)
            self._more.notify(len(self._coming) if self._needed else self._fetchers)

    def hold(self, files: Ints, starts: Ints, stops: Ints) -> HeldBlocks | None:
        """The blocks in which these spans lie, those waited for that are on their way; None: they are to be read from where
        they are."""
        keys: set[int] = set()
        for file, start, stop in zip(files.tolist(), starts.tolist(), stops.tolist()):
            if stop > start:
                keys.update(range(file << _BITS | start // self.block, (file << _BITS | (stop - 1) // self.block) + 1))
        begun = time.monotonic()
        held = self._hold(keys)
        return None if held is None else HeldBlocks(self, held, time.monotonic() - begun)

    def _keys(self, files: Ints, starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
        """The blocks in which spans lie, one span after the other, and the number of the span each is of."""
        first, last = starts // self.block, np.maximum(stops - 1, starts) // self.block
        counts = last - first + 1
        spans = np.repeat(np.arange(len(files)), counts)
        within = np.arange(len(spans)) - np.repeat(np.cumsum(counts) - counts, counts)
        return ((files << _BITS) | first)[spans] + within, spans

    def _start(self, key: int) -> int:
        """Where in its file a block begins."""
        return (key & ((1 << _BITS) - 1)) * self.block

    def _hold(self, keys: Collection[int]) -> dict[int, _Block] | None:
        if self._process != os.getpid():
            return None  # a forked child has none of the threads that fetch
        begun = time.monotonic()
        with self._moved:
            while missing := [key for key in keys if (block := self._blocks.get(key)) is None or not block.here]:
                asked = [key for key in missing if key not in self._blocks]
                if any(key not in self._needed for key in asked) or not self._failed.isdisjoint(missing):
                    return None
                if asked and not self._fetchers:
                    return None
                if new := [key for key in asked if key not in self._urgent]:
                    self._urgent.extend(new)
                    self._more.notify(len(new))
                if time.monotonic() > min(begun + _WAIT_S, max(begun, self._moved_s) + _SILENCE_S):
                    self._failed.update(missing)  # for everybody who would wait next
                    return None
                self._moved.wait(_LOOK_S)
            held = {key: self._blocks[key] for key in keys}
            for block in held.values():
                block.readers += 1
            return held

    def _let_go(self, held: dict[int, _Block]) -> None:
        with self._moved:
            for block in held.values():
                block.readers -= 1
            self._drop(held)

    # ---- what threads beside the workers do --------------------------------------------------------------------------------

    def fetch_ahead(self, stop: threading.Event) -> None:
        """Fetch what is needed next until `stop` is set; several threads may do so. The last one leaves nothing here."""
        with self._moved:
            self._fetchers += 1
        try:
            while True:
                with self._more:
                    if stop.is_set():
                        return
                    if (key := self._choose()) is None:
                        self._more.wait(_LOOK_S)
                        continue
                self._fetch(key, stop)
        finally:
            with self._moved:
                self._fetchers -= 1
                if not self._fetchers:
                    self._needed = set()
                    self._coming.clear()
                    self._urgent.clear()
                    self._drop(self._blocks)
                    for memory in self._free:
                        _offer(memory)
                    self._free.clear()
                self._moved.notify_all()

    def _choose(self) -> int | None:
        """The block to fetch now, with memory for it; None: there is none."""
        for queue in (self._urgent, self._coming):
            while queue:
                key = queue[0]
                if key not in self._blocks and key not in self._failed and key in self._needed:
                    if (memory := self._memory()) is not None:
                        length = min(self.block, self._blobs[key >> _BITS].stat().size - self._start(key))
                        self._blocks[queue.popleft()] = _Block(memory, length)
                        return key
                    if queue is self._coming or any(self._passing(*block) for block in self._blocks.items()):
                        return None
                    self._failed.add(key)  # who needs it reads its records
                    self._moved.notify_all()
                queue.popleft()
        return None

    def _memory(self) -> NDArray[np.uint8] | None:
        """Memory for a block; None: there is no room."""
        if self._free:
            return self._free.pop()
        if (len(self._blocks) + 1) * self.block > self._limit:
            return None
        try:
            return MEMORY.take(self.block, slack=1)
        except MemoryError:
            return None

    def _fetch(self, key: int, stop: threading.Event) -> None:
        block, blob, start = self._blocks[key], self._blobs[key >> _BITS], self._start(key)
        try:
            view = cast(memoryview, memoryview(block.memory))  # type: ignore[arg-type]
            blob.read_into(start, view[: block.length], stop, self._note_bytes)
            block.here = True
        except (StokerError, OSError):
            pass  # its records are read one by one, and say what is wrong
        finally:
            with self._moved:
                if block.here:
                    self._failed.discard(key)
                else:
                    self._failed.add(key)
                    self._free.append(self._blocks.pop(key).memory)
                self._moved.notify_all()

    def _note_bytes(self) -> None:
        self._moved_s = time.monotonic()

    def _drop(self, keys: Collection[int]) -> None:
        """Have the memory of those blocks back that nothing foreseen needs, and nobody reads."""
        for key in list(keys):
            block = self._blocks.get(key)
            if block is not None and block.here and not block.readers and key not in self._needed:
                self._free.append(self._blocks.pop(key).memory)
        if self._free and (self._coming or self._urgent):
            self._more.notify(len(self._free))

    def _passing(self, key: int, block: _Block) -> bool:
        """Whether a block goes as soon as those who read it now have done so."""
        return block.readers > 0 and key not in self._needed
