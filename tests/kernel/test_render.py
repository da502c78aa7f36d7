"""Stored images rendered in one native call: the same pictures as in two, and the same faults."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.file_reads import Arena, Paths
from stoker.kernel.native import Decoder, Program
from stoker.kernel.records import RecordTable, crc32c, decimals
from stoker.kernel.render import FileInput, ImageInput, Input, RecordInput, Renderer, SpanInput
from stoker.kernel.status import Status

from .images import crop_box, hflip, jpeg, picture, random_resized_crop, resize, span_rows

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
        rows = span_rows(decoder, PROGRAM, data, offsets[:-1], np.diff(offsets), None, epochs, positions, out)
    return out, rows


def rendered(
    decoder: Decoder, images: Input, epoch: int, positions: NDArray[np.int64], out: Any, program: Program = PROGRAM
) -> Renderer:
    renderer = Renderer(decoder, program)
    renderer.begin(epoch, positions, out)
    renderer.add(images)
    return renderer


def test_files_become_the_pictures_that_reading_and_then_decoding_gives(folder: Path) -> None:
    paths, which, positions = paths_in(folder), np.array([3, 0, 8, 6, 7, 5, 0]), np.array([10, 4, 7, 99, 3, 2, 1 << 40])
    expected, expected_rows = in_two_calls(paths, which, positions, 2)
    out, files = np.zeros_like(expected), FileInput(paths, Arena())
    with Decoder() as decoder:
        made = rendered(decoder, files.tell(which), 2, positions, out)
    assert made.bad == 3 and files.complete
    np.testing.assert_array_equal(made.rows, expected_rows)
    good = expected_rows["status"] == 0
    np.testing.assert_array_equal(out[good], expected[good])
    assert made.errnos(files) == {} and 0 < made.read_s < 10


def test_a_file_that_cannot_be_read_is_told_with_its_errno_and_leaves_the_others_alone(folder: Path) -> None:
    paths, which = paths_in(folder, "missing", "."), np.array([1, len(FILES), 2, len(FILES) + 1])
    expected, _ = in_two_calls(paths, which, np.arange(4), 0)
    out, files = np.zeros_like(expected), FileInput(paths, Arena())
    with Decoder() as decoder:
        made = rendered(decoder, files.tell(which), 0, np.arange(4), out)
    assert made.errnos(files) == {1: errno.ENOENT, 3: errno.EISDIR}
    assert made.rows["status"].tolist() == [0, Status.IO, 0, Status.IO] and made.bad == 2
    np.testing.assert_array_equal(out[[0, 2]], expected[[0, 2]])


def test_a_small_arena_grows_and_nothing_is_made_twice(folder: Path) -> None:
    paths, which = paths_in(folder, "missing"), np.array([7, len(FILES), 0, 5, 1])
    expected, _ = in_two_calls(paths, which, np.arange(5), 0)
    out, files = np.zeros_like(expected), FileInput(paths, Arena(capacity=1))
    with Decoder() as decoder:
        assert rendered(decoder, files.tell(which), 0, np.arange(5), out).bad == 2
        np.testing.assert_array_equal(out[2:], expected[2:])
        assert rendered(decoder, files.tell(which[:0]), 0, np.arange(0), out[:0]).bad == 0
        assert rendered(decoder, files.tell(which[2:]), 0, np.arange(2, 5), out[2:]).bad == 0
    np.testing.assert_array_equal(out[2:], expected[2:])


def test_what_does_not_fit_together_is_refused(folder: Path) -> None:
    files, out = FileInput(paths_in(folder), Arena()), np.zeros((2, *SIZE, 3), np.uint8)
    two, frozen = np.arange(2), out.copy()
    frozen.flags.writeable = False
    with Decoder() as decoder:
        for which, epoch, positions, into in [
            (np.arange(3), 0, two, out),
            (two, 0, np.arange(3), out),
            (two, 0, two, out[:1]),
            (two, 0, two, out[:, :, ::2]),
            (two, 0, two, out.astype(np.float32)),
            (two, 0, two, out.transpose(0, 3, 1, 2)),
            (two, 0, two, frozen),
            (two, -1, two, out),
            (np.array([0, len(FILES)]), 0, two, out),
            (np.array([-1, 0]), 0, two, out),
        ]:
            with pytest.raises(KernelError):
                rendered(decoder, files.tell(which), epoch, positions, into)
        for boxes in (np.zeros((3, 4), np.float32), np.zeros((2, 3), np.float32)):
            with pytest.raises(KernelError):
                files.tell(two, boxes)
        renderer = Renderer(decoder, PROGRAM)
        renderer.begin(0, two, out)
        for slots in (np.array([0, 2]), np.array([-1, 0]), np.array([0])):
            with pytest.raises(KernelError):
                renderer.add(files.tell(two), slots)
    with pytest.raises(KernelError, match="closed"):
        rendered(decoder, files.tell(two), 0, two, out)


def test_several_inputs_fill_the_rows_of_one_call_each_in_its_places(folder: Path) -> None:
    which, positions = np.array([3, 0, 6, 5, 1, 4]), np.arange(6) + 40
    expected, expected_rows = in_two_calls(paths_in(folder), which, positions, 1)
    out, sizes = np.zeros_like(expected), np.array([len(FILES[n]) for n in which])
    data = np.frombuffer(b"".join(FILES[n] for n in which), np.uint8)
    files, spans, starts = FileInput(paths_in(folder), Arena()), SpanInput(), np.cumsum(sizes) - sizes
    with Decoder() as decoder:
        renderer = Renderer(decoder, PROGRAM)
        renderer.begin(1, positions, out)
        renderer.add(files.tell(which[[5, 2, 0]]), np.array([5, 2, 0]))
        renderer.add(spans.tell(native.Spans(data, starts[[1, 3, 4]], sizes[[1, 3, 4]])), np.array([1, 3, 4]))
    np.testing.assert_array_equal(renderer.rows, expected_rows)
    good = expected_rows["status"] == 0
    np.testing.assert_array_equal(out[good], expected[good])
    assert renderer.bad == 1


def test_boxes_come_with_every_kind_of_input(folder: Path) -> None:
    program = Program((crop_box(relative=True), resize(16, 20)))
    boxes = np.array([[0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1], [0.5, 0.5, 0.4, 0.9]], np.float32)
    which, out = np.array([4, 1, 2]), np.zeros((3, 16, 20, 3), np.uint8)
    pictures = np.stack([picture(40, 30, seed) for seed in range(3)])
    stored = b"".join(FILES[:5])
    sizes = np.array([len(data) for data in FILES[:5]])
    spans = native.Spans(np.frombuffer(stored, np.uint8), (np.cumsum(sizes) - sizes)[which], sizes[which])
    (folder / "boxes").write_bytes(stored)
    table = RecordTable((np.cumsum(sizes) - sizes)[:, None], sizes[:, None], None, np.array([5]))
    with Decoder() as decoder, open(folder / "boxes", "rb") as file:
        fds = np.array([file.fileno()], np.int32)
        files = FileInput(paths_in(folder), Arena()).tell(which, boxes)
        records = RecordInput(table, [0], 0, Arena()).tell(fds, which, boxes)
        made = []
        for images in (files, SpanInput().tell(spans, None, boxes), records):
            assert rendered(decoder, images, 0, which, out, program).rows["status"].tolist() == [0, 0, Status.GEOMETRY]
            made.append(out[:2].copy())
        assert (made[0] == made[1]).all() and (made[1] == made[2]).all() and made[0].std() > 10
        alone = np.zeros((1, 16, 20, 3), np.uint8)
        for row in range(2):
            rendered(
                decoder, ImageInput(native.Images(pictures[row][None])).tell(None, boxes[row][None]), 0, which[:1], alone, program
            )
            rendered(
                decoder, ImageInput(native.Images(pictures)).tell(np.array([row] * 3), boxes[[row] * 3]), 0, which, out, program
            )
            assert (out == alone).all()
        with pytest.raises(KernelError):
            rendered(decoder, FileInput(paths_in(folder), Arena()).tell(which), 0, which, out, program)


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
            records = RecordInput(table, [1, 0], 1, arena, gap=4096).tell(np.array([fd], np.int32), indices)
            made = rendered(decoder, records, 1, positions, out)
    finally:
        os.close(fd)
    assert records.complete and made.bad == 2
    np.testing.assert_array_equal(made.rows["status"], expected_rows["status"])
    np.testing.assert_array_equal(out[[0, 1, 3]], expected[[0, 1, 3]])
    labels = np.zeros(5, np.int64)
    assert decimals(arena.buffer, records.at[:, 0], records.lengths[:, 0], labels) and labels.tolist() == indices.tolist()


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
            fds = np.array([-1 if fault == "closed" else fd], np.int32)
            records = RecordInput(table, [0, 1], 0, Arena())
            rendered(decoder, records.tell(fds, np.array([3, 4, 5])), 0, np.arange(3), out)
            assert not records.complete and not out.any()
            with pytest.raises(KernelError):
                rendered(decoder, records.tell(fds, np.array([3, 4, 6])), 0, np.arange(3), out)
            records = RecordInput(table, [0, 2], 0, Arena())
            with pytest.raises(KernelError):
                rendered(decoder, records.tell(fds, np.array([3, 4, 5])), 0, np.arange(3), out)
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
