"""Which rank this process is, from whoever knows: a process group, the variables of each launcher, JAX."""

from __future__ import annotations

import logging
import os
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stoker
from stoker.errors import ConfigError
from stoker.loader.worker_part import WorkerPart, _warn_once
from stoker.plan.ranks import ALONE, LocalProcesses, Rank, check_rank, find_rank, local_processes, one_of_several

from ..loader.runs import numbers

Environ = dict[str, str]

#: what each launcher sets, for rank 3 of 8; and what it says of the processes on this machine
LAUNCHERS: dict[str, tuple[Environ, LocalProcesses | None]] = {
    "torchrun": (
        {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
        LocalProcesses(2, "LOCAL_WORLD_SIZE"),
    ),
    "RANK and WORLD_SIZE": ({"RANK": "3", "WORLD_SIZE": "8"}, None),
    "RANK and WORLD_SIZE, master elsewhere": ({"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"}, None),
    "RANK and WORLD_SIZE, master here": (
        {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost"},
        LocalProcesses(8, "MASTER_ADDR is this machine"),
    ),
    "Lightning": (
        {"LOCAL_RANK": "3", "NODE_RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
        LocalProcesses(8, "MASTER_ADDR is this machine"),
    ),
    "Lightning, first of two machines": (
        {"LOCAL_RANK": "3", "NODE_RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"},
        None,
    ),
    "Lightning, second of two machines": (
        {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "LOCAL_WORLD_SIZE": "2"},
        LocalProcesses(2, "LOCAL_WORLD_SIZE"),
    ),
    "LOCAL_RANK and WORLD_SIZE": ({"LOCAL_RANK": "3", "WORLD_SIZE": "8"}, None),
    "Horovod": (
        {"HOROVOD_RANK": "3", "HOROVOD_SIZE": "8", "HOROVOD_LOCAL_SIZE": "4"},
        LocalProcesses(4, "HOROVOD_LOCAL_SIZE", binds=True),
    ),
    "Open MPI": (
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
        LocalProcesses(4, "OMPI_COMM_WORLD_LOCAL_SIZE", binds=True),
    ),
    "MVAPICH": (
        {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_SIZE": "4"},
        LocalProcesses(4, "MV2_COMM_WORLD_LOCAL_SIZE", binds=True),
    ),
    "MPICH": (
        {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"},
        LocalProcesses(4, "MPI_LOCALNRANKS", binds=True),
    ),
    "SLURM": (
        {
            "SLURM_PROCID": "3",
            "SLURM_STEP_NUM_TASKS": "8",
            "SLURM_NODEID": "1",
            "SLURM_STEP_TASKS_PER_NODE": "3(x2),2",
            "SLURM_CPUS_ON_NODE": "12",
        },
        LocalProcesses(3, "SLURM_STEP_TASKS_PER_NODE", binds=True, cores=12),
    ),
    "Open MPI, and Accelerate has read it": (
        {
            "OMPI_COMM_WORLD_RANK": "3",
            "OMPI_COMM_WORLD_SIZE": "8",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            "RANK": "3",
            "WORLD_SIZE": "8",
            "LOCAL_WORLD_SIZE": "4",
            "MASTER_ADDR": "127.0.0.1",
        },
        LocalProcesses(4, "OMPI_COMM_WORLD_LOCAL_SIZE", binds=True),
    ),
    "torchrun in each of two tasks of SLURM": (
        {
            "RANK": "3",
            "WORLD_SIZE": "8",
            "LOCAL_WORLD_SIZE": "4",
            "SLURM_PROCID": "0",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        },
        LocalProcesses(4, "LOCAL_WORLD_SIZE"),
    ),
    "SLURM, which sets variables for MPI": (
        {
            "PMI_RANK": "3",
            "PMI_SIZE": "8",
            "SLURM_PROCID": "3",
            "SLURM_STEP_NUM_TASKS": "8",
            "SLURM_NODEID": "1",
            "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
            "SLURM_CPUS_ON_NODE": "12",
        },
        LocalProcesses(4, "SLURM_STEP_TASKS_PER_NODE", binds=True, cores=12),
    ),
    "MPICH in a job of SLURM": (
        {
            "PMI_RANK": "3",
            "PMI_SIZE": "8",
            "MPI_LOCALNRANKS": "4",
            "SLURM_PROCID": "1",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        },
        LocalProcesses(4, "MPI_LOCALNRANKS", binds=True),
    ),
    "SLURM, with the world for torch": (
        {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "WORLD_SIZE": "8", "MASTER_ADDR": "node1"},
        None,
    ),
}


@pytest.fixture(autouse=True)
def _nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher and no JAX, whatever started these tests, and no warning given yet."""
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    for environ, _ in LAUNCHERS.values():
        for name in environ:
            monkeypatch.delenv(name, raising=False)
    _warn_once.cache_clear()


@pytest.fixture
def _torch() -> None:
    """The real one, imported before a test puts something else in the place of its parts."""
    pytest.importorskip("torch")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What `torch.distributed` says: a process group that a test initialises by setting `rank`."""
    state = SimpleNamespace(rank=None, world=2)
    dist = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: state.rank is not None,
        get_rank=lambda: state.rank,
        get_world_size=lambda: state.world,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)  # type: ignore[arg-type]
    return state


def rows(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


# ---- what is found ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_rank_world_and_local_processes_are_found_for(launcher: str) -> None:
    environ, here = LAUNCHERS[launcher]
    found = find_rank(environ)
    assert (found.rank, found.world) == (3, 8)
    assert one_of_several(environ) == str(found)
    assert local_processes(environ) == here


@pytest.mark.parametrize(
    "environ",
    [{}, {"RANK": "3"}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": ""}, {"LOCAL_RANK": "1"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}],
    ids=str,
)
def test_a_process_of_which_nobody_says_that_there_are_others_is_alone(environ: Environ) -> None:
    assert find_rank(environ) == ALONE
    assert not one_of_several(environ)
    assert local_processes(environ) is None


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2"),
        ({"HOROVOD_SIZE": "4"}, "HOROVOD_SIZE=4"),
        # which machine this is, or how many ranks are on those before it, is not known
        ({"WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1"}, "WORLD_SIZE=4"),
        ({"WORLD_SIZE": "4", "LOCAL_RANK": "1", "NODE_RANK": "1"}, "WORLD_SIZE=4"),
    ],
    ids=str,
)
def test_a_world_without_a_rank_is_refused(environ: Environ, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"{named}, but not which rank.*shard\(rank=, world=\)"):
        find_rank(environ)
    assert one_of_several(environ) == f"one of several ({named})"


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"RANK": "0", "WORLD_SIZE": "many"}, "WORLD_SIZE='many', which is not an integer"),
        ({"RANK": "5", "WORLD_SIZE": "3"}, "rank 5 of 3"),
        ({"RANK": "-1", "WORLD_SIZE": "3"}, "rank -1 of 3"),
    ],
    ids=str,
)
def test_nonsense_in_the_environment_is_named_where_it_matters(environ: Environ, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        find_rank(environ)
    assert not one_of_several(environ), "who does not shard is not stopped by it"
    assert local_processes({**environ, "LOCAL_WORLD_SIZE": "few"}) is None


def test_torchrun_inside_a_slurm_job_is_believed_first() -> None:
    found = find_rank({**LAUNCHERS["SLURM"][0], "RANK": "1", "WORLD_SIZE": "2"})
    assert found == Rank(1, 2, "torchrun: RANK and WORLD_SIZE")


def test_the_script_of_a_job_that_a_task_submitted_is_not_taken_for_that_task() -> None:
    """sbatch hands on the variables of the step; SLURM itself says which tasks are here."""
    task = {**LAUNCHERS["SLURM"][0], "SLURM_GTIDS": "3,4,5"}
    assert find_rank(task).world == 8
    script = {**task, "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0"}
    with pytest.raises(ConfigError, match=r"not this process: .*or one that called sbatch; start it with srun"):
        find_rank(script)
    assert not one_of_several(script) and local_processes(script) is None
    assert find_rank({**script, "RANK": "1", "WORLD_SIZE": "4"}).world == 4, "torchrun in the script"


def test_a_program_started_in_a_shell_of_srun_is_not_taken_for_its_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, ended = os.getppid(), 1 << 30
    monkeypatch.setattr(os, "getpgid", {shell: 17, os.getpid(): 18}.__getitem__)
    monkeypatch.setattr(os, "getpgrp", lambda: 18)
    environ = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PTY_PORT": "1", "SLURM_TASK_PID": str(shell)}
    with pytest.raises(ConfigError, match=r"not this process: a shell of `srun --pty`.*start it with srun"):
        find_rank(environ)
    assert not one_of_several(environ)
    assert find_rank({**environ, "SLURM_STEP_NUM_TASKS": "1"}).world == 1
    assert find_rank({**environ, "RANK": "1", "WORLD_SIZE": "4"}).world == 4, "torchrun was typed in"
    assert find_rank({**environ, "SLURM_TASK_PID": str(os.getpid())}).world == 2, "the task itself"
    monkeypatch.undo()
    assert find_rank({**environ, "SLURM_TASK_PID": str(ended)}).world == 2, "nobody knows"


def test_an_initialised_process_group_is_believed_before_all_else(group: SimpleNamespace) -> None:
    environ = LAUNCHERS["torchrun"][0]
    assert find_rank(environ).rank == 3
    group.rank = 1
    assert find_rank(environ) == Rank(1, 2, "torch.distributed")
    assert find_rank(environ, carried=Rank(5, 6, "before")) == Rank(1, 2, "torch.distributed")
    assert one_of_several({}) == "rank 1 of 2 (torch.distributed)"
    assert local_processes({"MASTER_ADDR": "localhost"}) == LocalProcesses(2, "MASTER_ADDR is this machine")
    assert local_processes({"MASTER_ADDR": "node1"}) is None


def test_a_group_that_met_at_an_address_of_this_machine_is_on_this_machine(tmp_path: Path) -> None:
    dist = pytest.importorskip("torch.distributed")
    here = LocalProcesses(1, "their process group meets on this machine")
    for store, found in (
        (dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), here),
        (dist.FileStore(str(tmp_path / "meeting"), 1), None),
    ):
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            assert local_processes({}) == found
        finally:
            dist.destroy_process_group()


