"""Seek indices follow their rows, whatever columns are cut into and joined to."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from stoker.source.chunk import BytesColumn, join_columns, take_rows
from stoker.source.shards.seekrows import Seeks, merged
from stoker.source.shards.seeks import SeekTable, seek_tables
from stoker.source.shards.shard_index import Keys, SeekStrings, ShardIndex, seek_columns
from stoker.storage.local import LocalBlob
from stoker.storage.scratch import Scratch

NAMES = b"abcdefgh"


def table(folder: Path, letter: bytes, count: int = 8) -> SeekTable:
    """Record n has the seek index ``letter * (n + 1)``, but every fourth has none."""
    strings = SeekStrings()
    for number in range(count):
        strings.add(b"" if number % 4 == 3 else letter * (number + 1))
    columns, tail = seek_columns({"jpg": strings}, count)
    places = np.zeros((count, 1), np.int64)
    index = ShardIndex(
        "tar", ("jpg",), places, places, None, Keys.of([b"%d" % n for n in range(count)]), 512 * count, seeks=columns, tail=tail
    )
    path = folder / f"{letter.decode()}.stk"
    path.write_bytes(index.to_bytes())
    return seek_tables([ShardIndex.read(LocalBlob(os.fsencode(path)))], np.array([count]))["jpg"]


def column(seeks: Seeks | None, rows: int) -> BytesColumn:
    made = BytesColumn.of([b"picture %d" % row for row in range(rows)])
    made.seeks = seeks
    return made


def strings(seeks: Seeks | None, rows: int) -> list[bytes]:
    assert seeks is not None
    spans, wrong = seeks.read(column(None, rows), Scratch())
    assert not len(wrong)
    return [b""] * rows if spans is None else BytesColumn(*spans).own()


def test_rows_of_a_column_take_their_seek_indices_along(tmp_path: Path) -> None:
    made = column(Seeks((table(tmp_path, b"a"),), np.array([5, 0, 3, 2])), 4)
    assert strings(made.seeks, 4) == [b"aaaaaa", b"a", b"", b"aaa"]
    taken = made.take(np.array([3, 3, 0]))
    assert strings(taken.seeks, 3) == [b"aaa", b"aaa", b"aaaaaa"]
    assert strings(taken.lasting().seeks, 3) == [b"aaa", b"aaa", b"aaaaaa"]


def test_rows_without_any_need_no_reading(tmp_path: Path) -> None:
    seeks = Seeks((table(tmp_path, b"a"),), np.array([3, 7]))
    assert seeks.read(column(None, 2), Scratch())[0] is None


def test_joined_columns_have_those_of_all(tmp_path: Path) -> None:
    one, two = table(tmp_path, b"a"), table(tmp_path, b"b")
    parts = [
        column(Seeks((one,), np.array([1, 2])), 2),
        column(None, 1),
        column(Seeks((two,), np.array([0, 3])), 2),
        column(Seeks((one,), np.array([4])), 1),
    ]
    joined = join_columns([*parts])
    assert isinstance(joined, BytesColumn) and joined[2] == b"picture 0"
    assert strings(joined.seeks, 6) == [b"aa", b"aaa", b"", b"b", b"", b"aaaaa"]
    taken = take_rows(joined, np.array([5, 3, 2]))
    assert isinstance(taken, BytesColumn) and strings(taken.seeks, 3) == [b"aaaaa", b"b", b""]
    again = join_columns([taken, parts[0]])
    assert isinstance(again, BytesColumn) and strings(again.seeks, 5) == [b"aaaaa", b"b", b"", b"aa", b"aaa"]


def test_columns_of_one_table_stay_of_one_table(tmp_path: Path) -> None:
    one = table(tmp_path, b"a")
    seeks = merged([(np.array([0, 2]), Seeks((one,), np.array([6, 1]))), (np.array([1]), Seeks((one,), np.array([2])))], 3)
    assert seeks is not None and seeks.which is None and strings(seeks, 3) == [b"a" * 7, b"aaa", b"aa"]


def test_columns_without_any_are_joined_as_ever() -> None:
    joined = join_columns([column(None, 2), column(None, 1)])
    assert isinstance(joined, BytesColumn) and joined.seeks is None and merged([(np.arange(2), None)], 2) is None
    assert joined.own() == [b"picture 0", b"picture 1", b"picture 0"]


def test_a_string_that_does_not_match_its_checksum_is_left_out(tmp_path: Path) -> None:
    known = table(tmp_path, b"a")
    path = tmp_path / "a.stk"
    data, about = bytearray(path.read_bytes()), path.stat()
    data[-1] ^= 1  # of record 6, the last that has one
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    spans, wrong = Seeks((known,), np.array([6, 5])).read(column(None, 2), Scratch())
    assert wrong.tolist() == [0] and spans is not None and spans.lengths.tolist() == [0, 6]


@pytest.mark.parametrize("held", [True, False], ids=["held open", "opened when needed"])
def test_shards_without_seek_indices_lie_between_others(tmp_path: Path, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not held:  # as with more shards than a process may have files open
        monkeypatch.setattr("stoker.storage.local.HeldFiles.descriptors", lambda self: None)
    places, indexes = np.zeros((2, 1), np.int64), []
    for number in range(5):
        made = ShardIndex("tar", ("jpg",), places, places, None, Keys.of([b"x", b"y"]), 1024)
        if number in (1, 4):
            text = SeekStrings()
            text.add(b"%d" % number)
            text.add(b"%d%d" % (number, number))
            columns, tail = seek_columns({"jpg": text}, 2)
            made = ShardIndex("tar", ("jpg",), places, places, None, made.keys, 1024, seeks=columns, tail=tail)
        path = tmp_path / f"{number}.stk"
        path.write_bytes(made.to_bytes())
        indexes.append(ShardIndex.read(LocalBlob(os.fsencode(path))))
    found = seek_tables(indexes, np.arange(2, 12, 2))["jpg"]
    assert found.count == 4
    assert found.strings(np.arange(10), Scratch())[0] == [b"", b"", b"1", b"11", b"", b"", b"", b"", b"4", b"44"]
