"""The walk through an LMDB file: every entry where LMDB itself finds it, and damage told with its page."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import CorruptShard, ReadError
from stoker.kernel.records import LmdbTable, walk_lmdb

lmdb = pytest.importorskip("lmdb")

META_FLAGS, META_DEPTH, META_ENTRIES, META_ROOT, META_LAST, META_TXN = 92, 94, 120, 128, 136, 144


def walk(path: Path) -> LmdbTable:
    fd = os.open(path, os.O_RDONLY)
    try:
        return walk_lmdb(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def entries(path: Path) -> list[tuple[bytes, bytes]]:
    """What the walk finds, as keys and values."""
    table, data = walk(path), path.read_bytes()
    keys = [table.key_data[start:end].tobytes() for start, end in pairwise([0, *table.key_ends.tolist()])]
    return [(key, data[start : start + length]) for key, start, length in zip(keys, table.starts, table.lengths)]


def write(folder: Path, *transactions: dict[bytes, bytes], **options: Any) -> Path:
    """A database to which each dict was written in a transaction of its own."""
    folder.mkdir()
    with lmdb.open(str(folder), map_size=1 << 26, **options) as env:
        for items in transactions:
            with env.begin(write=True) as txn:
                for key, value in items.items():
                    txn.put(key, value)
    return folder / "data.mdb"


def copied(path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    changed = path.parent / "changed.mdb"
    changed.write_bytes(data)
    return changed


def numbers(count: int, size: int = 20) -> dict[bytes, bytes]:
    return {b"%08d" % i: bytes([i % 256]) * size for i in range(count)}


# ---- what is found -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 2030, 2040, 4079, 4080, 4081, 8176, 8177, 50_000])
def test_values_of_every_size_are_found(tmp_path: Path, size: int) -> None:
    items = {b"a": b"x" * size, b"b" * 511: b"y" * size, b"c": b"z"}
    assert entries(write(tmp_path / "db", items)) == sorted(items.items())


def test_many_entries_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    items = numbers(20_000, 100)
    path = write(tmp_path / "db", dict(random.Random(1).sample(sorted(items.items()), len(items))))
    with lmdb.open(str(path.parent), readonly=True, lock=False) as env:
        assert env.stat()["depth"] >= 3, "branches above branches"
    assert entries(path) == sorted(items.items())


def test_an_empty_database_has_no_entries(tmp_path: Path) -> None:
    assert entries(write(tmp_path / "fresh")) == []
    with lmdb.open(str(tmp_path / "fresh")) as env:
        for change in (lambda txn: txn.put(b"a", b"1"), lambda txn: txn.delete(b"a")):
            with env.begin(write=True) as txn:
                change(txn)
    assert entries(tmp_path / "fresh" / "data.mdb") == []


@pytest.mark.parametrize("seed", range(6))
def test_a_database_with_a_long_life_is_read(tmp_path: Path, seed: int) -> None:
    """Values grow and shrink, entries go, transactions fail: nothing that LMDB leaves behind confuses the walk."""
    rng, sizes = random.Random(seed), [0, 10, 100, 1000, 2000, 3000, 5000, 9000, 30_000]
    (tmp_path / "db").mkdir()
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 26, writemap=seed % 3 == 0) as env:
        for _ in range(12):
            with env.begin(write=True) as txn:
                for _ in range(rng.randrange(200)):
                    key = b"%d" % rng.randrange(300) * rng.choice([1, 1, 40])
                    if rng.random() < 0.3:
                        txn.delete(key)
                    else:
                        txn.put(key, rng.randbytes(rng.choice(sizes)))
                if rng.random() < 0.2:
                    txn.abort()
            with env.begin() as txn:
                expected = [(bytes(key), bytes(value)) for key, value in txn.cursor()]
            assert entries(tmp_path / "db" / "data.mdb") == expected
        for compact in (True, False):
            (tmp_path / f"copy{compact}").mkdir()
            env.copy(str(tmp_path / f"copy{compact}"), compact=compact)
            assert entries(tmp_path / f"copy{compact}" / "data.mdb") == expected


# ---- what is refused -----------------------------------------------------------------------------------------------------


def test_named_databases_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    with lmdb.open(str(tmp_path / "db"), max_dbs=2) as env, env.begin(write=True, db=env.open_db(b"inner")) as txn:
        txn.put(b"a", b"1")
    with pytest.raises(CorruptShard, match="'inner' is a named database"):
        walk(tmp_path / "db" / "data.mdb")


def test_other_kinds_of_keys_and_values_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "db", numbers(3))
    for flags, message in ((0x02, "flags 0x2"), (0x08, "flags 0x8"), (0x04, "DUPSORT"), (0x14, "DUPSORT")):
        with pytest.raises(CorruptShard, match=message):
            walk(copied(path, poke(4096 + META_FLAGS, "<H", flags)))
    leaf = pages(path.read_bytes(), 2)[0]
    node = leaf + struct.unpack_from("<H", path.read_bytes(), leaf + 16)[0]
    with pytest.raises(CorruptShard, match=r"'00000000' has several values"):
        walk(copied(path, poke(node + 4, "<H", 0x04)))


def test_something_else_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    for content, message in (
        (b"<html>" * 2000, "not an LMDB file: it begins with '<html>"),
        (b"", "0 bytes"),
        (b"x" * 90, "90 bytes"),
    ):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(CorruptShard, match=message) as caught:
            walk(tmp_path / "file")
        assert caught.value.offset == (0 if len(content) > 100 else len(content))


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="Bad file descriptor"):
        walk_lmdb(9999, 8192)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(ReadError, match="directory"):
            walk_lmdb(fd, 8192)
    finally:
        os.close(fd)


def poke(offset: int, format: str, value: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        struct.pack_into(format, data, offset, value)

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (poke(16, "<I", 0xBEEFC0DF), "not an LMDB file"),
        (poke(4096 + 16, "<I", 0xBEEFC0DF), "overwritten"),
        (poke(20, "<I", 2), "format 2 .* not 1"),
        (poke(10, "<H", 2), "makes no sense"),
        (poke(40, "<I", 4095), "makes no sense"),
        (poke(4096 + 40, "<I", 8192), "contradict"),
        (poke(4096 + META_DEPTH, "<H", 33), "makes no sense"),
        (poke(4096 + META_DEPTH, "<H", 1), "not the leaf page"),
        (poke(4096 + META_DEPTH, "<H", 0), "root without a tree"),
        (poke(4096 + META_ENTRIES, "<Q", 499), "tells of 499 entries, the tree has 500"),
        (poke(4096 + META_ROOT, "<Q", 2), "not the branch page 2"),
        (poke(4096 + META_ROOT, "<Q", 1), "names page 1, which the database does not have"),
        (poke(4096 + META_ROOT, "<Q", 1 << 40), "which the database does not have"),
        (poke(4096 + META_LAST, "<Q", 3), "which the database does not have"),
        (poke(4096 + META_LAST, "<Q", 2**64 - 1), "makes no sense"),
        (poke(4096 + META_TXN, "<Q", 0), "contradict"),
        (poke(META_TXN, "<Q", 2), "contradict"),
        (poke(4096 + META_TXN, "<Q", 9), "contradict"),
    ],
)
def test_meta_pages_that_make_no_sense_are_refused(tmp_path: Path, change: Callable[[bytearray], None], message: str) -> None:
    path = write(tmp_path / "db", numbers(500))
    assert len(walk(path).starts) == 500
    with pytest.raises(CorruptShard, match=message) as caught:
        walk(copied(path, change))
    assert caught.value.offset is not None and caught.value.offset % 4096 == 0


def pages(data: bytes, flags: int) -> list[int]:
    """Offsets of the pages of a kind."""
    return [at for at in range(0, len(data), 4096) if struct.unpack_from("<H", data, at + 10)[0] == flags]


@pytest.mark.parametrize(
    "kind, offset, format, value, message",
    [
        (2, 0, "<Q", 99, "not the leaf page"),
        (2, 10, "<H", 1, "not the leaf page"),
        (2, 12, "<H", 15, "do not fit"),
        (2, 12, "<H", 17, "do not fit"),
        (2, 12, "<H", 5000, "do not fit"),
        (2, 14, "<H", 16, "do not fit"),
        (2, 16, "<H", 0, "do not fit"),
        (2, 16, "<H", 4094, "do not fit"),
        (2, 18, "<H", 65535, "do not fit"),
        (1, 12, "<H", 18, "do not fit"),
        (1, 12, "<H", 16, "do not fit"),
        (4, 0, "<Q", 77, "does not hold the value"),
        (4, 10, "<H", 2, "does not hold the value"),
        (4, 12, "<I", 1, "does not hold the value"),
        (4, 12, "<I", 2**32 - 1, "which the database does not have"),
    ],
)
def test_pages_that_make_no_sense_are_refused_with_their_offset(
    tmp_path: Path, kind: int, offset: int, format: str, value: int, message: str
) -> None:
    path = write(tmp_path / "db", {**numbers(500), b"big": b"b" * 9000})
    at = pages(path.read_bytes(), kind)[0]
    with pytest.raises(CorruptShard, match=message) as caught:
        walk(copied(path, poke(at + offset, format, value)))
    told = caught.value.offset
    assert told == at or (kind == 4 and told is not None and told % 4096 == 0)


def test_trees_that_lead_astray_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "db", numbers(500))
    data = path.read_bytes()
    branch, leaves = pages(data, 1)[0], pages(data, 2)
    nodes = struct.unpack_from("<3H", data, branch + 16)

    def child(which: int, page: int) -> Callable[[bytearray], None]:
        return poke(branch + nodes[which], "<H", page)

    cases = [
        (child(0, branch // 4096), "in use elsewhere"),
        (child(1, leaves[0] // 4096), "in use elsewhere"),
        (child(1, 60_000), "does not have"),
        (poke(branch + nodes[1] + 8, "<Q", 0), "keys of the page"),
        (poke(branch + nodes[1] + 8, ">Q", int.from_bytes(b"99999999", "big")), "another place|not those of the pages"),
    ]
    for change, message in cases:
        with pytest.raises(CorruptShard, match=message):
            walk(copied(path, change))
    first = struct.unpack_from("<H", data, leaves[0] + 16)[0]
    with pytest.raises(CorruptShard, match="do not ascend"):
        walk(copied(path, poke(leaves[0] + first + 8, "<B", ord("5"))))


def test_two_values_cannot_lie_in_the_same_pages(tmp_path: Path) -> None:
    path = write(tmp_path / "db", {b"a": b"1" * 5000, b"b": b"2" * 5000})
    data = path.read_bytes()
    leaf = pages(data, 2)[0]
    first, second = struct.unpack_from("<2H", data, leaf + 16)
    stolen = struct.unpack_from("<Q", data, leaf + first + 9)[0]
    with pytest.raises(CorruptShard, match="in use elsewhere"):
        walk(copied(path, poke(leaf + second + 9, "<Q", stolen)))


# ---- damage --------------------------------------------------------------------------------------------------------------


def test_every_cut_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "db", {**numbers(100), b"big": b"b" * 9000})
    data = path.read_bytes()
    for cut in [*range(0, len(data), 512), 1, 151, 152, 4097, 8191, 8193, len(data) - 1]:
        (tmp_path / "cut.mdb").write_bytes(data[:cut])
        with pytest.raises(CorruptShard) as caught:
            walk(tmp_path / "cut.mdb")
        assert caught.value.offset is not None and caught.value.offset <= cut
        fd = os.open(tmp_path / "cut.mdb", os.O_RDONLY)
        try:
            walk_lmdb(fd, len(data))  # it shrank after its size was taken
            assert cut > len(data) - 3 * 4096, "all but the inside of the last value was there"
        except CorruptShard as error:
            assert error.offset is not None
        finally:
            os.close(fd)


def test_every_flipped_byte_is_told_or_leaves_every_entry_in_its_place(tmp_path: Path) -> None:
    """LMDB stores no checksums, so a flip inside a key or a value cannot be told here; whatever says where they are can."""
    path = write(tmp_path / "db", {b"a": b"1" * 10, b"bb": b"2" * 5000, b"ccc": b"", b"dddd": b"4"})
    whole, data = walk(path), path.read_bytes()
    fd = os.open(path, os.O_RDWR)
    try:
        leaf = pages(data, 2)[0]
        places = [*range(160), *range(4096, 4096 + 160), *range(leaf, leaf + 30), *range(leaf + 3980, leaf + 4096)]
        places += list(range(pages(data, 4)[0], pages(data, 4)[0] + 16))
        for at in places:
            for flip in (0x01, 0x10, 0x80, 0xFF):
                os.pwrite(fd, bytes([data[at] ^ flip]), at)
                try:
                    found = walk_lmdb(fd, len(data))
                except CorruptShard as error:
                    assert error.offset is not None and error.offset <= len(data)
                else:
                    # What surrounds a node rounds it up to an even size, what surrounds a large value to whole pages.
                    assert np.array_equal(found.starts // 2, whole.starts // 2) and len(found.starts) == 4
                    assert (np.abs(found.lengths - whole.lengths) <= [1, 4096, 1, 1]).all()
                os.pwrite(fd, data[at : at + 1], at)
    finally:
        os.close(fd)
    assert path.read_bytes() == data


def test_random_damage_never_leads_outside_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "db", {**numbers(300), b"big": b"b" * 9000})
    data, rng = path.read_bytes(), random.Random(3)
    (tmp_path / "bad.mdb").write_bytes(data)
    fd = os.open(tmp_path / "bad.mdb", os.O_RDWR)
    used = [at for at in range(0, len(data), 4096) if any(data[at : at + 4096])]
    try:
        for _ in range(600):
            spots = [rng.choice(used) + rng.choice([rng.randrange(160), rng.randrange(4096)]) for _ in range(rng.randrange(1, 5))]
            for at in spots:
                os.pwrite(fd, rng.randbytes(1), at)
            try:
                table = walk_lmdb(fd, len(data))
            except CorruptShard:
                pass
            else:
                assert (table.starts >= 8192).all() and (table.starts + table.lengths <= len(data)).all()
            for at in spots:
                os.pwrite(fd, data[at : at + 1], at)
    finally:
        os.close(fd)
