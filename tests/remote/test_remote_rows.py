"""Rows that workers make elsewhere are those that are made at home, whatever the pipeline."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError, FunctionError, WorkerRefused
from stoker.image import RandomResizedCrop
from stoker.loader.remote_work import handshake_of, stoker_version, worker_service
from stoker.loader.thread_count import core_share
from stoker.remote.curve_keys import make_keys
from stoker.remote.frames import PROTOCOL, Hello, Welcome, packed
from stoker.remote.pool_memory import SeenMemory
from stoker.remote.remote_executor import _RemoteChannel
from stoker.remote.wire_addresses import by_ipv6
from stoker.remote.worker_service import _unknown_name

from ..contract.test_executors import expected, picky, pipeline_named
from ..loader.runs import PIPELINES, SINGLES, epochs_of, numbers, sha_of_run
from ..source.making import sample_tar
from ..storage.server import Server
from .serving import DEADLINE_S, HERE, executor_of, serving, until


def sha_elsewhere(pipeline: Pipeline, **options: Any) -> tuple[str, int]:
    """The hash of three epochs whose rows a worker made, and how many parcels of tasks it did."""
    with pipeline.loader(threads=0, workers_at=HERE, **options) as loader, serving(pipeline, loader):
        told = hashlib.sha256(repr(epochs_of(loader, 3)).encode()).hexdigest()
        return told, sum(worker.parcels for worker in executor_of(loader).remote_workers)


@pytest.mark.parametrize("kind", [kind for kind in (*PIPELINES, *SINGLES) if "stream" not in kind])
def test_batches_made_elsewhere_are_those_made_here(kind: str) -> None:
    sha, parcels = sha_elsewhere(pipeline_named(kind))
    assert sha == expected(kind)
    assert parcels > 0


def test_pictures_made_elsewhere_are_those_made_here(image_folder: Any) -> None:
    pipeline = stoker.files(image_folder).shuffle(seed=2).image("image", RandomResizedCrop(32)).batch(5)
    assert sha_elsewhere(pipeline)[0] == sha_of_run(pipeline, executor="inline")
    varying = stoker.files(image_folder).shuffle(seed=2).decode("image").batch(5)
    assert sha_elsewhere(varying)[0] == sha_of_run(varying, executor="inline")
    stored = stoker.files(image_folder).shuffle(seed=2).batch(5)
    assert sha_elsewhere(stored)[0] == sha_of_run(stored, executor="inline")


class Odd:
    """What has no plain bytes."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __repr__(self) -> str:
        return f"Odd({self.x})"


