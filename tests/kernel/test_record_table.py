"""Records of indexed files in one native call."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.file_reads import Arena
from stoker.kernel.records import RecordTable, crc32c

DATA = [bytes(np.random.default_rng(seed).bytes(5000)) for seed in range(3)]
ENDS = np.array([4, 4, 10])


@pytest.fixture(scope="module")
def fds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NDArray[np.int32]]:
    folder = tmp_path_factory.mktemp("records")
    opened = []
    for number, data in enumerate(DATA):
        (folder / str(number)).write_bytes(data)
        opened.append(os.open(folder / str(number), os.O_RDONLY))
    yield np.asarray(opened, np.int32)
    for fd in opened:
        os.close(fd)


def file_of(record: int) -> int:
    return int(np.searchsorted(ENDS, record, side="right"))


def table_of(start: NDArray[np.int64], length: NDArray[np.int64], checked: bool = True) -> RecordTable:
    sums = [
        [crc32c(DATA[file_of(row)][s : s + n]) if n >= 0 else 0 for s, n in zip(starts, lengths)]
        for row, (starts, lengths) in enumerate(zip(start.tolist(), length.tolist()))
    ]
    return RecordTable(start, length, np.asarray(sums, np.uint32) if checked else None, ENDS)


places = st.integers(0, 4000)
lengths_ = st.integers(-1, 900)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(places, lengths_, places, lengths_), min_size=10, max_size=10),
    st.lists(st.integers(0, 9), max_size=30),
    st.sampled_from([[0], [1], [0, 1], [1, 0], [0, 0]]),
    st.integers(0, 4),
    st.sampled_from([0, 10, 5000]),
    st.booleans(),
)
def test_every_span_is_what_the_file_has_there(fds, cells, indices, fields, behind, gap, checked) -> None:  # type: ignore[no-untyped-def]
    start = np.asarray([[a, c] for a, _, c, _ in cells])
    length = np.asarray([[b, d] for _, b, _, d in cells])
    arena = Arena(16)
    at, lengths, status = table_of(start, length, checked).read(
        fds, np.asarray(indices, np.int64), np.asarray(fields), arena, behind, gap
    )
    assert not status.any() and status.shape == (len(indices), len(fields))
    for row, index in enumerate(indices):
        for column, field in enumerate(fields):
            s, n = int(start[index, field]), int(length[index, field])
            assert lengths[row, column] == n
            if n >= 0:
                there = int(at[row, column])
                assert arena.buffer[there : there + n + behind].tobytes() == DATA[file_of(index)][s : s + n + behind]


def test_what_fails_is_told_of_every_span_that_was_read_with_it(fds: NDArray[np.int32]) -> None:
    start = np.zeros((10, 1), np.int64) + np.arange(10)[:, None] * 400
    length = np.full((10, 1), 100)
    length[7] = 4000  # reaches behind the end of its file, and with it what is read together with it
    sums = np.asarray([[crc32c(DATA[file_of(row)][row * 400 : row * 400 + 100])] for row in range(10)], np.uint32)
    sums[2] ^= 1
    table = RecordTable(start, length, sums, ENDS)
    closed = fds.copy()
    closed[0] = -1
    every, first = np.arange(10), np.array([0])
    assert table.read(fds, every, first, Arena())[2][:, 0].tolist() == [0, 0, -2, 0, 0, 0, 0, -1, -1, -1]
    assert table.read(closed, every, first, Arena())[2][:, 0].tolist() == [-3, -3, -3, -3, 0, 0, 0, -1, -1, -1]
    folder = os.open("/", os.O_RDONLY)
    try:
        closed[0] = folder
        assert table.read(closed, np.array([1]), first, Arena())[2].tolist() == [[21]]  # EISDIR
    finally:
        os.close(folder)


def test_neighbours_are_read_together_only_in_order_and_close_by(fds: NDArray[np.int32]) -> None:
    start, length = np.array([[0], [110], [300], [50], *[[0]] * 6]), np.full((10, 1), 100)
    table = table_of(start, length)
    arena = Arena()
    at, _, _ = table.read(fds, np.array([0, 1, 2, 3]), np.array([0]), arena, 0, 10)
    # 0 and 1 are ten bytes apart; 2 is too far away; 3 lies before what was read last
    assert at[:, 0].tolist() == [0, 110, 210, 310]


@pytest.mark.parametrize(("indices", "fields"), [([10], [0]), ([-1], [0]), ([0], [2]), ([0], [-1]), ([1 << 62], [0])], ids=str)
def test_numbers_out_of_range_are_refused(fds: NDArray[np.int32], indices: list[int], fields: list[int]) -> None:
    table = table_of(np.zeros((10, 2), np.int64), np.zeros((10, 2), np.int64))
    with pytest.raises(KernelError):
        table.read(fds, np.asarray(indices), np.asarray(fields, np.int64), Arena())


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (1 << 62, 1 << 62), ((1 << 63) - 2, 5)])
def test_places_that_make_no_sense_are_refused(fds: NDArray[np.int32], start: int, length: int) -> None:
    table = RecordTable(np.full((10, 1), start), np.full((10, 1), length), None, ENDS)
    with pytest.raises((KernelError, MemoryError, ValueError)):
        table.read(fds, np.array([0, 1]), np.array([0]), Arena(), behind=4)


def test_tables_that_do_not_agree_are_refused() -> None:
    good = np.zeros((10, 1), np.int64)
    for arguments in (
        (good, good[:9], None, ENDS),
        (good, good, None, np.array([4, 9])),
        (good, good, None, np.array([5, 4, 10])),
    ):
        with pytest.raises(KernelError):
            RecordTable(*arguments)


def test_a_copy_reads_too(fds: NDArray[np.int32], tmp_path: Path) -> None:
    table = copy.deepcopy(table_of(np.zeros((10, 1), np.int64), np.full((10, 1), 9)))
    arena = Arena()
    table.read(fds, np.array([5]), np.array([0]), arena)
    assert arena.buffer[:9].tobytes() == DATA[2][:9]
