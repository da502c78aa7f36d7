"""`--on ray`: the workers of a command on a Ray cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Union

from ..engine.executor_names import EXECUTORS
from ..engine.process_executor import ProcessExecutor
from ..engine.resources import usable_cores
from ..errors import ConfigError, WriteError
from .screen import option

if TYPE_CHECKING:
    from ..engine.ray_executor import RayExecutor

#: workers that can be asked how far their tasks are
Workers = Union[ProcessExecutor, "RayExecutor"]

On = Annotated[str, option("local|ray", "Where the work is done: on this machine, or on a Ray cluster.")]
RayAddress = Annotated[
    str | None, option("HOST:PORT", "The Ray cluster, for --on ray.", default="RAY_ADDRESS, else this machine alone")
]


def check_on(on: str, ray_address: str | None) -> bool:
    """Whether the work is done on Ray; refuses what is neither."""
    if on not in ("local", "ray"):
        raise ConfigError(f"--on {on}: choose local (this machine) or ray (a Ray cluster)")
    if on == "local" and ray_address is not None:
        raise ConfigError("--ray-address needs --on ray; add it, or omit --ray-address")
    return on == "ray"


@contextmanager
def ray_workers(jobs: int | None, tasks: int, address: str | None) -> Iterator[RayExecutor]:
    """Actors for these tasks, which take them one at a time; they need no scratch.

    What they print, and what Ray reports, goes to standard error, because it is not a result of the command.
    """
    kind: Any = EXECUTORS.get("ray", "--on ray")
    with (
        redirect_stdout(sys.stderr),
        closing(kind(1, BytesIO, jobs, address=address, call="--on ray", most=max(1, tasks), ahead=0, aside=True)) as workers,
    ):
        yield workers


@contextmanager
def map_workers(on_ray: bool, jobs: int | None, tasks: int, address: str | None) -> Iterator[Workers]:
    """The executor that maps shards."""
    if on_ray:
        with ray_workers(jobs, tasks, address) as actors:
            yield actors
        return
    workers = min(jobs or usable_cores(), tasks)
    with closing(ProcessExecutor(workers, BytesIO, workers, stdout=2, gentle=True)) as processes:
        yield processes


def check_seen(path: str) -> None:
    """Raise if a shard that was written is not visible here, because it is on another machine's own disk."""
    if not os.path.lexists(path):
        raise WriteError(
            f"{path}: was written on a Ray node and is not visible here; write to a folder that all nodes share, such as a "
            "network file system"
        )
