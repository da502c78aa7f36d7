"""Reading and decoding in one native call: the same pictures as in two, and the same faults."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.file_reads import Arena, Paths
from stoker.kernel.native import ROW_DTYPE, Decoder, Program
from stoker.kernel.records import RecordTable, crc32c, decimals
from stoker.kernel.render import _ANSWER_AT, _TOLD, Pictures
from stoker.kernel.status import Status

from .images import hflip, jpeg, random_resized_crop

PROGRAM = Program((random_resized_crop(24, 32), hflip()), seed=3)
SIZE = (24, 32)
#: JPEGs of several sizes; one that is cut, one that is none, one without a byte
GOOD = [jpeg(40 + 7 * n, 50 + 3 * n, seed=n) for n in range(6)]
FILES = [*GOOD, GOOD[0][:200], b"GIF89a, which somebody else decodes", b""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number, data in enumerate(FILES):
        (folder / str(number)).write_bytes(data)
    return folder


def paths_in(folder: Path, *more: str) -> Paths:
    return Paths([os.fsencode(folder / name) for name in [*map(str, range(len(FILES))), *more]])


def in_two_calls(paths: Paths, which: NDArray[np.int64], positions: NDArray[np.int64], epoch: int) -> tuple[Any, Any]:
    data, offsets, _ = native.read_files(paths, which, Arena())
    out = np.zeros((len(which), *SIZE, 3), np.uint8)
    with Decoder() as decoder:
        epochs = np.full(len(which), epoch, np.uint32)
        rows = decoder.rows(PROGRAM, data, offsets[:-1], np.diff(offsets), None, epochs, positions, out)
    return out, rows


def test_the_struct_is_laid_out_as_in_c() -> None:
    assert _TOLD.size == 13 * 8 and _ANSWER_AT == 10 * 8 and struct.calcsize("P") == 8


def test_files_become_the_pictures_that_reading_and_then_decoding_gives(folder: Path) -> None:
    paths, which, positions = paths_in(folder), np.array([3, 0, 8, 6, 7, 5, 0]), np.array([10, 4, 7, 99, 3, 2, 1 << 40])
    expected, expected_rows = in_two_calls(paths, which, positions, 2)
    out = np.zeros_like(expected)
    with Decoder() as decoder:
        pictures = Pictures(decoder, Arena(), PROGRAM, SIZE)
        assert pictures.files(paths, which, 2, positions, out) == pictures.bad == 3
    np.testing.assert_array_equal(pictures.rows[: len(which)], expected_rows)
    good = expected_rows["status"] == 0
    np.testing.assert_array_equal(out[good], expected[good])
    assert pictures.errnos() == {} and 0 < pictures.read_s < 10


def test_a_file_that_cannot_be_read_is_told_with_its_errno_and_leaves_the_others_alone(folder: Path) -> None:
    paths, which = paths_in(folder, "missing", "."), np.array([1, len(FILES), 2, len(FILES) + 1])
    expected, _ = in_two_calls(paths, which, np.arange(4), 0)
    out = np.zeros_like(expected)
    with Decoder() as decoder:
        pictures = Pictures(decoder, Arena(), PROGRAM, SIZE)
        assert pictures.files(paths, which, 0, np.arange(4), out) == 2
    assert pictures.errnos() == {1: errno.ENOENT, 3: errno.EISDIR}
    assert pictures.rows["status"][:4].tolist() == [0, Status.IO, 0, Status.IO]
    np.testing.assert_array_equal(out[[0, 2]], expected[[0, 2]])


def test_a_small_arena_grows_and_nothing_is_made_twice(folder: Path) -> None:
    paths, which = paths_in(folder, "missing"), np.array([7, len(FILES), 0, 5, 1])
    expected, _ = in_two_calls(paths, which, np.arange(5), 0)
    out = np.zeros_like(expected)
    with Decoder() as decoder:
        pictures = Pictures(decoder, Arena(capacity=1), PROGRAM, SIZE)
        assert pictures.files(paths, which, 0, np.arange(5), out) == 2
        np.testing.assert_array_equal(out[2:], expected[2:])
        assert pictures.files(paths, which[:0], 0, np.arange(0), out[:0]) == 0
        assert pictures.files(paths, which[2:], 0, np.arange(2, 5), out[2:]) == 0
    np.testing.assert_array_equal(out[2:], expected[2:])


def test_what_does_not_fit_together_is_refused(folder: Path) -> None:
    paths, out = paths_in(folder), np.zeros((2, *SIZE, 3), np.uint8)
    with Decoder() as decoder:
        pictures = Pictures(decoder, Arena(), PROGRAM, SIZE)
        for which, positions, into in [
            (np.arange(3), np.arange(2), out),
            (np.arange(2), np.arange(3), out),
            (np.arange(2), np.arange(2), out[:1]),
            (np.arange(2), np.arange(2), out[:, :, ::2]),
            (np.arange(2), np.arange(2), out.astype(np.float32)),
            (np.arange(2), np.arange(2), out.transpose(0, 3, 1, 2)),
            (np.array([0, len(FILES)]), np.arange(2), out),
            (np.array([-1, 0]), np.arange(2), out),
        ]:
            with pytest.raises(KernelError):
                pictures.files(paths, which, 0, positions, into)
        with pytest.raises(KernelError):
            pictures.files(paths, np.arange(2), -1, np.arange(2), out)
        frozen = out.copy()
        frozen.flags.writeable = False
        with pytest.raises(KernelError):
            pictures.files(paths, np.arange(2), 0, np.arange(2), frozen)
    with pytest.raises(KernelError, match="closed"):
        pictures.files(paths, np.arange(2), 0, np.arange(2), out)


def records_of(folder: Path, pairs: list[tuple[bytes, bytes]], lacking: int | None = None) -> tuple[RecordTable, int]:
    """A file of pairs (image, label), its table, and a descriptor of it."""
    starts, lengths, at = [], [], 0
    for pair in pairs:
        starts.append([at, at + len(pair[0])])
        lengths.append([len(part) for part in pair])
        at += sum(lengths[-1])
    if lacking is not None:
        lengths[lacking][1] = -1
    path = folder / f"records-{lacking}"
    path.write_bytes(b"".join(part for pair in pairs for part in pair))
    sums = np.array([[crc32c(part) for part in pair] for pair in pairs], np.uint32)
    table = RecordTable(np.array(starts), np.array(lengths), sums, np.array([len(pairs)]))
    return table, os.open(path, os.O_RDONLY)


def test_records_become_the_pictures_that_files_do_and_all_columns_are_read(folder: Path) -> None:
    table, fd = records_of(folder, [(data, str(n).encode()) for n, data in enumerate(FILES)])
    indices, positions = np.array([5, 2, 6, 2, 8]), np.array([7, 8, 9, 10, 11])
    expected, expected_rows = in_two_calls(paths_in(folder), indices, positions, 1)
    out, arena = np.zeros_like(expected), Arena(capacity=1)
    try:
        with Decoder() as decoder:
            pictures = Pictures(decoder, arena, PROGRAM, SIZE)
            fds = np.array([fd], np.int32)
            spots = pictures.records(table, fds, indices, np.array([1, 0]), 1, 1, positions, out, gap=4096)
    finally:
        os.close(fd)
    assert spots is not None and pictures.bad == 2
    np.testing.assert_array_equal(pictures.rows[:5]["status"], expected_rows["status"])
    np.testing.assert_array_equal(out[[0, 1, 3]], expected[[0, 1, 3]])
    at, lengths, _ = spots
    labels = np.zeros(5, np.int64)
    assert decimals(arena.buffer, at[:, 0], lengths[:, 0], labels) and labels.tolist() == indices.tolist()


@pytest.mark.parametrize("fault", ["damaged", "closed", "lacking"])
def test_no_picture_is_made_where_a_record_could_not_be_read_whole(folder: Path, fault: str) -> None:
    table, fd = records_of(folder, [(data, b"1") for data in GOOD], lacking=4 if fault == "lacking" else None)
    out = np.zeros((3, *SIZE, 3), np.uint8)
    if fault == "damaged":
        path = folder / "records-None"
        whole = bytearray(path.read_bytes())
        whole[sum(map(len, GOOD[:4])) + 4 + 100] ^= 1
        path.write_bytes(whole)
    try:
        with Decoder() as decoder:
            pictures = Pictures(decoder, Arena(), PROGRAM, SIZE)
            fds = np.array([-1 if fault == "closed" else fd], np.int32)
            spots = pictures.records(table, fds, np.array([3, 4, 5]), np.array([0, 1]), 0, 0, np.arange(3), out)
            assert spots is None and not out.any()
            with pytest.raises(KernelError):
                pictures.records(table, fds, np.array([3, 4, 6]), np.array([0, 1]), 0, 0, np.arange(3), out)
            with pytest.raises(KernelError):
                pictures.records(table, fds, np.array([3, 4, 5]), np.array([0, 2]), 0, 0, np.arange(3), out)
    finally:
        os.close(fd)


@pytest.mark.parametrize("text", [b"", b"-1", b"1.0", b" 1", b"1\n", b"1234567890123456789", b"\xd9\xa1"])
def test_a_number_that_is_not_just_digits_is_left_to_others(text: bytes) -> None:
    data = np.frombuffer(b"7" + text, np.uint8)
    out = np.zeros(2, np.int64)
    assert not decimals(data, np.array([0, 1]), np.array([1, len(text)]), out)
    assert not decimals(data, np.array([0, 1]), np.array([1, 40]), out)


def test_numbers_in_decimal_are_read_whatever_lies_between_their_places() -> None:
    data = np.frombuffer(b"0 12 999999999999999999 007", np.uint8)
    places = np.array([[0, 1], [2, 2], [5, 18], [24, 3]])
    out = np.zeros(4, np.int64)
    assert decimals(data, places[:, 0], places[:, 1], out)
    assert out.tolist() == [0, 12, 999_999_999_999_999_999, 7]
    assert decimals(data, places[::-1, 0], places[::-1, 1], out) and out.tolist() == [7, 999_999_999_999_999_999, 12, 0]
    assert ROW_DTYPE.itemsize % 8 == 0
