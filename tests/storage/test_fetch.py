"""Many spans in one go: whatever was joined, each span is its own bytes, or its own error."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import ReadError, RemoteError, ShardChanged, SourceNotFound, StokerError
from stoker.kernel.file_reads import Arena
from stoker.storage.blob import Blob, Stat
from stoker.storage.cache import Cache
from stoker.storage.fetch import FetchedSpans, fetch
from stoker.storage.http import HttpRemote
from stoker.storage.local import LocalBlob
from stoker.storage.remote import RemoteBlob
from stoker.storage.retry import Patience

from .server import Act, Answer, Request, Server, Silence

SIZE = 40_000


class Memory(Blob):
    """Bytes that are far away: no descriptor; every read is counted, and some bytes can be bad."""

    gap = 1 << 12

    def __init__(self, data: bytes, bad: range = range(0)) -> None:
        self.data, self.bad = data, bad
        self.url = self.name = "memory"
        self.reads: list[tuple[int, int]] = []

    def stat(self) -> Stat:
        return Stat(len(self.data), "")

    def read_into(self, offset: int, view: memoryview) -> None:
        self.reads.append((offset, len(view)))
        if range(max(offset, self.bad.start), min(offset + len(view), self.bad.stop)):
            raise ReadError("memory: a bad byte", origin=self.url)
        if offset + len(view) > len(self.data):
            raise ShardChanged("memory: too short", shard=self.url, offset=len(self.data))
        view[:] = self.data[offset : offset + len(view)]

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[bytes]:
        yield self.data[offset:]

    def read_all(self, limit: int) -> bytes:
        return self.data

    def sibling(self, suffix: str) -> Blob:
        raise SourceNotFound(suffix)


@pytest.fixture
def contents() -> list[bytes]:
    return [random.Random(number).randbytes(SIZE) for number in range(5)]


@pytest.fixture(params=["local", "far", "mixed"])
def blobs(request: pytest.FixtureRequest, contents: list[bytes], tmp_path: Path) -> Iterator[list[Blob]]:
    made: list[Blob] = []
    for number, content in enumerate(contents):
        if request.param == "far" or (request.param == "mixed" and number % 2):
            made.append(Memory(content))
        else:
            (tmp_path / f"{number}").write_bytes(content)
            made.append(LocalBlob(os.fsencode(tmp_path / f"{number}")))
    yield made
    for blob in made:
        blob.close()


def ask(blobs: list[Any], spans: list[tuple[int, int, int]], arena: Arena | None = None) -> FetchedSpans:
    which, offsets, lengths = (np.array(part, np.int64) for part in zip(*spans)) if spans else (np.empty(0, np.int64),) * 3
    return fetch(blobs, which, offsets, lengths, arena or Arena(64))


def given(got: FetchedSpans, spans: list[tuple[int, int, int]]) -> list[bytes]:
    return [got.data[at : at + length].tobytes() for at, (_, _, length) in zip(got.at.tolist(), spans)]


def test_spans_in_any_order_overlapping_repeated_or_empty_are_their_own_bytes(blobs: list[Blob], contents: list[bytes]) -> None:
    rng, arena = random.Random(2), Arena(64)
    for _ in range(60):
        spans = []
        for _ in range(rng.choice([0, 1, 2, 5, 40])):
            offset = rng.choice([0, rng.randrange(SIZE), SIZE])
            spans.append((rng.randrange(5), offset, min(rng.choice([0, 1, 300, 9000]), SIZE - offset)))
        spans += spans[:2]
        got = ask(blobs, spans, arena)
        assert not got.errors
        assert given(got, spans) == [contents[which][offset : offset + length] for which, offset, length in spans]


def test_neighbours_are_read_together_and_strangers_apart() -> None:
    blob = Memory(bytes(SIZE))
    ask([blob], [(0, 8_000, 100), (0, 0, 100), (0, 500, 100), (0, 8_100, 100), (0, 30_000, 1)])
    assert blob.reads == [(0, 600), (8_000, 200), (30_000, 1)]


def test_a_span_within_another_does_not_end_the_run_early() -> None:
    blob = Memory(bytes(SIZE))
    ask([blob], [(0, 0, 20_000), (0, 10, 5), (0, 20_001, 5)])
    assert blob.reads == [(0, 20_006)]


def test_many_files_each_have_their_own_runs() -> None:
    blobs = [Memory(bytes([number]) * 100) for number in range(100)]
    spans = [(number % 100, number % 50, 10) for number in range(300)]
    got = ask(blobs, spans)
    assert given(got, spans) == [bytes([which]) * 10 for which, _, _ in spans]
    assert all(len(blob.reads) == 1 for blob in blobs)


def test_a_bad_place_costs_the_spans_that_touch_it_and_no_other() -> None:
    data = random.Random(0).randbytes(SIZE)
    blob = Memory(data, bad=range(1_000, 1_010))
    spans = [
        (0, 990, 10),
        (0, 995, 10),
        (0, 1_005, 2),
        (0, 1_009, 5),
        (0, 1_010, 5),
        (0, 0, 2_000),
        (0, 20_000, 5),
        (0, 1_004, 0),
    ]
    got = ask([blob], spans)
    assert set(got.errors) == {1, 2, 3, 5}
    assert all(isinstance(error, ReadError) for error in got.errors.values())
    for number, ((_, offset, length), part) in enumerate(zip(spans, given(got, spans))):
        if number not in got.errors:
            assert part == data[offset : offset + length]


def test_a_file_that_became_too_short_costs_what_lay_behind_its_end(
    blobs: list[Blob], contents: list[bytes], tmp_path: Path
) -> None:
    spans = [(number, offset, 50) for number in range(5) for offset in (0, 900, 960, 1_000, SIZE - 50)]
    for number, blob in enumerate(blobs):
        if isinstance(blob, LocalBlob):
            blob.hold()  # it is open already when it is cut
            os.truncate(tmp_path / f"{number}", 1_000)
        elif isinstance(blob, Memory):
            blob.data = blob.data[:1_000]
    got = ask(blobs, spans)
    assert set(got.errors) == {at for at, (_, offset, length) in enumerate(spans) if offset + length > 1_000}
    assert all(isinstance(error, ShardChanged) for error in got.errors.values())
    for at, (which, offset, length) in enumerate(spans):
        if at not in got.errors:
            assert given(got, spans)[at] == contents[which][offset : offset + length]
    for blob in blobs:
        if isinstance(blob, LocalBlob):
            blob.release(0)


def test_a_file_that_is_not_there_costs_its_own_spans_only(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"0123456789")
    (tmp_path / "folder").mkdir()
    blobs = [LocalBlob(os.fsencode(tmp_path / name)) for name in ("here", "gone", "folder")]
    got = ask(blobs, [(1, 0, 3), (0, 2, 3), (2, 0, 1), (1, 5, 0)])
    assert set(got.errors) - {3} == {0, 2}
    assert isinstance(got.errors[0], SourceNotFound) and isinstance(got.errors[2], ReadError)
    assert given(got, [(1, 0, 3), (0, 2, 3)])[1] == b"234"


def test_errors_are_the_same_however_spans_were_joined() -> None:
    data = random.Random(0).randbytes(SIZE)
    spans = [(0, offset, 100) for offset in range(0, 20_000, 150)]
    together = ask([Memory(data, bad=range(3_000, 3_001))], spans).errors
    alone = {at for at, span in enumerate(spans) if ask([Memory(data, bad=range(3_000, 3_001))], [span]).errors}
    assert set(together) == alone


class Failing(Memory):
    """Each read fails: with the server given up, or with the rest of a file that can be read."""

    moved = False

    def read_into(self, offset: int, view: memoryview) -> None:
        self.reads.append((offset, len(view)))
        raise RemoteError("memory: gave up", url=self.url, moved=self.moved)


@pytest.mark.parametrize("apart", [100, 10_000])
def test_a_server_that_was_given_up_is_not_asked_again(apart: int) -> None:
    dead, other = Failing(bytes(100_000)), Memory(b"x" * 1000)
    got = ask([dead, other], [*((0, offset, 50) for offset in range(0, 10 * apart, apart)), (1, 0, 5)])
    assert set(got.errors) == set(range(10)) and all(isinstance(error, RemoteError) for error in got.errors.values())
    assert len(dead.reads) == 1 and len(other.reads) == 1


def test_a_server_that_sent_something_is_asked_for_every_span() -> None:
    bad = Failing(bytes(SIZE))
    bad.moved = True
    assert len(ask([bad], [(0, 0, 50), (0, 100, 50), (0, 30_000, 50)]).errors) == 3
    assert bad.reads == [(0, 150), (30_000, 50), (0, 50), (100, 50)]


@dataclass
class CutAt(Act):
    """An answer that covers a place of the file ends before it, or where its block of the file begins."""

    place: int
    block: int = 1

    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        first, last = map(int, (request.span or "0-0").split("-"))
        return (
            replace(answer, cut=max(0, self.place - self.place % self.block - first)) if first <= self.place <= last else answer
        )


@pytest.mark.parametrize("block", [1, 256])
def test_a_place_a_server_cannot_read_costs_one_span_however_many_are_asked_for(
    block: int, server: Server, quick: Patience
) -> None:
    data = random.Random(3).randbytes(240 * 100)
    url = server.put("/a", data)
    server.always("/a", CutAt(12_345, block))
    spans = [(0, offset, 100) for offset in range(0, len(data), 100)]
    for size in (1, 16, 240):
        blob = RemoteBlob(HttpRemote(url), replace(quick, budget_s=0.03))
        lost: list[int] = []
        for first in range(0, 240, size):
            got = ask([blob], spans[first : first + size])
            lost += [first + number for number in got.errors]
        blob.close()
        assert lost == [123], size


def test_a_shard_that_cannot_be_cached_whole_is_not_fetched_again_for_every_span(
    server: Server, quick: Patience, tmp_path: Path
) -> None:
    url = server.put("/a", random.Random(3).randbytes(24_000))
    server.always("/a", CutAt(12_345))
    blob = Cache(tmp_path).wrap(RemoteBlob(HttpRemote(url), replace(quick, first_delay_s=0.04, budget_s=0.05)))
    got = ask([blob], [(0, offset, 100) for offset in range(0, 24_000, 100)])
    blob.close()
    assert len(got.errors) == 240 and len(server.asked("/a")) < 100


def test_a_silent_server_is_asked_for_the_first_of_many_spans_only(server: Server, quick: Patience) -> None:
    url = server.put("/a", bytes(64 << 20))
    server.always("/a", SilentGet())
    blob = RemoteBlob(HttpRemote(url), replace(quick, connect_s=5, silence_s=0.1, budget_s=0.2))
    got = ask([blob], [(0, number << 20, 100) for number in range(64)])
    asked = len(server.asked("/a"))
    blob.close()
    assert len(got.errors) == 64 and asked <= 5


class SilentGet(Silence):
    def change(self, answer: Answer, data: bytes, request: Request) -> Answer:
        return answer if request.method == "HEAD" else super().change(answer, data, request)


def test_what_raises_something_else_than_stokers_errors_is_told_in_stokers_words() -> None:
    class BrokenReply(Memory):
        def read_into(self, offset: int, view: memoryview) -> None:
            raise OSError(5, "Input/output error")

    got = ask([BrokenReply(b"x" * 10)], [(0, 0, 5), (0, 7, 1)])
    assert set(got.errors) == {0, 1}
    assert all(isinstance(error, StokerError) and "Input/output" in str(error) for error in got.errors.values())


def test_the_arena_grows_and_what_was_handed_out_before_stays(contents: list[bytes]) -> None:
    arena = Arena(16)
    first = ask([Memory(contents[0])], [(0, 0, 10)], arena)
    kept = first.data
    second = ask([Memory(contents[0])], [(0, 0, SIZE)], arena)
    assert second.data.size >= SIZE and second.data is not kept
    assert kept[:10].tobytes() == contents[0][:10]


def test_more_files_than_may_be_open_are_read(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"{number}").write_bytes(number.to_bytes(4, "little"))
    blobs = [LocalBlob(os.fsencode(tmp_path / f"{number}")) for number in range(120)]
    spans = [(number, 0, 4) for number in random.Random(1).sample(range(120), 120)]
    before = len(os.listdir("/proc/self/fd"))
    got = ask(blobs, spans)
    assert not got.errors
    assert given(got, spans) == [which.to_bytes(4, "little") for which, _, _ in spans]
    del blobs
    assert len(os.listdir("/proc/self/fd")) <= before
