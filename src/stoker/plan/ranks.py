"""Which rank this process is, and how many processes of its run are on this machine.

Determined when a loader is made, not when a pipeline is written, because `init_process_group` often comes in between. An
initialised process group of torch.distributed takes precedence, then the variables that launchers set, then a running JAX.
Nothing is imported to find out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ..errors import ConfigError
from .nodes import Shard

Environ = Mapping[str, str]

_GROUP = "torch.distributed"
_MPICH, _SLURM = "MPICH or Intel MPI", "SLURM"
#: launchers, and their variables for rank and world, in the order they are believed
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),  # and whoever follows it
    ("Horovod", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    (_MPICH, "PMI_RANK", "PMI_SIZE"),
    # srun: the number of tasks of the step, not of the job; a script that sbatch starts alone has the latter, too
    (_SLURM, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
#: the variables of launchers that often bind processes to cores, for the world and for the number of processes on this machine
_BINDING = (
    ("HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
)


@dataclass(frozen=True, slots=True)
class Rank:
    """This process is `rank` of `world`; `where` names the origin of these numbers, and is empty without one."""

    rank: int = 0
    world: int = 1
    where: str = ""

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world} ({self.where})" if self.where else "alone"

    def contradicts(self, earlier: Rank) -> bool:
        """Whether this is known now, and is not what was found earlier; a process group that is gone was right all the same."""
        lost = not self.where or (earlier.where == _GROUP and self.where != _GROUP)
        return not lost and (self.rank, self.world) != (earlier.rank, earlier.world)


@dataclass(frozen=True, slots=True)
class LocalProcesses:
    """How many processes of this run are on this machine.

    What started them may bind each to some of the cores that they share; `cores` is the number of these, where it is known.
    """

    count: int
    where: str
    binds: bool = False
    cores: int | None = None


ALONE = Rank()


def rank_of(shard: Shard | None, carried: Rank | None = None) -> Rank:
    """The rank that a pipeline with this `shard()` runs as: as given, or found now. `carried` as for `find_rank`."""
    if shard is None:
        return ALONE
    if shard.rank is not None and shard.world is not None:
        return Rank(shard.rank, shard.world, "as given")
    return find_rank(carried=carried)


def find_rank(environ: Environ | None = None, carried: Rank | None = None) -> Rank:
    """The rank of this process; `ALONE` if nothing indicates that there are others.

    `carried` is what the process that started this one had found; only a process group of this process takes precedence over it.
    Raises `ConfigError` if the number of ranks is known, but not which of them this is.
    """
    environ = os.environ if environ is None else environ
    found = _process_group() or carried or _launched(environ) or _jax()
    if found is None and (world := _world_without_rank(environ)):
        raise ConfigError(
            f"the environment says {world}, but not which rank this process is; call init_process_group() before the loader is "
            "made (with Lightning, make it in train_dataloader()), set RANK too, or use shard(rank=, world=)"
        )
    return found or ALONE


def one_of_several(environ: Environ | None = None) -> str:
    """Which of several processes this is, as text; empty where it is alone, as far as torch and launchers know.

    For pipelines that were not asked to shard: it never raises, and wakes JAX, which reserves devices when it is asked, only
    where the program has joined others with it.
    """
    environ = os.environ if environ is None else environ
    with suppress(ConfigError):
        if found := _process_group() or _launched(environ) or (_jax() if _jax_joined() else None):
            return str(found) if found.world > 1 else ""
        if world := _world_without_rank(environ):
            return f"one of several ({world})"
    return ""


def local_processes(environ: Environ | None = None) -> LocalProcesses | None:
    """The processes of this run on this machine, where something says how many they are."""
    environ = os.environ if environ is None else environ
    group = _process_group()
    with suppress(ConfigError):
        found = group or _launched(environ)
        if found and (here := _launched_here(environ, found.world)):
            return here
    if count := _count(environ, "LOCAL_WORLD_SIZE"):
        return LocalProcesses(count, "LOCAL_WORLD_SIZE")
    # No other machine could join.
    if _is_local(environ.get("MASTER_ADDR", "")) and (count := group.world if group else _count(environ, "WORLD_SIZE")):
        return LocalProcesses(count, "MASTER_ADDR is this machine")
    if group and _is_local(_meeting_place()):
        return LocalProcesses(group.world, "their process group meets on this machine")
    return None


def check_rank(rank: int, world: int, call: str = "shard") -> None:
    """Refuse a rank that is not one of `world`."""
    if world < 1 or not 0 <= rank < world:
        raise ConfigError(f"{call}(rank={rank!r}, world={world!r}): rank must be from 0 to world - 1")


# ---- who may know --------------------------------------------------------------------------------------------------------


def _process_group() -> Rank | None:
    dist = sys.modules.get("torch.distributed")
    # A torch without distributed, or one that another thread is just importing, has no group.
    if dist is None or not hasattr(dist, "is_initialized") or not dist.is_available() or not dist.is_initialized():
        return None
    return Rank(int(dist.get_rank()), int(dist.get_world_size()), _GROUP)


def _meeting_place() -> str:
    """The address where the processes of the group met, as in ``init_process_group(init_method="tcp://127.0.0.1:29500")``."""
    with suppress(Exception):  # torch does not document this
        store = sys.modules["torch.distributed"].distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return str(store.host)
    return ""


def _launched(environ: Environ) -> Rank | None:
    for launcher, *names in _LAUNCHERS:
        rank, world = (_number(environ, name) for name in names)
        if launcher == _MPICH and "SLURM_STEP_NUM_TASKS" in environ and "MPI_LOCALNRANKS" not in environ:
            continue  # not set by an mpirun, but by srun, for programs that use MPI
        if rank is not None and world is not None:
            if launcher == _SLURM and world > 1 and _inherited_from_a_task(environ):
                raise ConfigError(
                    f"SLURM_PROCID={rank} and SLURM_STEP_NUM_TASKS={world} are about a task of SLURM that is not this process: a "
                    "shell of `srun --pty` into which it was typed, or one that called sbatch; start it with srun, or, if it is "
                    "alone, use shard(rank=0, world=1)"
                )
            return _checked(rank, world, f"{launcher}: {names[0]} and {names[1]}")
        if launcher == "torchrun" and (found := _launched_by_node(environ)):
            return found
    return None


def _inherited_from_a_task(environ: Environ) -> bool:
    """Whether SLURM's variables are about the task that started this process in some way, and not about this process."""
    # The script of a job that a task has submitted: the variables of the step are handed on, those of the tasks here are its own.
    tasks, here = environ.get("SLURM_GTIDS"), _slurm_tasks_here(environ)
    if tasks and here and len(tasks.split(",")) != here:
        return True
    # The task is a shell with a terminal, which starts each program as a job of its own.
    shell = _count(environ, "SLURM_TASK_PID")
    with suppress(OSError):  # it has ended, or is not visible from here
        return "SLURM_PTY_PORT" in environ and shell is not None and os.getpgid(shell) != os.getpgrp()
    return False


