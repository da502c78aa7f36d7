"""A sample that ends the process which works on it: it ends workers elsewhere, and not the training program."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ClosedError, WorkerError
from stoker.loader import Loader
from stoker.loader.remote_work import handshake_of, stoker_version
from stoker.remote.carrier import Carrier
from stoker.remote.frames import PROTOCOL, Hello, RowsTask, packed
from stoker.remote.home_process import HomeProcess
from stoker.storage.scratch import Scratch

from ..loader.runs import hash_of
from ..support import process_ended, process_id
from .serving import DEADLINE_S, HERE, command, impatient, until, workers_of
from .test_worker_faults import peer

__all__ = ["impatient"]
NAME = "tests.remote.test_deadly_rows:deadly"


def ends(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 17:
        if os.environ.get("TEST_AT_HOME") == str(os.getpid()):
            raise RuntimeError("never at home")
        os._exit(3)
    return sample


def deadly() -> Pipeline:
    return stoker.arrays(x=np.arange(200_000)).map(ends).batch(8)  # far more than is made ahead


@pytest.mark.faults
@pytest.mark.thorough
@pytest.mark.usefixtures("impatient")
def test_a_sample_that_ends_its_workers_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AT_HOME", str(os.getpid()))
    # It ends five: one with the sample among others, one with its batch alone, and three with the sample alone.
    with deadly().loader(threads=0, workers_at=HERE) as loader, command(loader, NAME, count=2):
        until(lambda: workers_of(loader) == 2, "two workers")
        with pytest.raises(WorkerError, match="sample '17'"):
            list(loader)
        until(lambda: workers_of(loader) == 2, "others to have taken the places of those that ended")


def ends_first(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 0:
        if os.environ.get("TEST_AT_HOME") == str(os.getpid()):
            raise RuntimeError("never at home")
        os._exit(3)
    return sample


def grown(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"], "y": np.full((4, 4), sample["x"]), "z": [1] * int(sample["x"])}


def ended_at_home(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"], "y": threading.Lock()}


@contextmanager
def lonely(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[Loader]:
    """A trainer whose only worker is gone as soon as it is asked for the first rows, as if these had ended it."""
    monkeypatch.setattr("stoker.remote.parcel_ledger.SUSPECTS_WAIT_S", 0.0)
    monkeypatch.setenv("TEST_AT_HOME", str(os.getpid()))
    with pipeline.loader(threads=0, workers_at=HERE, **options) as loader, peer(loader) as worker:
        worker.send(packed(Hello(PROTOCOL, stoker_version(), handshake_of(pipeline.plan), 1, "host", 1)))
        until(lambda: workers_of(loader) == 1, "a worker")

        def end() -> None:
            while worker.poll(1000 * int(DEADLINE_S)) and msgspec.msgpack.decode(worker.recv())["type"] != "tasks":
                pass
            worker.close()

        thread = threading.Thread(target=end)
        thread.start()
        try:
            yield loader
        finally:
            thread.join(DEADLINE_S)


def test_rows_at_which_the_last_worker_ended_end_a_process_at_home_and_not_the_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = stoker.arrays(x=np.arange(8)).map(ends_first).batch(8)
    with lonely(pipeline, monkeypatch) as loader:
        with pytest.raises(WorkerError, match=r"sample '0' .*the worker process of this program exited with code 3"):
            list(loader)
        assert "a worker process of this program tries them" in caplog.text


def test_a_sample_that_ends_its_workers_is_skipped_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = stoker.arrays(x=np.arange(4000)).map(ends_first).on_error("skip").batch(8)
    with lonely(pipeline, monkeypatch) as loader:
        assert sorted(x for batch in loader for x in batch["x"].tolist()) == [*range(1, 4000)]
        assert loader.stats().skipped == 1
        assert loader.stats().lost > 0 and "ran again because a worker was lost" in loader.why()


def even(sample: dict[str, Any]) -> bool:
    return bool(sample["x"] % 2 == 0)


@pytest.mark.parametrize("filtered", [False, True], ids=["batches", "segments"])
def test_rows_of_any_shape_come_home_from_that_process(filtered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stoker.arrays(x=np.arange(8)).map(grown)
    pipeline = (source.filter(even) if filtered else source).batch(4)
    with lonely(pipeline, monkeypatch) as loader, pipeline.loader(executor="inline") as oracle:
        assert [hash_of(batch) for batch in loader] == [hash_of(batch) for batch in oracle]
        assert loader._machinery.executor._exchange.home_process._executor is not None


def test_rows_that_ended_nothing_and_cannot_be_sent_are_made_by_the_program_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = stoker.arrays(x=np.arange(8)).map(ended_at_home).batch(8)
    with lonely(pipeline, monkeypatch) as loader:
        assert sum(batch.rows for batch in loader) == 8


def test_a_pipeline_that_cannot_be_sent_there_is_run_by_the_program_itself_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock = threading.Lock()

    def locked(sample: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return sample

    pipeline = stoker.arrays(x=np.arange(8)).map(locked).batch(8)
    with lonely(pipeline, monkeypatch) as loader:
        assert sum(batch.rows for batch in loader) == 8
        assert "this program itself does, and may end as the worker did" in caplog.text


def sticks(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 0 and os.environ.get("TEST_AT_HOME") != str(os.getpid()):
        threading.Event().wait()
    return sample


@pytest.mark.faults
def test_rows_that_never_end_there_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = stoker.arrays(x=np.arange(8)).map(sticks).batch(8)
    with (
        lonely(pipeline, monkeypatch, watchdog_s=3) as loader,
        pytest.raises(WorkerError, match=r"sample '0' .*the worker process of this program was stuck"),
    ):
        list(loader)


def test_closing_ends_that_process_whatever_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = stoker.arrays(x=np.arange(8)).map(sticks).batch(8)
    with lonely(pipeline, monkeypatch) as loader:

        def take() -> None:
            with pytest.raises(ClosedError):
                next(iter(loader))

        taker = threading.Thread(target=take)
        taker.start()
        home = loader._machinery.executor._exchange.home_process
        until(lambda: home._executor is not None and home._executor.ready, "the process")
        process = process_id(home._executor.processes[0])
    until(lambda: process_ended(process), "it to end")
    taker.join(DEADLINE_S)


class Endless(Carrier):
    """Rows that never come."""

    kind = "endless"

    def asked(self, content: Any) -> None: ...

    def nbytes(self, content: Any) -> int:
        return 0

    def make(self, task: RowsTask, scratch: Any) -> Any:
        threading.Event().wait()

    def received(self, content: Any, result: Any, buffers: Any) -> Any: ...


@pytest.mark.parametrize("how", ["closed", "unwanted", "the program ends"])
def test_nobody_waits_for_that_process_any_longer_than_it_is_wanted(how: str) -> None:
    home, wanted = HomeProcess(Scratch), threading.Event()
    made: list[Any] = []
    task = RowsTask(0, b"", b"")
    thread = threading.Thread(target=lambda: made.append(home.make(Endless(), [task], lambda: not wanted.is_set())))
    thread.start()
    until(lambda: home._executor is not None and home._executor.ready, "the process")
    executor = home._executor
    assert executor is not None
    {"closed": home.close, "unwanted": wanted.set, "the program ends": executor.close}[how]()
    thread.join(DEADLINE_S)
    assert made == [None] and executor.stopped
    home.close()
