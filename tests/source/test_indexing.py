"""The index of a shard: made on first use, kept where it can be, and trusted only while it fits."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import CorruptIndex, CorruptShard, ShardChanged, SourceNotFound, WriteError
from stoker.source.shards import indexing, shard_index
from stoker.source.shards.indexing import build_index, find_index, index_of, keep_index
from stoker.source.shards.shard_index import IndexHeader, ShardIndex
from stoker.storage import atomic
from stoker.storage.atomic import publish
from stoker.storage.home import cache_home, index_home
from stoker.storage.local import LocalBlob

from ..loader.runs import ROOT, environment, run_python
from .making import END, example, member, record, sample_tar, tfrecord

SAMPLES = [(f"s{n:03d}", {"txt": b"x" * n, "cls": b"%d" % n}) for n in range(9)]
TAR = sample_tar(SAMPLES)
RECORDS = [example({"x": [n], "name": [b"n" * n]}) for n in range(9)]
TFRECORD = tfrecord(RECORDS)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard.tar"
    path.write_bytes(TAR)
    return path


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def blob_of(path: Path) -> LocalBlob:
    return LocalBlob(os.fsencode(path))


def beside(path: Path) -> Path:
    return Path(f"{path}.stk")


def same(one: ShardIndex, other: ShardIndex) -> bool:
    return one.to_bytes() == other.to_bytes()


def read_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As if `folder` could not be written to; root may write anywhere, so permissions alone do not do."""

    def refuse(path: bytes, *parts: bytes) -> None:
        if os.fsencode(folder) == path.rpartition(b"/")[0]:
            raise WriteError(f"{os.fsdecode(path)}: Read-only file system")
        publish(path, *parts)

    monkeypatch.setattr(shard_index, "publish", refuse)


def forbid_building(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was made anew")

    monkeypatch.setattr(indexing, "build_index", build)


# ---- what an index says ----------------------------------------------------------------------------------------------


def test_the_index_of_a_tar_says_where_everything_is(shard: Path) -> None:
    index = build_index(blob_of(shard), "tar")
    assert (index.kind, index.fields, len(index), index.size) == ("tar", ("txt", "cls"), 9, len(TAR))
    assert index.mtime_ns == shard.stat().st_mtime_ns and index.etag == "" and not index.sealed
    assert index.keys is not None and index.crc is not None
    for row, (key, fields) in enumerate(SAMPLES):
        assert index.keys[row] == key.encode()
        for at, name in enumerate(index.fields):
            start, length = int(index.start[row, at]), int(index.length[row, at])
            assert TAR[start : start + length] == fields[name]


def test_the_index_of_a_tfrecord_says_where_records_are_and_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(TFRECORD)
    index = build_index(blob_of(path), "tfrecord")
    assert [TFRECORD[start : start + length] for start, length in zip(index.start[:, 0], index.length[:, 0])] == RECORDS
    assert index.about == {
        "examples": True,
        "features": [
            {"name": "name", "kind": "bytes", "least": 1, "most": 1, "present": 9},
            {"name": "x", "kind": "int", "least": 1, "most": 1, "present": 9},
        ],
    }


@pytest.mark.parametrize("piece", [1, 7, 512, 700, 1 << 21])
def test_it_does_not_matter_in_which_pieces_a_shard_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    for name, data, kind in (("a.tar", TAR, "tar"), ("a.tfrecord", TFRECORD, "tfrecord")):
        (tmp_path / name).write_bytes(data)
        monkeypatch.setattr(indexing, "PIECE", 1 << 21)
        whole = build_index(blob_of(tmp_path / name), kind)
        monkeypatch.setattr(indexing, "PIECE", piece)
        assert same(build_index(blob_of(tmp_path / name), kind), whole)


def test_a_record_larger_than_a_piece_is_found_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "PIECE", 100)
    payloads = [b"a" * 5, b"b" * 1000, b"", b"c" * 99, b"d" * 350]
    (tmp_path / "a.tfrecord").write_bytes(tfrecord(payloads))
    index = build_index(blob_of(tmp_path / "a.tfrecord"), "tfrecord")
    assert index.length[:, 0].tolist() == [5, 1000, 0, 99, 350]


