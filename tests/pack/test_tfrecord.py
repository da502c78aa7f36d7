"""`TfrecordWriter`, `write_tfrecord`: records that a second reader takes."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import ClosedError, ConfigError, WriteError
from stoker.pack.writers.tfrecord_writer import TfrecordWriter, write_tfrecord
from stoker.source.shards.indexing import build_index
from stoker.source.shards.shard_index import ShardIndex
from stoker.storage.local import LocalBlob

from . import wire


def samples(count: int, size: int = 20) -> list[dict[str, Any]]:
    return [
        {"image": bytes([n % 256]) * (size + n % 7), "label": n - 5, "box": np.arange(n % 4, dtype=np.float32), "name": f"s{n}"}
        for n in range(count)
    ]


def expected(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        "image": ("bytes", [sample["image"]]),
        "label": ("int", [sample["label"]]),
        "box": ("float", sample["box"].tolist()),
        "name": ("bytes", [sample["name"].encode()]),
    }


def same_index(path: Path) -> ShardIndex:
    """The index beside a file says what one made by reading it does."""
    ours = ShardIndex.from_bytes(Path(f"{path}.stk").read_bytes(), str(path))
    assert ours.to_bytes() == build_index(LocalBlob(os.fsencode(path)), "tfrecord", sealed=True).to_bytes()
    return ours


@pytest.mark.parametrize(("count", "size"), [(1, 0), (300, 20), (60, 100_000)])
def test_a_second_reader_finds_every_record_and_checksum_right(tmp_path: Path, count: int, size: int) -> None:
    wanted = samples(count, size)
    if size > 1000:
        wanted = wanted[:3]  # plain Python checksums slowly
    done = write_tfrecord(tmp_path / "a.tfrecord", wanted)
    found = [wire.example(record) for record in wire.records(tmp_path / "a.tfrecord")]
    assert found == [expected(sample) for sample in wanted]
    assert (done.paths, done.samples, done.bytes) == (
        (str(tmp_path / "a.tfrecord"),),
        len(wanted),
        os.path.getsize(done.paths[0]),
    )


def test_the_index_is_the_one_a_reader_would_make(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a.tfrecord", samples(5000))
    index = same_index(tmp_path / "a.tfrecord")
    assert (len(index), index.fields, index.sealed) == (5000, ("record",), True)
    assert index.mtime_ns == (tmp_path / "a.tfrecord").stat().st_mtime_ns
    assert index.about["examples"] is True
    assert [(f["name"], f["kind"], f["least"], f["most"], f["present"]) for f in index.about["features"]] == [
        ("box", "float", 0, 3, 5000), ("image", "bytes", 1, 1, 5000), ("label", "int", 1, 1, 5000), ("name", "bytes", 1, 1, 5000),
    ]  # fmt: skip


def test_records_of_many_sizes_are_gathered_rightly(tmp_path: Path) -> None:
    wanted = [os.urandom(size) for size in (0, 1, 3_000_000, 5, 2_097_152, 0, 1_048_576, 7)]
    with TfrecordWriter(tmp_path / "a.tfrecord") as file:
        for record in wanted:
            file.write(record)
    index = same_index(tmp_path / "a.tfrecord")
    data = (tmp_path / "a.tfrecord").read_bytes()
    assert [
        data[start : start + length] for start, length in zip(index.start[:, 0].tolist(), index.length[:, 0].tolist())
    ] == wanted
    assert index.about == {"examples": False, "features": []}


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a", samples(50))
    write_tfrecord(tmp_path / "b", (dict(reversed(list(sample.items()))) for sample in samples(50)))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_keys_are_stored_only_under_a_name_that_is_given(tmp_path: Path) -> None:
    given = [{"__key__": "k/1", "x": 1}, {"x": 2}]
    write_tfrecord(tmp_path / "a", given)
    assert [wire.example(record) for record in wire.records(tmp_path / "a")] == [{"x": ("int", [1])}, {"x": ("int", [2])}]
    write_tfrecord(tmp_path / "b", given, key="id")
    assert [wire.example(record)["id"] for record in wire.records(tmp_path / "b")] == [
        ("bytes", [b"k/1"]),
        ("bytes", [b"000000001"]),
    ]
    with pytest.raises(ConfigError, match="already has a field 'x'"):
        write_tfrecord(tmp_path / "c", given, key="x")


def test_files_are_split_by_bytes_and_by_count(tmp_path: Path) -> None:
    done = write_tfrecord(tmp_path / "a-{:03d}.tfrecord", samples(100), max_bytes=2000)
    assert len(done.paths) > 3 and all(os.path.getsize(path) <= 2000 for path in done.paths)
    found = [wire.example(record) for path in done.paths for record in wire.records(Path(path))]
    assert found == [expected(sample) for sample in samples(100)]
    done = write_tfrecord(tmp_path / "b-%d.tfrecord", samples(10), max_samples=4)
    assert [len(wire.records(Path(path))) for path in done.paths] == [4, 4, 2]
    for path in done.paths:
        same_index(Path(path))


def test_a_kind_that_changes_is_told_also_across_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sample 3: field 'x'.*float here and int"):
        write_tfrecord(tmp_path / "a-{}", [{"x": 1}, {"x": 2}, {"x": 3}, {"x": 0.5}], max_samples=2)
    assert sorted(os.listdir(tmp_path)) == ["a-000000", "a-000000.stk"]


def test_floats_are_exact_or_rounded_as_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sample 0 \(key 'k'\): field 'x': 0.1.*floats='round'"):
        write_tfrecord(tmp_path / "a", [{"__key__": "k", "x": np.array([0.1])}])
    assert os.listdir(tmp_path) == []
    write_tfrecord(tmp_path / "a", [{"x": np.array([0.1])}], floats="round")
    assert wire.example(wire.records(tmp_path / "a")[0])["x"] == ("float", [float(np.float32(0.1))])


def test_a_file_object_gets_the_same_bytes(tmp_path: Path) -> None:
    for count, size in ((20, 20), (60, 100_000)):
        stream = io.BytesIO()
        with TfrecordWriter(stream) as file:
            for sample in samples(count, size):
                file.write(sample)
        write_tfrecord(tmp_path / "a", samples(count, size), overwrite=True)
        assert stream.getvalue() == (tmp_path / "a").read_bytes()


def test_what_is_said_about_a_file_goes_into_its_index(tmp_path: Path) -> None:
    with TfrecordWriter(tmp_path / "a", about={"classes": ["cat", "dog"]}) as file:
        file.write({"x": 1})
    about = ShardIndex.from_bytes((tmp_path / "a.stk").read_bytes(), "a").about
    assert about["classes"] == ["cat", "dog"] and about["examples"] and [entry["name"] for entry in about["features"]] == ["x"]
    with pytest.raises(ConfigError, match="'features' is a name that the index itself uses"):
        TfrecordWriter(tmp_path / "b", about={"features": []})


def test_nothing_appears_when_the_block_is_left_by_an_exception(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TfrecordWriter(tmp_path / "a") as file:
        for sample in samples(100, 50_000):
            file.write(sample)
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with pytest.raises(ClosedError):
        file.write({"x": 1})


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def full(fd: int, data: Any) -> int:
        if os.fstat(fd).st_size > 3_000_000:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WriteError, match="disk is full"):
        write_tfrecord(tmp_path / "a", samples(100, 100_000))
    assert os.listdir(tmp_path) == []
