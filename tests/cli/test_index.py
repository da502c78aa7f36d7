"""`stoker index`: indexes beside the shards, or in the cache folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker as stoker_package
from stoker.source.shards.shard_index import ShardIndex

from ..storage.server import NoRange, Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three tar shards and a TFRecord, without indexes."""
    path = tmp_path / "shards"
    path.mkdir()
    samples = [{"__key__": f"{number}", "txt": f"text {number}" * 50, "cls": number} for number in range(30)]
    stoker_package.write_tar(path / "t-{}.tar", samples, max_samples=10)
    stoker_package.write_tfrecord(path / "r.tfrecord", [{"n": number} for number in range(5)])
    for index in path.glob("*.stk"):
        index.unlink()
    return path


def indexes(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.stk"))


def states(told: dict[str, Any]) -> list[str]:
    return [shard["index"] for shard in told["shards"]]


def test_indexes_are_made_once_and_sealed(stoker_json: Any, folder: Path) -> None:
    told = stoker_json("index", folder / "*.tar", folder / "r.tfrecord")
    assert states(told) == ["made"] * 4 and [shard["samples"] for shard in told["shards"]] == [10, 10, 10, 5]
    assert indexes(folder) == ["r.tfrecord.stk", "t-000000.tar.stk", "t-000001.tar.stk", "t-000002.tar.stk"]
    index = ShardIndex.from_bytes((folder / "t-000000.tar.stk").read_bytes(), "index")
    assert index.sealed and len(index) == 10
    assert states(stoker_json("index", folder / "*.tar")) == ["kept"] * 3
    assert states(stoker_json("index", folder / "*.tar", "--force", "-j", 3)) == ["made"] * 3


def test_an_index_made_by_reading_becomes_one_for_all(stoker_json: Any, folder: Path) -> None:
    assert len(stoker_package.tar(folder / "t-000001.tar")) == 10
    assert states(stoker_json("index", folder / "t-000001.tar")) == ["sealed"]
    assert states(stoker_json("index", folder / "t-000001.tar")) == ["kept"]


def test_an_index_that_can_be_written_nowhere_is_status_74(stoker: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    (folder / "t-000001.tar.stk").mkdir()
    result = stoker("index", folder / "*.tar", "--force")
    assert result.exit_code == 74 and "2 indexed, 1 bad" in result.stdout
    assert f"{folder}/t-000001.tar.stk: cannot be written" in result.stderr and "/dev/null/stoker/index" in result.stderr


def test_the_text_says_what_was_done(stoker: Any, folder: Path) -> None:
    result = stoker("index", folder / "*.tar")
    assert result.exit_code == 0 and "3 shards: 3 indexed; 30 samples" in result.stdout and "B/s" in result.stdout
    assert "3 already indexed" in stoker("index", folder / "*.tar").stdout


def test_a_bad_shard_is_named_and_the_others_go_on(stoker: Any, folder: Path) -> None:
    data = (folder / "t-000001.tar").read_bytes()
    (folder / "t-000001.tar").write_bytes(data[: len(data) // 2])
    result = stoker("index", folder / "*.tar")
    assert result.exit_code == 1 and "t-000001.tar" in result.stderr and "Traceback" not in result.stderr
    assert indexes(folder) == ["t-000000.tar.stk", "t-000002.tar.stk"]


@pytest.mark.parametrize("data", [b"", b"<html>not found</html>", b"\x1f\x8b\x08\x00gzip", b"\0" * 300, os.urandom(3000)])
def test_what_is_no_shard_gets_no_index(stoker: Any, folder: Path, data: bytes) -> None:
    (folder / "bad.tar").write_bytes(data)
    result = stoker("index", folder / "bad.tar")
    assert result.exit_code == 1 and "bad.tar" in result.stderr
    assert indexes(folder) == [] and (folder / "bad.tar").read_bytes() == data


def test_a_shard_that_was_replaced_takes_force(stoker: Any, stoker_json: Any, folder: Path) -> None:
    stoker("index", folder / "*.tar")
    (folder / "t-000000.tar").write_bytes((folder / "t-000001.tar").read_bytes() + bytes(512))
    result = stoker("index", folder / "t-000000.tar")
    assert result.exit_code == 1 and "--force" in result.stderr
    assert states(stoker_json("index", folder / "t-000000.tar", "--force")) == ["made"]
    assert states(stoker_json("index", folder / "t-000000.tar")) == ["kept"]


@pytest.mark.parametrize("names", [["missing.tar"], ["."], ["x.zip"], ["-"], []])
def test_what_has_no_index_is_wrong_usage(stoker: Any, tmp_path: Path, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04")
    (tmp_path / "a.jpg").write_bytes(b"")
    result = stoker("index", *names)
    assert result.exit_code == 2 and "Traceback" not in result.stderr


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The folder over HTTP, without ranges."""
    with Server() as running:
        running.put_all(folder.iterdir(), NoRange())
        yield running.origin


def test_indexes_of_remote_shards_are_kept_in_the_cache_folder(
    stoker: Any, stoker_json: Any, folder: Path, server: str, cache_home: Path
) -> None:
    url = f"{server}/t-{{000000..000002}}.tar"
    told = stoker_json("index", url)
    assert states(told) == ["made"] * 3
    assert all(Path(shard["place"]).is_relative_to(cache_home) for shard in told["shards"])
    assert indexes(folder) == []
    assert states(stoker_json("index", url)) == ["kept"] * 3
    assert len(stoker_package.tar(url)) == 30
    assert stoker("verify", url).exit_code == 0


def test_a_missing_remote_shard_is_named(stoker: Any, server: str) -> None:
    result = stoker("index", f"{server}/t-000000.tar", f"{server}/nothing.tar")
    assert result.exit_code == 1 and "nothing.tar" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_fewer_threads_do_where_no_more_can_be_started_but_one_is_needed(
    stoker: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """From a user's limit on processes, at any number of them."""
    start, left = threading.Thread.start, [allowed]

    def refused(thread: threading.Thread) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    result = stoker("index", folder / "*.tar", "-j", 4)
    told = "could not be started (can't start new thread); use fewer threads, as in loader(threads=2) or -j 2"
    assert result.exit_code == 0 if allowed else (result.exit_code == 2 and told in result.stderr)
    monkeypatch.undo()
    assert stoker("index", folder / "*.tar").exit_code == 0
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_reading_goes_without_threads_where_none_can_be_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert len(stoker_package.tar(folder / "*.tar")) == 30
