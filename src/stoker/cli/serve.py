"""`stoker serve`: a pool that makes rows for several trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..errors import ConfigError
from ..loader.open_cache import open_cache
from ..loader.thread_count import default_threads
from ..registry import needed
from ..sizes import parse_bytes
from .pipelines import load_pipeline
from .screen import Threads, amount, argument, option, tell_aside
from .until_told import until_told


def serve(
    pipelines: Annotated[
        list[str], argument("MODULE:PIPELINE", "Pipelines, or functions without arguments that make one: `train.py:train`.")
    ],
    at: Annotated[str, option("ADDRESS", "Where trainers connect: `tcp://HOST:PORT` or `ipc:///PATH`.")] = "tcp://127.0.0.1:8878",
    keys: Annotated[
        Path | None, option("FILE", "The pool's key file, made by `stoker keys --pool`.", default="none, on one machine")
    ] = None,
    threads: Threads = None,
    memory: Annotated[str, option("BYTES", "Memory for rows that are kept for other trainers.")] = "1GB",
    wait_for: Annotated[int, amount("Start when N trainers are connected, or 30 s after the first.")] = 1,
) -> None:
    """Make rows of batches for several trainers.

    Trainers connect with `pipeline.loader(pool="tcp://127.0.0.1:8878")`. Rows are made once for all trainers with the same
    pipeline and seed; other trainers get equal shares of the threads. Trainers may join and leave at any time, each at its own
    speed. Those on this machine read the rows from shared memory. After Ctrl-C or SIGTERM the trainers continue on their own.

    Example: `stoker serve --at ipc:///tmp/pool train.py:train`
    """
    needed("zmq", "remote-workers", "stoker serve")
    from ..loader.remote_work import pool_service

    if len({*pipelines}) < len(pipelines):
        raise ConfigError("stoker serve: a pipeline is named twice")
    plans = {name: load_pipeline(name).plan for name in pipelines}
    count = threads or max(default_threads(plan).threads for plan in plans.values())
    caches = {name: open_cache(plan, len(plans)) for name, plan in plans.items()}
    try:
        service = pool_service(plans, at, keys, count, parse_bytes(memory, "--memory"), caches, tell_aside, wait_for)
        tell_aside(f"{', '.join(pipelines)} at {service.address}; trainers connect by loader(pool={service.address!r})")
        until_told(service)
    finally:
        for cache in caches.values():
            if cache is not None:
                cache.release()
    tell_aside(f"{service.made:,} tasks were made, and {service.given:,} answered")
