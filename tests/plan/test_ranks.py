"""Which rank this process is, from what each launcher leaves behind."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import stoker
from stoker.errors import ConfigError
from stoker.plan.ranks import check_rank, find_rank

from ..loader.runs import numbers

LAUNCHERS = {
    "torchrun": {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"},
    "MPICH": {"PMI_RANK": "3", "PMI_SIZE": "8"},
    "SLURM": {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_rank_and_world_are_found_for(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert find_rank(LAUNCHERS[launcher]) == (3, 8)


def test_a_process_alone_is_rank_0_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert find_rank({}) == (0, 1)
    assert find_rank({"RANK": "3"}) == (0, 1), "half of what a launcher leaves is not a launcher"


def test_torchrun_inside_a_slurm_job_is_believed_first() -> None:
    assert find_rank({**LAUNCHERS["SLURM"], "RANK": "1", "WORLD_SIZE": "2"}) == (1, 2)


def test_a_running_jax_is_asked_and_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(process_index=lambda: 2, process_count=lambda: 4))
    assert find_rank({}) == (2, 4)


def test_shard_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert [batch["x"].tolist() for batch in numbers(12).shard().batch(2)] == [[2, 3], [8, 9]]


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0), (5, 3)])
def test_a_rank_outside_its_world_is_refused(rank: int, world: int) -> None:
    with pytest.raises(ConfigError, match="rank counts from 0"):
        check_rank(rank, world)
    with pytest.raises(ConfigError, match="rank counts from 0"):
        numbers().shard(rank=rank, world=world)


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="WORLD_SIZE='many'"):
        find_rank({"RANK": "0", "WORLD_SIZE": "many"})


def test_rank_and_world_go_together() -> None:
    with pytest.raises(ConfigError, match="both"):
        numbers().shard(rank=1)
    with pytest.raises(ConfigError, match="whole number"):
        numbers().shard(rank=1.0, world=2)  # type: ignore[arg-type]


def test_a_pipeline_is_sharded_once() -> None:
    with pytest.raises(stoker.StokerError, match="twice"):
        _ = numbers().shard(0, 2).shard(0, 2).plan
