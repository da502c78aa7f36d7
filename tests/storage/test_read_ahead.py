"""Blocks of remote files, read ahead into memory: the same bytes, each block once, never more memory than is allowed."""

from __future__ import annotations

import inspect
import mmap
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.engine.background import Background
from stoker.errors import RemoteError
from stoker.kernel.file_reads import Arena, Buffers
from stoker.kernel.records import RecordTable
from stoker.storage import read_ahead
from stoker.storage.blob import Blob, Stat
from stoker.storage.read_ahead import ReadAhead
from stoker.storage.retry import Patience

BLOCK = 4096


class Remembering(Blob):
    """Bytes of a remote file, and which of them were asked for."""

    def __init__(self, number: int, size: int) -> None:
        self.url = self.name = f"{number}"
        self.data = np.random.default_rng(number).integers(0, 256, size, np.uint8)
        self.asked: list[int] = []
        self.broken: set[int] = set()
        self.open = threading.Event()
        self.open.set()

    def stat(self) -> Stat:
        return Stat(len(self.data), "1")

    def read_into(
        self, offset: int, view: memoryview, stopped: threading.Event | None = None, moved: Callable[[], None] | None = None
    ) -> None:
        assert self.open.wait(60)
        self.asked.append(offset)
        if offset // BLOCK in self.broken:
            raise RemoteError("it broke", url=self.url)
        view[:] = memoryview(self.data)[offset : offset + len(view)]

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[bytes]:
        raise AssertionError("nobody streams")

    def sibling(self, suffix: str) -> Blob:
        raise AssertionError("nobody asks for one")


@contextmanager
def fetching(ahead: ReadAhead, threads: int = 3) -> Iterator[None]:
    background = Background(ahead.fetch_ahead, threads, "stoker-test")
    try:
        with ahead._moved:
            assert ahead._moved.wait_for(lambda: ahead._fetchers == threads, 60)
        yield
    finally:
        background.close()


