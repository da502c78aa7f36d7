"""How many threads a loader starts by itself: the cores, divided among the processes of a run that share them."""

from __future__ import annotations

import pytest

from .runs import numbers

SHARED = "threads  4: 8 cores shared by 2 processes on this machine"


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.loader.thread_count.usable_cores", lambda: 8)
    for name in ("LOCAL_WORLD_SIZE", "MASTER_ADDR", "WORLD_SIZE", "RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environ", "bound", "line"),
    [
        ({}, False, "threads  8: this process may use 8 cores"),
        ({"LOCAL_WORLD_SIZE": "1"}, False, "threads  8: this process may use 8 cores"),
        ({"LOCAL_WORLD_SIZE": "2"}, False, f"{SHARED} (LOCAL_WORLD_SIZE)"),
        ({"LOCAL_WORLD_SIZE": "2"}, True, f"{SHARED} (LOCAL_WORLD_SIZE)"),  # torchrun binds nobody: the cores are its own
        ({"LOCAL_WORLD_SIZE": "3"}, False, "threads  2: 8 cores shared by 3 processes on this machine (LOCAL_WORLD_SIZE)"),
        ({"LOCAL_WORLD_SIZE": "99"}, False, "threads  1: 8 cores shared by 99 processes on this machine (LOCAL_WORLD_SIZE)"),
        ({"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "2"}, False, f"{SHARED} (MASTER_ADDR is this machine)"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, False, f"{SHARED} (OMPI_COMM_WORLD_LOCAL_SIZE)"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, True, "threads  8: this process may use 8 cores"),
    ],
)
def test_processes_on_one_machine_share_its_cores_unless_each_has_its_own(
    environ: dict[str, str], bound: bool, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.loader.thread_count.is_bound", lambda: bound)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert line in numbers().shard(0, 1).batch(2).explain().splitlines()


def test_a_loader_starts_its_share_of_threads_and_as_many_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    for given, started in ((None, 2), (3, 3)):
        with numbers().batch(2).loader(threads=given) as loader:
            assert repr(loader).startswith(f"Loader({started} x ")


def test_a_rank_judges_by_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with numbers().shard(0, 1).batch(2).loader(executor="inline") as batches:
        assert batches.stats().cores == 2
