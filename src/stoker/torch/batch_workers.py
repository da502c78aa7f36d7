"""Who makes the batches of a DataLoader: an executor, its meters, and the feed of one epoch after the other."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from ..engine.auto_executor import AutoExecutor
from ..engine.auto_policy import AutoPolicy, Choice, Setting
from ..engine.executor import Executor
from ..engine.feed import Exhausted, Feed, Supply, Unit
from ..engine.resources import queued_seconds
from ..engine.run_task import presentable
from ..engine.schedule import Window
from ..loader.auto_watch import AutoWatch
from ..loader.idle_cores import IdleCores
from ..loader.thread_count import core_share
from ..observe.meters import Meters, Occupancy
from ..observe.stats import ExecutorStats
from .index_order import Pick
from .own_copies import OwnCopies


class Maker(Protocol):
    """Makes units of picks, and batches of units."""

    work: Any

    def unit(self, pick: Pick) -> Any: ...

    def value(self, unit: Any) -> Any: ...

    def describe(self, content: Any) -> str: ...

    def window(self, workers: int, ahead: int) -> Window: ...


class BatchWorkers:
    """Workers, kept between epochs. One that is dropped closes itself."""

    def __init__(self, executor: Executor, kind: str, make: Callable[[Meters], Maker], memory: int, ahead: int) -> None:
        self.executor, self.memory, self._ahead = executor, memory, ahead
        self.process = os.getpid()
        self.closed = False
        self._finalizer = weakref.finalize(self, executor.close)
        self._finalizer.atexit = False  # whatever runs then is stopped by the engine, all executors at once
        processes = len(executor.processes)
        threads = executor.workers // max(1, processes) if executor.ahead else 0
        self.meters = Meters(executor.workers, core_share().threads, queued_seconds, ExecutorStats(kind, processes, threads))
        self.maker = make(self.meters)
        self.idle = IdleCores()
        self.meters.summed = self.idle.look
        if isinstance(executor, AutoExecutor):
            self.meters.watch = _watch(executor, self.maker.work, self.meters)

    @property
    def usable(self) -> bool:
        """Whether it can make batches in this process: it may have been forked since."""
        here = self.process == os.getpid() or self.executor.survives_fork
        return here and not self.closed and not self.executor.stopped

    def epoch(self, picks: Iterator[Pick]) -> EpochRun:
        """Set an epoch in motion."""
        executor, maker = self.executor, self.maker
        feed: Feed[Any, Any, Any] = Feed(
            _Picked(picks, maker),
            executor.channel(maker.work),
            executor,
            window=maker.window(executor.workers, self._ahead) if executor.ahead else Window(1, 1),
            budget=self.memory,
            watchdog_s=math.inf,  # a batch takes as long as its items do
            describe=maker.describe,
        )
        self.meters.occupancy = lambda: Occupancy(*feed.occupancy)
        return EpochRun(self, feed)

    def close(self) -> None:
        """Stop all workers; idempotent."""
        if not self.closed:
            self.closed = True
            self.meters.look()
            self._finalizer.detach()
            self.executor.close()


def _watch(executor: AutoExecutor, work: OwnCopies, meters: Meters) -> Callable[[Meters, float], None]:
    """Who looks whether work is to move from threads to processes, and back."""
    policy = AutoPolicy(core_share().threads, executor.workers, fixed=True)
    watch = AutoWatch(policy, executor)
    meters.moved(executor.workers, replace(meters.executor, reason=policy.reason))
    told = False

    def look(meters: Meters, now: float) -> None:
        nonlocal told
        if work.needs_processes and not policy.setting.processes and not told:
            told = watch.insist(Choice(Setting(executor.workers, 1), work.needs_processes))
        watch.look(meters, now)

    return look


class _Picked(Supply[Any]):
    def __init__(self, picks: Iterator[Pick], maker: Maker) -> None:
        self._picks, self._maker = picks, maker

    def poll(self, block: bool) -> Unit[Any, Any]:
        pick = next(self._picks, None)
        if pick is None:
            raise Exhausted
        unit: Unit[Any, Any] = self._maker.unit(pick)
        return unit


class BatchTimeout(Exception):
    """The next batch has not come in time."""


class EpochRun:
    """The batches of one epoch."""

    def __init__(self, workers: BatchWorkers, feed: Feed[Any, Any, Any]) -> None:
        self.workers = workers
        self._feed = feed
        self.ended = False

    def take(self, timeout_s: float) -> tuple[Pick, Any] | None:
        """The next batch and what it was made of; None at the end. Raises what went wrong with it, or BatchTimeout."""
        meters = self.workers.meters
        asked = meters.request()
        try:
            unit = self._feed.take(timeout_s=timeout_s)
        except Exhausted:
            unit = None
        except Exception:
            raise
        except BaseException:
            self.end()  # an interrupt, which may have taken a task with it
            raise
        else:
            if unit is None:
                raise BatchTimeout
        if unit is None or unit.ended:
            self.end()
            meters.epoch_ended()
            return None
        if unit.error is not None:
            raise presentable(unit.error)
        begun = time.monotonic()
        value = self.workers.maker.value(unit)
        meters.handed_over(time.monotonic() - begun)
        meters.delivered(asked, unit.samples, unit.added)
        return unit.pick, value

    def end(self) -> None:
        """Drop what is in the making; idempotent."""
        if not self.ended:
            self.ended = True
            self._feed.close()
            self.workers.meters.occupancy = Occupancy

    def leave(self) -> None:
        """The loop has left the epoch in the middle."""
        if not self.ended:
            self.end()
            self.workers.meters.epoch_left()
