"""`write_tar` over several shards: names, limits, what is there already, and pipelines as input."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, SourceEmpty, WriteError
from stoker.pack.writers.shard_writer import Pattern
from stoker.pack.writers.tar_writer import write_tar


def samples(count: int, size: int = 1000) -> list[dict[str, Any]]:
    return [{"bin": b"x" * size, "cls": n} for n in range(count)]


def names(paths: tuple[str, ...]) -> list[list[str]]:
    found = []
    for path in paths:
        with tarfile.open(path) as archive:
            found.append(archive.getnames())
    return found


def keys(paths: tuple[str, ...]) -> list[list[str]]:
    return [list(dict.fromkeys(name.split(".")[0] for name in shard)) for shard in names(paths)]


# ---- names ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("out-{:06d}.tar", "out-000012.tar"), ("out-{:03}.tar", "out-012.tar"), ("out-{:d}.tar", "out-12.tar"),
        ("out-{}.tar", "out-000012.tar"),
        ("out-%06d.tar", "out-000012.tar"), ("out-%d.tar", "out-12.tar"), ("50%.tar", "50%.tar"), ("out.tar", "out.tar"),
        (b"\xff-{}.tar", "\udcff-000012.tar"), (Path("d/{}.tar"), "d/000012.tar"),
    ],
)  # fmt: skip
def test_a_pattern_says_where_the_number_goes(pattern: Any, name: str) -> None:
    assert Pattern(pattern).name(12) == name


@pytest.mark.parametrize(
    "pattern", ["a-{}-{}.tar", "a-{}-%d.tar", "a-{0..9}.tar", "a-{:6d}.tar", "a-%6d.tar", "{}/a.tar", "a-{x}.tar"]
)
def test_a_pattern_that_is_not_clear_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="number"):
        Pattern(pattern)


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TarWriter takes file objects"):
        write_tar(3, samples(1))  # type: ignore[arg-type]


# ---- limits -----------------------------------------------------------------------------------------------------------------


def test_no_shard_is_larger_than_asked(tmp_path: Path) -> None:
    done = write_tar(tmp_path / "a-{}.tar", samples(100), max_bytes="100kB")
    assert len(done.paths) > 2 and done.samples == 100
    assert all(os.path.getsize(path) <= 100_000 for path in done.paths)
    assert done.bytes == sum(map(os.path.getsize, done.paths))
    assert [key for shard in keys(done.paths) for key in shard] == [f"{n:09d}" for n in range(100)]
    assert sorted(os.listdir(tmp_path)) == sorted(f"a-{n:06d}.tar{end}" for n in range(len(done.paths)) for end in ("", ".stk"))


def test_no_shard_has_more_samples_than_asked(tmp_path: Path) -> None:
    done = write_tar(tmp_path / "a-{:02d}.tar", samples(10), max_samples=4)
    assert [len(shard) for shard in keys(done.paths)] == [4, 4, 2]
    assert done.paths == tuple(str(tmp_path / f"a-0{n}.tar") for n in range(3))


def test_a_sample_larger_than_a_shard_gets_one_of_its_own(tmp_path: Path) -> None:
    done = write_tar(tmp_path / "a-{}.tar", [{"x": b""}, {"x": bytes(100_000)}, {"x": b""}], max_bytes=20_000)
    assert keys(done.paths) == [["000000000"], ["000000001"], ["000000002"]]


def test_a_plain_name_is_one_shard_and_an_error_at_once_when_two_are_needed(tmp_path: Path) -> None:
    taken = []

    def counted() -> Iterator[dict[str, Any]]:
        for number, sample in enumerate(samples(100)):
            taken.append(number)
            yield sample

    with pytest.raises(ConfigError, match=r"a-\{:06d\}\.tar.*max_bytes=None"):
        write_tar(tmp_path / "a.tar", counted(), max_samples=3)
    assert len(taken) == 4 and os.listdir(tmp_path) == []
    assert write_tar(tmp_path / "a.tar", samples(100), max_bytes=None).paths == (str(tmp_path / "a.tar"),)


@pytest.mark.parametrize(
    "limit", [{"max_samples": 0}, {"max_samples": True}, {"max_samples": 1.5}, {"max_bytes": "much"}, {"max_bytes": 0}]
)
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: Any) -> None:
    with pytest.raises(ConfigError):
        write_tar(tmp_path / "a-{}.tar", samples(1), **limit)
    assert os.listdir(tmp_path) == []


# ---- what is there already --------------------------------------------------------------------------------------------------


def test_shards_that_are_there_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "a-000007.tar").write_bytes(b"mine")
    with pytest.raises(WriteError, match=r"a-000007\.tar is already there.*overwrite=True"):
        write_tar(tmp_path / "a-{}.tar", (_ for _ in [1 / 0 for _ in range(0)] or iter(lambda: pytest.fail("read"), 1)))
    assert (tmp_path / "a-000007.tar").read_bytes() == b"mine" and len(os.listdir(tmp_path)) == 1


def test_overwriting_tells_of_shards_that_an_earlier_run_left_over(tmp_path: Path) -> None:
    write_tar(tmp_path / "a-{}.tar", samples(10), max_samples=2)
    with pytest.raises(WriteError, match=r"3 shards written.*a-000003\.tar and 1 more.*delete"):
        write_tar(tmp_path / "a-{}.tar", samples(6), max_samples=2, overwrite=True)
    assert (tmp_path / "a-000004.tar").exists(), "nothing is deleted that was not written here"
    write_tar(tmp_path / "a-{}.tar", samples(10, 3), max_samples=2, overwrite=True)


def test_when_something_fails_the_shards_before_it_stay_whole(tmp_path: Path) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield from samples(5)
        raise RuntimeError("source")

    with pytest.raises(RuntimeError, match="source"):
        write_tar(tmp_path / "a-{}.tar", failing(), max_samples=2)
    assert sorted(os.listdir(tmp_path)) == ["a-000000.tar", "a-000000.tar.stk", "a-000001.tar", "a-000001.tar.stk"]


def test_no_samples_are_told_and_make_no_shard(tmp_path: Path) -> None:
    with pytest.raises(SourceEmpty, match="no sample"):
        write_tar(tmp_path / "a-{}.tar", [])
    assert os.listdir(tmp_path) == []


# ---- where samples come from ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"a": b"x"}, "text", 3, b"x"])
def test_what_is_no_iterable_of_samples_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ConfigError, match="samples cannot be a"):
        write_tar(tmp_path / "a.tar", given)
    assert os.listdir(tmp_path) == []


def test_a_users_generator_is_not_closed(tmp_path: Path) -> None:
    stream = iter([{"a": b"1"}, {"a/": b"2"}, {"a": b"3"}])
    generator = (sample for sample in stream)
    with pytest.raises(ConfigError):
        write_tar(tmp_path / "a.tar", generator)
    assert next(generator) == {"a": b"3"}


def test_paths_of_any_kind_become_keys_that_a_tar_can_hold(
    tmp_path: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    picture = (image_folder / "cat/cat_00.jpg").read_bytes()
    (tmp_path / "a.b.jpg").write_bytes(picture)
    paths = [str(image_folder / "cat/cat_00.jpg"), "../a.b.jpg"]
    stoker.write_tar(tmp_path / "x.tar", stoker.files(paths, labels=[3, 4]).rename(jpg="image", cls="label"))
    found = list(stoker.tar(str(tmp_path / "x.tar")).map(lambda sample: {**sample, "key": sample.key}))
    assert [sample["key"] for sample in found] == [f"{image_folder}/cat/cat_00".lstrip("/"), "__/a_b"]
    twice = stoker.files([paths[1], "../a_b.jpg"], labels=None).rename(jpg="image")
    (tmp_path / "a_b.jpg").write_bytes(picture)
    with pytest.raises(ConfigError, match="'__/a_b' was written before"):
        stoker.write_tar(tmp_path / "y.tar", twice)


def test_a_pipeline_is_written_with_its_keys(tmp_path: Path, image_folder: Path) -> None:
    pipeline = stoker.files(image_folder).rename(jpg="image", cls="label")
    done = write_tar(tmp_path / "a.tar", pipeline)
    found = names(done.paths)[0]
    assert found[:2] == ["cat/cat_00.jpg", "cat/cat_00.cls"] and len(found) == 48
    with tarfile.open(done.paths[0]) as archive:
        content = archive.extractfile("owl/owl_03.jpg")
        assert content is not None and content.read() == (image_folder / "owl" / "owl_03.jpg").read_bytes()


def test_a_pipeline_of_batches_is_told_how_to_be_written(tmp_path: Path) -> None:
    pipeline = stoker.arrays(npy=np.arange(6).reshape(3, 2))
    with pytest.raises(ConfigError, match=r"\.unbatch\(\)"):
        write_tar(tmp_path / "a.tar", pipeline.batch(3))
    assert os.listdir(tmp_path) == []
    assert names(write_tar(tmp_path / "a.tar", pipeline).paths) == [["0.npy", "1.npy", "2.npy"]]


def test_objects_in_one_picture_keep_their_numbers(tmp_path: Path) -> None:
    class Sample(dict[str, Any]):
        def __init__(self, key: str) -> None:
            super().__init__(txt=key)

        @property
        def key(self) -> str:
            return str(self["txt"])

    given = ["n01/x_1.JPEG#0", "n01/x_1.JPEG#1", "plain", "a.b/c.jpg"]
    assert keys(write_tar(tmp_path / "a.tar", map(Sample, given)).paths)[0][:3] == ["n01/x_1#0", "n01/x_1#1", "plain"]


def test_a_dash_is_standard_output_however_long(tmp_path: Path) -> None:
    script = "from stoker.pack import write_tar\nwrite_tar('-', ({'cls': n} for n in range(50)), max_samples=10)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60, cwd=tmp_path)
    write_tar(tmp_path / "a.tar", ({"cls": n} for n in range(50)))
    assert done.stdout == (tmp_path / "a.tar").read_bytes()
