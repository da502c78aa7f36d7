"""Rows that workers make elsewhere are those that are made at home, whatever the pipeline."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError, FunctionError, WorkerRefused
from stoker.image import RandomResizedCrop
from stoker.loader.remote_work import worker_service

from ..contract.test_executors import expected, picky, pipeline_named
from ..loader.runs import PIPELINES, SINGLES, epochs_of, numbers, sha_of_run
from .serving import HERE, executor_of, serving, until


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


def test_home_and_worker_share_the_work() -> None:
    pipeline = numbers().shuffle(seed=3).batch(7)
    with pipeline.loader(threads=1, workers_at=HERE) as loader, serving(pipeline, loader):
        assert [len(list(loader)) for _ in range(2)] == [8, 8]
        assert loader.stats().executor.remote == 1 and loader.stats().executor.remote_threads == 2
        assert loader.stats().workers == 3


def test_a_worker_with_another_pipeline_is_refused_and_hears_why(caplog: pytest.LogCaptureFixture) -> None:
    mine, its = numbers().shuffle(seed=3).batch(7), numbers().shuffle(seed=4).map(picky).batch(7)
    with caplog.at_level(logging.WARNING, "stoker"), mine.loader(workers_at=HERE) as loader:
        service = worker_service(its.plan, str(loader.workers_at), None, 1, None, lambda text: None)
        with pytest.raises(WorkerRefused, match=r"order .* is another; its stages"):
            service.run()
        assert len(list(loader)) == 8
    assert "was refused: its pipeline is not the trainer's" in caplog.text


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
    with pytest.raises(ConfigError, match="--keys"):
        worker_service(numbers().batch(4).plan, at, None, 1, None, print)


@pytest.mark.parametrize(
    "at", ["", "8877", "http://x:1", "tcp://x", "tcp://127.0.0.1:99999", "ipc://@name", "inproc://x", "tcp://a b:1"]
)
def test_what_is_no_address_is_named(at: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        numbers().batch(4).loader(workers_at=at)


def test_options_that_do_not_go_together_are_named() -> None:
    pipeline = numbers().batch(4)
    for wrong in ({"processes": 2}, {"executor": "inline"}, {"executor": "processes"}):
        with pytest.raises(ConfigError, match="threads only"):
            pipeline.loader(workers_at=HERE, **wrong)
    with pytest.raises(ConfigError, match="workers_at"):
        pipeline.loader(worker_keys="trainer.key")
    with pytest.raises(ConfigError, match="read by the trainer alone"):
        worker_service(pipeline_named("stream").plan, "tcp://127.0.0.1:1", None, 1, None, print)
    with pipeline.loader(workers_at=HERE) as loader, pytest.raises(ConfigError, match="cannot listen"):
        pipeline.loader(workers_at=loader.workers_at)


def test_nobody_need_ever_come() -> None:
    pipeline = numbers().shuffle(seed=3).batch(7)
    assert sha_of_run(pipeline, workers_at=HERE, threads=0) == sha_of_run(pipeline, executor="inline")
    assert np.asarray(next(iter(pipeline.loader(workers_at=HERE)))["x"]).shape == (7,)
