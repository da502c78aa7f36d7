"""Shards over a bad network: the samples are those of the local shards, in their order, or an error says why not."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import CorruptShard, ReadError, RemoteError, ShardChanged, SourceNotFound

from ..storage.server import Act, Drip, NoRange, Reset, Server, Short, Silence, Status, Tag

SAMPLES, SHARDS = 48, 6
QUICK = stoker.Patience(
    silence_s=0.3, least_bytes_per_s=2000, rate_window_s=0.3, first_delay_s=0.001, longest_delay_s=0.01,
    longest_retry_after_s=0.05,
)  # fmt: skip


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    samples = ({"__key__": f"{n:04d}", "bin": bytes([n % 251]) * (900 + 61 * n), "cls": n} for n in range(SAMPLES))
    stoker.write_tar(str(folder / "s-{:d}.tar"), samples, max_samples=SAMPLES // SHARDS)
    return folder


@pytest.fixture
def server(shards: Path) -> Iterator[Server]:
    with Server() as running:
        running.put_all(shards.iterdir())
        yield running


def delivered(pipeline: stoker.Pipeline, threads: int = 4, **options: Any) -> list[tuple[list[str], list[bytes], list[int]]]:
    with pipeline.shuffle(seed=5).batch(7, drop_last=False).loader(threads=threads, **options) as loader:
        return [(batch.sample_keys, list(batch["bin"]), batch["cls"].tolist()) for _ in range(2) for batch in loader]


@pytest.fixture(scope="module")
def oracle(shards: Path) -> list[tuple[list[str], list[bytes], list[int]]]:
    return delivered(stoker.tar(str(shards)))


def over_http(server: Server, **options: Any) -> stoker.Pipeline:
    return stoker.tar(f"{server.origin}/s-{{0..{SHARDS - 1}}}.tar", patience=QUICK, **options)


FAULTS: dict[str, list[Act]] = {
    "errors of the server": [Status(500), Status(503), Status(500)],
    "too many requests": [Status(429, {"Retry-After": "1"}), Status(429, {"Retry-After": "0"})],
    "bodies that end early": [Short(0), Short(1), Short(500), Short(7)],
    "resets at twenty places": [Reset(at) for at in range(0, 1000, 50)],
    "a byte a second": [Drip(1.0)],
    "accepts and says nothing": [Silence(), Silence(40)],
    "all of it at once": [Status(500), Reset(100), Short(10), Status(429), Silence(3), Reset(0)],
}


@pytest.mark.parametrize("acts", FAULTS.values(), ids=FAULTS)
def test_whatever_the_network_does_the_samples_are_the_same(server: Server, oracle: Any, acts: list[Act]) -> None:
    pipeline = over_http(server)
    for shard in range(SHARDS):
        server.script(f"/s-{shard}.tar", *acts)
    assert delivered(pipeline) == oracle


def test_a_server_without_ranges_gives_the_right_bytes_all_the_same(server: Server, oracle: Any) -> None:
    for shard in range(SHARDS):
        server.always(f"/s-{shard}.tar", NoRange())
    assert delivered(over_http(server)) == oracle


@pytest.mark.parametrize("block", [None, "64KiB"])
def test_faults_do_not_reach_through_a_cache(server: Server, oracle: Any, tmp_path: Path, block: str | None) -> None:
    pipeline = over_http(server, cache=stoker.Cache(tmp_path / "cache", limit="10MB", block=block))
    for shard in range(SHARDS):
        server.script(f"/s-{shard}.tar", *FAULTS["all of it at once"])
    assert delivered(pipeline) == oracle
    requests = len(server.log)
    assert delivered(pipeline) == oracle
    assert len(server.log) == requests, "the second time nothing is fetched"


def test_worker_processes_share_a_cache_and_ask_no_server_twice(server: Server, oracle: Any, tmp_path: Path) -> None:
    pipeline = over_http(server, cache=stoker.Cache(tmp_path / "cache", limit="10MB"))
    asked = len(server.asked("/s-0.tar", "HEAD"))
    assert delivered(pipeline, threads=1, processes=2) == oracle
    assert [len(server.asked(f"/s-{shard}.tar")) for shard in range(SHARDS)] == [1] * SHARDS
    assert len(server.asked("/s-0.tar", "HEAD")) == asked, "a worker knows size and ETag already"


def test_worker_processes_are_as_patient_as_their_home(server: Server, oracle: Any) -> None:
    pipeline = over_http(server)
    for shard in range(SHARDS):
        server.script(f"/s-{shard}.tar", *FAULTS["all of it at once"])
    assert delivered(pipeline, threads=2, processes=1) == oracle


def test_a_shard_that_changes_while_it_is_read_is_told(server: Server, shards: Path) -> None:
    pipeline = over_http(server)
    server.put("/s-1.tar", (shards / "s-2.tar").read_bytes())
    with pytest.raises((ReadError, ShardChanged), match=r"s-1\.tar.*changed"):
        delivered(pipeline)


def test_a_changed_etag_alone_is_told_too(server: Server) -> None:
    pipeline = over_http(server)
    server.always("/s-0.tar", Tag('"another"'))
    with pytest.raises((ReadError, ShardChanged), match="changed"):
        delivered(pipeline)


def test_a_shard_that_is_not_there_is_told_at_once(server: Server) -> None:
    with pytest.raises(SourceNotFound, match=r"/s-9\.tar"):
        stoker.tar(f"{server.origin}/s-9.tar", patience=QUICK)


def test_a_refusal_is_told_at_once_with_the_url_and_without_its_secrets(server: Server) -> None:
    server.always("/s-0.tar", Status(403))
    with pytest.raises(RemoteError, match=r"/s-0\.tar") as caught:
        stoker.tar(f"{server.origin}/s-0.tar?token=canary", patience=QUICK)
    assert "canary" not in str(caught.value) and caught.value.status == 403


def test_a_remote_shard_without_index_is_read_once_and_remembered(server: Server, oracle: Any) -> None:
    for shard in range(SHARDS):
        del server.files[f"/s-{shard}.tar.stk"]
    assert delivered(over_http(server)) == oracle
    before = sum(len(server.asked(f"/s-{shard}.tar")) for shard in range(SHARDS))
    over_http(server)
    assert sum(len(server.asked(f"/s-{shard}.tar")) for shard in range(SHARDS)) == before


def test_a_page_where_the_index_would_be_is_no_index(server: Server, oracle: Any) -> None:
    for shard in range(SHARDS):
        server.put(f"/s-{shard}.tar.stk", b"<!DOCTYPE html><title>not found</title>")
    assert delivered(over_http(server)) == oracle


def test_shards_are_read_in_sequence_over_a_bad_network_too(server: Server, oracle: Any) -> None:
    pipeline = over_http(server, index="never")
    for shard in range(SHARDS):
        server.script(f"/s-{shard}.tar", Reset(20_000), Short(3000), Status(500))
    with pipeline.batch(SAMPLES).loader() as loader:
        batch = next(iter(loader))
    assert batch["cls"].tolist() == list(range(SAMPLES))


def test_what_is_needed_last_is_evicted_first(server: Server, tmp_path: Path) -> None:
    """Four of six shards fit. Least recently used would fetch every shard in every epoch, because it drops what comes next."""
    sizes = [len(server.files[f"/s-{shard}.tar"].data) for shard in range(SHARDS)]
    cache = stoker.Cache(tmp_path / "cache", limit=int(4.3 * max(sizes)))
    with over_http(server, cache=cache).batch(4).loader(threads=1, ahead=1) as loader:
        for _ in range(4):
            assert [label for batch in loader for label in batch["cls"].tolist()] == list(range(SAMPLES))
    counts = cache.counts()
    # A read goes past the cache where shards that are just being fetched take all its room, which depends on who is quick.
    assert SHARDS < counts.fetched <= counts.fetched + counts.past < 4 * SHARDS


def test_compressed_tfrecords_are_streamed_over_a_bad_network(server: Server, tmp_path: Path) -> None:
    stoker.write_tfrecord(tmp_path / "a.tfrecord", ({"n": n, "bin": bytes([n]) * 900} for n in range(40)))
    packed = gzip.compress((tmp_path / "a.tfrecord").read_bytes(), 0)
    server.put("/a.tfrecord.gz", packed)
    server.put("/b.tfrecord", packed)
    server.script("/a.tfrecord.gz", Status(503), Reset(5000), Short(700))
    for name, options in (("a.tfrecord.gz", {}), ("b.tfrecord", {"compression": "gzip"})):
        opened = stoker.tfrecord(f"{server.origin}/{name}", patience=QUICK, **options)
        assert [(int(sample["n"]), sample["bin"]) for sample in opened] == [(n, bytes([n]) * 900) for n in range(40)]
    with pytest.raises(CorruptShard, match=r"b\.tfrecord: is compressed \(gzip\); read it with .*compression='gzip'"):
        stoker.tfrecord(f"{server.origin}/b.tfrecord", patience=QUICK)


@pytest.fixture(scope="module")
def bucket(shards: Path) -> Iterator[str]:
    """A real S3 server on the loopback, with the shards in it."""
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
        patch.setenv("AWS_REGION", "us-east-1")
        import boto3

        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
        client.create_bucket(Bucket="shards")
        for path in shards.iterdir():
            client.upload_fileobj(io.BytesIO(path.read_bytes()), "shards", f"train/{path.name}")
        client.close()
        yield "s3://shards/train"
    running.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_s3_gives_what_the_disk_gives(bucket: str, oracle: Any) -> None:
    assert delivered(stoker.tar(f"{bucket}/s-{{0..{SHARDS - 1}}}.tar")) == oracle


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_what_is_not_in_a_bucket_is_told_without_secrets(bucket: str) -> None:
    with pytest.raises(SourceNotFound, match=r"s3://shards/train/none\.tar") as caught:
        stoker.tar(f"{bucket}/none.tar")
    assert "canary" not in str(caught.value)