def spans_of(blobs: list[Remembering], length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All bytes of some files in spans, in sequence."""
    places = [(file, start) for file, blob in enumerate(blobs) for start in range(0, len(blob.data) - length + 1, length)]
    files, starts = (np.array(column, np.int64) for column in zip(*places))
    return files, starts, starts + length


def read(ahead: ReadAhead, files: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> list[bytes] | None:
    held = ahead.hold(files, starts, stops)
    if held is None:
        return None
    order, arena, count = np.argsort(files, kind="stable"), Arena(), len(files)
    ends = np.searchsorted(files[order], np.arange(files.max() + 1), side="right")
    table = RecordTable(starts[order][:, None], (stops - starts)[order][:, None], None, ends)
    try:
        rows, field = np.argsort(order), np.zeros(1, np.int64)
        at, lengths, status = table.read(np.full(len(ends), -1, np.int32), rows, field, arena, blocks=held.blocks)
    finally:
        held.release()
    assert not status.any() and len(at) == count
    return [arena.buffer[at : at + length].tobytes() for at, length in zip(at[:, 0].tolist(), lengths[:, 0].tolist())]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_spans_in_any_order_are_the_bytes_of_the_files_and_memory_is_bounded(data: st.DataObject) -> None:
    blobs = [Remembering(number, data.draw(st.integers(1, 5 * BLOCK))) for number in range(3)]
    count = data.draw(st.integers(1, 40))
    picks = np.random.default_rng(data.draw(st.integers(0, 99)))
    files = picks.integers(0, 3, count)
    sizes = np.array([len(blob.data) for blob in blobs])[files]
    starts = picks.integers(0, sizes)
    stops = np.minimum(starts + picks.integers(0, 2 * BLOCK, count), sizes)
    limit = data.draw(st.integers(1, 12)) * BLOCK
    ahead = ReadAhead(blobs, limit, BLOCK)
    with fetching(ahead):
        for first in range(0, count, 4):
            part = slice(first, first + 4)
            ahead.foresee(files[first:], starts[first:], stops[first:], lead=data.draw(st.integers(0, 8)))
            found = read(ahead, files[part], starts[part], stops[part])
            with ahead._moved:
                assert (len(ahead._blocks) + len(ahead._free)) * BLOCK <= limit
            if found is not None:
                wanted = [blobs[f].data[a:b].tobytes() for f, a, b in zip(files[part], starts[part], stops[part])]
                assert found == wanted
    assert not ahead._blocks and not ahead._free, "nothing is kept when nobody fetches any more"


def test_in_sequence_every_block_is_fetched_once_whatever_part_of_it_fits() -> None:
    blobs = [Remembering(number, 20 * BLOCK + 17) for number in range(4)]
    files, starts, stops = spans_of(blobs, 700)
    ahead = ReadAhead(blobs, 8 * BLOCK, BLOCK)
    with fetching(ahead):
        for first in range(0, len(files), 8):
            ahead.foresee(files[first : first + 40], starts[first : first + 40], stops[first : first + 40])
            part = slice(first, first + 8)
            wanted = [blobs[f].data[a:b].tobytes() for f, a, b in zip(files[part], starts[part], stops[part])]
            assert read(ahead, files[part], starts[part], stops[part]) == wanted
    assert [sorted(blob.asked) for blob in blobs] == [list(range(0, 20 * BLOCK, BLOCK))] * 4


def test_blocks_are_read_where_those_that_are_needed_soon_fit() -> None:
    blobs = [Remembering(number, 100 * BLOCK) for number in range(4)]
    files, starts, stops = spans_of(blobs, 512)
    ahead = ReadAhead(blobs, 64 * BLOCK, BLOCK)
    assert ahead.holds(files[:200], starts[:200], stops[:200]) and ahead.cost(files, starts, stops) == (400, 400 * BLOCK)
    mixed = np.random.default_rng(0).permutation(len(files))[:200]
    assert not ahead.holds(files[mixed], starts[mixed], stops[mixed]), "from each block a little"
    assert not ReadAhead(blobs, 4 * BLOCK, BLOCK).holds(files[:200], starts[:200], stops[:200]), "there is no room"
    assert not ahead.holds(files[:0], starts[:0], stops[:0])


def test_a_block_that_cannot_be_had_leaves_its_records_to_be_read_one_by_one() -> None:
    blob = Remembering(0, 4 * BLOCK)
    blob.broken = {1}
    files, starts, stops = spans_of([blob], BLOCK)
    ahead = ReadAhead([blob], 64 * BLOCK, BLOCK)
    with fetching(ahead):
        ahead.foresee(files, starts, stops)
        assert read(ahead, files[:1], starts[:1], stops[:1]) == [blob.data[:BLOCK].tobytes()]
        assert read(ahead, files[1:2], starts[1:2], stops[1:2]) is None
        assert read(ahead, files[2:], starts[2:], stops[2:]) is not None
        asked = len(blob.asked)
        assert read(ahead, files[1:2], starts[1:2], stops[1:2]) is None and len(blob.asked) == asked, "not again and again"
        blob.broken = set()
        ahead.foresee(files, starts, stops)
        assert read(ahead, files, starts, stops) is not None, "but when more is foreseen"


@pytest.mark.parametrize("limit", ["_WAIT_S", "_SILENCE_S"])
def test_what_nobody_foresaw_or_fetches_is_not_waited_for(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WAIT_S", "_SILENCE_S"):
        monkeypatch.setattr(read_ahead, name, 3600.0)
    blob = Remembering(0, 4 * BLOCK)
    files, starts, stops = spans_of([blob], BLOCK)
    ahead = ReadAhead([blob], 64 * BLOCK, BLOCK)
    ahead.foresee(files, starts, stops)
    assert read(ahead, files, starts, stops) is None, "nobody fetches"
    with fetching(ahead):
        ahead.foresee(files[:2], starts[:2], stops[:2])
        assert read(ahead, files[3:], starts[3:], stops[3:]) is None
        blob.open.clear()
        monkeypatch.setattr(read_ahead, limit, 0.01)
        ahead.foresee(files, starts, stops)
        assert read(ahead, files[2:], starts[2:], stops[2:]) is None, "a server that says nothing"
        monkeypatch.setattr(read_ahead, limit, 3600.0)
        assert read(ahead, files[2:], starts[2:], stops[2:]) is None, "it is waited for once"
        blob.open.set()


class Slow(Remembering):
    """A file whose bytes take longer than anybody waits for silence, but not one after the other."""

    def __init__(self, number: int, size: int) -> None:
        super().__init__(number, size)
        self.now, self.looked = 0.0, threading.Event()

    def monotonic(self) -> float:
        if threading.current_thread() is threading.main_thread():
            self.looked.set()
        return self.now

    def read_into(
        self, offset: int, view: memoryview, stopped: threading.Event | None = None, moved: Callable[[], None] | None = None
    ) -> None:
        assert moved is not None
        for _ in range(4):
            self.now += 0.9 * read_ahead._SILENCE_S
            moved()
            self.looked.clear()
            assert self.looked.wait(60), "somebody waits for it, and looks at the clock"
        super().read_into(offset, view)


def test_a_slow_network_is_not_taken_for_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = Slow(0, BLOCK)
    files, starts, stops = spans_of([blob], BLOCK)
    ahead = ReadAhead([blob], 4 * BLOCK, BLOCK)
    monkeypatch.setattr(read_ahead, "time", blob)
    monkeypatch.setattr(read_ahead, "_WAIT_S", 3600.0)
    with fetching(ahead):
        ahead.foresee(files, starts, stops)
        assert read(ahead, files, starts, stops) == [blob.data.tobytes()]


def test_patience_with_a_silent_server_ends_before_the_watchdogs() -> None:
    """Of the wait for its block, and of the read that follows, at whose end the server is named."""
    patience, loader = Patience(), inspect.signature(stoker.Pipeline.loader)
    last_attempt_s = patience.silence_s  # obstore's, which begins before the budget ends
    assert read_ahead._SILENCE_S + patience.budget_s + last_attempt_s / 2 < loader.parameters["watchdog_s"].default


class Endless(Remembering):
    """A file of which nothing comes until whoever reads it is told to stop."""

    def __init__(self, number: int, size: int) -> None:
        super().__init__(number, size)
        self.begun = threading.Semaphore(0)

    def read_into(
        self, offset: int, view: memoryview, stopped: threading.Event | None = None, moved: Callable[[], None] | None = None
    ) -> None:
        self.begun.release()
        assert stopped is not None and stopped.wait(60)
        raise RemoteError("closed while it was read", url=self.url)


def test_who_stops_fetching_does_not_wait_for_blocks_that_are_on_their_way() -> None:
    blob = Endless(0, 4 * BLOCK)
    files, starts, stops = spans_of([blob], BLOCK)
    ahead = ReadAhead([blob], 64 * BLOCK, BLOCK)
    with fetching(ahead):
        ahead.foresee(files, starts, stops)
        for _ in range(3):
            assert blob.begun.acquire(timeout=60)
    with ahead._moved:
        assert ahead._moved.wait_for(lambda: not ahead._fetchers, 60)
    assert not ahead._blocks and not ahead._free


def test_a_forked_child_reads_from_where_files_are() -> None:
    blob = Remembering(0, 4 * BLOCK)
    files, starts, stops = spans_of([blob], BLOCK)
    ahead = ReadAhead([blob], 64 * BLOCK, BLOCK)
    with fetching(ahead):
        ahead.foresee(files, starts, stops)
        assert read(ahead, files, starts, stops) is not None
        ahead._process = os.getppid()  # as a child would see it
        assert read(ahead, files, starts, stops) is None


def test_memory_of_blocks_goes_from_one_loader_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MEMORY", Buffers(8 * BLOCK))
    blob = Remembering(0, 4 * BLOCK)
    files, starts, stops = spans_of([blob], BLOCK)
    used: list[set[int]] = []
    for _ in range(2):
        ahead = ReadAhead([blob], 4 * BLOCK, BLOCK)
        with fetching(ahead):
            ahead.foresee(files, starts, stops)
            assert read(ahead, files, starts, stops) is not None
            with ahead._moved:
                used.append({block.memory.ctypes.data for block in ahead._blocks.values()})
    assert len(used[0]) == 4 and used[0] == used[1]


@pytest.mark.skipif(not hasattr(mmap, "MADV_FREE") or sys.platform != "linux", reason="what a process could give back")
def test_memory_that_is_kept_is_the_systems_if_it_needs_it() -> None:
    def offered() -> int:
        return sum(int(found) << 10 for found in re.findall(r"LazyFree: +(\d+) kB", Path("/proc/self/smaps").read_text()))

    block = read_ahead.BLOCKS[0]
    blob = Remembering(0, 2 * block)
    files, starts, stops = spans_of([blob], block)
    ahead = ReadAhead([blob], 2 * block, block)
    with fetching(ahead):
        ahead.foresee(files, starts, stops)
        assert read(ahead, files, starts, stops) is not None
        before = offered()
    assert offered() >= before + 2 * block


def test_threads_that_wait_for_more_stop_at_once_when_nothing_is_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_LOOK_S", 3600.0)
    blob = Remembering(0, 4 * BLOCK)
    files, starts, stops = spans_of([blob], BLOCK)
    ahead = ReadAhead([blob], 8 * BLOCK, BLOCK)
    background = Background(ahead.fetch_ahead, 3, "stoker-test")
    ahead.foresee(files, starts, stops)
    background.stop()
    ahead.foresee(files[:0], starts[:0], stops[:0])
    background.close()
    assert not ahead._fetchers and not ahead._blocks