def test_a_torch_without_distributed_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_available=lambda: False))  # type: ignore[arg-type]
    assert find_rank({}) == ALONE


def test_a_running_jax_is_asked_and_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(process_index=lambda: 2, process_count=lambda: 4))  # type: ignore[arg-type]
    assert find_rank({}) == Rank(2, 4, "JAX")
    assert not one_of_several({}), "asking JAX reserves devices: not for a pipeline that does not shard"


# ---- when it is asked ------------------------------------------------------------------------------------------------------


def test_shard_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert rows(numbers(12).shard().batch(2)) == [[2, 3], [8, 9]]


def test_the_rank_is_asked_when_a_loader_is_made(group: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = numbers(8).shard().batch(2)
    assert len(pipeline) == 4
    group.rank = 1
    assert len(pipeline) == 2
    assert rows(pipeline) == [[2, 3], [6, 7]]
    with pipeline.loader() as loader:
        assert len(loader) == 2
        assert [row["index"] for row in loader.explain(1)] == [6, 7]
        assert rows(loader) == [[2, 3], [6, 7]]
        group.rank = None
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "1")
        assert len(rows(loader)) == 2, "a group that is gone was right all the same"


def test_a_rank_that_was_given_stands(group: SimpleNamespace) -> None:
    group.rank = 1
    pipeline = numbers(8).shard(rank=0, world=4).batch(2)
    with pipeline.loader() as loader:
        group.rank, group.world = 2, 3
        assert rows(loader) == [[0, 1]]


