"""A sample that ends the process which works on it: it ends workers elsewhere, and not the training program."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import WorkerError

from .serving import HERE, command, impatient, until, workers_of

__all__ = ["impatient"]
NAME = "tests.remote.test_deadly_rows:deadly"
ELSEWHERE = "tests.remote.test_deadly_rows:deadly_elsewhere"


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
    # One ends with the sample among others, one with its batch alone, and three with the sample alone.
    with deadly().loader(threads=0, workers_at=HERE) as loader, command(loader, NAME, count=6) as workers:
        until(lambda: workers_of(loader) == 6, "six workers")
        with pytest.raises(WorkerError, match="sample '17'"):
            list(loader)
        assert sum(worker.poll() == 3 for worker in workers) == 5


def ends_elsewhere(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 17 and os.environ.get("TEST_AT_HOME") != str(os.getpid()):
        os._exit(3)
    return sample


def deadly_elsewhere() -> Pipeline:
    return stoker.arrays(x=np.arange(4000)).map(ends_elsewhere).batch(8)


def test_rows_at_which_the_last_worker_ended_are_made_at_home_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TEST_AT_HOME", str(os.getpid()))
    monkeypatch.setattr("stoker.remote.parcel_ledger.SUSPECTS_WAIT_S", 0.0)
    with deadly_elsewhere().loader(threads=0, workers_at=HERE) as loader, command(loader, ELSEWHERE):
        until(lambda: workers_of(loader) == 1, "a worker")
        assert sum(batch.rows for batch in loader) == 4000
        assert "no remote worker is left to try the rows" in caplog.text
        assert loader.stats().lost > 0 and "ran again because a worker was lost" in loader.why()
