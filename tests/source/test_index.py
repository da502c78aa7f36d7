"""The index of a shard as a file: it comes back as it was, or is refused."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import CorruptIndex
from stoker.kernel.records import crc32c
from stoker.source.shards.shard_index import (
    TAIL_VERSION,
    VERSION,
    IndexTail,
    Keys,
    SeekColumn,
    SeekStrings,
    ShardIndex,
    _Beginning,
    seek_columns,
)
from stoker.storage.local import LocalBlob

PREFIX = struct.Struct("<8sIIIIQ")


def small(**changes: Any) -> ShardIndex:
    values: dict[str, Any] = {
        "kind": "tar",
        "fields": ("jpg", "cls"),
        "start": np.array([[512, 1024], [2048, 0], [4096, 5120]], np.int64),
        "length": np.array([[100, 1], [7, -1], [0, 2]], np.int64),
        "crc": np.array([[1, 2], [3, 0], [0, 4_000_000_000]], np.uint32),
        "keys": Keys.of([b"a", b"b/\xff", b""]),
        "size": 10_240,
        "mtime_ns": 1_700_000_000_123_456_789,
        "about": {"ignored": 1, "ignored_names": ["README"]},
    }
    return ShardIndex(**(values | changes))


def as_file(head: dict[str, Any], body: bytes, version: int = VERSION) -> bytes:
    """An index file whose checksums are right, whatever it says."""
    header = json.dumps(head).encode()
    prefix = PREFIX.pack(b"STOKERIX", version, len(header), crc32c(header), crc32c(body), PREFIX.size + len(header) + len(body))
    return prefix + header + body


def taken_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = PREFIX.unpack_from(data)[2]
    return json.loads(data[PREFIX.size : PREFIX.size + length]), data[PREFIX.size + length :]


def refused(data: bytes, match: str | None = None) -> CorruptIndex:
    with pytest.raises(CorruptIndex, match=match) as caught:
        ShardIndex.from_bytes(data, "x.tar.stk")
    assert "x.tar.stk" in str(caught.value) and "stoker index --force" in str(caught.value)
    assert caught.value.shard == "x.tar.stk"
    return caught.value


# ---- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        small(),
        small(sealed=True, etag='"abc"', mtime_ns=0),
        small(crc=None, keys=None, about={}),
        small(
            start=np.zeros((0, 2), np.int64), length=np.zeros((0, 2), np.int64), crc=np.zeros((0, 2), np.uint32), keys=Keys.of([])
        ),
        small(kind="tfrecord", fields=("record",), start=np.array([[12]]), length=np.array([[5]]), crc=None, keys=None),
        small(about={"features": [{"name": "Übung\\xff", "present": 3}]}, fields=("jpg", "\\xff.Ü")),
    ],
    ids=["plain", "sealed", "without sums and keys", "empty", "tfrecord", "names"],
)
def test_an_index_comes_back_as_it_was(index: ShardIndex) -> None:
    back = ShardIndex.from_bytes(index.to_bytes(), "x")
    for name in ("kind", "fields", "size", "mtime_ns", "etag", "sealed", "about", "extra"):
        assert getattr(back, name) == getattr(index, name)
    assert len(back) == len(index)
    for name in ("start", "length", "crc"):
        ours, theirs = getattr(index, name), getattr(back, name)
        assert (ours is None and theirs is None) or (np.array_equal(ours, theirs) and ours.dtype == theirs.dtype)
    if index.keys is None:
        assert back.keys is None
    else:
        assert back.keys is not None
        assert [back.keys[row] for row in range(len(back))] == [index.keys[row] for row in range(len(index))]


def test_the_same_index_always_gives_the_same_bytes() -> None:
    assert small().to_bytes() == small().to_bytes()
    assert ShardIndex.from_bytes(small().to_bytes(), "x").to_bytes() == small().to_bytes()
    one, other = small(about={"a": 1, "b": 2}), small(about={"b": 2, "a": 1})
    assert one.to_bytes() == other.to_bytes()


def test_columns_that_are_strided_or_reversed_are_written_by_value() -> None:
    plain = small()
    strided = small(start=np.asfortranarray(plain.start), length=np.ascontiguousarray(plain.length[::-1])[::-1])
    assert strided.to_bytes() == plain.to_bytes()


def test_columns_of_later_versions_are_kept() -> None:
    extra = {"width": np.array([640, 480, 0], np.int32), "mean": np.zeros((3, 4), np.float32), "flags": np.ones(3, np.uint8)}
    back = ShardIndex.from_bytes(small(extra=extra).to_bytes(), "x")
    assert set(back.extra) == set(extra)
    assert all(
        np.array_equal(back.extra[name], column) and back.extra[name].dtype == column.dtype for name, column in extra.items()
    )
    assert back.to_bytes() == small(extra=extra).to_bytes()


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [small(), small(crc=None, keys=None)], ids=["tar", "tfrecord"])
def test_every_flipped_byte_is_noticed(index: ShardIndex) -> None:
    data = index.to_bytes()
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            bad = bytearray(data)
            bad[at] ^= flip
            with pytest.raises(CorruptIndex):
                ShardIndex.from_bytes(bytes(bad), "x")


def test_every_cut_and_every_addition_is_noticed() -> None:
    data = small().to_bytes()
    for length in range(len(data)):
        with pytest.raises(CorruptIndex):
            ShardIndex.from_bytes(data[:length], "x")
    for more in (b"\0", b" ", b"x" * 8, data):
        refused(data + more)


def test_what_is_no_index_is_told_by_its_first_bytes() -> None:
    refused(b"<html>not here</html>" * 10, match="<html>no")
    refused(b"", match="no index does")


def test_a_version_from_the_future_says_so() -> None:
    head, body = taken_apart(small().to_bytes())
    for version in (0, TAIL_VERSION + 1, 2**32 - 1):
        refused(as_file(head, body, version), match=f"version {version}, and this Stoker reads versions 1 and 2")


NOTHING = object()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        # counts that are wrong
        (("records",), 2), (("records",), 4), (("records",), -1), (("records",), 10**9), (("records",), 2**70),
        (("records",), None), (("records",), "x"), (("records",), NOTHING), (("records",), float("inf")),
        (("records",), float("nan")),
        (("fields",), ["jpg"]), (("fields",), []), (("fields",), ["a", "b", "c"]), (("fields",), 7), (("fields",), NOTHING),
        (("fields",), ["jpg", "jpg"]),
        # a shard that is shorter than its records say
        (("size",), 5_000), (("size",), -1), (("size",), "many"), (("size",), float("inf")), (("size",), [1]),
        (("size",), NOTHING),
        (("mtime_ns",), float("inf")), (("mtime_ns",), None), (("about",), 5), (("about",), [1]), (("about",), NOTHING),
        (("columns",), {}), (("columns",), 5), (("columns",), [5]), (("columns",), []), (("columns",), NOTHING),
        # columns that are not there, overlap the end, or are of a kind no index has
        (("columns", 0, "at"), -8), (("columns", 0, "at"), 4), (("columns", 0, "at"), 2**62), (("columns", 0, "at"), 2**80),
        (("columns", 0, "at"), float("inf")), (("columns", 0, "at"), NOTHING),
        (("columns", 0, "dtype"), "|O"), (("columns", 0, "dtype"), ">i8"), (("columns", 0, "dtype"), "<f8"),
        (("columns", 0, "dtype"), "<u8"), (("columns", 0, "dtype"), ["<i8"]), (("columns", 0, "dtype"), "<i8,<i8"),
        (("columns", 0, "shape"), [3]), (("columns", 0, "shape"), [3, 2, 1]), (("columns", 0, "shape"), [-3, -2]),
        (("columns", 0, "shape"), [10**9, 2]), (("columns", 0, "shape"), [0, 2**80]), (("columns", 0, "shape"), [2**40, 2**40]),
        (("columns", 0, "shape"), []), (("columns", 0, "shape"), None), (("columns", 0, "shape"), [float("inf"), 2]),
        (("columns", 0, "name"), "begin"), (("columns", 0, "name"), {}), (("columns", 0, "name"), "length"),
        (("columns", 1, "shape"), [2, 3]), (("columns", 2, "dtype"), "<i4"), (("columns", 2, "shape"), [6]),
        (("columns", 3, "shape"), [2]), (("columns", 3, "shape"), [4, 1]), (("columns", 3, "name"), "x"),
        (("columns", 4, "shape"), [2]), (("columns", 4, "dtype"), "<f8"),
    ],
)  # fmt: skip
def test_a_header_that_contradicts_itself_is_refused(path: tuple[Any, ...], value: Any) -> None:
    head, body = taken_apart(small().to_bytes())
    place: Any = head
    for step in path[:-1]:
        place = place[step]
    if value is NOTHING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    refused(as_file(head, body), match="contradicts itself")


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"kind": "tar"}', "[" * 100_000, '"\\ud800"', "1" * 10_000])
def test_a_header_that_is_no_header_is_refused(text: str) -> None:
    header = text.encode()
    prefix = PREFIX.pack(b"STOKERIX", VERSION, len(header), crc32c(header), crc32c(b""), PREFIX.size + len(header))
    refused(prefix + header)


def test_a_header_that_claims_more_bytes_than_there_are_is_refused() -> None:
    data = bytearray(small().to_bytes())
    struct.pack_into("<I", data, 12, 2**32 - 1)
    refused(bytes(data))


@pytest.mark.parametrize(
    ("start", "length"),
    [
        (10_000, 241),  # a byte past the end
        (10_241, 0),
        (2**62, 2**62),  # the sum wraps
        (2**63 - 1, 2**63 - 1),
        (1, 2**63 - 1),
        (-1, 5),
        (-(2**63), 2**62),
        (512, -2),
        (512, -(2**63)),
        (2**62, -1),  # a field that is not there is nowhere, above all not outside
        (-512, -1),
    ],
)
def test_places_outside_the_shard_are_refused(start: int, length: int) -> None:
    starts, lengths = small().start.copy(), small().length.copy()
    starts[1, 1], lengths[1, 1] = start, length
    refused(small(start=starts, length=lengths).to_bytes())


@pytest.mark.parametrize(
    "ends",
    [
        [1, 0, 4],
        [-1, 4, 4],
        [1, 4, 5],
        [1, 4, 3],
        [1, 100, 4],
        [2**63 - 1, -(2**63), 4],
        [-(2**63), -1, 4],
    ],
)
def test_keys_that_overlap_or_lie_outside_are_refused(ends: list[int]) -> None:
    keys = Keys(np.frombuffer(b"ab/\xff", np.uint8), np.array(ends, np.int64))
    refused(small(keys=keys).to_bytes())


def test_ends_of_keys_whose_differences_wrap_around_are_refused() -> None:
    # Every difference of neighbours is positive in 64 bits, and yet they go down.
    ends = np.array([0, 2**63 - 1, -(2**63), -1, 4], np.int64)
    column = np.zeros((5, 1), np.int64)
    keys = Keys(np.frombuffer(b"abcd", np.uint8), ends)
    refused(small(fields=("jpg",), start=column, length=column, crc=None, keys=keys).to_bytes(), match="keys that overlap")


@pytest.mark.parametrize(("start", "length"), [(12, -1), (11, 5), (12, 85), (12, 2**62)])
def test_a_tfrecord_without_room_for_its_length_and_checksums_is_refused(start: int, length: int) -> None:
    """No record of a TFRecord file lacks its field, and four bytes follow each."""

    def index(start: int, length: int) -> bytes:
        places = {"start": np.array([[start]], np.int64), "length": np.array([[length]], np.int64)}
        return small(kind="tfrecord", fields=("record",), crc=None, keys=None, size=100, **places).to_bytes()

    assert len(ShardIndex.from_bytes(index(12, 84), "x")) == 1
    refused(index(start, length), match=r"contradicts itself \((a record|places)")


@pytest.mark.parametrize("claim", ["records", "size", "column", "header", "sidecar"])
def test_a_sparse_file_of_15_gb_is_refused_before_memory_is_taken(tmp_path: Path, claim: str) -> None:
    """Whatever its header says: what it says is compared with the file, and with the shard, before the rest is read."""
    head, body = taken_apart(small().to_bytes())
    count = 15 * 10**9 // 8 if claim != "sidecar" else 2**31
    head["columns"].append({"name": "more", "dtype": "<i8", "shape": [count], "at": len(body)})
    if claim == "records":
        head["records"] = 10**9
    elif claim == "size":
        head["size"] = 10**9
    elif claim == "sidecar":
        head["kind"] = "files"
    header = json.dumps(head).encode()
    length = 2**32 - 1 if claim == "header" else len(header)
    total = PREFIX.size + len(header) + len(body) + 8 * count
    with (tmp_path / "x.tar.stk").open("wb") as file:
        file.write(PREFIX.pack(b"STOKERIX", VERSION, length, crc32c(header), 0, total) + header + body)
        file.truncate(total)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptIndex, match=r"x\.tar\.stk: not a usable index"):
            ShardIndex.read(LocalBlob(os.fsencode(tmp_path / "x.tar.stk")))
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


def test_an_index_that_memory_cannot_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(file: _Beginning, at: int, length: int, real: Any = _Beginning.get) -> Any:
        if at > 200:
            raise MemoryError
        return real(file, at, length)

    monkeypatch.setattr(_Beginning, "get", get)
    refused(small().to_bytes(), match="its columns take 152 bytes, more than there is memory")


def test_an_index_of_a_billion_records_is_refused_before_memory_is_taken() -> None:
    head, body = taken_apart(small().to_bytes())
    head["records"] = 10**9
    for column in head["columns"]:
        column["shape"][0] = 10**9
    refused(as_file(head, body), match="columns end at byte 16,000,000,048 of 152")
    for column in head["columns"]:
        column["shape"] = [10**9, 0]  # no bytes at all, and yet so many
    refused(as_file(head, body))


# ---- the tail --------------------------------------------------------------------------------------------------------


def with_seeks(strings: dict[str, list[bytes]] | None = None, **changes: Any) -> ShardIndex:
    """An index of three records with seek indices."""
    gathered = {}
    for name, values in ({"jpg": [b"one", b"", b"three"]} if strings is None else strings).items():
        gathered[name] = SeekStrings()
        for seek in values:
            gathered[name].add(seek)
    columns, tail = seek_columns(gathered, 3)
    return small(seeks=columns, tail=tail, **changes)


def stored(tmp_path: Path, data: bytes) -> LocalBlob:
    (tmp_path / "x.tar.stk").write_bytes(data)
    return LocalBlob(os.fsencode(tmp_path / "x.tar.stk"))


def test_seek_indices_come_back_and_stay_in_the_file(tmp_path: Path) -> None:
    index = with_seeks({"jpg": [b"one", b"", b"three"], "mask.jpg": [b"", b"2", b""]})
    back = ShardIndex.read(stored(tmp_path, index.to_bytes()))
    assert back.seeks is not None and list(back.seeks) == ["jpg", "mask.jpg"]
    assert back.seeks["jpg"].length.tolist() == [3, 0, 5] and back.seeks["mask.jpg"].length.tolist() == [0, 1, 0]
    assert back.tail.parts == () and back.tail.length == 9  # not read
    assert b"".join(back.tail.content()) == b"onethree2"
    assert back.to_bytes() == index.to_bytes() == ShardIndex.from_bytes(index.to_bytes(), "x").to_bytes()
    assert "seek_length:jpg" not in back.extra


def test_only_a_file_with_a_tail_is_of_the_second_version() -> None:
    nothing_found = with_seeks({})
    for index, version in ((small(), VERSION), (nothing_found, VERSION), (with_seeks(), TAIL_VERSION)):
        assert PREFIX.unpack_from(index.to_bytes())[1] == version
    assert ShardIndex.from_bytes(nothing_found.to_bytes(), "x").seeks == {}
    assert ShardIndex.from_bytes(small().to_bytes(), "x").seeks is None


def test_a_field_without_a_single_seek_index_takes_no_column() -> None:
    assert with_seeks({"jpg": [b"one"], "txt": [b"", b""]}).seeks.keys() == {"jpg"}  # type: ignore[union-attr]


def test_a_large_index_is_read_without_its_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.source.shards.shard_index._FIRST", 64)
    index = with_seeks({"jpg": [b"x" * 100_000, b"", b"y" * 100_000]})
    blob, asked = stored(tmp_path, index.to_bytes()), 0
    read_into = LocalBlob.read_into

    def counting(self: LocalBlob, offset: int, view: memoryview) -> None:
        nonlocal asked
        asked += len(view)
        read_into(self, offset, view)

    monkeypatch.setattr(LocalBlob, "read_into", counting)
    assert ShardIndex.read(blob).tail.length == 200_000
    assert asked < 2000


def test_every_byte_in_front_of_the_tail_is_checked_when_it_is_read(tmp_path: Path) -> None:
    data = with_seeks().to_bytes()
    for at in range(len(data) - 8):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        with pytest.raises(CorruptIndex):
            ShardIndex.read(stored(tmp_path, bytes(damaged)))


@pytest.mark.parametrize("cut", [1, 8, 20])
def test_a_cut_tail_is_refused(cut: int, tmp_path: Path) -> None:
    data = with_seeks().to_bytes()
    with pytest.raises(CorruptIndex):
        ShardIndex.read(stored(tmp_path, data[:-cut]))


def test_a_tail_that_is_not_what_the_columns_say_is_refused() -> None:
    index = with_seeks()
    refused(replace(index, tail=IndexTail.of([b"onethreefour"])).to_bytes(), "tail of 12 bytes")
    assert index.seeks is not None
    short = SeekColumn(index.seeks["jpg"].length[:2], index.seeks["jpg"].crc[:2])
    refused(replace(index, seeks={"jpg": short}, tail=IndexTail.of([b"one"])).to_bytes(), "seek indices of another shape")
