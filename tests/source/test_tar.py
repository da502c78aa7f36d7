"""Tar shards read at random: samples by basename, fields by extension, every byte checked."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, RecordError, SampleError, ShardChanged, SourceEmpty
from stoker.source.chunk import BytesColumn
from stoker.source.shards.indexing import build_index, index_of, keep_index
from stoker.source.shards.tar_source import TarSource
from stoker.storage.local import LocalBlob

from ..loader.runs import run_python
from ..support import read, values
from .making import END, member, sample_tar
from .test_codecs import Canary, npy

Samples = list[tuple[str, Mapping[str, bytes]]]


def store(folder: Path, *shards: Samples | bytes) -> list[Path]:
    paths = []
    for number, shard in enumerate(shards):
        paths.append(folder / f"s-{number}.tar")
        paths[-1].write_bytes(shard if isinstance(shard, bytes) else sample_tar(shard))
    return paths


def open_source(paths: list[Path], **options: Any) -> TarSource:
    blobs = [LocalBlob(os.fsencode(path)) for path in paths]
    return TarSource(blobs, [index_of(blob, "tar") for blob in blobs], **options)


def everything(source: TarSource) -> list[dict[str, Any]]:
    rows = read(source)
    assert not rows.errors
    return [values(rows, row) for row in range(len(source))]


# ---- samples ---------------------------------------------------------------------------------------------------------


def test_shards_follow_each_other_whatever_the_order_of_their_fields(tmp_path: Path) -> None:
    source = open_source(
        store(
            tmp_path,
            [("a", {"txt": b"one", "cls": b"1"}), ("b", {"txt": b"two", "cls": b"2"})],
            [("c", {"cls": b"3", "txt": b"three"})],
            [("d", {"cls": b"4", "txt": b"four"}), ("e", {"txt": b"five", "cls": b"5"})],
        )
    )
    assert list(source.fields) == ["txt", "cls"]
    assert [source.key(index) for index in range(5)] == list("abcde")
    assert everything(source) == [{"txt": t, "cls": n} for n, t in enumerate(["one", "two", "three", "four", "five"], 1)]
    assert [source.shard_of(index) for index in range(5)] == [0, 0, 1, 2, 2]


def test_fields_are_decoded_by_extension(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    sample = {"cls": b"-7\n", "json": b'{"a": [1]}', "txt": "é".encode(), "x.npy": npy(array), "jpg": b"\xff\xd8", "seg.png": b""}
    source = open_source(store(tmp_path, [("a", sample)]))
    [got] = everything(source)
    assert np.array_equal(got.pop("x.npy"), array)
    assert got == {"cls": -7, "json": {"a": [1]}, "txt": "é", "jpg": b"\xff\xd8", "seg.png": b""}
    assert {name: str(spec) for name, spec in source.fields.items()} == {
        "cls": "int64[]", "json": "object", "txt": "object", "x.npy": "object", "jpg": "bytes", "seg.png": "bytes",
    }  # fmt: skip


def test_without_decoding_all_are_bytes(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, [("a", {"cls": b"7", "pkl": b"\x80", "json": b"{"})]), decode=False)
    assert everything(source) == [{"cls": b"7", "pkl": b"\x80", "json": b"{"}]


@pytest.mark.parametrize(
    "numbers",
    [
        [b"0", b"1", b"12345678"],
        [b"7", b" 7", b"7\n", b"+7", b"-7", b"007"],
        [b"9223372036854775807", b"-9223372036854775808", b"999999999999999999", b"1000000000000000000"],
        [b"5"],
    ],
)
def test_numbers_are_read_however_they_are_written(tmp_path: Path, numbers: list[bytes]) -> None:
    source = open_source(store(tmp_path, [(f"{n}", {"cls": text}) for n, text in enumerate(numbers)]))
    assert [sample["cls"] for sample in everything(source)] == [int(text) for text in numbers]
    out = np.full(len(numbers), 99, np.int64)
    assert read(source, None, ("cls",), cls=out).columns["cls"] is out
    assert out.tolist() == [int(text) for text in numbers]


def test_names_with_dots_prefixes_and_folders_are_grouped_as_webdataset_does(tmp_path: Path) -> None:
    names = [
        b"./train/n01.x/a.seg.PNG",
        b"./train/n01.x/a.jpg",
        b"././b.b/c.jpg",
        b"b.b/c.Seg.png",
        b"d\xff.jpg",
        b"d\xff.seg.png",
    ]
    data = b"".join(member(name, name) for name in names) + END
    source = open_source(store(tmp_path, data))
    assert [source.key(index) for index in range(3)] == ["train/n01.x/a", "b.b/c", r"d\xff"]
    assert everything(source) == [
        {"seg.png": names[0], "jpg": names[1]}, {"seg.png": names[3], "jpg": names[2]}, {"seg.png": names[5], "jpg": names[4]},
    ]  # fmt: skip


def test_a_sample_knows_where_it_is_stored(tmp_path: Path) -> None:
    paths = store(tmp_path, [("a", {"x": b"1"})], [("b", {"x": b"2"}), ("c", {"x": b"3"})])
    source = open_source(paths)
    assert source.origin(2) == f"{paths[1]}, byte 1,536"
    assert "3 samples in 2 shards" in source.describe()


def test_files_that_belong_to_no_sample_are_told_in_the_description(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, member(b"README", b"x") + member(b"a.x", b"1") + END))
    assert everything(source) == [{"x": b"1"}]
    assert "1 file in them belong" in source.describe()


def test_a_shard_may_be_empty_but_not_all_of_them(tmp_path: Path) -> None:
    assert len(open_source(store(tmp_path, END, [("a", {"x": b"1"})], END))) == 1
    with pytest.raises(SourceEmpty, match="without samples"):
        open_source(store(tmp_path, END, END))


# ---- what is missing -------------------------------------------------------------------------------------------------

PARTIAL: Samples = [
    ("a", {"jpg": b"A", "cls": b"1"}),
    ("b", {"jpg": b"B"}),
    ("c", {"jpg": b"C", "cls": b"3"}),
    ("d", {"cls": b"4"}),
]


def test_a_sample_without_a_field_is_an_error_of_that_sample(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, PARTIAL))
    rows = read(source)
    assert set(rows.errors) == {1, 3}
    assert all(isinstance(error, RecordError) for error in rows.errors.values())
    assert "sample 'b' has no 'cls', only jpg" in str(rows.errors[1]) and "defaults={'cls': ...}" in str(rows.errors[1])
    assert "s-0.tar" in str(rows.errors[3])
    assert values(rows, 0) == {"jpg": b"A", "cls": 1} and values(rows, 2) == {"jpg": b"C", "cls": 3}
    assert set(read(source, None, ("jpg",)).errors) == {3}, "what is not wanted may be missing"


def test_defaults_stand_in_for_what_is_missing(tmp_path: Path) -> None:
    source = open_source(store(tmp_path, PARTIAL), defaults={"cls": -1, "jpg": b""})
    assert everything(source) == [
        {"jpg": b"A", "cls": 1}, {"jpg": b"B", "cls": -1}, {"jpg": b"C", "cls": 3}, {"jpg": b"", "cls": 4},
    ]  # fmt: skip
    assert [sample["cls"] for sample in stoker.tar(tmp_path, defaults={"cls": -1, "jpg": b""})] == [1, -1, 3, 4]


def test_a_field_that_only_another_shard_has_is_missing_too(tmp_path: Path) -> None:
    paths = store(tmp_path, [("a", {"x": b"1"})], [("b", {"y": b"2"})], [("c", {"x": b"3", "y": b"4"})])
    assert set(read(open_source(paths)).errors) == {0, 1}
    assert everything(open_source(paths, defaults={"x": b"?", "y": b"?"})) == [
        {"x": b"1", "y": b"?"}, {"x": b"?", "y": b"2"}, {"x": b"3", "y": b"4"},
    ]  # fmt: skip


def test_a_key_split_between_shards_is_two_partial_samples_and_the_message_says_where_the_other_is(tmp_path: Path) -> None:
    paths = store(tmp_path, [("a", {"jpg": b"1", "cls": b"1"}), ("b", {"jpg": b"2"})], [("b", {"cls": b"2"})])
    rows = read(open_source(paths))
    assert set(rows.errors) == {1, 2}
    assert f"{paths[1]} has a sample of that key too: was it split between shards?" in str(rows.errors[1])
    assert f"{paths[0]} has a sample of that key too" in str(rows.errors[2])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"defaults": {"nope": 1}}, "defaults names the field 'nope', but the fields here are jpg, cls"),
        ({"allow_pickle": ["nope"]}, "allow_pickle names the field 'nope'"),
        ({"allow_pickle": "pkl"}, "list of field names"),
        ({"defaults": {"cls": "none"}}, "defaults.*'cls'.*integer"),
        ({"defaults": {"cls": None}}, "defaults.*'cls'.*integer"),
        ({"defaults": {"cls": 2**70}}, "defaults.*'cls'.*integer"),
        ({"defaults": {"jpg": "text"}}, "defaults.*'jpg'.*bytes"),
    ],
)
def test_options_that_do_not_fit_the_fields_are_told_at_once(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    store(tmp_path, PARTIAL)
    with pytest.raises(ConfigError, match=match):
        stoker.tar(tmp_path, **options)


# ---- what is damaged -------------------------------------------------------------------------------------------------


def test_bytes_that_changed_since_they_were_indexed_cost_their_sample_alone(tmp_path: Path) -> None:
    [path] = store(tmp_path, [(f"{n}", {"x": b"x" * 600, "cls": b"5"}) for n in range(6)])
    source = open_source([path])
    data = bytearray(path.read_bytes())
    at = int(source.indexes[0].start[3, 0]) + 77
    data[at] ^= 1
    with path.open("r+b") as file:  # in place: the file that is open stays the same
        file.seek(at)
        file.write(data[at : at + 1])
    fresh = TarSource([LocalBlob(os.fsencode(path))], source.indexes)
    rows = read(fresh)
    assert set(rows.errors) == {3}
    assert isinstance(rows.errors[3], RecordError)
    assert all(word in str(rows.errors[3]) for word in (str(path), "'x' of sample '3'", "checksum", "stoker index --force"))
    assert not read(fresh, None, ("cls",)).errors, "other fields of that sample are good"
    assert [values(rows, row)["x"] for row in range(6) if row != 3] == [b"x" * 600] * 5


def test_a_field_that_cannot_be_decoded_costs_its_sample_alone(tmp_path: Path) -> None:
    texts = [b"1", b"cat", b"", b"4"]
    source = open_source(store(tmp_path, [(f"{n}", {"cls": text, "json": b"{}"}) for n, text in enumerate(texts)]))
    rows = read(source)
    assert set(rows.errors) == {1, 2}
    assert "b'cat'" in str(rows.errors[1])
    assert rows.columns["cls"][[0, 3]].tolist() == [1, 4]


def test_errors_name_the_sample_and_its_shard(tmp_path: Path) -> None:
    store(tmp_path, [("good", {"json": b"{}"}), ("bad", {"json": b"{"})])
    with pytest.raises(RecordError) as caught:
        list(stoker.tar(tmp_path))
    assert isinstance(caught.value, SampleError)
    assert (caught.value.key, caught.value.position) == ("bad", 1)
    assert "s-0.tar" in str(caught.value) + caught.value.origin


def test_bad_samples_can_be_left_out(tmp_path: Path) -> None:
    store(tmp_path, [(f"{n}", {"cls": b"x" if n == 2 else b"%d" % n}) for n in range(5)])
    batches = list(stoker.tar(tmp_path).on_error("skip", budget=1).batch(5))
    assert batches[0]["cls"].tolist() == [0, 1, 3, 4]


def test_a_shard_that_is_cut_or_replaced_during_a_run_is_told(tmp_path: Path) -> None:
    [path] = store(tmp_path, [(f"{n}", {"x": bytes(5000)}) for n in range(8)])
    source = open_source([path])
    assert not read(source, [0]).errors
    os.truncate(path, 20_000)
    rows = read(source)
    assert set(rows.errors) == {3, 4, 5, 6, 7}
    assert all(isinstance(error, ShardChanged) for error in rows.errors.values())
    path.write_bytes(sample_tar([("other", {"x": b""})]))
    again = TarSource([LocalBlob(os.fsencode(path))], source.indexes)
    assert set(read(again).errors) == set(range(8))


# ---- pickles ---------------------------------------------------------------------------------------------------------


def test_pickles_are_refused_but_in_the_fields_that_are_named(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    poison = pickle.dumps(Canary(canary))
    (tmp_path / "d").mkdir()
    store(tmp_path / "d", [("a", {"pkl": pickle.dumps({"n": 1}), "pth": poison, "jpg": poison})])
    with pytest.raises(RecordError, match="allow_pickle"):
        list(stoker.tar(tmp_path / "d"))
    with pytest.raises(RecordError, match="allow_pickle"):
        list(stoker.tar(tmp_path / "d", allow_pickle=["pkl"]))
    [sample] = stoker.tar(tmp_path / "d", allow_pickle=["pkl"]).select("pkl", "jpg")
    assert sample["pkl"] == {"n": 1} and sample["jpg"] == poison
    [sample] = stoker.tar(tmp_path / "d", allow_pickle=["jpg"]).select("jpg")
    assert sample["jpg"] == poison, "a picture is never unpickled, whatever is named"
    assert not canary.exists()
    list(stoker.tar(tmp_path / "d", allow_pickle=["pth"]).select("pth"))
    assert canary.exists(), "what the user trusts by name is trusted"


def test_a_named_field_that_is_no_pickle_is_a_bad_sample(tmp_path: Path) -> None:
    store(tmp_path, [("a", {"pkl": b"junk"})])
    with pytest.raises(RecordError, match="'pkl': cannot be unpickled"):
        list(stoker.tar(tmp_path, allow_pickle=["pkl"]))


# ---- identity --------------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_of_the_data_and_not_of_where_they_are(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        store(tmp_path / folder, PARTIAL[:1], [PARTIAL[2]])
    one, two = stoker.tar(tmp_path / "one"), stoker.tar(tmp_path / "two")
    assert one.fingerprint() == two.fingerprint()
    store(tmp_path / "two", PARTIAL[:1], [("c", {"jpg": b"Z", "cls": b"3"})])
    assert stoker.tar(tmp_path / "two").fingerprint() != one.fingerprint(), "one byte of content"
    store(tmp_path / "two", PARTIAL[:1], [("x", {"jpg": b"C", "cls": b"3"})])
    assert stoker.tar(tmp_path / "two").fingerprint() != one.fingerprint(), "one key"
    assert stoker.tar(tmp_path / "one", decode=False).fingerprint() != one.fingerprint()
    assert stoker.tar(tmp_path / "one", defaults={"cls": 1}).fingerprint() != one.fingerprint()


def test_a_sealed_index_serves_a_shard_that_was_copied(tmp_path: Path) -> None:
    [path] = store(tmp_path, PARTIAL[:1])
    blob = LocalBlob(os.fsencode(path))
    keep_index(blob, build_index(blob, "tar", sealed=True))
    os.utime(path, ns=(1, 1))
    assert [sample["cls"] for sample in stoker.tar(path)] == [1]


def test_bytes_stay_in_the_workers_memory_until_they_are_taken(tmp_path: Path, scratch: Any) -> None:
    source = open_source(store(tmp_path, [(f"{n}", {"x": bytes([n]) * 3000}) for n in range(10)]))
    first = source.read(np.arange(5), ("x",), {}, scratch).columns["x"]
    assert isinstance(first, BytesColumn)
    kept = first.lasting()
    source.read(np.arange(5, 10), ("x",), {}, scratch)
    assert kept.own() == [bytes([n]) * 3000 for n in range(5)]


def test_many_sources_of_many_shards_leave_descriptors_for_others(tmp_path: Path) -> None:
    store(tmp_path, *([(f"{n}", {"cls": b"%d" % n})] for n in range(14)))
    script = """
