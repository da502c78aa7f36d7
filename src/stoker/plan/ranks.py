"""Which rank this process is, from what launchers leave in the environment: torchrun, SLURM, MPI; or from a running JAX."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ..errors import ConfigError

#: (rank, world) variables of the launchers, in the order they are believed
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, and whoever follows it
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    # srun: the number of tasks of the step, not of the job; a script that sbatch starts alone has the latter, too
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def find_rank(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """(rank, world) of this process; (0, 1) when it runs alone."""
    environ = os.environ if environ is None else environ
    for rank_name, world_name in _LAUNCHERS:
        if rank_name in environ and world_name in environ:
            return check_rank(_number(environ, rank_name), _number(environ, world_name))
    jax = sys.modules.get("jax")  # asked only when the program uses it: importing JAX here would cost seconds
    if jax is not None and hasattr(jax, "process_count"):
        return check_rank(int(jax.process_index()), int(jax.process_count()))
    return 0, 1


def check_rank(rank: int, world: int) -> tuple[int, int]:
    if world < 1 or not 0 <= rank < world:
        raise ConfigError(f"shard(rank={rank!r}, world={world!r}): rank counts from 0 to world - 1")
    return rank, world


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise ConfigError(
            f"the environment says {name}={environ[name]!r}, which is not a number; give shard(rank=, world=)"
        ) from None
