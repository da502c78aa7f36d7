"""`stoker worker`: a worker for a trainer on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..engine.supervisor import Supervisor
from ..registry import needed
from .pipelines import PipelineName
from .screen import Threads, flag, option, tell_aside
from .until_told import until_told


def worker(
    pipeline: PipelineName,
    connect: Annotated[str, option("ADDRESS", "Where the trainer listens: `tcp://HOST:PORT` or `ipc:///PATH`.", default=False)],
    keys: Annotated[
        Path | None, option("FILE", "This worker's key file, made by `stoker keys`.", default="none, on one machine")
    ] = None,
    threads: Threads = None,
    once: Annotated[bool, flag("Exit when the trainer ends; do not wait for the next one.", "--once")] = False,
) -> None:
    """Make batches for a trainer on another machine.

    The trainer listens: `pipeline.loader(workers_at="tcp://0.0.0.0:8877", worker_keys="keys/trainer.key")`. Start any number of
    workers, before or after it; they may join and leave while it runs. The pipeline must have the same code and the same samples
    as the trainer's; the path to the samples may differ. On Ctrl-C or SIGTERM the worker finishes its current tasks and ends.
    Rows are made in a process of their own: if it crashes, is killed or gets stuck, another takes its place.

    Example: `stoker worker --connect tcp://trainer:8877 --keys keys/worker.key train.py:train`
    """
    needed("zmq", "remote-workers", "stoker worker")
    words = [pipeline, connect, None if keys is None else str(keys), threads, once]
    status = until_told(Supervisor("stoker.cli.remote_worker", words, tell_aside))
    raise typer.Exit(status or 0)