def odd_values(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"], "odd": Odd(int(sample["x"]))}


def test_what_cannot_be_sent_is_made_at_home(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = numbers().map(odd_values).batch(6)
    with caplog.at_level(logging.WARNING, "stoker"):
        sha, _ = sha_elsewhere(pipeline)
    assert sha == sha_of_run(pipeline, executor="inline")
    assert "cannot be sent" in caplog.text


def test_an_error_elsewhere_is_the_error_here() -> None:
    pipeline = numbers().map(picky).batch(6)
    with (
        pipeline.loader(threads=0, workers_at=HERE) as loader,
        serving(pipeline, loader),
        pytest.raises(FunctionError, match="no such thing") as caught,
    ):
        list(loader)
    assert caught.value.position == 31 and isinstance(caught.value.__cause__, KeyError)
    assert str(caught.value).endswith(f"(on remote worker {socket.gethostname()}:{os.getpid()})")


def test_a_sample_that_is_skipped_elsewhere_says_where(tmp_path: Path) -> None:
    """The file of the same name may be good on the trainer's machine."""
    listed = tmp_path / "bad.jsonl"
    pipeline = numbers().on_error("skip", budget=1.0, quarantine=listed).map(picky).batch(6)
    with pipeline.loader(threads=0, workers_at=HERE) as loader, serving(pipeline, loader):
        assert sum(len(batch["x"]) for batch in loader) == 59
    [reason] = [json.loads(line)["reason"] for line in listed.read_text().splitlines()]
    assert reason.endswith(f"(on remote worker {socket.gethostname()}:{os.getpid()})")


def fickle(sample: dict[str, Any]) -> dict[str, Any]:
    """Gives, on some rows, what no header can hold."""
    return {"x": sample["x"], "odd": 1 << 70 if sample["x"] % 7 == 3 else "half \udc80" if sample["x"] % 7 == 5 else 1}


class PrivateError(ValueError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._code = 7


def own_error(sample: dict[str, Any]) -> dict[str, Any]:
    raise PrivateError("no\udc80")


def test_values_that_no_header_can_hold_are_made_at_home(caplog: pytest.LogCaptureFixture) -> None:
    """The worker stays, with all of its threads."""
    pipeline = numbers().map(fickle).batch(6)
    with caplog.at_level(logging.WARNING, "stoker"):
        sha, _ = sha_elsewhere(pipeline)
    assert sha == sha_of_run(pipeline, executor="inline")
    assert "cannot be sent" in caplog.text and "lost" not in caplog.text


def one_odd(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"], "odd": [1 << 70 if sample["x"] == 3 else 1]}


def test_one_row_that_cannot_be_sent_does_not_send_the_workers_home(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = numbers(200).map(one_odd).batch(2)
    lines: list[Any] = []
    with pipeline.loader(threads=0, workers_at=HERE) as loader, serving(pipeline, loader):
        submit = _RemoteChannel.submit
        monkeypatch.setattr(
            _RemoteChannel, "submit", lambda self, *given, **how: (lines.append(self), submit(self, *given, **how))
        )
        assert [int(x) for batch in loader for x in batch["x"]] == list(range(200))
    assert any(line.unsent for line in lines) and all(line.travels for line in lines)


def tensors(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"x": sample["x"], "odd": [torch.arange(int(sample["x"]) % 3)]}


def test_tensors_do_not_cost_the_worker_where_the_trainer_has_not_imported_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first of them are made by the trainer, which imports it then."""
    pytest.importorskip("torch")
    monkeypatch.setattr("stoker.remote.row_frames.sys", SimpleNamespace(modules={}))
    pipeline = numbers().map(tensors).batch(6, pad={"odd": list})
    with caplog.at_level(logging.WARNING, "stoker"):
        sha, _ = sha_elsewhere(pipeline)
    assert sha == sha_of_run(pipeline, executor="inline")
    assert "nobody has imported torch" in caplog.text and "sent what cannot be read" not in caplog.text


def test_an_error_of_a_users_own_class_does_not_cost_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = numbers().map(own_error).batch(6)
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        pipeline.loader(threads=0, workers_at=HERE) as loader,
        serving(pipeline, loader),
    ):
        with pytest.raises(FunctionError, match="PrivateError"):
            list(loader)
        assert executor_of(loader).remote_workers
    assert not caplog.text


def test_home_and_worker_share_the_work() -> None:
    pipeline = numbers().shuffle(seed=3).batch(7)
    with pipeline.loader(threads=1, workers_at=HERE) as loader, serving(pipeline, loader):
        assert [len(list(loader)) for _ in range(2)] == [8, 8]
        assert loader.stats().executor.remote == 1 and loader.stats().executor.remote_threads == 2
        assert loader.stats().workers == 3
        assert loader.stats().cores == core_share().threads, "it is on this machine, whose cores are counted already"


def test_who_waits_for_workers_before_the_first_batch_sees_them_come() -> None:
    pipeline = numbers().batch(7)
    with pipeline.loader(workers_at=HERE) as loader:
        assert (loader.stats().executor.remote, loader.stats().executor.remote_threads) == (0, 0)
        with serving(pipeline, loader, threads=3):
            assert (loader.stats().executor.remote, loader.stats().executor.remote_threads) == (1, 3)


def test_a_worker_on_another_machine_adds_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.remote.worker_service.sockets", SimpleNamespace(gethostname=lambda: "elsewhere"))
    pipeline = numbers().shuffle(seed=3).batch(7)
    with pipeline.loader(threads=1, workers_at=HERE) as loader, serving(pipeline, loader):
        assert len(list(loader)) == 8
        assert loader.stats().cores == core_share().threads + 2


def test_a_worker_with_another_pipeline_is_refused_and_hears_why(caplog: pytest.LogCaptureFixture) -> None:
    mine, its = numbers().shuffle(seed=3).batch(7), numbers().shuffle(seed=4).map(picky).batch(7)
    with caplog.at_level(logging.WARNING, "stoker"), mine.loader(workers_at=HERE) as loader:
        service = worker_service(its.plan, str(loader.workers_at), None, 1, None, lambda text: None)
        with pytest.raises(WorkerRefused, match=r"order .* differs; its stages"):
            service.run()
        assert len(list(loader)) == 8
    assert "was refused: its pipeline is not the trainer's" in caplog.text


def test_a_worker_with_another_python_is_taken_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = numbers().map(picky).take(20).batch(5)
    other = {**handshake_of(pipeline.plan), "python": "3.99", "functions": "compiled otherwise"}
    hello = packed(Hello(PROTOCOL, stoker_version(), other, 1, "elsewhere", 1))
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        pipeline.loader(threads=1, workers_at=HERE) as loader,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as first,
        context.socket(zmq.DEALER) as second,
    ):
        for each in (first, second):
            each.linger = 0
            each.connect(str(loader.workers_at))
            each.send(hello)
        until(lambda: len(executor_of(loader).remote_workers) == 2, "both to join")
        until(lambda: "Python 3.99 there" in caplog.text, "it to be said")
    assert caplog.text.count("is not compared") == 1


def test_a_worker_with_fewer_samples_hears_how_many() -> None:
    mine, its = numbers().batch(7), stoker.arrays(x=np.arange(3)).batch(7)
    with mine.loader(workers_at=HERE) as loader:
        service = worker_service(its.plan, str(loader.workers_at), None, 1, None, lambda text: None)
        with pytest.raises(WorkerRefused, match=r"has different samples \(3, and not 60\)"):
            service.run()


def test_a_worker_that_nobody_answers_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.remote.worker_service._WELCOME_S", 0.0)
    said: list[str] = []
    service = worker_service(numbers().batch(7).plan, "tcp://127.0.0.1:9", None, 1, None, said.append)
    turns: list[bool] = []
    turn = service._turn
    monkeypatch.setattr(service, "_turn", lambda seconds: (turn(0.001), turns.append(len(turns) > 20 and service.leave())))
    service.run()
    assert said == ["no trainer answers at tcp://127.0.0.1:9 yet; this worker keeps trying"]


def test_a_worker_for_one_trainer_leaves_when_that_was_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says nothing then: nobody is at its address any more."""
    monkeypatch.setattr("stoker.remote.worker_service._GONE_S", 0.2)
    said: list[str] = []
    address = f"ipc://{tmp_path}/socket"
    service = worker_service(numbers().batch(7).plan, address, None, 1, None, said.append, once=True)
    thread = threading.Thread(target=service.run)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as trainer:
        trainer.linger = 0
        trainer.bind(address)
        thread.start()
        trainer.send_multipart([trainer.recv_multipart()[0], packed(Welcome(0.1, 60.0))])
        until(lambda: said, "the worker to be welcomed")
    thread.join(DEADLINE_S)
    assert not thread.is_alive() and "the trainer has ended" in said[-1]


def test_one_that_takes_the_place_of_another_knows_that_there_was_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """That may have ended meanwhile, and `--once` means that one."""
    monkeypatch.setattr("stoker.remote.worker_service._GONE_S", 0.0)
    said: list[str] = []
    plan = numbers().batch(7).plan
    service = worker_service(plan, "tcp://127.0.0.1:9", None, 1, None, said.append, once=True, successor=True)
    thread = threading.Thread(target=service.run)
    thread.start()
    thread.join(DEADLINE_S)
    service.leave()
    thread.join()
    assert "the trainer has ended" in said[-1]


def test_names_are_looked_up_before_a_worker_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has IPv6 alone is reached by that; the library would look for nothing else than IPv4."""
    found: dict[str, list[Any]] = {"six": [socket.AF_INET6], "both": [socket.AF_INET, socket.AF_INET6]}

    def look_up(host: str, port: Any) -> list[Any]:
        if host not in found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, 0, 0, "", ()) for family in found[host]]

    monkeypatch.setattr("stoker.remote.wire_addresses.socket.getaddrinfo", look_up)
    assert by_ipv6("tcp://six:1") and by_ipv6("tcp://[::1]:1")
    assert not any(map(by_ipv6, ("tcp://both:1", "tcp://*:1", "ipc:///tmp/x")))
    assert "cannot be resolved" in _unknown_name("tcp://none:1") and not _unknown_name("tcp://six:1")


def test_workers_may_come_before_their_trainer_and_stay_for_the_next(tmp_path: Any) -> None:
    pipeline = numbers().shuffle(seed=3).batch(7)
    address = f"ipc://{tmp_path}/socket"
    oracle = sha_of_run(pipeline, executor="inline", epochs=1)
    with pipeline.loader(threads=0, workers_at=address) as loader, serving(pipeline, loader) as said:
        assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o600
        list(loader)
        loader.close()
        until(lambda: any("has ended" in text for text in said), "the worker to hear of the end")
        with pipeline.loader(threads=0, workers_at=address) as again:
            until(lambda: executor_of(again).remote_workers, "the worker to join again")
            assert hashlib.sha256(repr(epochs_of(again, 1)).encode()).hexdigest() == oracle


@pytest.mark.parametrize(
    "at", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://10.1.2.3:8877", "tcp://trainer:8877", "tcp://[::]:8877", "tcp://eth0:1"]
)
def test_an_address_that_others_reach_needs_keys(at: str) -> None:
    with pytest.raises(ConfigError, match="stoker keys"):
        numbers().batch(4).loader(workers_at=at)


def test_a_worker_and_a_pool_need_keys_too() -> None:
    at = "tcp://trainer:8877"
    with pytest.raises(ConfigError, match=r"`stoker keys FOLDER` and pass --keys FOLDER/worker\.key"):
        worker_service(numbers().batch(4).plan, at, None, 1, None, print)
    with pytest.raises(ConfigError, match=r"`stoker keys FOLDER --pool` and pass loader\(pool_keys='FOLDER/trainer\.key'\)"):
        numbers().batch(4).loader(pool=at)


@pytest.mark.parametrize(
    "at",
    [
        *("", "8877", "http://x:1", "tcp://x", "tcp://127.0.0.1:99999", "ipc://@name", "inproc://x", "tcp://a b:1"),
        *("tcp://-a:1", "tcp://.:1", "tcp://a;b:1", "tcp://a@b:1", "tcp://[zz]:1", "tcp://%:1"),
    ],
)
def test_what_is_no_address_is_named(at: str) -> None:
    for options in ({"workers_at": at}, {"pool": at}):
        with pytest.raises(ConfigError, match="not an address"):
            numbers().batch(4).loader(**options)


@pytest.mark.parametrize(
    "at", ["tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tcp://*:8877", "tcp://0.0.0.0:8877", "tcp://[::]:8877"]
)
def test_an_address_that_is_only_to_listen_at_is_refused_to_who_connects(at: str) -> None:
    with pytest.raises(ConfigError, match=r"nobody can connect to it; write the host that listens"):
        worker_service(numbers().batch(4).plan, at, None, 1, None, print)
    with pytest.raises(ConfigError, match=r"nobody can connect to it"):
        numbers().batch(4).loader(pool=at)


def test_a_name_that_no_host_can_have_is_one_that_cannot_be_resolved(tmp_path: Path) -> None:
    make_keys(tmp_path, ["worker"])
    service = worker_service(numbers().batch(4).plan, "tcp://a..b:8877", tmp_path / "worker.key", 1, None, print)
    service.leave()
    service.run()  # it tries, as with other names that nobody knows
    assert "cannot be resolved" in _unknown_name("tcp://a..b:8877")


@pytest.mark.parametrize(
    "at, remedy",
    [
        ("tcp://203.0.113.77:0", "an address of this machine"),
        ("ipc:///no/such/folder/socket", "make the folder"),
        (f"ipc:///tmp/{'x' * 100}", "use a shorter one"),
    ],
)
def test_an_address_that_nobody_can_listen_at_is_refused_with_a_remedy(at: str, remedy: str, tmp_path: Path) -> None:
    make_keys(tmp_path, ["worker"])
    with pytest.raises(ConfigError, match=remedy):
        numbers().batch(4).loader(workers_at=at, worker_keys=tmp_path / "trainer.key")


def test_options_that_do_not_go_together_are_named() -> None:
    pipeline = numbers().batch(4)
    for wrong in ({"processes": 2}, {"executor": "inline"}, {"executor": "processes"}):
        with pytest.raises(ConfigError, match="threads only"):
            pipeline.loader(workers_at=HERE, **wrong)
    with pytest.raises(ConfigError, match="workers_at"):
        pipeline.loader(worker_keys="trainer.key")
    with pytest.raises(ConfigError, match="by the trainer itself"):
        worker_service(pipeline_named("stream").plan, "tcp://127.0.0.1:1", None, 1, None, print)
    with pipeline.loader(workers_at=HERE) as loader, pytest.raises(ConfigError, match="cannot listen"):
        pipeline.loader(workers_at=loader.workers_at)


def test_shards_are_fetched_where_they_are_read(tmp_path: Path) -> None:
    """With no rows made at home, nothing is fetched there once a worker is there; until then it is."""
    with Server() as server:
        for shard in range(4):
            server.put(f"/{shard}.tar", sample_tar([(f"{shard}-{n}", {"cls": b"%d" % n}) for n in range(30)]))
        shards = f"{server.origin}/{{0..3}}.tar"
        oracle = sha_of_run(stoker.tar(shards).shuffle(seed=1).batch(5), executor="inline", epochs=1)  # indexes are there now
        caches = [stoker.Cache(tmp_path / name, limit="1MB") for name in ("here", "there")]
        here, there = (stoker.tar(shards, cache=cache).shuffle(seed=1).batch(5) for cache in caches)
        with here.loader(threads=0, workers_at=HERE) as loader, serving(there, loader):
            assert hashlib.sha256(repr(epochs_of(loader, 1)).encode()).hexdigest() == oracle
            assert [cache.counts().fetched for cache in caches] == [0, 4]
        with here.loader(threads=0, workers_at=HERE, ahead=2) as loader:
            batches = iter(loader)
            next(batches)
            assert loader._machinery.forerunner is not None
            with serving(there, loader):
                next(batches)
                assert loader._machinery.forerunner is None


def test_nobody_need_ever_come() -> None:
    pipeline = numbers().shuffle(seed=3).batch(7)
    assert sha_of_run(pipeline, workers_at=HERE, threads=0) == sha_of_run(pipeline, executor="inline")
    assert np.asarray(next(iter(pipeline.loader(workers_at=HERE)))["x"]).shape == (7,)


def test_rows_lie_in_the_workers_memory_or_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.arange(128 * 12 * 16 * 3, dtype=np.uint32).astype(np.uint8).reshape(128, 12, 16, 3)
    pipeline = stoker.arrays(image=pixels, text=[f"row {n}" for n in range(128)]).shuffle(seed=3).batch(16)
    oracle = sha_of_run(pipeline, executor="inline")
    seen: list[int] = []
    buffers = SeenMemory.buffers
    monkeypatch.setattr(SeenMemory, "buffers", lambda self, places: (seen.append(len(places)), buffers(self, places))[1])
    assert sha_elsewhere(pipeline)[0] == oracle
    assert len(seen) > 2, "rows were read from memory"
    seen.clear()
    monkeypatch.setattr(SeenMemory, "open", lambda at: None)
    assert sha_elsewhere(pipeline)[0] == oracle and not seen
