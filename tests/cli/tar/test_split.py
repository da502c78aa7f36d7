"""`stoker tar split`: numbered shards, whole, with their indexes, the same again after any interruption."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import stoker

from ...support import until
from .conftest import ENVIRONMENT, STOKER, make_tar, read_tar, some_samples


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.tar"
    make_tar(path, some_samples(40, size=2000))
    return path


def made(folder: Path, name: str = "out") -> list[Path]:
    return sorted(folder.glob(f"{name}-*.tar"))


def contents(folder: Path, name: str = "out") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f".*{name}*")) + sorted(folder.glob(f"{name}-*"))}


def test_shards_are_no_larger_than_asked_for_and_hold_everything(tar: Any, whole: Path, tmp_path: Path) -> None:
    done = tar("split", whole, "-s", "3e4", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    shards = made(tmp_path)
    assert len(shards) > 3 and [path.name for path in shards[:2]] == ["out-000000.tar", "out-000001.tar"]
    assert all(path.stat().st_size <= 30_000 and Path(f"{path}.stk").exists() for path in shards)
    assert [sample for path in shards for sample in read_tar(path)] == some_samples(40, size=2000)
    assert len(stoker.tar(str(tmp_path / "out-*.tar"))) == 40


def test_by_number_and_to_a_pattern_of_ones_own(tar: Any, whole: Path, tmp_path: Path) -> None:
    assert tar("split", "-n", 15, "-o", tmp_path / "out-%02d.tar", input=whole.read_bytes()).code == 0
    assert [len(read_tar(path)) for path in made(tmp_path)] == [15, 15, 10]


def test_no_more_shards_than_asked_for(tar: Any, whole: Path, tmp_path: Path) -> None:
    done = tar("split", whole, "-n", 7, "--maxshards", 2, "-o", tmp_path / "out")
    assert done.code == 0 and "ignored" in done.err
    assert [len(read_tar(path)) for path in made(tmp_path)] == [7, 7]


@pytest.mark.parametrize("size", ["x", "0", "-5", "nan", "inf"])
def test_a_size_that_is_none_is_wrong_usage(tar: Any, whole: Path, tmp_path: Path, size: str) -> None:
    assert tar("split", whole, "-s", size, "-o", tmp_path / "out").code == 2
    assert made(tmp_path) == []


def test_shards_that_are_there_and_the_same_stay(tar: Any, whole: Path, tmp_path: Path) -> None:
    words = ("split", whole, "-n", 10, "-o", tmp_path / "out")
    tar(*words)
    before = contents(tmp_path)
    times = [path.stat().st_mtime_ns for path in made(tmp_path)]
    (tmp_path / "out-000001.tar").unlink()  # as if it had been stopped before these
    (tmp_path / "out-000002.tar.stk").unlink()
    done = tar(*words)
    assert done.code == 0 and b"3 of them existed before" in done.out
    after = contents(tmp_path)
    assert {name: data for name, data in after.items() if name.endswith(".tar")} == {
        name: data for name, data in before.items() if name.endswith(".tar")
    }
    assert after.keys() == before.keys()
    assert [path.stat().st_mtime_ns for path in made(tmp_path)][2:] == times[2:]


def test_a_shard_that_differs_is_left_alone(tar: Any, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "out-000001.tar").write_bytes(b"precious")
    words = ("split", whole, "-n", 10, "-o", tmp_path / "out")
    done = tar(*words)
    assert done.code == 74 and "out-000001.tar" in done.err and "--overwrite" in done.err
    assert (tmp_path / "out-000001.tar").read_bytes() == b"precious"
    assert tar(*words, "--overwrite").code == 0
    assert len(read_tar(tmp_path / "out-000001.tar")) == 10


def test_shards_left_from_an_earlier_run_are_told(tar: Any, whole: Path, tmp_path: Path) -> None:
    tar("split", whole, "-n", 10, "-o", tmp_path / "out")
    done = tar("split", whole, "-n", 20, "-o", tmp_path / "out", "--overwrite")
    assert done.code == 74 and "out-000002.tar" in done.err
    assert len(made(tmp_path)) == 4  # nobody deletes what it did not make


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_and_started_again_the_shards_are_the_same(tar: Any, whole: Path, tmp_path: Path, number: int) -> None:
    tar("split", whole, "-n", 4, "-o", tmp_path / "wanted")
    out = tmp_path / "run"
    out.mkdir()
    words = ["tar", "split", "-n", "4", "-o", str(out / "wanted")]
    data = whole.read_bytes()
    with subprocess.Popen(
        [*STOKER, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=ENVIRONMENT
    ) as first:
        assert first.stdin is not None and first.stderr is not None
        first.stdin.write(data[: len(data) // 2])
        first.stdin.flush()
        until(lambda: len(made(out, "wanted")) >= 3)
        first.send_signal(number)
        errors = first.stderr.read().decode()
        first.stdin.close()
    assert first.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in errors
    if number != signal.SIGKILL:
        assert not [name for name in os.listdir(out) if name.startswith(".")]
    assert tar(*words[1:], input=data).code == 0
    wanted = {name: data for name, data in contents(tmp_path, "wanted").items() if name.endswith(".tar")}
    found = {name: data for name, data in contents(out, "wanted").items() if name.endswith(".tar")}
    assert found == wanted and len(found) == 10
    assert sorted(os.listdir(out)) == sorted([*wanted, *(f"{name}.stk" for name in wanted)])
