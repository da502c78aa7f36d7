"""Byte strings of a batch: a sequence of bytes that shares memory."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.batch.strings import ByteStrings
from stoker.kernel import file_reads
from stoker.kernel.file_reads import Arena, Buffers
from stoker.source.chunk import BytesColumn

VALUES = [b"ab", b"", b"c", b"\0\xff", b"last"]


def strings() -> ByteStrings:
    return ByteStrings([BytesColumn.of(VALUES[:2]), BytesColumn.of([]), BytesColumn.of(VALUES[2:])])


def test_it_is_what_a_list_of_the_same_bytes_is() -> None:
    made = strings()
    assert made == VALUES and list(made) == VALUES and len(made) == 5 and made.nbytes == 9
    assert [made[row] for row in range(-5, 5)] == VALUES + VALUES
    assert b"c" in made and made.index(b"c") == 2
    assert made != VALUES[:4] and made != [*VALUES[:4], b"other"] and made != "text"


def test_outside_is_an_index_error() -> None:
    for row in (5, -6):
        with pytest.raises(IndexError):
            strings()[row]


@pytest.mark.parametrize("part", [slice(1, 4), slice(None), slice(4, 1), slice(None, None, -1), slice(2, 3)])
def test_slices_are_sequences_of_the_same_kind(part: slice) -> None:
    assert isinstance(strings()[part], ByteStrings)
    assert strings()[part] == VALUES[part]


def test_views_do_not_copy() -> None:
    column = BytesColumn(np.frombuffer(bytearray(b"abcdef"), np.uint8).copy(), np.array([0, 2]), np.array([2, 3]))
    view = ByteStrings([column]).views()[1]
    column.data[2] = ord("X")
    assert bytes(view) == b"Xde"


def test_in_another_process_it_is_a_list() -> None:
    assert copy.copy(strings()) == VALUES
    function, arguments = strings().__reduce__()
    assert function(*arguments) == VALUES and type(function(*arguments)) is list


def test_what_a_worker_reads_next_does_not_change_it() -> None:
    arena = Arena(8)
    arena.buffer[:8] = np.frombuffer(b"abcdefgh", np.uint8)
    full = BytesColumn(arena.buffer, np.array([0, 4]), np.array([4, 4]), arena).lasting()
    sparse = BytesColumn(full.data, np.array([1]), np.array([2]), arena).lasting()
    arena.buffer[:] = 0
    assert full.own() == [b"abcd", b"efgh"] and sparse.own() == [b"bc"]


def test_a_mostly_empty_buffer_is_not_given_away() -> None:
    arena = Arena(1000)
    before = arena.buffer
    kept = BytesColumn(arena.buffer, np.array([10, 990]), np.array([2, 2]), arena).lasting()
    assert arena.buffer is before and kept.data.size < 100


def test_memory_that_nobody_holds_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reads, "_buffers", Buffers(8 << 20))  # in which no other test leaves memory
    arena = Arena(1 << 20)
    first = arena.buffer.ctypes.data
    column = BytesColumn(arena.buffer, np.array([0]), np.array([1 << 20]), arena).lasting()
    view = ByteStrings([column]).views()[0]
    del column
    other = Arena(1 << 20)
    assert other.buffer.ctypes.data != first  # the view still holds it
    del view
    assert Arena(1 << 20).buffer.ctypes.data == first


def test_batches_kept_for_ever_never_change(tmp_path: Any) -> None:
    values = [bytes([number]) * (1 + number * 37 % 300) for number in range(120)]
    for number, value in enumerate(values):
        (tmp_path / f"{number:03d}.bin").write_bytes(value)
    pipeline = stoker.files(tmp_path, "*.bin", labels=None).batch(7, drop_last=False)
    with pipeline.loader(threads=3) as loader:
        kept = [batch["image"] for _ in range(3) for batch in loader]
    assert [value for part in kept for value in part] == values * 3


def test_a_rule_for_the_field_makes_it_a_list(image_folder: Any) -> None:
    batch = next(iter(stoker.files(image_folder).batch(4, pad={"image": list})))
    assert type(batch["image"]) is list and isinstance(batch["image"][0], bytes)


def test_small_batches_that_are_made_together_come_apart_right(tmp_path: Any) -> None:
    samples = [{"__key__": f"{number:04d}", "bin": f"value {number}".encode(), "cls": number} for number in range(203)]
    stoker.write_tar(str(tmp_path / "s-{:03d}.tar"), samples, max_samples=50)
    with stoker.tar(str(tmp_path)).batch(4, drop_last=False).loader(threads=2) as loader:
        got = [(batch.sample_keys, list(batch["bin"]), batch["cls"].tolist()) for batch in loader]
    assert [key for keys, _, _ in got for key in keys] == [sample["__key__"] for sample in samples]
    assert [value for _, values, _ in got for value in values] == [sample["bin"] for sample in samples]
    assert [label for _, _, labels in got for label in labels] == list(range(203))
