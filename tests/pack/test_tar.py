"""`TarWriter`: what it writes is what every tar reads."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.errors import ClosedError, ConfigError, WriteError
from stoker.kernel.records import TarScan
from stoker.pack.writers.tar_writer import MAX_FIELDS, TarWriter, member_headers
from stoker.source.shards.indexing import build_index
from stoker.source.shards.shard_index import ShardIndex
from stoker.source.streams.tar_stream import tar_samples
from stoker.storage.local import LocalBlob

needs_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="needs the tar command")

#: names that have brought other writers and readers down
KEYS = [
    b"plain", b"a/b/c", b"sp ace", b"caf\xc3\xa9", b"\xff\xfe", b"tab\there", b"star*", b"-dash", b"back\\slash", b"quote'\"",
    b"{1,3}", b"deep/" * 30 + b"end", b"n" * 95, b"n" * 96, b"n" * 97, b"n" * 300, b"p" * 155 + b"/" + b"n" * 96,
    b"p" * 156 + b"/" + b"n" * 96, b"p" * 155 + b"/" + b"n" * 97, b"\xc3\xa9" * 60, b"\xff" * 60, b"\xff" * 300,
    b"d" * 60 + b"/\xff/" + b"n" * 90, b"x.y/z",
]  # fmt: skip


def written(path: Path, samples: list[dict[str, Any]], **options: Any) -> Path:
    with TarWriter(path, **options) as shard:
        for sample in samples:
            shard.write(sample)
    return path


def numbered(count: int, size: int = 100) -> list[dict[str, Any]]:
    return [{"__key__": f"k{n:05d}", "bin": bytes([n % 256]) * (size + n), "cls": n} for n in range(count)]


def by_tarfile(path: Path) -> dict[bytes, bytes]:
    with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
        found = {}
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None and member.isreg()
            found[member.name.encode("utf-8", "surrogateescape")] = content.read()
    return found


def index_of(path: Path) -> ShardIndex:
    return ShardIndex.from_bytes(Path(f"{path}.stk").read_bytes(), str(path))


# ---- who reads it -----------------------------------------------------------------------------------------------------------


def test_pythons_tarfile_reads_every_name_and_byte(tmp_path: Path) -> None:
    samples = [{"__key__": key, "bin": key * 3, "seg.png": b""} for key in KEYS]
    found = by_tarfile(written(tmp_path / "a.tar", samples))
    expected = {}
    for key in KEYS:
        expected |= {key + b".bin": key * 3, key + b".seg.png": b""}
    assert found == expected
    assert list(found) == list(expected)


@needs_tar
def test_gnu_tar_lists_and_unpacks_every_name_and_byte(tmp_path: Path) -> None:
    keys = [key for key in KEYS if max(map(len, key.split(b"/"))) < 250]  # no disk has longer names
    written(tmp_path / "a.tar", [{"__key__": key, "bin": key * 3} for key in keys])
    listed = subprocess.run(["tar", "tf", "a.tar", "--quoting-style=literal"], cwd=tmp_path, capture_output=True, check=True)
    assert listed.stdout.split(b"\n")[:-1] == [key + b".bin" for key in keys]
    assert listed.stderr == b""
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "xf", "../a.tar"], cwd=tmp_path / "out", check=True)
    for key in keys:
        with open(os.fsencode(tmp_path / "out") + b"/" + key + b".bin", "rb") as file:
            assert file.read() == key * 3


def test_webdataset_reads_the_samples(tmp_path: Path) -> None:
    reference = pytest.importorskip("webdataset.tariterators")
    keys = [
        key.decode() for key in KEYS if key.isascii() and key != b"x.y/z"
    ]  # webdataset looks for the first dot of a whole path
    path = written(
        tmp_path / "a.tar", [{"__key__": key, "bin": key.encode(), "cls": n, "txt": key} for n, key in enumerate(keys)]
    )
    with open(path, "rb") as stream:
        found = list(reference.group_by_keys(reference.tar_file_expander([{"url": "a.tar", "stream": stream}])))
    assert [(sample["__key__"], sample["bin"], sample["cls"], sample["txt"]) for sample in found] == [
        (key, key.encode(), str(n).encode(), key.encode()) for n, key in enumerate(keys)
    ]


def test_our_own_reader_gives_back_what_was_written(tmp_path: Path) -> None:
    samples = [{"__key__": key, "bin": key, "seg.png": b"x" * n} for n, key in enumerate(KEYS)]
    path = written(tmp_path / "a.tar", samples)
    found = list(tar_samples([path.read_bytes()], "a.tar"))
    assert [(sample.key, sample.fields) for sample in found] == [
        (key, {"bin": key, "seg.png": b"x" * n}) for n, key in enumerate(KEYS)
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=130).filter(lambda key: not set(key) & set(b"\0\n./")),
            st.binary(max_size=130).filter(lambda key: not set(key) & set(b"\0\n/") and key not in (b"", b".", b"..")),
            st.binary(max_size=1030),
        ),
        max_size=8,
        unique_by=lambda parts: (parts[0], parts[1]),
    )
)
def test_any_name_and_content_come_back(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[bytes, bytes, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.tar"
    keys = [folder + b"/" + name for name, folder, _ in parts]
    written(path, [{"__key__": key, "x": content} for key, (_, _, content) in zip(keys, parts)])
    expected = {key + b".x": content for key, (_, _, content) in zip(keys, parts)}
    assert by_tarfile(path) == expected
    scan = TarScan()
    scan.feed(path.read_bytes())
    scan.finish()
    assert scan.samples == len(parts)


# ---- bytes ------------------------------------------------------------------------------------------------------------------


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    samples = [{"__key__": key, "bin": key, "json": {"b": 1, "a": [2]}} for key in KEYS]
    one, two = written(tmp_path / "1.tar", samples), written(tmp_path / "2.tar", samples)
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        for member in archive:
            assert (member.mode, member.uid, member.gid, member.uname, member.gname, member.mtime) == (0o444, 0, 0, "", "", 0)


def test_a_shard_ends_with_empty_blocks_in_whole_records(tmp_path: Path) -> None:
    for count in (0, 1, 7, 20):
        data = written(tmp_path / f"{count}.tar", numbered(count)).read_bytes()
        assert len(data) % 10240 == 0 and data[-1024:] == bytes(1024)


@pytest.mark.parametrize("blocks", range(150, 172))
def test_a_shard_of_any_length_has_the_size_it_told(tmp_path: Path, blocks: int) -> None:
    for size in (blocks * 512 - 1, blocks * 512):  # 80,896 bytes among them, which leave one block of a record
        with TarWriter(tmp_path / f"{size}.tar") as shard:
            shard.write({"bin": bytes(size)})
        assert (tmp_path / f"{size}.tar").stat().st_size == shard.size == index_of(tmp_path / f"{size}.tar").size
        assert shard.size % 10240 == 0 and shard.size >= 512 + size + 1024


def test_large_members_are_written_between_small_ones(tmp_path: Path) -> None:
    samples = [{"__key__": f"{n:03d}", "a": b"small", "b": os.urandom((n % 3) * 1_500_000 + 1), "c": b"last"} for n in range(7)]
    path = written(tmp_path / "a.tar", samples)
    found = by_tarfile(path)
    assert [found[f"{n:03d}.b".encode()] for n in range(7)] == [sample["b"] for sample in samples]
    same_index(path)


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 1 << 40])
@pytest.mark.parametrize("name", [b"k.bin", b"\xc3\xa9.bin", b"\xff" * 200 + b".bin"])
def test_members_beyond_8_gib_are_announced_so_that_others_read_them(tmp_path: Path, size: int, name: bytes) -> None:
    path = tmp_path / "big.tar"
    headers = member_headers(name, size)
    end = len(headers) + size + -size % 512 + 1024
    try:
        with open(path, "wb") as file:
            file.write(headers)
            file.truncate(end)  # a hole instead of so many bytes
    except OSError:
        pytest.skip("this disk takes no file that large")
    with tarfile.open(path, encoding="utf-8", errors="surrogateescape") as archive:
        member = archive.next()
        assert member is not None
        assert (member.name.encode("utf-8", "surrogateescape"), member.size, member.offset_data) == (name, size, len(headers))
    if shutil.which("tar"):
        listed = subprocess.run(["tar", "tvf", str(path), "--quoting-style=literal"], capture_output=True, check=True, timeout=60)
        assert str(size).encode() in listed.stdout and listed.stdout.endswith(name + b"\n")


# ---- the index --------------------------------------------------------------------------------------------------------------


def same_index(path: Path) -> None:
    """The index that was written beside a shard says what one made by reading it does."""
    ours, read = index_of(path), build_index(LocalBlob(os.fsencode(path)), "tar", sealed=True)
    assert ours.to_bytes() == read.to_bytes()


def test_the_index_is_the_one_a_reader_would_make(tmp_path: Path) -> None:
    same_index(written(tmp_path / "none.tar", []))
    same_index(written(tmp_path / "names.tar", [{"__key__": key, "bin": key, "seg.png": b"x"} for key in KEYS]))
    mixed = [{"a": b"1"}, {"b": b"", "a": b"2"}, {"Seg.PNG": b"3"}, {"b": b"4", "c\u00e9": b"5"}]
    same_index(written(tmp_path / "mixed.tar", mixed))
    same_index(written(tmp_path / "many.tar", numbered(3000, 1000)))


def test_the_index_is_sealed_and_knows_its_shard(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tar", numbered(3))
    index = index_of(path)
    assert (index.sealed, index.size, index.mtime_ns) == (True, path.stat().st_size, path.stat().st_mtime_ns)
    assert index.fields == ("bin", "cls") and index.keys is not None and index.keys[2] == b"k00002"


def test_an_index_is_not_written_where_it_is_not_wanted(tmp_path: Path) -> None:
    written(tmp_path / "a.tar", numbered(1), index=False)
    assert os.listdir(tmp_path) == ["a.tar"]


@pytest.mark.parametrize("index", [True, False])
def test_replacing_a_shard_replaces_or_removes_its_index(tmp_path: Path, index: bool) -> None:
    path = written(tmp_path / "a.tar", numbered(3))
    written(path, numbered(4), overwrite=True, index=index)
    assert len(by_tarfile(path)) == 8
    if index:
        assert len(index_of(path)) == 4
    else:
        assert os.listdir(tmp_path) == ["a.tar"]


def test_an_index_whose_shard_is_gone_makes_room(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tar", numbered(3))
    path.unlink()
    written(path, numbered(4))
    assert len(index_of(path)) == 4


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_index_is_never_replaced_by_one(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "a.tar.stk").write_text("my notes")
    with pytest.raises(WriteError, match="is not an index; move it away"):
        TarWriter(tmp_path / "a.tar", overwrite=overwrite)
    assert os.listdir(tmp_path) == ["a.tar.stk"]


def test_when_the_index_cannot_be_written_the_shard_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ShardIndex) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ShardIndex, "to_bytes", full)
    with pytest.raises(OSError):
        written(tmp_path / "a.tar", numbered(3))
    assert os.listdir(tmp_path) == []


def test_what_is_said_about_a_shard_goes_into_its_index(tmp_path: Path) -> None:
    about: dict[str, Any] = {"classes": ["cat", "dog"], "made": {}}
    with TarWriter(tmp_path / "a.tar", about=about) as shard:
        shard.write({"a": b"1"})
        about["made"]["samples"] = shard.samples  # it is looked at when the shard is closed
    assert index_of(tmp_path / "a.tar").about == {"classes": ["cat", "dog"], "made": {"samples": 1}}
    assert by_tarfile(tmp_path / "a.tar") == {b"000000000.a": b"1"}
    written(tmp_path / "a.tar", numbered(2), overwrite=True, about={"made": "again"})
    assert index_of(tmp_path / "a.tar").about == {"made": "again"} and len(index_of(tmp_path / "a.tar")) == 2


def test_a_shard_that_appeared_meanwhile_keeps_its_own_index(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="already exists"), TarWriter(tmp_path / "a.tar", about={"by": "us"}) as shard:
        shard.write({"a": b"ours"})
        written(tmp_path / "a.tar", [{"a": b"theirs"}], about={"by": "them"})
    assert by_tarfile(tmp_path / "a.tar") == {b"000000000.a": b"theirs"}
    assert index_of(tmp_path / "a.tar").about == {"by": "them"} and len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"a": b"bytes"}, "JSON"),
        ({"a": {1, 2}}, "JSON"),
        ({"ignored": 3}, "the index itself uses"),
        ({"a": "x" * (1 << 24)}, "^`about` takes 16,777,225 bytes as JSON, .* is limited to 16,777,216"),
    ],
)
def test_what_an_index_cannot_say_is_refused(tmp_path: Path, about: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        TarWriter(tmp_path / "a.tar", about=about)
    assert os.listdir(tmp_path) == []


def test_what_came_to_be_too_much_for_an_index_is_refused_when_it_is_written(tmp_path: Path) -> None:
    about: dict[str, Any] = {}
    with pytest.raises(ConfigError, match=r"the header of the index would take .* bytes"):  # noqa: SIM117
        with TarWriter(tmp_path / "a.tar", about=about) as shard:
            shard.write({"a": b"x"})
            about["a"] = "x" * (1 << 24)
    assert os.listdir(tmp_path) == []


def test_nothing_can_be_said_about_a_shard_without_index(tmp_path: Path) -> None:
    for target, options in ((tmp_path / "a.tar", {"index": False}), (io.BytesIO(), {})):
        with pytest.raises(ConfigError, match="there is none for this target"):
            TarWriter(target, about={}, **options)
    assert os.listdir(tmp_path) == []


# ---- samples ----------------------------------------------------------------------------------------------------------------


def test_values_are_encoded_by_their_extension(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    sample = {"cls": np.int64(7), "json": {"a": [1, None]}, "txt": "grün", "npy": array, "jpg": bytearray(b"pic"), "x.txt": "t"}
    found = by_tarfile(written(tmp_path / "a.tar", [sample]))
    assert found[b"000000000.cls"] == b"7"
    assert json.loads(found[b"000000000.json"]) == {"a": [1, None]}
    assert found[b"000000000.txt"].decode() == "grün"
    assert np.array_equal(np.load(io.BytesIO(found[b"000000000.npy"])), array)
    assert found[b"000000000.jpg"] == b"pic" and found[b"000000000.x.txt"] == b"t"


def test_what_is_written_is_what_was_given_then_not_what_it_becomes(tmp_path: Path) -> None:
    buffer = bytearray(b"first")
    with TarWriter(tmp_path / "a.tar") as shard:
        shard.write({"bin": buffer})
        buffer[:] = b"other"
    assert by_tarfile(tmp_path / "a.tar") == {b"000000000.bin": b"first"}


def test_samples_without_key_are_numbered(tmp_path: Path) -> None:
    assert list(by_tarfile(written(tmp_path / "a.tar", [{"a": b""}, {"a": b""}]))) == [b"000000000.a", b"000000001.a"]


def test_notes_of_other_tools_are_no_fields(tmp_path: Path) -> None:
    sample = {"__key__": "k", "__url__": "x.tar", "__local_path__": None, "a": b"1"}
    assert list(by_tarfile(written(tmp_path / "a.tar", [sample]))) == [b"k.a"]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "empty"), ("/etc/passwd", "slash"), ("../up", "relative"), ("a/../../b", "relative"), ("..", "relative"),
        ("./a", "relative"), ("a//b", "relative"), ("a/", "relative"), ("a\0b", "NUL"), ("a\nb", "newline"),
        ("photo.jpg", "dot.*replace"), ("a/.hidden", "dot"), (b"\xff.x", "dot"), (7, "str or bytes"), ("x" * 70_000, "allow"),
    ],
)  # fmt: skip
def test_a_key_that_could_be_misread_or_misused_is_refused(tmp_path: Path, key: Any, why: str) -> None:
    with TarWriter(tmp_path / "a.tar") as shard:
        with pytest.raises(ConfigError, match=why):
            shard.write({"__key__": key, "a": b"x"})
        shard.write({"__key__": "good", "a": b"x"})
    assert list(by_tarfile(tmp_path / "a.tar")) == [b"good.a"], "the shard is as if it had not been tried"


@pytest.mark.parametrize("field", ["", "a/b", "../x", "a\0", "a\nb", 3])
def test_a_field_that_is_no_extension_is_refused(tmp_path: Path, field: Any) -> None:
    with TarWriter(tmp_path / "a.tar") as shard, pytest.raises(ConfigError, match="field"):
        shard.write({"__key__": "k", field: b"x"})


@pytest.mark.parametrize(
    ("sample", "why"),
    [
        ({"__key__": "k"}, "no fields"),
        ({"a": b"", "A": b""}, "twice"),
        ({"jpg": np.zeros((3, 9, 9), np.uint8)}, "channels first"),
        ({"label": 3}, "cls"),
        ({"x": object()}, "pass bytes"),
        ({"__key__": "k\udc80", "txt": "a\udc80"}, r"key 'k.*x80'.* field 'txt'.*a lone surrogate"),
        ([("a", b"")], "cannot be a list"),
        (b"bytes", "cannot be a bytes"),
    ],
)
def test_a_sample_that_cannot_be_written_is_told_and_leaves_no_trace(tmp_path: Path, sample: Any, why: str) -> None:
    with TarWriter(tmp_path / "a.tar") as shard:
        shard.write({"a": b"before"})
        with pytest.raises(ConfigError, match=why):
            shard.write(sample)
        shard.write({"a": b"behind"})
    assert list(by_tarfile(tmp_path / "a.tar").values()) == [b"before", b"behind"]
    same_index(tmp_path / "a.tar")


def test_samples_of_files_are_told_how_to_be_named(tmp_path: Path, image_folder: Path) -> None:
    photos = stoker.files(image_folder)
    with pytest.raises(
        ConfigError, match=r"'cat/cat_00'.*'label'.*values of type int64 do not fit.*\.rename\(jpg='image', cls='label'\)"
    ):
        stoker.write_tar(tmp_path / "a.tar", photos)
    stoker.write_tar(tmp_path / "a.tar", photos.rename(jpg="image", cls="label"))
    assert [int(sample["cls"]) for sample in stoker.tar(tmp_path / "a.tar")] == [int(sample["label"]) for sample in photos]
    with pytest.raises(ConfigError, match=r"\.rename\(\*\*{'a b.txt': 'a b', 'n.cls': 'n'}\)"):
        stoker.write_tar(tmp_path / "b.tar", [{"a b": "text", "n": 3}])


@pytest.mark.parametrize("keys", [["a", "a"], ["a", "b", "a"], ["c", "b", "a", "b"], ["a", "b", "c", "a"], ["000000001", None]])
def test_a_key_that_was_there_before_is_refused(tmp_path: Path, keys: list[str | None]) -> None:
    with TarWriter(tmp_path / "a.tar") as shard:
        for key in keys[:-1]:
            shard.write({"__key__": key, "a": b"x"})
        with pytest.raises(ConfigError, match=r"a\.tar.*was written before"):
            shard.write({"__key__": keys[-1], "a": b"x"})
        shard.write({"__key__": "zz", "a": b"x"})
    same_index(tmp_path / "a.tar")


def test_a_shard_has_no_more_fields_than_readers_take(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as shard:
        for number in range(MAX_FIELDS):
            shard.write({f"f{number}": b"x"})
        with pytest.raises(ConfigError, match=f"more than {MAX_FIELDS} different fields"):
            shard.write({"f0": b"", "one-more": b"x"})
        shard.write({"f0": b""})
    same_index(tmp_path / "a.tar")


# ---- the writer -------------------------------------------------------------------------------------------------------------


def test_nothing_appears_when_the_block_is_left_by_an_exception(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TarWriter(tmp_path / "a.tar") as shard:
        for sample in numbered(100, 50_000):
            shard.write(sample)
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with pytest.raises(ClosedError):
        shard.write({"a": b""})


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    shard = TarWriter(tmp_path / "a.tar")
    shard.write({"a": b""})
    shard.close()
    shard.close()
    shard.abandon()
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "a.tar.stk"]
    with pytest.raises(ClosedError, match="closed"):
        shard.write({"a": b""})


def test_a_full_disk_leaves_nothing_and_says_how_much_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("stays")
    write = os.write

    def full(fd: int, data: Any) -> int:
        if os.fstat(fd).st_size > 5_000_000:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WriteError, match=r"a\.tar.*after \d.*MB.*disk is full"), TarWriter(tmp_path / "a.tar") as shard:
        for sample in numbered(200, 100_000):
            shard.write(sample)
    assert os.listdir(tmp_path) == ["mine.txt"]


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.tar.zst", b"a.TAR.GZ", Path("a.tar.xz")])
def test_a_name_that_promises_compression_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="written uncompressed"):
        TarWriter(name)


@pytest.mark.parametrize("name", ["s3://bucket/a.tar", "https://host/a.tar", "pipe:cat > x://"])
def test_a_place_on_a_network_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="upload"):
        TarWriter(name)


# ---- pipes ------------------------------------------------------------------------------------------------------------------


def test_a_file_object_gets_the_same_bytes_and_no_index(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with TarWriter(stream) as shard:
        for sample in numbered(50, 100_000):
            shard.write(sample)
    assert stream.getvalue() == written(tmp_path / "a.tar", numbered(50, 100_000)).read_bytes()


def test_a_stream_that_takes_little_at_once_gets_all(tmp_path: Path) -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.got = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.got += bytes(data[:1000])
            return min(1000, len(data))

    slow = Slow()
    with TarWriter(slow) as shard:  # type: ignore[arg-type]
        for sample in numbered(20, 5_000):
            shard.write(sample)
    assert slow.got == written(tmp_path / "a.tar", numbered(20, 5_000)).read_bytes()


def test_a_stream_for_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="'wb'"):
        TarWriter(io.StringIO())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be written to"):
        TarWriter(3)  # type: ignore[arg-type]


def test_standard_output_is_a_dash(tmp_path: Path) -> None:
    script = (
        "from stoker.pack import TarWriter\n"
        "with TarWriter('-') as shard:\n"
        "    for n in range(3):\n"
        "        shard.write({'__key__': f'k{n:05d}', 'bin': bytes([n]) * (100 + n), 'cls': n})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60, cwd=tmp_path)
    assert done.stdout == written(tmp_path / "a.tar", numbered(3)).read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "a.tar.stk"]


def test_a_shard_given_up_in_a_pipe_has_no_end(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with pytest.raises(RuntimeError), TarWriter(stream) as shard:
        for sample in numbered(30, 100_000):
            shard.write(sample)
        raise RuntimeError
    with pytest.raises(ValueError, match="end"):
        list(tar_samples([stream.getvalue()], "pipe"))


def test_a_named_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with open(tmp_path / "got", "wb") as got, subprocess.Popen(["cat", str(tmp_path / "a.tar")], stdout=got) as reader:
        written(tmp_path / "a.tar", numbered(30, 10_000))
        assert reader.wait(60) == 0
    assert (tmp_path / "got").read_bytes() == written(tmp_path / "b.tar", numbered(30, 10_000)).read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "b.tar", "b.tar.stk", "got"]


def test_a_pipe_remembers_only_the_last_key() -> None:
    stream = io.BytesIO()
    with TarWriter(stream) as shard:
        for key in ("a", "b", "a"):
            shard.write({"__key__": key, "x": b""})
        with pytest.raises(ConfigError, match="'a' follow each other"):
            shard.write({"__key__": "a", "y": b""})
        shard.write({"__key__": "c", "y": b""})
    assert [sample.key for sample in tar_samples([stream.getvalue()], "pipe")] == [b"a", b"b", b"a", b"c"]


def test_what_went_down_a_pipe_takes_no_memory() -> None:
    class Nowhere:
        def write(self, data: Any) -> None:
            pass

    large = bytes(1 << 20)  # written at once, so that nothing is waiting when memory is looked at
    with TarWriter(Nowhere()) as shard:  # type: ignore[arg-type]
        shard.write({"bin": large})
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(1000):
                shard.write({"bin": large})
            assert tracemalloc.get_traced_memory()[0] - before < 10_000
        finally:
            tracemalloc.stop()


def test_a_stream_that_fails_is_told_as_it_is() -> None:
    class Full(io.RawIOBase):
        room = 0

        def write(self, data: Any) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            taken, self.room = min(self.room, len(data)), 0
            return taken

    class Shut(io.RawIOBase):
        def write(self, data: Any) -> None:
            return None

    for room, left in ((0, "Nothing was written"), (100, "What was written of it is incomplete")):
        stream = Full()
        stream.room = room
        with pytest.raises(WriteError, match=rf"the disk is full; make room.*{left}") as caught, TarWriter(stream) as shard:
            shard.write({"bin": bytes(1 << 20)})
        assert "free" not in str(caught.value) and "remains" not in str(caught.value)
    with pytest.raises(WriteError, match="accepts no more") as caught, TarWriter(Shut()) as shard:
        shard.write({"bin": bytes(1 << 20)})
    assert caught.value.__cause__ is None


def test_a_reader_that_goes_away_is_told(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with (
        open(write, "wb", buffering=0) as stream,
        pytest.raises(WriteError, match="closed it") as caught,
        TarWriter(stream) as shard,
    ):
        for sample in numbered(50, 100_000):
            shard.write(sample)
    assert isinstance(caught.value.__cause__, BrokenPipeError)
