"""Gathering rows and reading files."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.native import Arena, Paths


@pytest.mark.parametrize("shape", [(50,), (50, 3), (50, 4, 5), (50, 1, 7), (50, 0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_gather_equals_indexing(shape: tuple[int, ...], dtype: type) -> None:
    table = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    index = np.array([3, 49, 0, 3, 17])
    out = np.empty((5, *shape[1:]), dtype)
    native.Table(table).gather(index, out)
    assert np.array_equal(out, table[index])


def test_gather_takes_rows_any_stride_apart_on_both_sides() -> None:
    table, out = np.arange(600).reshape(100, 6)[::3, :4], np.zeros((5, 9), np.int64)
    native.Table(table).gather(np.arange(5), out[:, :4])
    assert np.array_equal(out[:, :4], table[:5]) and not out[:, 4:].any()
    native.Table(table[::-1]).gather(np.arange(5), out[:, :4])
    assert np.array_equal(out[:, :4], table[::-1][:5])


def test_gather_reads_a_memory_map(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.arange(400, dtype=np.float32).reshape(100, 4))
    table = np.load(tmp_path / "t.npy", mmap_mode="r")
    out = np.empty((2, 4), np.float32)
    native.Table(table).gather(np.array([99, 1]), out)
    assert np.array_equal(out, table[[99, 1]])


@pytest.mark.parametrize("index", [[50], [-1], [0, 1, 2**40]])
def test_an_index_out_of_range_is_refused_and_nothing_is_written(index: list[int]) -> None:
    out = np.full((len(index), 3), 7)
    with pytest.raises(KernelError, match="stk_gather"):
        native.Table(np.zeros((50, 3), np.int64)).gather(np.array(index), out)
    assert (out == 7).all()


def test_gather_refuses_arrays_that_do_not_match() -> None:
    table = np.zeros((50, 3), np.int64)
    for out in (np.zeros((2, 3), np.int32), np.zeros((2, 4), np.int64), np.zeros((1, 3), np.int64)):
        with pytest.raises(KernelError, match="do not fit"):
            native.Table(table).gather(np.array([0, 1]), out)
    with pytest.raises(KernelError, match="contiguous"):
        native.Table(table).gather(np.array([0, 1]), np.zeros((3, 2), np.int64).T)


@pytest.mark.parametrize("rows", [1, 4095, 4099])
def test_a_large_copy_equals_an_assignment(level: int, rows: int) -> None:
    """Also where the memory of neither begins at a multiple of anything, and nothing is written beside it."""
    table = np.random.default_rng(rows).integers(0, 256, (rows, 257), np.uint8)
    memory = np.zeros(3 + table.size + 3, np.uint8)
    out = memory[3:-3].reshape(table.shape)
    table.flags.writeable = False
    native.copy_past_caches(table, out)
    assert np.array_equal(out, table) and not memory[:3].any() and not memory[-3:].any()


def test_copies_of_arrays_that_do_not_lie_in_one_piece_are_right_and_others_are_refused() -> None:
    table = np.random.default_rng(1).integers(0, 256, (2000, 1024), np.uint8)
    out = np.zeros((1024, 2000), np.uint8)
    native.copy_past_caches(table.T, out)
    assert np.array_equal(out, table.T)
    for wrong in (out, np.zeros(table.shape, np.int8), np.frombuffer(table.tobytes(), np.uint8).reshape(table.shape)):
        with pytest.raises(KernelError, match="does not fit"):
            native.copy_past_caches(table, wrong)


def test_files_are_read_back_to_back_in_the_order_asked_for(tmp_path: Path) -> None:
    contents = [b"one", b"", b"three" * 1000, bytes(range(256))]
    for i, content in enumerate(contents):
        (tmp_path / f"{i}.bin").write_bytes(content)
    paths = Paths([bytes(tmp_path / f"{i}.bin") for i in range(4)])
    which = np.array([2, 0, 1, 3, 2])
    data, offsets, errors = native.read_files(paths, which, Arena(capacity=4))
    assert [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(5)] == [contents[w] for w in which]
    assert not errors.any()


def test_a_file_that_cannot_be_read_says_why_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"here")
    paths = Paths([bytes(tmp_path / "gone"), bytes(tmp_path / "here"), bytes(tmp_path)])
    data, offsets, errors = native.read_files(paths, np.arange(3), Arena())
    assert errors.tolist() == [errno.ENOENT, 0, errno.EISDIR]
    assert data[:4].tobytes() == b"here" and offsets.tolist() == [0, 0, 4, 4]


def test_a_file_without_a_size_is_read_to_its_end() -> None:
    data, _, errors = native.read_files(Paths([b"/proc/self/status"]), np.array([0]), Arena(capacity=10))
    assert not errors.any() and data.tobytes().startswith(b"Name:")


def test_paths_keep_their_names_and_refuse_what_c_cannot_say() -> None:
    names = [b"a", b"dir/\xff\xfe.jpg", b"c d"]
    paths = Paths(names)
    assert len(paths) == 3 and [paths.path(i) for i in range(3)] == names
    with pytest.raises(IndexError):
        paths.path(3)
    with pytest.raises(ValueError, match="NUL"):
        Paths([b"a\0b"])
    with pytest.raises(KernelError, match="out of range"):
        native.read_files(paths, np.array([3]), Arena())


def test_no_paths_and_no_files_are_fine() -> None:
    _, offsets, errors = native.read_files(Paths([]), np.array([], np.int64), Arena())
    assert offsets.tolist() == [0] and errors.size == 0


def test_a_table_is_prepared_once_and_keeps_its_memory_alive() -> None:
    table = native.Table(np.arange(30).reshape(10, 3).copy())
    out = np.empty((2, 3), np.int64)
    for rows in ([0, 9], [5, 5]):
        table.gather(np.array(rows), out)
        assert np.array_equal(out, np.arange(30).reshape(10, 3)[rows])
