"""The tar reader: what tarfile and GNU tar write is found exactly, and what no tar may hold is refused with its place."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import CorruptShard, KernelError
from stoker.kernel.records import MEMBER, TarScan, crc32c

END = bytes(1024)
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


class Member(NamedTuple):
    key: bytes
    field: bytes
    content: bytes


def scan(tar: bytes, piece: int = 1 << 20, **options: int) -> list[Member]:
    """All members of a tar, read in pieces; what they are said to be is checked against the bytes."""
    reader = TarScan(**options)
    found = [reader.feed(tar[at : at + piece]) for at in range(0, len(tar), piece)]
    reader.finish()
    assert reader.ended and reader.position == len(tar)
    members = np.concatenate(found) if found else np.empty(0, MEMBER)
    keys = keys_of(reader)
    assert len(keys) == reader.samples
    for member in members:
        content = tar[member["start"] : member["start"] + member["length"]]
        assert member["crc"] == crc32c(content)
        assert member["header"] % 512 == 0 and member["start"] - member["header"] >= 512
    return [Member(keys[m["sample"]], reader.fields[m["field"]], tar[m["start"] : m["start"] + m["length"]]) for m in members]


def keys_of(reader: TarScan, first: int = 0) -> list[bytes]:
    data, ends = reader.keys(first)
    bounds = [0, *ends.tolist()]
    return [data[start:end].tobytes() for start, end in pairwise(bounds)]


def header(
    name: bytes = b"a.txt", size: int = 0, kind: bytes = b"0", *, magic: bytes = b"ustar\x0000", prefix: bytes = b"",
    size_field: bytes | None = None, signed: bool = False,
) -> bytes:  # fmt: skip
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = size_field or b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257 : 257 + len(magic)] = magic
    block[345 : 345 + len(prefix)] = prefix
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in block)
    block[148:156] = b"%06o\0 " % total
    return bytes(block)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def member(name: bytes, content: bytes = b"", kind: bytes = b"0") -> bytes:
    return header(name, len(content), kind) + padded(content)


def pax(*records: bytes, kind: bytes = b"x") -> bytes:
    content = b""
    for record in records:
        length = len(record) + 3
        while len(line := b"%d %s\n" % (length, record)) != length:
            length = len(line)
        content += line
    return member(b"PaxHeader", content, kind)


def long_name(name: bytes) -> bytes:
    return member(b"././@LongLink", name + b"\0", b"L")


def by_tarfile(members: list[tuple[str, bytes]], format: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, errors="surrogateescape", encoding="utf-8") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


# ---- what is found -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_what_tarfile_writes_is_read(format: int) -> None:
    deep = "d" * 90 + "/" + "e" * 60
    names = ["x/000.jpg", "x/000.cls", "x/001.seg.png", "caf\u00e9.TXT", f"{deep}/long.json", "odd\udcff name\nhere.bin"]
    if format != tarfile.USTAR_FORMAT:
        names += ["y" * 5000 + ".jpg", "z/" * 500 + "q.Cls"]
    contents = [bytes([i]) * size for i, size in enumerate([0, 1, 511, 512, 513, 70_000, 3, 1024])]
    tar = by_tarfile(list(zip(names, contents)), format)
    expected = []
    for name, content in zip(names, contents):
        folder, slash, last = name.encode("utf-8", "surrogateescape").rpartition(b"/")
        key, _, field = last.partition(b".")
        expected.append(Member(folder + slash + key, field.lower(), content))
    assert scan(tar) == expected


@pytest.mark.skipif(not shutil.which("tar"), reason="there is no tar command")
@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "pax"])
def test_what_gnu_tar_writes_is_read(format: str, tmp_path: Path) -> None:
    names = ["one/000.jpg", "one/000.txt", "one/001.jpg"]
    if format not in ("v7", "ustar"):
        names.append("one/" + "n" * 150 + ".jpg")
    (tmp_path / "one").mkdir()
    for i, name in enumerate(names):
        (tmp_path / name).write_bytes(b"%d" % i * 1000 * i)
    command = ["tar", f"--format={format}", "--sort=name", "-cf", str(tmp_path / "all.tar"), "-C", str(tmp_path), "./one"]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        pytest.skip("this tar knows other options")
    tar = (tmp_path / "all.tar").read_bytes()
    expected = [(f"{name[:-4]}".encode(), name[-3:].encode(), b"%d" % i * 1000 * i) for i, name in enumerate(names)]
    assert sorted(scan(tar)) == sorted(expected)


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(
        st.tuples(st.text("ab/.", max_size=5), st.sampled_from("xyz"), st.text("cD.", min_size=1, max_size=4)), max_size=8
    ),
    format=st.sampled_from(FORMATS),
    piece=st.integers(1, 3000),
)
def test_any_names_are_grouped_as_the_rule_says(names: list[tuple[str, str, str]], format: int, piece: int) -> None:
    whole = ["".join((*name[:2], ".", name[2])) for name in names]
    tar = by_tarfile([(name, b"%d" % i) for i, name in enumerate(whole)], format)
    expected, samples, taken, refused = [], [], set(), False
    for i, name in enumerate(whole):
        bare = name
        while bare.startswith("./"):
            bare = bare[2:]
        folder, slash, last = bare.rpartition("/")
        stem, dot, field = last.partition(".")
        if not dot or not stem:
            continue
        key = (folder + slash + stem).encode()
        if not samples or samples[-1] != key:
            samples.append(key)
            taken = set()
        refused = refused or not field or field.lower() in taken
        taken.add(field.lower())
        expected.append(Member(key, field.lower().encode(), b"%d" % i))
    if refused:
        with pytest.raises(CorruptShard):
            scan(tar, piece)
    else:
        assert scan(tar, piece) == expected


def test_a_sample_ends_where_the_key_changes_and_may_come_again() -> None:
    reader = TarScan()
    names = [b"a.x", b"./a.Y", b"b.x", b"././a.x", b"d/a.x"]
    found = reader.feed(b"".join(member(name, b"1") for name in names) + END)
    assert found["sample"].tolist() == [0, 0, 1, 2, 3] and found["field"].tolist() == [0, 1, 0, 0, 0]
    assert keys_of(reader) == [b"a", b"b", b"a", b"d/a"] and reader.fields == (b"x", b"y")
    assert keys_of(reader, 2) == [b"a", b"d/a"]


def test_what_belongs_to_no_sample_is_counted_and_named() -> None:
    names = [b"README", b"d/.hidden.txt", b".DS_Store", b"d.x/file"]
    tar = member(b"folder/", kind=b"5") + b"".join(member(name, b"12345") for name in names)
    tar += pax(b"comment=hello", kind=b"g") + member(b"a.txt", b"me") + member(b"v7folder/", kind=b"\0")
    reader = TarScan()
    assert len(reader.feed(tar + END)) == 1
    assert reader.ignored == 7 and reader.samples == 1
    assert reader.ignored_names == (b"folder/", *names, b"PaxHeader", b"v7folder/")
    many = TarScan()
    many.feed(b"".join(member(b"file%d" % i) for i in range(20)) + END)
    assert many.ignored == 20 and many.ignored_names == tuple(b"file%d" % i for i in range(8))


def test_a_member_that_is_ignored_does_not_end_a_sample() -> None:
    assert [m.key for m in scan(member(b"a.x") + member(b"README") + member(b"a.y") + END)] == [b"a", b"a"]


@pytest.mark.parametrize(
    "tar, expected",
    [
        (header(b"a.x", 2, b"\0", magic=b"") + padded(b"v7"), Member(b"a", b"x", b"v7")),
        (header(b"a.x", 2, b"7") + padded(b"co"), Member(b"a", b"x", b"co")),
        (header(b"a.x", 0, prefix=b"p" * 155), Member(b"p" * 155 + b"/a", b"x", b"")),
        (header(b"a.x", 0, prefix=b"12345", magic=b"ustar  \0"), Member(b"a", b"x", b"")),
        (header(b"n" * 98 + b".x"), Member(b"n" * 98, b"x", b"")),
        (header(size_field=b"\x80" + bytes(10) + b"\x03") + padded(b"256"), Member(b"a", b"txt", b"256")),
        (header(size_field=b"     3\0     ") + padded(b"oct"), Member(b"a", b"txt", b"oct")),
        (header(b"\xe9.x", signed=True), Member(b"\xe9", b"x", b"")),
        (long_name(b"L" * 200 + b".x") + header(b"short"), Member(b"L" * 200, b"x", b"")),
        (pax(b"path=p/q.x", b"size=4", b"mtime=1.5", b"SCHILY.xattr.user=1") + header() + padded(b"four"),
         Member(b"p/q", b"x", b"four")),
        (pax(b"path=p.x") + long_name(b"l.y") + header(), Member(b"p", b"x", b"")),
        (long_name(b"l.y") + pax(b"path=p.x") + header(), Member(b"p", b"x", b"")),
        (pax(b"path=") + header(b"own.x"), Member(b"own", b"x", b"")),
        (pax(b"path=" + b"w" * 60_000 + b".x") + header(), Member(b"w" * 60_000, b"x", b"")),
    ],
    ids=["v7", "contiguous", "prefix", "gnu has no prefix", "full name", "base 256", "blanks", "signed checksum", "long name",
         "pax", "pax before long name", "pax after long name", "empty pax path", "very long pax path"],
)  # fmt: skip
def test_every_kind_of_header_is_read(tar: bytes, expected: Member) -> None:
    for piece in (1 << 20, 511, 37):
        assert scan(tar + END, piece) == [expected]


def test_a_member_reaches_from_its_first_header_to_the_next_members() -> None:
    tar = member(b"a.x", b"1" * 600) + long_name(b"b.x") + member(b"b", b"2") + pax(b"mtime=1") + member(b"c.x") + member(b"d.x")
    found = TarScan().feed(tar + END)
    ends = (found["start"] + found["length"] + 511) // 512 * 512
    assert found["header"].tolist() == [0, *ends[:-1].tolist()] and ends[-1] == len(tar)


def test_pieces_of_any_size_give_the_same() -> None:
    tar = by_tarfile([(f"{i:03d}.{field}", b"x" * (i * 97)) for i in range(6) for field in ("jpg", "cls")], tarfile.PAX_FORMAT)
    whole = TarScan().feed(tar)
    for piece in (1, 7, 100, 511, 512, 513, 5000):
        reader = TarScan()
        parts = np.concatenate([reader.feed(tar[at : at + piece]) for at in range(0, len(tar), piece)])
        assert np.array_equal(parts, whole)


def test_a_member_is_told_with_its_last_byte() -> None:
    reader = TarScan()
    tar = member(b"a.x", b"12345") + member(b"a.empty")
    assert len(reader.feed(tar[:516])) == 0 and reader.samples == 1 and not reader.ended
    assert reader.feed(tar[516:517])["length"].tolist() == [5]
    assert len(reader.feed(tar[517:1535])) == 0
    assert reader.feed(tar[1535:])["length"].tolist() == [0]
    assert len(reader.feed(b"")) == 0 and reader.position == len(tar)


def test_checksums_can_be_left_out() -> None:
    found = TarScan(checksums=False).feed(member(b"a.x", b"12345") + END)
    assert found["crc"].tolist() == [0] and found["length"].tolist() == [5]


def test_a_piece_may_hold_more_members_than_are_taken_at_once() -> None:
    names = [b"%06d.x" % i for i in range(20_000)]
    reader = TarScan()
    found = reader.feed(b"".join(header(name) for name in names) + END)
    assert found["sample"].tolist() == list(range(20_000)) and keys_of(reader)[-1] == b"019999"


def test_keys_that_are_no_longer_needed_can_be_let_go() -> None:
    reader = TarScan()
    reader.feed(b"".join(member(b"%03d.x" % i) for i in range(50)))
    reader.forget(30)
    assert keys_of(reader, 30) == [b"%03d" % i for i in range(30, 50)] and reader.samples == 50
    with pytest.raises(KernelError, match="no key 29"):
        reader.keys(29)
    reader.forget(1000)
    reader.feed(member(b"049.y") + member(b"050.x") + END)
    assert reader.samples == 51 and keys_of(reader, 49) == [b"049", b"050"], "the last key decides whether a sample goes on"


# ---- what is refused ---------------------------------------------------------------------------------------------------

GOOD = member(b"good.x", b"12345")
SPOILED = bytearray(header(b"b.x"))
SPOILED[0] ^= 1


@pytest.mark.parametrize(
    "bad, offset, message",
    [
        (bytes(SPOILED), 1024, "bad tar header checksum at byte 1024"),
        (member(b"b.x") + member(b"b.X"), 1536, "'b.X'|'b.x'.*has that field already"),
        (header(b"b.x", kind=b"1"), 1024, "a hard link; .* plain files"),
        (header(b"b.x", kind=b"2"), 1024, "a symbolic link"),
        (header(b"b.x", kind=b"3"), 1024, "a device"),
        (header(b"b.x", kind=b"4"), 1024, "a device"),
        (header(b"b.x", kind=b"6"), 1024, "a FIFO"),
        (header(b"b.x", kind=b"S"), 1024, "sparse"),
        (header(b"b.x", kind=b"M"), 1024, "another volume"),
        (header(b"b.x", kind=b"Z"), 1024, "unknown type 0x5a"),
        (pax(b"GNU.sparse.major=1") + header(b"b.x"), 1024, "sparse"),
        (header(b"b.x", size_field=b"\xff" * 12), 1024, "negative size"),
        (header(b"b.x", size_field=b"\x80" + b"\xff" * 11), 1024, "unreadable size"),
        (header(b"b.x", size_field=b"0000000008\0\0"), 1024, "unreadable size"),
        (header(b"b.x", size_field=b"\x80" + bytes(3) + b"\x7f" + b"\xff" * 7), 1024, "claims 9223372036854775807 bytes"),
        (pax(b"size=1x") + header(b"b.x"), 1024, "a size that is no number"),
        (pax(b"size=-1") + header(b"b.x"), 1024, "a size that is no number"),
        (pax(b"size=99999999999999999999") + header(b"b.x"), 1024, "a size that is no number"),
        (header(b"b."), 1024, "'b.' at byte 1024 has an empty field"),
        (header(b""), 1024, "empty name"),
        (header(b"b.x\0y"), 1024, "NUL inside"),
        (long_name(b"b\0.x") + header(), 1024, "NUL inside"),
        (pax(b"path=b\0.x") + header(), 1024, "NUL inside"),
        (long_name(b"n" * 65_537), 1024, "65538 bytes long"),
        (pax(b"path=" + b"n" * 65_537), 1024, "has 65537 bytes"),
        (header(kind=b"x", size=(1 << 20) + 1), 1024, "1048577 bytes long, more than 1048576"),
        (member(b"p", b"7 path\n", b"x"), 1024, "malformed"),
        (member(b"p", b"99 path=a\n", b"x"), 1024, "malformed"),
        (member(b"p", b"path=a\n", b"x"), 1024, "malformed"),
        (member(b"p", b"8 path=a\n", b"x"), 1024, "malformed"),
        (pax(b"qath=b.x") + header(), 1024, "unknown keyword 'qath'"),
        (pax(b"path=b.x", kind=b"g"), 1024, "changes the name of every member"),
        (pax(b"size=5", kind=b"g"), 1024, "changes the size of every member"),
        (long_name(b"b.x"), 2048, "announces"),
        (pax(b"mtime=1"), 2048, "announces"),
        (header(b"d/", 5, b"5"), 1024, "directory 'd/' at byte 1024 claims 5 bytes"),
        (bytes(512) + header(b"b.x"), 1024, "a hole"),
        (END + b"\0\0x", 2050, "behind the end"),
        (END + header(b"b.x"), 2048, "behind the end"),
    ],
)  # fmt: skip
def test_what_no_shard_may_hold_is_refused_with_its_place(bad: bytes, offset: int, message: str) -> None:
    for piece in (1 << 20, 100):
        with pytest.raises(CorruptShard, match=message) as caught:
            scan(GOOD + bad + END, piece)
        assert caught.value.offset == offset and caught.value.shard == ""


def test_too_many_fields_are_refused() -> None:
    tar = b"".join(member(b"a.%d" % i) for i in range(5)) + END
    assert len(scan(tar, max_fields=5)) == 5
    with pytest.raises(CorruptShard, match=r"more than 4 different fields: '4' at byte 2048.*max_fields") as caught:
        scan(tar, max_fields=4)
    assert caught.value.offset == 2048
    with pytest.raises(KernelError, match="max_fields is 0"):
        TarScan(max_fields=0)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"<!DOCTYPE html><html>" + b" " * 600, "not a tar: .*'<!DOCTYPE html>"),
        (b"\x1f\x8b\x08" + bytes(600), "those of gzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "those of zstd"),
        (b"Not found", "not a tar: 9 bytes that begin with 'Not found'"),
        (b"\xff\n\\" + bytes(600), r"begins with '\\xff\\x0a\\\\"),
        (b"", "no bytes at all"),
    ],
)
def test_something_else_is_told_by_its_first_bytes(data: bytes, message: str) -> None:
    with pytest.raises(CorruptShard, match=message):
        scan(data)


def test_a_fault_stays() -> None:
    reader = TarScan()
    with pytest.raises(CorruptShard) as first:
        reader.feed(GOOD + bytes(SPOILED))
    for again in (lambda: reader.feed(GOOD), lambda: reader.feed(b""), reader.finish):
        with pytest.raises(CorruptShard) as later:
            again()
        assert str(later.value) == str(first.value) and later.value.offset == 1024


def test_a_closed_reader_says_so() -> None:
    reader = TarScan()
    reader.close()
    with pytest.raises(KernelError, match="closed"):
        reader.feed(b"")


# ---- damage ------------------------------------------------------------------------------------------------------------

SMALL = by_tarfile([("a.jpg", b"picture"), ("a.cls", b"7"), ("b.jpg", b"p" * 520), ("b.cls", b"")], tarfile.USTAR_FORMAT)
SMALL = SMALL.rstrip(b"\0") + bytes(-len(SMALL.rstrip(b"\0")) % 512) + END


def test_every_cut_is_told() -> None:
    assert len(scan(SMALL)) == 4
    for cut in range(len(SMALL)):
        with pytest.raises(CorruptShard) as caught:
            scan(SMALL[:cut])
        assert caught.value.offset is not None and 0 <= caught.value.offset <= cut


def test_every_flipped_byte_is_told_or_leaves_every_name_and_place() -> None:
    whole = scan(SMALL)
    for at in range(len(SMALL)):
        for flip in (0x01, 0x80, 0xFF):
            data = bytearray(SMALL)
            data[at] ^= flip
            try:
                found = scan(bytes(data))
            except CorruptShard as error:
                assert error.offset is not None and error.offset <= len(SMALL)
                continue
            assert [(m.key, m.field, len(m.content)) for m in found] == [(m.key, m.field, len(m.content)) for m in whole]


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=3000), piece=st.integers(1, 1500), blocks=st.lists(st.sampled_from([GOOD, bytes(512), END, SMALL]))
)
def test_any_bytes_are_read_or_refused(data: bytes, piece: int, blocks: list[bytes]) -> None:
    try:
        scan(b"".join(blocks) + data, piece)
    except CorruptShard as error:
        assert str(error).isascii() and error.offset is not None