def _launched_here(environ: Environ, world: int) -> LocalProcesses | None:
    """What a launcher that may have bound this process says, if it has started all of the world, and torchrun none."""
    for size, local in _BINDING:
        if _count(environ, size) == world and (count := _count(environ, local)):
            return LocalProcesses(count, local, binds=True)
    if _count(environ, "SLURM_STEP_NUM_TASKS") == world and (count := _slurm_tasks_here(environ)):
        return LocalProcesses(count, "SLURM_STEP_TASKS_PER_NODE", binds=True, cores=_count(environ, "SLURM_CPUS_ON_NODE"))
    return None


def _launched_by_node(environ: Environ) -> Rank | None:
    """What Lightning sets: WORLD_SIZE and LOCAL_RANK, with NODE_RANK where there are several machines, but no RANK."""
    world, local = _number(environ, "WORLD_SIZE"), _number(environ, "LOCAL_RANK")
    if world is None or local is None:
        return None
    node = next((node for name in ("NODE_RANK", "GROUP_RANK") if (node := _number(environ, name)) is not None), None)
    if node is None and _is_local(environ.get("MASTER_ADDR", "localhost")):
        node = 0
    each = 0 if node == 0 else _number(environ, "LOCAL_WORLD_SIZE")
    if node is None or each is None:
        return None  # how many ranks are on the machines before this one is not known
    return _checked(node * each + local, world, "Lightning: LOCAL_RANK, NODE_RANK and WORLD_SIZE")


def _world_without_rank(environ: Environ) -> str:
    for _, _, name in _LAUNCHERS:
        if (_number(environ, name) or 0) > 1:
            return f"{name}={environ[name]}"
    return ""


def _jax() -> Rank | None:
    jax = sys.modules.get("jax")  # asked only when the program uses it: importing JAX here would cost seconds
    if jax is None or not hasattr(jax, "process_count") or int(jax.process_count()) == 1:
        return None
    return Rank(int(jax.process_index()), int(jax.process_count()), "JAX")


def _jax_joined() -> bool:
    """Whether the program has called `jax.distributed.initialize`."""
    distributed = getattr(sys.modules.get("jax"), "distributed", None)
    return bool(getattr(distributed, "is_initialized", bool)())


def _slurm_tasks_here(environ: Environ) -> int | None:
    """Tasks of this step on this node, from a list such as ``2(x3),1``."""
    node = _count(environ, "SLURM_NODEID") or 0
    for tasks, nodes in re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", "")):
        node -= int(nodes or 1)
        if node < 0:
            return int(tasks)
    return None


# ---- reading variables ---------------------------------------------------------------------------------------------------


def _is_local(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")


def _number(environ: Environ, name: str) -> int | None:
    """A variable's value; None where it is not set."""
    text = environ.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"the environment says {name}={text!r}, which is not an integer; fix it, or use shard(rank=, world=)"
        ) from None


def _count(environ: Environ, name: str) -> int | None:
    """A variable's value where it counts something; None otherwise."""
    with suppress(ConfigError):
        number = _number(environ, name)
        return number if number is not None and number >= 1 else None
    return None


def _checked(rank: int, world: int, where: str) -> Rank:
    if world < 1 or not 0 <= rank < world:
        raise ConfigError(
            f"the environment says rank {rank} of {world} ({where}), but ranks are numbered from 0 to world - 1; fix it, or use "
            "shard(rank=, world=)"
        )
    return Rank(rank, world, where)
