"""What is measured while a loader runs. Snapshots are plain data; text is made in `verdict.py`."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..errors import ConfigError


class Span(NamedTuple):
    """One task on one worker, for the trace."""

    worker: int
    unit: int
    task: int
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True)
class ExecutorStats:
    """Who runs tasks: so many processes of `threads` threads each, or, with 0, threads of this process."""

    name: str = "threads"  # "inline", "threads", "processes", or whatever else there is
    processes: int = 0
    threads: int = 0
    since: int = 0  # batches that had been handed out by then
    reason: str = ""  # why; empty: the user said so
    moves: int = 0  # how often work was moved until then


_UNKNOWN = ExecutorStats()


@dataclass(slots=True)
class Stats:
    """A snapshot: all times in seconds, all sizes in bytes, since the loader was made."""

    batches: int = 0
    samples: int = 0
    first_samples: int = 0  # of these, in the first batch
    bytes: int = 0
    epochs: int = 0
    skipped: int = 0  # bad samples left out by on_error("skip")
    skipped_by: dict[str, int] = field(default_factory=dict)  # of these, by step and error: {"map resize: FunctionError": 3}
    first_batch_s: float = 0.0  # from the first request to the first batch
    elapsed_s: float = 0.0  # from the first batch to the last one handed out
    waited_s: float = 0.0  # of that, time the consumer waited for a batch
    task_s: float = 0.0  # time in tasks, over all workers
    cpu_s: float = 0.0  # of that, time on a core
    process_s: float = 0.0  # time on a core of the whole process, from the first batch to the last one handed out
    queued_s: float | None = None  # meanwhile its threads were ready to run and had no core; None: the system does not say
    workers: int = 0
    earlier_worker_s: float = 0.0  # time that workers had before their number was what it is now
    resized_s: float = 0.0  # `elapsed_s` by then
    executor: ExecutorStats = _UNKNOWN
    cores: int = 0  # that this process may use; 0: not known
    pillow: int = 0  # images decoded by Pillow: PNG, WebP and whatever else the kernel leaves to it
    retried: int = 0  # reads and calls of functions that were tried again, by retry(n)
    damaged: int = 0  # images decoded as far as they go, with lenient=True
    seeks_used: int = 0  # images whose crop was reached by a seek index
    seeks_unfit: int = 0  # seek indices that did not fit their image, and were not used
    draws: int = 0  # tasks whose functions draw from random generators that all threads of a process share
    worked: int = 0  # samples those tasks worked on, the ones not handed out yet included
    steps_s: dict[str, float] = field(default_factory=dict)  # time in tasks, by step

    @property
    def measured(self) -> bool:
        """Whether there are rates and shares: they are taken from the first batch to the last."""
        return self.batches > 1 and self.elapsed_s > 0

    @property
    def samples_per_s(self) -> float:
        later = self.samples - self.first_samples  # the first batch was there when the clock started
        return later / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time in which the training loop waited for data."""
        return min(1.0, self.waited_s / self.elapsed_s) if self.elapsed_s > 0 else 0.0

    @property
    def core_share(self) -> float:
        """Share of the time in tasks that was spent on a core, and not waiting for something."""
        return min(1.0, self.cpu_s / self.task_s) if self.task_s > 0 else 1.0

    @property
    def busy_share(self) -> float:
        """Share of the workers' time spent in tasks."""
        spent = self.earlier_worker_s + (self.elapsed_s - self.resized_s) * self.workers
        return min(1.0, self.task_s / spent) if spent > 0 else 0.0


#: how often the time on cores is asked for
_CPU_EVERY_S = 0.02


class _Latest:
    """The latest rows of numbers, in memory that is taken once: a long run must not look like a leak."""

    def __init__(self, most: int, width: int) -> None:
        try:
            self._rows = np.full((most, width), 0.0)  # written to, so that it is really there
        except MemoryError as error:
            raise ConfigError(f"there is not enough memory to start a loader ({error}); close others, or free some") from error
        self._most, self._row, self._count = most, struct.Struct(f"{width}d"), 0

    def append(self, row: Sequence[float]) -> None:
        # Five times as fast as an assignment of NumPy's, and it is done for every task.
        self._row.pack_into(self._rows, self._count % self._most * self._row.size, *row)  # type: ignore[arg-type]
        self._count += 1

    def rows(self) -> list[list[float]]:
        """Oldest first."""
        at = self._count % len(self._rows)
        kept: list[list[float]] = (
            self._rows[: self._count].tolist() if self._count <= len(self._rows) else np.roll(self._rows, -at, axis=0).tolist()
        )
        return kept