def test_fields_of_samples_may_come_in_any_order_and_may_be_missing(tmp_path: Path) -> None:
    data = sample_tar([("a", {"x": b"1", "y": b"2"}), ("b", {"y": b"3"}), ("c", {"z": b"4", "x": b"5"})])
    (tmp_path / "a.tar").write_bytes(data)
    index = build_index(blob_of(tmp_path / "a.tar"), "tar")
    assert index.fields == ("x", "y", "z")
    assert (index.length >= 0).tolist() == [[True, True, False], [False, True, False], [True, False, True]]


def test_files_that_belong_to_no_sample_are_counted_and_named(tmp_path: Path) -> None:
    data = member(b"README") + member(b"dir/", kind=b"5") + member(b"a.txt", b"1") + member(b".hidden.txt", b"2") + END
    (tmp_path / "a.tar").write_bytes(data)
    about = build_index(blob_of(tmp_path / "a.tar"), "tar").about
    assert about["ignored"] == 3
    assert about["ignored_names"] == ["README", "dir/", ".hidden.txt"]


# ---- where it is kept ------------------------------------------------------------------------------------------------


def test_it_is_made_on_first_use_and_kept_beside_the_shard(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = index_of(blob_of(shard), "tar")
    assert beside(shard).read_bytes() == made.to_bytes()
    assert sorted(path.name for path in shard.parent.iterdir()) == ["shard.tar", "shard.tar.stk"]
    assert beside(shard).stat().st_mode & 0o777 == 0o644
    forbid_building(monkeypatch)
    assert same(index_of(blob_of(shard), "tar"), made)


def test_where_the_folder_is_read_only_it_is_kept_in_the_users_cache(
    shard: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    read_only(monkeypatch, shard.parent)
    made = index_of(blob_of(shard), "tar")
    assert not beside(shard).exists()
    [kept] = (own_home / "stoker" / "index").iterdir()
    assert kept.read_bytes() == made.to_bytes()
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    forbid_building(monkeypatch)
    assert same(index_of(blob_of(shard), "tar"), made)


def test_where_nothing_can_be_written_it_works_all_the_same_and_says_so(
    shard: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read_only(monkeypatch, shard.parent)
    own_home.write_text("not a folder")
    with caplog.at_level(logging.WARNING, "stoker"):
        assert len(index_of(blob_of(shard), "tar")) == 9
    assert "made again each time" in caplog.text
    assert own_home.read_text() == "not a folder"


def test_keeping_says_where(shard: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
    index = build_index(blob_of(shard), "tar")
    assert keep_index(blob_of(shard), index) == f"{shard}.stk"
    read_only(monkeypatch, shard.parent)
    assert keep_index(blob_of(shard), index).startswith(str(own_home))


def test_the_home_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_home() == tmp_path / "home" / "stoker"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/somebody")
    assert cache_home() == Path("/somebody/.cache/stoker")
    assert index_home("a") != index_home("b") and index_home("../../x").parent == index_home("a").parent


def test_shards_of_one_name_in_different_folders_do_not_share_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sample_tar([(key, {name: data[::-1] or b"" for name, data in fields.items()}) for key, fields in reversed(SAMPLES)])
    assert len(other) == len(TAR)
    for folder, data in (("one", TAR), ("two", other)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "shard.tar").write_bytes(data)
        os.utime(tmp_path / folder / "shard.tar", ns=(7, 7))
    monkeypatch.setattr(shard_index, "publish", lambda path, *parts: publish(path, *parts) if b"/home/" in path else refuse())

    def refuse() -> None:
        raise WriteError("read-only")

    indexes = []
    for folder in ("one", "two"):
        monkeypatch.chdir(tmp_path / folder)
        indexes.append(index_of(LocalBlob(b"shard.tar"), "tar"))
    assert indexes[0].keys is not None and indexes[1].keys is not None
    assert (indexes[0].keys[0], indexes[1].keys[0]) == (b"s000", b"s008")


def test_publishing_leaves_the_whole_file_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(os.fsencode(tmp_path / "a"), b"first")
    publish(os.fsencode(tmp_path / "a"), b"second")
    assert (tmp_path / "a").read_bytes() == b"second"
    for broken in ("fsync", "replace", "write"):
        with monkeypatch.context() as patch:
            patch.setattr(os, broken, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(WriteError, match="the disk is full"):
                publish(os.fsencode(tmp_path / "a"), b"third")
    with pytest.raises(WriteError, match="its folder does not exist"):
        publish(os.fsencode(tmp_path / "gone" / "a"), b"x")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"second")]


# ---- whether it is trusted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["beside", "home"])
@pytest.mark.parametrize("how", ["longer", "shorter", "same size"])
def test_a_stale_index_is_made_anew(shard: Path, monkeypatch: pytest.MonkeyPatch, where: str, how: str) -> None:
    if where == "home":
        read_only(monkeypatch, shard.parent)
    index_of(blob_of(shard), "tar")
    samples = {"longer": [*SAMPLES, ("more", {"txt": b""})], "shorter": SAMPLES[:4], "same size": SAMPLES[::-1]}[how]
    shard.write_bytes(sample_tar(samples))
    os.utime(shard, ns=(5, 5))
    index = index_of(blob_of(shard), "tar")
    assert index.keys is not None
    assert [index.keys[row] for row in range(len(index))] == [key.encode() for key, _ in samples]
    forbid_building(monkeypatch)
    assert same(index_of(blob_of(shard), "tar"), index), "and the new one is kept in place of the old"


def test_a_sealed_index_is_the_truth_and_a_shard_that_does_not_fit_is_told(shard: Path) -> None:
    keep_index(blob_of(shard), build_index(blob_of(shard), "tar", sealed=True))
    shard.write_bytes(sample_tar(SAMPLES[:4]))
    with pytest.raises(ShardChanged, match=rf"{len(TAR):,} bytes then, .* now.*stoker index --force") as caught:
        index_of(blob_of(shard), "tar")
    assert caught.value.shard == str(shard)


def test_a_copy_with_another_time_is_trusted_when_the_index_is_sealed(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build_index(blob_of(shard), "tar", sealed=True)
    keep_index(blob_of(shard), made)
    (tmp_path / "copy").mkdir()
    for path in (shard, beside(shard)):
        shutil.copyfile(path, tmp_path / "copy" / path.name)
    os.utime(tmp_path / "copy" / "shard.tar", ns=(3, 3))
    forbid_building(monkeypatch)
    assert same(index_of(blob_of(tmp_path / "copy" / "shard.tar"), "tar"), made)


def test_a_copy_without_seal_is_looked_at_again(shard: Path, tmp_path: Path) -> None:
    index_of(blob_of(shard), "tar")
    (tmp_path / "copy").mkdir()
    for path in (shard, beside(shard)):
        shutil.copyfile(path, tmp_path / "copy" / path.name)
    os.utime(tmp_path / "copy" / "shard.tar", ns=(3, 3))
    copy = blob_of(tmp_path / "copy" / "shard.tar")
    assert find_index(copy, "tar") is None
    assert index_of(copy, "tar").mtime_ns == 3


def test_a_shard_from_1970_is_remembered_too(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(shard, ns=(0, 0))
    index_of(blob_of(shard), "tar")
    forbid_building(monkeypatch)
    assert len(index_of(blob_of(shard), "tar")) == 9


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "page", "folder", "future"])
def test_a_damaged_index_beside_the_shard_is_told(shard: Path, damage: str) -> None:
    data = bytearray(index_of(blob_of(shard), "tar").to_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 4
    elif damage == "future":
        data[8] += 1
    path = beside(shard)
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        path.write_bytes({"cut": data[:-9], "empty": b"", "page": b"<html>no</html>"}.get(damage, bytes(data)))
    with pytest.raises(CorruptIndex, match=r"shard\.tar\.stk") as caught:
        index_of(blob_of(shard), "tar")
    assert str(caught.value.shard).startswith(str(shard))
    assert path.is_dir() or path.exists(), "it is not ours to remove"


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "folder"])
def test_a_damaged_index_in_the_cache_is_made_anew(shard: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    read_only(monkeypatch, shard.parent)
    made = index_of(blob_of(shard), "tar")
    path = index_home(str(shard))
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        data[40] ^= 1
        path.write_bytes({"cut": bytes(data[:-1]), "empty": b""}.get(damage, bytes(data)))
    assert same(index_of(blob_of(shard), "tar"), made)
    assert damage == "folder" or path.read_bytes() == made.to_bytes()


def test_the_index_of_another_kind_is_told(shard: Path) -> None:
    keep_index(blob_of(shard), replace(build_index(blob_of(shard), "tar"), kind="tfrecord"))
    with pytest.raises(CorruptIndex, match="index of a tfrecord, but the shard is read as tar"):
        index_of(blob_of(shard), "tar")


def test_an_index_that_is_replaced_while_it_is_read_is_read_again(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that both find a stale index: one replaces it while the other has only looked at its size."""
    index_of(blob_of(shard), "tar")
    shard.write_bytes(sample_tar(SAMPLES[:5]))
    fresh = build_index(blob_of(shard), "tar")
    look, looks = LocalBlob.stat, []

    def stat(blob: LocalBlob) -> Any:
        about = look(blob)
        if blob.name.endswith(".stk") and not looks:
            looks.append(blob)
            keep_index(blob_of(shard), fresh)
        return about

    monkeypatch.setattr(LocalBlob, "stat", stat)
    assert same(index_of(blob_of(shard), "tar"), fresh)


# ---- shards that are bad ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind", "match"),
    [
        (b"", "tar", "is empty"),
        (b"", "tfrecord", "is empty"),
        (b"<!DOCTYPE html><html>Not found</html>" * 40, "tar", "a web page"),
        (b"\x1f\x8b\x08" + b"x" * 2000, "tar", r"gzip data; name it \.tar\.gz"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 2000, "tar", "zstd data"),
        (b"PK\x03\x04" + b"x" * 2000, "tar", "a zip archive"),
        (b"{" + b"x" * 2000, "tar", "JSON"),
        (TAR[:-1024], "tar", "end"),
        (TAR[:700], "tar", "byte"),
        (b"<html>not here</html>", "tfrecord", "a web page .*, not a TFRecord file"),
        (TFRECORD[:-1], "tfrecord", "cut or damaged"),
        (TFRECORD + b"x", "tfrecord", "ends within the record"),
        (record(b"a")[:8], "tfrecord", "ends within the record"),
        (sample_tar([("a", {"x": b""}), ("b", {"x": b""}), ("a", {"y": b""})]), "tar", "at byte 0 and again at byte 1,024"),
    ],
)  # fmt: skip
def test_a_bad_shard_is_told_with_its_place_and_leaves_no_index(tmp_path: Path, data: bytes, kind: str, match: str) -> None:
    path = tmp_path / "bad"
    path.write_bytes(data)
    with pytest.raises(CorruptShard, match=match) as caught:
        index_of(blob_of(path), kind)
    assert caught.value.shard == str(path) and str(path) in str(caught.value)
    assert caught.value.offset is not None
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_a_shard_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"gone\.tar"):
        index_of(blob_of(tmp_path / "gone.tar"), "tar")


def test_a_length_of_two_to_the_sixty_three_takes_no_memory(tmp_path: Path) -> None:
    import struct

    from ..pack.wire import masked

    length = struct.pack("<Q", 1 << 63)
    for claim in (length, struct.pack("<Q", (1 << 64) - 1), struct.pack("<Q", 1 << 40)):
        (tmp_path / "a").write_bytes(claim + struct.pack("<I", masked(claim)) + b"x" * 100)
        with pytest.raises(CorruptShard):
            build_index(blob_of(tmp_path / "a"), "tfrecord")


# ---- several processes -----------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, sys, time
from stoker.source.shards import indexing
from stoker.storage.local import LocalBlob
builds = []
build = indexing.build_index
def counted(blob, kind, **options):
    builds.append(blob.url)
    time.sleep(0.5)  # long enough for the others to come too
    return build(blob, kind, **options)
indexing.build_index = counted
sys.stdin.readline()
index = indexing.index_of(LocalBlob(os.fsencode(sys.argv[1])), "tar")
print(json.dumps([len(builds), len(index)]))
"""


def test_of_processes_that_start_together_one_makes_the_index(shard: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(shard)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=ROOT, env=environment(),
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert [records for _, records in results] == [9, 9, 9]
    assert sum(builds for builds, _ in results) == 1
    assert sorted(path.name for path in shard.parent.iterdir()) == ["shard.tar", "shard.tar.stk"]


KILLED = """
import os, signal, sys
from stoker.source.shards import indexing
from stoker.storage.local import LocalBlob
_, path, moment = sys.argv
keep = indexing.keep_index
def keep_and_die(blob, index):
    act = getattr(os, moment)
    def die(*arguments, **options):
        if moment == "write":
            act(arguments[0], arguments[1][:50])
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, moment, die)
    return keep(blob, index)
indexing.keep_index = keep_and_die
indexing.index_of(LocalBlob(os.fsencode(path)), "tar")
"""


def names_beside(shard: Path) -> list[str]:
    return sorted(path.name for path in shard.parent.iterdir())


@pytest.mark.parametrize("moment", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("there", [True, False])
def test_what_a_process_left_that_was_killed_while_it_kept_an_index_goes_with_the_next(
    shard: Path, monkeypatch: pytest.MonkeyPatch, there: bool, moment: str
) -> None:
    if there:
        index_of(blob_of(shard), "tar")
        os.utime(shard, ns=(1, 1))  # so that the index is of another shard
    kept = beside(shard).read_bytes() if there else None
    assert run_python(KILLED, str(shard), moment).returncode == -signal.SIGKILL
    assert (beside(shard).read_bytes() if there else None) == kept, "the old one stays until the new one is complete"
    monkeypatch.setattr(atomic, "_swept", set())  # as in another process
    assert len(index_of(blob_of(shard), "tar")) == 9
    assert names_beside(shard) == ["shard.tar", "shard.tar.stk"]
    assert ShardIndex.from_bytes(beside(shard).read_bytes(), "x").keys is not None


@pytest.mark.parametrize("there", [True, False])
def test_ctrl_c_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path, there: bool) -> None:
    """Before and after everything that is asked of the system."""
    path = tmp_path / "a"
    for call, when in itertools.product(["open", "write", "fsync", "replace", "unlink"], ("before", "after")):
        path.unlink(missing_ok=True)
        if there:
            path.write_bytes(b"old")
        real = getattr(os, call)

        def interrupted(*arguments: Any, real: Any = real, when: str = when, **options: Any) -> Any:
            if when == "after":
                real(*arguments, **options)
            raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt), pytest.MonkeyPatch.context() as inner:
            inner.setattr(os, call, interrupted)
            publish(os.fsencode(path), b"new")
        assert (not there and not path.exists()) or path.read_bytes() in (b"old", b"new")
        assert set(tmp_path.iterdir()) <= {path}
        publish(os.fsencode(path), b"newer")
        assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("a", b"newer")], (call, when)


def test_of_two_that_replace_a_file_at_once_both_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one does so at each moment of ours, and neither touches a file of the other's."""
    path = tmp_path / "a"
    for call in ("open", "write", "fsync", "replace"):
        path.write_bytes(b"old")
        real, seen = getattr(os, call), []

        def meanwhile(*arguments: Any, call: str = call, real: Any = real, seen: list[bytes] = seen, **options: Any) -> Any:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(os, call, real)
                publish(os.fsencode(path), b"theirs")
            seen.append(path.read_bytes())
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, meanwhile)
            publish(os.fsencode(path), b"ours")
        assert set(seen) == {b"theirs"}, call
        assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("a", b"ours")], call


def test_an_index_in_many_random_states_never_gives_other_samples(shard: Path) -> None:
    """Whatever stands beside a shard: the right index, or an error that names it."""
    right = index_of(blob_of(shard), "tar")
    data, rng = right.to_bytes(), random.Random(3)
    for _ in range(150):
        bad = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(bad))
            bad[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        beside(shard).write_bytes(bytes(bad))
        try:
            assert np.array_equal(index_of(blob_of(shard), "tar").start, right.start)
        except CorruptIndex as error:
            assert str(shard) in str(error)


def test_an_index_of_another_shard_is_not_even_read(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its header says so, and what follows may be any size."""
    index_of(blob_of(shard), "tar")
    shard.write_bytes(sample_tar(SAMPLES[:4]))
    monkeypatch.setattr(IndexHeader, "load", lambda header: pytest.fail("it was read"))
    assert len(index_of(blob_of(shard), "tar")) == 4
