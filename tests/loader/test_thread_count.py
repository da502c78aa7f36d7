"""How many threads a loader starts by itself: the cores, divided among the processes of a run that share them."""

from __future__ import annotations

import pytest

from ..plan.test_ranks import LAUNCHERS
from .runs import numbers

SHARED = "threads  4: 8 cores shared by 2 processes on this machine"


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.loader.thread_count.usable_cores", lambda: 8)
    monkeypatch.setattr("stoker.loader.thread_count.machine_cores", lambda: 32)
    for environ, _ in LAUNCHERS.values():
        for name in environ:
            monkeypatch.delenv(name, raising=False)


def mpi(local: int) -> dict[str, str]:
    """What Open MPI sets, with so many ranks on this machine."""
    return {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "64", "OMPI_COMM_WORLD_LOCAL_SIZE": str(local)}


def slurm(local: int, cores: int) -> dict[str, str]:
    """What SLURM sets, with so many tasks and cores of them on this machine."""
    named = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "64", "SLURM_STEP_TASKS_PER_NODE": f"{local}(x9)"}
    return {**named, "SLURM_CPUS_ON_NODE": str(cores)}


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({}, "threads  8: this process may use 8 cores"),
        ({"LOCAL_WORLD_SIZE": "1"}, "threads  8: this process may use 8 cores"),
        ({"LOCAL_WORLD_SIZE": "2"}, f"{SHARED} (LOCAL_WORLD_SIZE)"),  # torchrun binds nobody: the cores are its own
        ({"LOCAL_WORLD_SIZE": "3"}, "threads  2: 8 cores shared by 3 processes on this machine (LOCAL_WORLD_SIZE)"),
        ({"LOCAL_WORLD_SIZE": "99"}, "threads  1: 8 cores shared by 99 processes on this machine (LOCAL_WORLD_SIZE)"),
        ({"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "2"}, f"{SHARED} (MASTER_ADDR is this machine)"),
        (mpi(4), "threads  8: this process may use 8 cores"),  # bound to a quarter of the machine
        (mpi(8), "threads  4: 32 cores shared by 8 processes on this machine (OMPI_COMM_WORLD_LOCAL_SIZE)"),  # to a socket, say
        ({**mpi(4), "LOCAL_WORLD_SIZE": "4"}, "threads  8: this process may use 8 cores"),
        (slurm(2, 16), "threads  8: this process may use 8 cores"),
        (slurm(2, 8), "threads  4: 8 cores shared by 2 processes on this machine (SLURM_STEP_TASKS_PER_NODE)"),
        ({**slurm(1, 8), "WORLD_SIZE": "128", "RANK": "0", "LOCAL_WORLD_SIZE": "2"}, f"{SHARED} (LOCAL_WORLD_SIZE)"),
    ],
)
def test_processes_on_one_machine_share_its_cores_unless_each_has_its_own(
    environ: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