import os, resource, sys, tempfile
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
import stoker
pipelines = [stoker.tar(sys.argv[1]) for _ in range(8)]
for pipeline in [*pipelines, stoker.mix(pipelines)]:
    numbers = sorted(int(x) for batch in pipeline.shuffle(seed=1).batch(7) for x in batch["cls"])
    assert numbers == sorted(list(range(14)) * (len(numbers) // 14)), numbers
    assert len(os.listdir("/proc/self/fd")) < 100, len(os.listdir("/proc/self/fd"))
print("read")
"""
    done = run_python(script, str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr[-2000:]


# ---- stoker.tar ------------------------------------------------------------------------------------------------------


def test_shards_are_given_in_many_ways(tmp_path: Path) -> None:
    paths = store(tmp_path, *([(f"{n}", {"cls": b"%d" % n})] for n in range(4)))
    for spec in (
        tmp_path,
        str(tmp_path),
        str(tmp_path / "s-{0..3}.tar"),
        str(tmp_path / "*.tar"),
        paths,
        [str(paths[0]), str(tmp_path / "s-{1,2,3}.tar")],
        "::".join(map(str, paths)),
        f"file://{tmp_path}/s-{{0..3}}.tar",
    ):
        assert [int(sample["cls"]) for sample in stoker.tar(spec)] == [0, 1, 2, 3], spec
    assert [int(sample["cls"]) for sample in stoker.tar(str(tmp_path / "s-{3..0}.tar"))] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("spec", "options", "match"),
    [
        ("pipe:touch canary", {}, "pipe"),
        ("ftp://host/a.tar", {}, "ftp"),
        ("{0..999999999}.tar", {}, "at most"),
        ([], {}, "empty list"),
        ("", {}, "empty"),
        (["-", "a.tar"], {}, "cannot be mixed"),
        ("a.tar", {"index": "yes"}, "index='yes'"),
        ("s-0.tar", {"interleave": 2}, "interleave"),
    ],
)
def test_what_makes_no_sense_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Any, options: Any, match: str
) -> None:
    store(tmp_path, PARTIAL)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=match):
        stoker.tar(spec, **options)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("options", [{}, {"index": "never"}])
@pytest.mark.parametrize(("field", "data"), [("cls", b"x7"), ("json", b"{"), ("txt", b"\xff"), ("npy", b"no"), ("pkl", b".")])
def test_a_field_that_cannot_be_decoded_is_told_with_its_sample_and_shard(
    tmp_path: Path, options: dict[str, str], field: str, data: bytes
) -> None:
    """With an index and in sequence alike."""
    [path] = store(tmp_path, [("good", {"bin": b"1"}), ("bad", {"bin": b"2"})])
    path.write_bytes(sample_tar([(f"s{n}", {"bin": b"1", field: data}) for n in range(3)]))
    with pytest.raises(RecordError, match=rf"s-0\.tar, byte 512: sample 's0': .*(field '{field}'|pickle)") as caught:
        list(stoker.tar(path, **options))  # type: ignore[arg-type]
    assert caught.value.key == "s0" and caught.value.origin == f"{path}, byte 512"


class BytesPath:
    """A path that is no text."""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __fspath__(self) -> bytes:
        return self._path


def test_paths_may_be_text_bytes_or_anything_that_is_a_path(tmp_path: Path) -> None:
    """Of any name, in a list or alone, for every source that takes some."""
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    samples = [{"__key__": "a", "n": 1}, {"__key__": "b", "n": 2}]
    stoker.write_tar(folder + b"/s-{}.tar", [{"__key__": sample["__key__"], "cls": 1} for sample in samples])
    stoker.write_tfrecord(folder + b"/s.tfrecord", samples)
    stoker.write_lmdb(folder + b"/s.lmdb", samples)
    for source, name in ((stoker.tar, b"s-000000.tar"), (stoker.tfrecord, b"s.tfrecord"), (stoker.lmdb, b"s.lmdb")):
        path = folder + b"/" + name
        for given in (path, BytesPath(path), os.fsdecode(path), Path(os.fsdecode(path))):
            assert len(source(given)) == 2  # type: ignore[operator]
    for many in ([folder + b"/s-000000.tar"], [BytesPath(folder + b"/s-000000.tar")], folder, folder + b"/*.tar"):
        assert len(stoker.tar(many)) == 2
    for source in (stoker.tar, stoker.tfrecord, stoker.lmdb, stoker.filelist):
        with pytest.raises(ConfigError, match="path"):
            source(7)  # type: ignore[operator]