def test_a_loader_made_before_ranks_were_known_follows_until_it_gave_a_batch(group: SimpleNamespace) -> None:
    pipeline = numbers(9).shard().batch(2)
    with pipeline.loader() as loader:
        assert len(loader) == 4
        group.rank = 1
        assert len(loader) == 2
        assert rows(loader) == [[2, 3], [6, 7]]
        group.rank, group.world = 2, 3
        with pytest.raises(ConfigError, match=r"was rank 1 of 2 .*, and now it is rank 2 of 3 .*; make a new loader after"):
            iter(loader)
    group.rank = None
    with pipeline.loader() as loader:
        next(iter(loader))
        state = loader.state_dict()
    for row, left in ((2, (0, [[2, 3]])), (6, (1, [[0, 1], [4, 5]]))):
        with pipeline.loader() as loader:
            loader.load_state_dict({**state, "row": row})
            group.rank, group.world = 0, 2
            assert (loader.epoch, rows(loader)) == left, "three rows fill no batch of two ranks"
            group.rank = None


def test_a_world_without_a_rank_stops_only_who_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    pipeline = numbers(8).shard().batch(2)
    for use in (pipeline.loader, pipeline.__len__, lambda: list(pipeline)):
        with pytest.raises(ConfigError, match="WORLD_SIZE=2"):
            use()  # type: ignore[no-untyped-call]
    assert "ranks    not known: the environment says WORLD_SIZE=2" in pipeline.explain()
    assert len(numbers(8).batch(2)) == 4


