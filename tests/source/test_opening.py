"""Opening many shards: what they have in common is said once."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

import stoker

from ..storage.server import NoRange, Server
from .making import sample_tar

SHARDS = 4


def shard(number: int) -> bytes:
    return sample_tar([(f"s{number}", {"bin": bytes(5000), "cls": b"1"})])


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "stoker")
    return caplog


@pytest.fixture(autouse=True)
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache folder cannot be made."""
    (tmp_path / "home").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def test_remote_shards_without_an_index_are_one_warning_of_each_kind(warnings: pytest.LogCaptureFixture) -> None:
    with Server() as server:
        for number in range(SHARDS):
            server.put(f"/{number}.tar", shard(number))
            server.always(f"/{number}.tar", NoRange())
        pipeline = stoker.tar(f"{server.origin}/{{0..{SHARDS - 1}}}.tar")
        with pipeline.batch(2).loader(memory="16MB") as loader:  # too little to read blocks ahead: each record is asked for
            assert [batch.rows for batch in loader] == [2] * (SHARDS // 2)
    texts = [record.getMessage() for record in warnings.records]
    assert len(texts) == 3, texts
    for reason in ("has no index next to it", "its index can be written neither", "cannot send a part of a file"):
        assert sum(reason in text for text in texts) == 1, texts


def test_a_server_without_ranges_is_one_warning_in_a_worker_too(warnings: pytest.LogCaptureFixture) -> None:
    with Server() as server:
        urls = [server.put(f"/{number}.tar", shard(number)) for number in range(SHARDS)]
        source = stoker.tar(urls).plan.source
        warnings.clear()
        for number in range(SHARDS):
            server.always(f"/{number}.tar", NoRange())
        there = pickle.loads(pickle.dumps(source))  # noqa: S301  as torch's workers get it
        for blob in there.blobs:
            blob.read_into(600, memoryview(bytearray(10)))
    assert len(warnings.records) == 1
