"""`stoker index --jpeg`, `pack`, `verify` and `bench` with seek indices."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stoker as stoker_package
from stoker.pack.jobs.seeking import step_of
from stoker.source.shards.indexing import keep_index
from stoker.source.shards.shard_index import SeekStrings, ShardIndex, seek_columns
from stoker.source.shards.sidecar import NAME, own_sidecar
from stoker.storage.local import LocalBlob

from ..support import image_bytes, jpeg_bytes

PICTURES = [jpeg_bytes(300 + n, 200, seed=n) for n in range(10)]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten JPEGs in two classes, and a PNG that is called a JPEG."""
    for number, data in enumerate([*PICTURES, image_bytes(60, 50, format="PNG")]):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "photos"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two tar shards and a TFRecord with the JPEGs, and indexes without seek indices."""
    folder = tmp_path / "shards"
    folder.mkdir()
    stoker_package.write_tar(folder / "t-{}.tar", [{"jpg": data, "cls": 1} for data in PICTURES], max_samples=5)
    stoker_package.write_tfrecord(folder / "r.tfrecord", [{"image": data, "label": 1} for data in PICTURES])
    return folder


def index_of(path: Path) -> ShardIndex:
    return ShardIndex.read(LocalBlob(os.fsencode(f"{path}.stk")))


def states(told: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(shard["index"], shard.get("seek_indices")) for shard in told["shards"]]


# ---- index ------------------------------------------------------------------------------------------------------------------


def test_seek_indices_are_added_to_indexes_that_are_there(stoker_json: Any, shards: Path) -> None:
    names = [shards / "*.tar", shards / "r.tfrecord"]
    before = index_of(shards / "t-000000.tar")
    assert states(stoker_json("index", *names)) == [("kept", None)] * 3
    told = stoker_json("index", "--jpeg", *names)
    assert states(told) == [("added", 5), ("added", 5), ("added", 10)] and told["shards"][0]["seek_bytes"] > 500
    after = index_of(shards / "t-000000.tar")
    assert after.sealed and after.seeks is not None and list(after.seeks) == ["jpg"]
    assert replace(after, seeks=None, tail=before.tail).to_bytes() == before.to_bytes()
    assert list(index_of(shards / "r.tfrecord").seeks or {}) == ["image"]
    assert states(stoker_json("index", "--jpeg", *names)) == [("kept", 5), ("kept", 5), ("kept", 10)]


def test_an_index_is_made_with_seek_indices_at_once(stoker_json: Any, shards: Path) -> None:
    made = shards / "t-000000.tar"
    with_writer = shards / "w.tar"
    stoker_package.write_tar(with_writer, [{"jpg": data, "cls": 1} for data in PICTURES[:5]], seek=True)
    (shards / "t-000000.tar.stk").unlink()
    assert states(stoker_json("index", "--jpeg", made)) == [("made", 5)]
    ours, theirs = index_of(made), index_of(with_writer)
    assert ours.tail.content() == theirs.tail.content() and ours.tail.length
    assert replace(ours, mtime_ns=0).to_bytes() == replace(theirs, mtime_ns=0).to_bytes()


def test_made_anew_an_index_keeps_its_seek_indices(stoker_json: Any, shards: Path) -> None:
    assert states(stoker_json("index", "--force", shards / "*.tar")) == [("made", None)] * 2
    stoker_json("index", "--jpeg", shards / "*.tar")
    assert states(stoker_json("index", "--force", shards / "*.tar")) == [("made", 5)] * 2


def test_finer_seek_indices_replace_those_with_another_step(stoker: Any, stoker_json: Any, shards: Path) -> None:
    names, shard = [shards / "*.tar", shards / "r.tfrecord"], shards / "t-000000.tar"
    stoker_json("index", "--jpeg", *names)
    coarse = index_of(shard)
    assert step_of(coarse) == 16
    assert states(stoker_json("index", "--jpeg", "--step", 4, *names)) == [("added", 5), ("added", 5), ("added", 10)]
    fine = index_of(shard)
    assert step_of(fine) == 4 and fine.tail.length > 2 * coarse.tail.length
    assert replace(fine, seeks=None, tail=coarse.tail).to_bytes() == replace(coarse, seeks=None).to_bytes()
    assert states(stoker_json("index", "--jpeg", "--step", 4, *names)) == [("kept", 5), ("kept", 5), ("kept", 10)]
    assert states(stoker_json("index", "--jpeg", *names)) == [("kept", 5), ("kept", 5), ("kept", 10)]
    assert stoker("verify", shards / "*.tar", "--decode").exit_code == 0


def test_a_folder_keeps_the_step_of_its_seek_indices(stoker_json: Any, photos: Path) -> None:
    assert states(stoker_json("index", "--jpeg", photos)) == [("made", 10)]
    assert states(stoker_json("index", "--jpeg", "--step", 1, photos)) == [("made", 10)]
    (photos / "a" / "00.jpg").write_bytes(PICTURES[3])
    assert states(stoker_json("index", "--jpeg", photos)) == [("added", 10)]
    made = own_sidecar(os.fsencode(photos))
    assert made is not None and step_of(made) == 1
    assert states(stoker_json("index", "--jpeg", "--step", 1, photos)) == [("kept", 10)]


def test_a_step_that_cannot_be_is_refused(stoker: Any, shards: Path) -> None:
    for options in (["--step", "4"], ["--jpeg", "--step", "0"], ["--jpeg", "--step", "65536"]):
        assert stoker("index", *options, shards / "*.tar").exit_code == 2


def test_a_shard_without_pictures_is_looked_at_once(stoker_json: Any, tmp_path: Path) -> None:
    stoker_package.write_tar(tmp_path / "a.tar", [{"txt": "hello"}])
    assert states(stoker_json("index", "--jpeg", tmp_path / "a.tar")) == [("added", 0)]
    assert states(stoker_json("index", "--jpeg", tmp_path / "a.tar")) == [("kept", 0)]


def test_records_that_are_jpegs_themselves_have_them_too(stoker: Any, stoker_json: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    stoker_package.write_tfrecord(path, [b"not an example", *PICTURES])
    assert states(stoker_json("index", "--jpeg", path)) == [("added", 10)]
    made, source = index_of(path), stoker_package.tfrecord(path).plan.source
    assert source.seeks("record") == 10  # type: ignore[union-attr]
    assert stoker("verify", path, "--decode").exit_code == 0
    stoker_package.write_tfrecord(path, [b"not an example", *PICTURES], overwrite=True, seek=True)
    assert index_of(path).tail.content() == made.tail.content()


def test_a_folder_of_images_gets_a_sidecar(stoker: Any, stoker_json: Any, photos: Path) -> None:
    told = stoker_json("index", "--jpeg", photos)
    assert states(told) == [("made", 10)] and told["shards"][0]["samples"] == 11
    assert told["shards"][0]["place"] == f"{photos}/{NAME.decode()}" and (photos / NAME.decode()).exists()
    assert [path for path in photos.iterdir() if path.name.endswith(".tmp")] == []
    assert stoker_package.files(photos).plan.source.seeks("image") == 10  # type: ignore[union-attr]
    assert states(stoker_json("index", "--jpeg", photos)) == [("kept", 10)]
    (photos / "a" / "00.jpg").write_bytes(PICTURES[3])
    assert states(stoker_json("index", "--jpeg", photos)) == [("added", 10)]
    result = stoker("index", "--jpeg", "--force", photos)
    assert "seek indices of 10 pictures" in result.stdout and "note" not in result.stdout


def test_without_jpeg_a_folder_has_no_index_and_a_list_never(stoker: Any, photos: Path, tmp_path: Path) -> None:
    result = stoker("index", photos)
    assert result.exit_code == 2 and "--jpeg" in result.stderr
    (tmp_path / "list.txt").write_text(f"{photos}/a/00.jpg\n")
    result = stoker("index", "--jpeg", tmp_path / "list.txt")
    assert result.exit_code == 2 and "use their folder" in result.stderr


# ---- pack -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "field"), [("t-{}.tar", "jpg"), ("r-{}.tfrecord", "image")])
def test_packed_shards_have_seek_indices_unless_told_otherwise(
    stoker_json: Any, photos: Path, tmp_path: Path, name: str, field: str
) -> None:
    with_them, without = tmp_path / "with", tmp_path / "without"
    stoker_json("pack", photos, with_them / name, "--max-samples", 6)
    stoker_json("pack", photos, without / name, "--max-samples", 6, "--no-jpeg-index")
    paths = sorted(path for path in with_them.iterdir() if path.suffix in (".tar", ".tfrecord"))
    assert len(paths) == 2
    for path in paths:
        assert path.read_bytes() == (without / path.name).read_bytes()
        ours, plain = index_of(path), index_of(without / path.name)
        assert ours.seeks is not None and list(ours.seeks) == [field] and plain.seeks is None
        made = stoker_json("index", "--jpeg", without / path.name)
        assert states(made) == [("added", int((ours.seeks[field].length > 0).sum()))]
        assert index_of(without / path.name).tail.content() == ours.tail.content()
    # The shards are the same, so those that are there are kept, whatever is asked for now.
    assert stoker_json("pack", photos, without / name, "--max-samples", 6)["kept"] == 2


def test_records_that_stay_whole_get_seek_indices_too(stoker_json: Any, shards: Path, tmp_path: Path) -> None:
    stoker_json("pack", shards / "r.tfrecord", tmp_path / "again.tfrecord")
    index = index_of(tmp_path / "again.tfrecord")
    assert index.seeks is not None and int((index.seeks["image"].length > 0).sum()) == 10


def test_what_comes_in_sequence_gets_seek_indices_too(stoker_json: Any, shards: Path, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "t.tar.gz").write_bytes(gzip.compress((shards / "t-000000.tar").read_bytes()))
    stoker_json("pack", tmp_path / "t.tar.gz", tmp_path / "plain.tar")
    index = index_of(tmp_path / "plain.tar")
    assert index.seeks is not None and int((index.seeks["jpg"].length > 0).sum()) == 5


def test_pictures_made_smaller_have_the_seek_index_of_what_was_written(
    stoker: Any, stoker_json: Any, photos: Path, tmp_path: Path
) -> None:
    stoker_json("pack", photos, tmp_path / "t.tar", "--resize-max", 128)
    assert stoker("verify", tmp_path / "t.tar", "--decode").exit_code == 0


# ---- verify -----------------------------------------------------------------------------------------------------------------


def with_strangers(path: Path, kind: str, field: str) -> None:
    """Give the second record the seek index of the first one."""
    index, blob = index_of(path), LocalBlob(os.fsencode(path))
    assert index.seeks is not None
    data, lengths = b"".join(index.tail.content()), index.seeks[field].length.tolist()
    strings, at = SeekStrings(), 0
    for row, length in enumerate(lengths):
        strings.add(data[: lengths[0]] if row == 1 else data[at : at + length])
        at += length
    columns, tail = seek_columns({field: strings}, len(index))
    keep_index(blob, replace(index, seeks=columns, tail=tail))


@pytest.mark.parametrize("decode", [(), ("--decode",)], ids=["looked at", "made again"])
def test_a_seek_index_of_another_picture_is_a_problem(stoker: Any, stoker_json: Any, shards: Path, decode: Any) -> None:
    stoker_json("index", "--jpeg", shards / "t-000000.tar", shards / "r.tfrecord")
    for path, kind, field in ((shards / "t-000000.tar", "tar", "jpg"), (shards / "r.tfrecord", "tfrecord", "image")):
        assert stoker("verify", path, *decode).exit_code == 0
        with_strangers(path, kind, field)
        result = stoker("verify", path, *decode)
        assert result.exit_code == 1 and "1 problem" in result.stderr
        assert f"{field}: its seek index was made for another file" in result.stdout


def test_a_sidecar_that_is_damaged_as_a_whole_is_a_problem(stoker: Any, stoker_json: Any, photos: Path) -> None:
    stoker_json("index", "--jpeg", photos)
    assert stoker("verify", photos).exit_code == 0
    path = photos / NAME.decode()
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    result = stoker("verify", photos)
    assert result.exit_code == 1 and "1 problem" in result.stderr
    assert f"{path}: not a usable index" in result.stdout and "`stoker index --jpeg --force` on the folder" in result.stdout


def test_a_damaged_seek_index_is_a_problem(stoker: Any, stoker_json: Any, shards: Path) -> None:
    stoker_json("index", "--jpeg", shards / "t-000000.tar")
    path = shards / "t-000000.tar.stk"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    result = stoker("verify", shards / "t-000000.tar")
    assert result.exit_code == 1 and "its seek index does not match its checksum" in result.stdout


def test_an_index_that_looks_right_and_is_not_is_found_by_making_it_again(
    stoker: Any, stoker_json: Any, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stoker_json("index", "--jpeg", shards / "t-000000.tar")
    monkeypatch.setattr("stoker.pack.jobs.shard_checks.make_seek", lambda data, scratch, step: b"something else")
    assert stoker("verify", shards / "t-000000.tar").exit_code == 0
    result = stoker("verify", shards / "t-000000.tar", "--decode")
    assert result.exit_code == 1 and "not the one that is made of it now" in result.stdout


def test_a_file_that_changed_since_its_seek_index_was_made_is_a_problem(stoker: Any, stoker_json: Any, photos: Path) -> None:
    stoker_json("index", "--jpeg", photos)
    assert stoker("verify", photos).exit_code == 0
    shutil.copy(photos / "b" / "01.jpg", photos / "a" / "00.jpg")
    result = stoker("verify", photos, "--decode")
    assert result.exit_code == 1 and "a/00.jpg" in result.stdout and "changed since its seek index was made" in result.stdout


# ---- bench, explain ---------------------------------------------------------------------------------------------------------


def test_bench_measures_with_and_without(stoker: Any, stoker_json: Any, photos: Path, shards: Path) -> None:
    quick = ("--against", "none", "--strategies", "no_seek", "--seconds", 0.1, "--batch", 2, "--size", 32, "--threads", 1)
    assert "no_seek" not in stoker_json("bench", photos, *quick)["strategies"]
    stoker_json("index", "--jpeg", photos, shards / "t-000000.tar")
    found = stoker_json("bench", shards / "t-000000.tar", *quick)["strategies"]["no_seek"]
    assert found["samples_per_s"] > 0 and found["ratio"] > 0
    assert "without seek indices" in stoker("bench", photos, *quick).stdout