@pytest.mark.usefixtures("_torch")
def test_a_spawned_worker_of_a_dataloader_gets_the_rank_of_its_parent(group: SimpleNamespace) -> None:
    part = WorkerPart(numbers(8).shard().batch(2))
    before = ForkingPickler.dumps(part)
    group.rank = 1
    sent = ForkingPickler.dumps(part)
    group.rank = None  # as in a process that was just started
    arrived = ForkingPickler.loads(sent)
    assert rows(arrived(0, 0, 1)) == [[2, 3], [6, 7]]
    assert rows(ForkingPickler.loads(ForkingPickler.dumps(arrived))(0, 1, 2)) == [[6, 7]]
    group.rank = 0
    assert rows(ForkingPickler.loads(before)(0, 0, 1)) == [[0, 1], [4, 5]], "sent to a process that became a rank later"


# ---- what is said ----------------------------------------------------------------------------------------------------------


def test_explain_always_says_which_rank_this_is(group: SimpleNamespace) -> None:
    def line(pipeline: stoker.Pipeline) -> str:
        return next(line for line in pipeline.explain().splitlines() if line.startswith("ranks "))

    whole, shared = numbers().batch(2), numbers().shard(remainder="pad").batch(2)
    assert line(whole) == "ranks    alone"
    assert "alone: no process group" in line(shared)
    group.rank = 1
    assert line(whole).startswith(
        "ranks    not sharded: this process is rank 1 of 2 (torch.distributed), and every rank gets all"
    )
    assert line(shared) == "ranks    rank 1 of 2 (torch.distributed), remainder pad"
    assert line(numbers().shard(2, 3).batch(2)) == "ranks    rank 2 of 3 (as given), remainder drop"


def test_one_of_several_processes_that_does_not_shard_is_warned_once(
    group: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    group.rank = 1
    whole = numbers(8).batch(2)
    with caplog.at_level(logging.WARNING, "stoker"):
        len(whole), whole.explain(), whole.sample(0)
        list(whole.shard(rank=0, world=1)), list(whole.shard())
        assert not caplog.records
        list(whole)
        whole.loader().close()
        list(whole)
    (record,) = caplog.records
    assert "rank 1 of 2 (torch.distributed)" in record.message and "every rank gets all samples" in record.message


@pytest.mark.usefixtures("_torch")
def test_a_data_set_that_does_not_shard_is_warned_about_too(group: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    group.rank = 1
    with caplog.at_level(logging.WARNING, "stoker"):
        list(numbers(8).shard().batch(2).torch_dataset())
        assert not caplog.records
        list(numbers(8).batch(2).torch_dataset())
    assert "every rank gets all samples" in caplog.records[0].message


# ---- what a user may give --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0), (5, 3)])
def test_a_rank_outside_its_world_is_refused(rank: int, world: int) -> None:
    with pytest.raises(ConfigError, match="rank must be from 0"):
        check_rank(rank, world)
    with pytest.raises(ConfigError, match="rank must be from 0"):
        numbers().shard(rank=rank, world=world)


def test_rank_and_world_go_together() -> None:
    with pytest.raises(ConfigError, match="both"):
        numbers().shard(rank=1)
    with pytest.raises(ConfigError, match="must be an integer"):
        numbers().shard(rank=1.0, world=2)  # type: ignore[arg-type]


def test_a_pipeline_is_sharded_once() -> None:
    with pytest.raises(stoker.StokerError, match="twice"):
        _ = numbers().shard(0, 2).shard(0, 2).plan
