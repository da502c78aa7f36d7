"""Every kind of damage is found, named with its place, and hides nothing else."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import StokerError
from stoker.pack.jobs.verification import Findings, Verifier, lacking, repeated
from stoker.source.files.labelled_files import FilesSource
from stoker.source.shards.lmdb_source import LmdbSource
from stoker.source.source import Source
from stoker.storage.local import LocalBlob

from ..support import jpeg_bytes


def samples(count: int = 6) -> list[dict[str, Any]]:
    return [{"__key__": f"k{number}", "jpg": jpeg_bytes(40, 30, seed=number), "cls": number} for number in range(count)]


def check_tar(path: Path, decode: bool = False) -> Findings:
    return Verifier(decode).tar(LocalBlob(os.fsencode(path)))


def check_tfrecord(path: Path, decode: bool = False) -> Findings:
    return Verifier(decode).tfrecord(LocalBlob(os.fsencode(path)))


def flip(path: Path, at: int, keep_time: bool = True) -> None:
    about = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    stoker.write_tar(tmp_path / "a.tar", samples())
    return tmp_path / "a.tar"


@pytest.fixture
def tfrecord(tmp_path: Path) -> Path:
    records = [{"image": jpeg_bytes(40, 30, seed=number), "label": number} for number in range(6)]
    stoker.write_tfrecord(tmp_path / "a.tfrecord", records)
    return tmp_path / "a.tfrecord"


# ---- tar --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", [False, True])
def test_a_good_tar_is_good(tar: Path, decode: bool) -> None:
    found = check_tar(tar, decode)
    assert (found.samples, found.problems, found.notes, found.checksums) == (6, [], [], True)
    assert found.bytes == sum(len(sample["jpg"]) + 1 for sample in samples())


def test_a_damaged_field_is_named_with_shard_and_byte(tar: Path) -> None:
    place = tar.read_bytes().index(samples()[3]["jpg"])
    flip(tar, place + 100)
    (problem,) = check_tar(tar).problems
    assert (problem.key, problem.shard, problem.offset) == ("k3", str(tar), place - 512)
    assert "jpg" in problem.reason and "checksum" in problem.reason


def test_a_damaged_header_does_not_hide_what_follows(tar: Path) -> None:
    data = tar.read_bytes()
    flip(tar, data.index(samples()[1]["jpg"]) - 500)
    flip(tar, data.index(samples()[4]["jpg"]) + 50)
    found = check_tar(tar)
    assert found.samples == 6
    assert [problem.key for problem in found.problems] == ["", "k4"]
    assert found.problems[0].offset == data.index(samples()[1]["jpg"]) - 512


def test_without_an_index_the_structure_is_still_checked(tar: Path) -> None:
    tar.with_name("a.tar.stk").unlink()
    assert check_tar(tar).checksums is False and not check_tar(tar).problems
    with tar.open("r+b") as file:
        file.truncate(tar.stat().st_size // 2)
    found = check_tar(tar)
    assert len(found.problems) == 1 and 0 < found.samples < 6


def test_an_index_of_another_shard_is_a_problem(tar: Path, tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "b.tar", samples(5))
    tar.with_name("a.tar.stk").write_bytes((tmp_path / "b.tar.stk").read_bytes())
    assert check_tar(tar).problems
    tar.with_name("a.tar.stk").write_bytes(b"nonsense")
    assert "not a usable index" in check_tar(tar).problems[0].reason


@pytest.mark.parametrize(("name", "data"), [("cls", b"seven"), ("json", b"{"), ("txt", b"\xff"), ("npy", b"\x93NUMPY")])
def test_fields_are_decoded_by_their_extension(tmp_path: Path, name: str, data: bytes) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "k", name: data}])
    (problem,) = check_tar(tmp_path / "a.tar").problems
    assert problem.key == "k" and name in problem.reason


def test_pictures_are_decoded_when_asked_for(tmp_path: Path) -> None:
    cut = jpeg_bytes(200, 200)[:-600]
    stoker.write_tar(
        tmp_path / "a.tar", [{"__key__": key, "jpg": data} for key, data in (("a", cut), ("b", b""), ("c", b"hello"))]
    )
    assert check_tar(tmp_path / "a.tar").problems == []
    assert [problem.key for problem in check_tar(tmp_path / "a.tar", decode=True).problems] == ["a", "b", "c"]


def test_pickles_stay_closed(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "k", "pkl": b"cos\nsystem\n(S'false'\ntR."}])
    assert check_tar(tmp_path / "a.tar", decode=True).problems == []


def test_members_of_no_sample_are_noted(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("README", "a.txt", ".hidden"):
            about = tarfile.TarInfo(name)
            about.size = 1
            archive.addfile(about, io.BytesIO(b"x"))
    found = check_tar(tmp_path / "a.tar")
    assert found.samples == 1 and found.notes == ["2 members belong to no sample: README, .hidden"]


def test_fields_that_others_have_are_missed(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "1", "txt": "x", "cls": 1}, {"__key__": "2", "txt": "y"}])
    stoker.write_tar(tmp_path / "b.tar", [{"__key__": "3", "cls": 1}])
    found = [check_tar(tmp_path / name) for name in ("a.tar", "b.tar")]
    assert [(problem.key, problem.shard) for problem in lacking(found)] == [
        ("2", str(tmp_path / "a.tar")),
        ("3", str(tmp_path / "b.tar")),
    ]
    assert "no cls" in lacking(found)[0].reason


def test_keys_in_several_shards_are_noted_and_within_one_are_bad(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": key, "txt": "x"} for key in ("1", "2")])
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name in ("2.txt", "3.txt", "4.txt", "3.txt"):
            about = tarfile.TarInfo(name)
            about.size = 1
            archive.addfile(about, io.BytesIO(b"x"))
    problems, across = repeated([check_tar(tmp_path / name) for name in ("a.tar", "b.tar")])
    assert across == {"2": [str(tmp_path / "a.tar"), str(tmp_path / "b.tar")]}
    assert [(problem.key, problem.shard) for problem in problems] == [("3", str(tmp_path / "b.tar"))]


@pytest.mark.parametrize("data", [b"", b"<html>404</html>", b"\x1f\x8b\x08\x00abc", bytes(100)])
def test_what_is_no_tar_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    found = check_tar(tmp_path / "a.tar")
    assert found.samples == 0 and len(found.problems) == 1 and str(tmp_path / "a.tar") in found.problems[0].reason


def test_a_shard_that_is_not_there_is_a_problem_of_that_shard(tmp_path: Path) -> None:
    for check in (check_tar, check_tfrecord):
        (problem,) = check(tmp_path / "missing").problems
        assert problem.shard == str(tmp_path / "missing")


def test_every_flip_of_an_indexed_tar_is_found_or_harmless(tmp_path: Path) -> None:
    stoker.write_tar(tmp_path / "a.tar", [{"__key__": "k", "txt": "some text", "cls": 1}, {"__key__": "l", "txt": "", "cls": 2}])
    good = (tmp_path / "a.tar").read_bytes()
    for at in range(0, 4096, 13):
        flip(tmp_path / "a.tar", at)
        found = check_tar(tmp_path / "a.tar")
        if not found.problems:  # then the samples are what they were
            assert found.samples == 2 and [*found.keys] == [b"k", b"l"]
            assert good[at] == 0 or at % 512 >= 100  # padding, or a part of a header that nobody needs
        (tmp_path / "a.tar").write_bytes(good)


# ---- TFRecord ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", [False, True])
def test_a_good_tfrecord_is_good(tfrecord: Path, decode: bool) -> None:
    found = check_tfrecord(tfrecord, decode)
    assert (found.samples, found.problems, found.notes) == (6, [], [])


def test_a_damaged_record_does_not_hide_the_next(tfrecord: Path) -> None:
    data = tfrecord.read_bytes()
    places = [data.index(jpeg_bytes(40, 30, seed=number)) for number in (1, 4)]
    for place in places:
        flip(tfrecord, place + 9)
    found = check_tfrecord(tfrecord)
    assert found.samples == 6
    assert [problem.key for problem in found.problems] == ["a.tfrecord#1", "a.tfrecord#4"]
    assert all(problem.offset is not None and problem.offset < place for problem, place in zip(found.problems, places))


def test_every_flip_and_every_cut_of_a_tfrecord_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    stoker.write_tfrecord(path, [{"n": number, "s": b"x" * number} for number in range(4)])
    path.with_name("a.tfrecord.stk").unlink()
    good = path.read_bytes()
    for at in range(len(good)):
        flip(path, at, keep_time=False)
        assert check_tfrecord(path).problems, at
        path.write_bytes(good)
    ends = []
    for end in range(len(good)):
        path.write_bytes(good[:end])
        if not check_tfrecord(path).problems:
            ends.append(end)
    assert len(ends) == 3  # between records: a file without the last ones is one that is whole


def test_records_before_a_bad_place_are_checked_and_counted(tfrecord: Path) -> None:
    tfrecord.with_name("a.tfrecord.stk").unlink(missing_ok=True)
    data = tfrecord.read_bytes()
    last = data.index(jpeg_bytes(40, 30, seed=5))
    flip(tfrecord, data.index(jpeg_bytes(40, 30, seed=2)) + 9)
    with tfrecord.open("r+b") as file:
        file.truncate(last)
    found = check_tfrecord(tfrecord)
    assert found.samples == 5 and [problem.key for problem in found.problems] == ["a.tfrecord#2", ""]
    assert found.problems[1].offset is not None and 0 < last - found.problems[1].offset < 100


def test_a_cut_between_records_is_told_by_the_index(tfrecord: Path) -> None:
    from stoker.source.shards.tfrecord_source import TfrecordSource

    source = stoker.tfrecord(tfrecord).plan.source
    assert isinstance(source, TfrecordSource)
    with tfrecord.open("r+b") as file:
        file.truncate(int(source.indexes[0].start[5, 0]) - 12)
    found = check_tfrecord(tfrecord)
    assert found.samples == 5 and "index" in found.problems[0].reason


def test_records_of_another_kind_are_noted_and_strangers_among_examples_bad(tmp_path: Path) -> None:
    stoker.write_tfrecord(tmp_path / "a.tfrecord", [b"\xff one", b"\xff two"])
    found = check_tfrecord(tmp_path / "a.tfrecord")
    assert not found.problems and "not tf.train.Examples" in found.notes[0]
    stoker.write_tfrecord(tmp_path / "b.tfrecord", [{"n": 1}, b"\xff two"])
    assert [problem.key for problem in check_tfrecord(tmp_path / "b.tfrecord").problems] == ["b.tfrecord#1"]


def test_pictures_in_examples_are_decoded_when_asked_for(tmp_path: Path) -> None:
    pictures = [jpeg_bytes(200, 200, seed=number) for number in range(4)]
    pictures[2] = pictures[2][:-700]
    stoker.write_tfrecord(tmp_path / "a.tfrecord", [{"image/encoded": data, "text": b"x"} for data in pictures])
    assert check_tfrecord(tmp_path / "a.tfrecord").problems == []
    (problem,) = check_tfrecord(tmp_path / "a.tfrecord", decode=True).problems
    assert problem.key == "a.tfrecord#2" and "image/encoded" in problem.reason


# ---- files and databases ----------------------------------------------------------------------------------------------------


def check_rows(source: Source, decode: bool = False) -> Findings:
    return Verifier(decode).rows(source, np.arange(len(source)))


def test_files_are_read_and_decoded(tmp_path: Path) -> None:
    for name, data in {"a": jpeg_bytes(), "b": b"", "c": b"hello", "d": jpeg_bytes(300, 300)[:-900]}.items():
        (tmp_path / f"{name}.jpg").write_bytes(data)
    source = FilesSource(tmp_path, labels=None)
    (tmp_path / "a.jpg").unlink()
    assert [problem.key for problem in check_rows(source).problems] == ["a.jpg", "b.jpg"]
    assert [problem.key for problem in check_rows(source, decode=True).problems] == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]


def test_a_database_is_checked_record_by_record(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    path = tmp_path / "a.lmdb"
    stoker.write_lmdb(path, samples())
    assert check_rows(LmdbSource(path), decode=True).problems == []
    flip(path, int(LmdbSource(path).indexes[0].start[2, 0]) + 50)
    (problem,) = check_rows(LmdbSource(path)).problems
    assert problem.key == "k2" and problem.shard == str(path) and problem.offset is not None


def give_up(samples: int, nbytes: int) -> None:
    """What a command does that is interrupted."""
    raise InterruptedError


def test_checking_can_be_stopped(tar: Path) -> None:
    with pytest.raises(InterruptedError):
        Verifier(moved=give_up).tar(LocalBlob(os.fsencode(tar)))


def test_a_pipe_is_checked_as_it_comes(tar: Path) -> None:
    data = tar.read_bytes()
    blob = LocalBlob(b"standard input")
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    assert Verifier().tar(blob, pieces).samples == 6
    assert isinstance(Verifier().tar(blob, pieces[:4]).problems[0].reason, str)
    with pytest.raises(StokerError):
        blob.stat()
