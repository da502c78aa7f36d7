"""`stoker worker`: a worker for a trainer on another machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from ..loader.open_cache import open_cache
from ..loader.thread_count import default_threads
from ..registry import needed
from .pipelines import PipelineName, load_pipeline
from .screen import Threads, tell


def worker(
    pipeline: PipelineName,
    connect: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Where the trainer listens: `tcp://HOST:PORT` or `ipc:///PATH`.", show_default=False
        ),
    ],
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="This worker's key file, made by `stoker keys`.", show_default="none, on one machine"),
    ] = None,
    threads: Threads = None,
    once: Annotated[bool, typer.Option("--once", help="End when the trainer has ended, and do not wait for the next.")] = False,
) -> None:
    """Make batches for a trainer on another machine.

    The trainer listens: `pipeline.loader(workers_at="tcp://0.0.0.0:8877", worker_keys="keys/trainer.key")`. Start as many workers
    as you like, before or after it; they may come and go while it runs. The pipeline must be the trainer's, from the same code
    and over the same samples; the path to these may be another. Ctrl-C or SIGTERM: finishes what it has begun, and leaves.

    Example: `stoker worker --connect tcp://trainer:8877 --keys keys/worker.key train.py:train`
    """
    needed("zmq", "remote-workers", "stoker worker")
    from ..loader.remote_work import worker_service

    plan = load_pipeline(pipeline).plan
    count = threads or default_threads(plan).threads
    cache = open_cache(plan)
    service = worker_service(plan, connect, keys, count, cache, _say, once)
    asked = False

    def leave(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt  # who asks twice does not want to wait
        asked = True
        service.leave()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN and threading.current_thread() is threading.main_thread():
            signal.signal(number, leave)
    try:
        service.run()
    finally:
        if cache is not None:
            cache.release()


def _say(text: str) -> None:
    tell(text, style="dim")