class Meters:
    """Counts as a loader runs; written by the consumer's thread alone."""

    MOST_SPANS = 20_000  # the latest ones; a trace of a long run shows its end

    def __init__(
        self,
        workers: int,
        cores: int = 0,
        queued: Callable[[], float | None] = lambda: None,
        executor: ExecutorStats = _UNKNOWN,
    ) -> None:
        self._stats = Stats(workers=workers, cores=cores, executor=executor)
        #: called with the statistics so far some times per second, by the consumer's thread when it asks for a batch
        self.watch: Callable[[Meters, Stats], None] | None = None
        self._queued, self._first_queued = queued, 0.0
        self._due = False
        self._begun: float | None = None
        self._first: float | None = None
        self._first_cpu = self._next_cpu = 0.0
        self._spans = _Latest(self.MOST_SPANS, len(Span._fields))
        self._waits = _Latest(self.MOST_SPANS, 2)

    @property
    def spans(self) -> list[Span]:
        """The latest tasks, oldest first."""
        return [Span(int(worker), int(unit), int(task), start, stop) for worker, unit, task, start, stop in self._spans.rows()]

    @property
    def waits(self) -> list[tuple[float, float]]:
        """The latest waits of the consumer: asked for a batch, got it."""
        return [(asked, got) for asked, got in self._waits.rows()]

    def request(self) -> float:
        now = time.monotonic()
        if self._begun is None:
            self._begun = now
            self._first_queued = self._queued() or 0.0  # now, because workers are not busy yet
        if self._due and self.watch is not None:
            self._due = False
            self.watch(self, self._stats)  # not when a batch was delivered: interrupted there, it would be lost
        return now

    def delivered(self, asked_s: float, samples: int, nbytes: int) -> None:
        now = time.monotonic()
        stats = self._stats
        stats.batches += 1
        stats.samples += samples
        stats.bytes += nbytes
        if self._first is None:
            self._first, self._first_cpu = now, time.process_time()
            stats.first_samples = samples
            stats.first_batch_s = now - (self._begun or now)
            return
        stats.waited_s += now - asked_s
        stats.elapsed_s = now - self._first
        if now >= self._next_cpu:  # asking costs as much as the rest of this, and some loops take 200,000 batches per second
            self._next_cpu = now + _CPU_EVERY_S
            stats.process_s = time.process_time() - self._first_cpu
            self._due = self.watch is not None
        self._waits.append((asked_s, now))

    def moved(self, workers: int, executor: ExecutorStats) -> None:
        """Others run tasks from now on."""
        stats = self._stats
        stats.earlier_worker_s += (stats.elapsed_s - stats.resized_s) * stats.workers
        stats.resized_s, stats.workers, stats.executor = stats.elapsed_s, workers, executor

    def task(self, span: Span, cpu_s: float) -> None:
        self._stats.task_s += span.stop_s - span.start_s
        self._stats.cpu_s += cpu_s
        self._spans.append(span)

    def worked(self, samples: int) -> None:
        self._stats.worked += samples

    def step(self, name: str, seconds: float) -> None:
        self._stats.steps_s[name] = self._stats.steps_s.get(name, 0.0) + seconds

    def sought(self, used: int, unfit: int) -> bool:
        """What became of seek indices; returns whether these are the first that did not fit."""
        first = bool(unfit) and not self._stats.seeks_unfit
        self._stats.seeks_used += used
        self._stats.seeks_unfit += unfit
        return first

    def by_pillow(self, count: int) -> None:
        self._stats.pillow += count

    def retried(self, count: int) -> None:
        self._stats.retried += count

    def drew(self) -> None:
        self._stats.draws += 1

    def damaged(self, count: int) -> None:
        self._stats.damaged += count

    def epoch_ended(self) -> None:
        self._stats.epochs += 1

    def look(self) -> None:
        """Ask how long threads were queued: while workers live, because a thread that has ended is no longer counted.

        Only when somebody wants to know, or the end is near: it reads a file for each thread, and beside busy workers each read
        may wait for the interpreter lock.
        """
        queued = self._queued() if self._first is not None else None
        if queued is not None:
            self._stats.queued_s = max(self._stats.queued_s or 0.0, queued - self._first_queued)

    def skipped(self, kinds: Iterable[str]) -> None:
        """Samples left out, each by what was wrong with it."""
        for kind in kinds:
            self._stats.skipped += 1
            self._stats.skipped_by[kind] = self._stats.skipped_by.get(kind, 0) + 1

    def snapshot(self) -> Stats:
        self.look()
        return replace(self._stats, steps_s=dict(self._stats.steps_s), skipped_by=dict(self._stats.skipped_by))
