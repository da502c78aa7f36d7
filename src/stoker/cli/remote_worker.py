"""The process in which `stoker worker` makes rows. It may end at any time: the command starts another."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

import typer

from ..engine import signals
from ..engine.fresh_interpreter import end_with
from ..engine.supervisor import ENDED, WORKED
from ..loader.open_cache import open_cache
from ..loader.remote_work import worker_service
from ..loader.thread_count import default_threads
from ..remote.worker_service import Stuck
from .guard import guarded, tell_stopped
from .pipelines import load_pipeline
from .screen import tell_aside


def main(
    lifeline: int, report: int, successor: bool, pipeline: str, connect: str, keys: str | None, threads: int | None, once: bool
) -> NoReturn:
    """The life of that process; the first two are descriptors."""
    for fd in (lifeline, report):
        os.set_inheritable(fd, False)  # programs that functions start have no use for them
    end_with(lifeline)
    signals.install()
    status = 0
    try:
        with guarded():
            _work(pipeline, connect, keys, threads, once, successor, partial(os.write, report, WORKED))
    except typer.Exit as ended:
        status = ended.exit_code
    except Stuck as stuck:
        tell_aside(str(stuck))
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(1)  # without waiting for what is stuck, and without a last word: another is to take this one's place
    except KeyboardInterrupt:
        status = tell_stopped()
    finally:
        os.write(report, ENDED)
    sys.exit(status)


def _work(
    pipeline: str,
    connect: str,
    keys: str | None,
    threads: int | None,
    once: bool,
    successor: bool,
    worked: Callable[[], object],
) -> None:
    plan = load_pipeline(pipeline).plan
    count = threads or default_threads(plan).threads
    cache = open_cache(plan)
    service = worker_service(plan, connect, keys, count, cache, tell_aside, once, successor, worked)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: service.leave())  # it may come twice: from the command, and to all processes
    try:
        service.run()
    finally:
        if cache is not None:
            cache.release()
