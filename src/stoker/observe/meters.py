"""The counters of a running loader. Snapshots of them are `Stats`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..storage.scratch import Looks
from .loop_sums import PAUSE_S, Along, CameAlong, LatestRows, LoopSums
from .stats import (
    BUCKETS,
    ExecutorStats,
    Histogram,
    LoopStats,
    Moment,
    OriginStats,
    SlowSample,
    Stats,
    StepStats,
    WorkerStats,
    merged,
)


class Span(NamedTuple):
    """One task on one worker, for the trace."""

    worker: int
    unit: int
    task: int
    start_s: float
    stop_s: float


#: the same fields without their names: one is made for every task, and with names that takes seven times as long
AnySpan = tuple[int, int, int, float, float]
#: how often the time on cores is asked for
_CPU_EVERY_S = 0.05
#: the parts of a run: how long they are at first, and how many there may be before each two become one
_MOMENT_S, _MOMENTS = 0.25, 240
#: what is counted by name, because it does not happen in every task
_RARE = (
    "epochs", "pillow", "retried", "damaged", "seeks_used", "seeks_unfit", "cache_hits", "cache_misses", "device_images",
    "device_refused", "device_s", "device_bytes", "lost", "draws",
)  # fmt: skip
#: a part of a run that says enough
_PART_S = 2.0
#: who finds the interpreter lock taken for longer than this has competitors
_TAKEN_S = 4e-4


class TaskCosts(Protocol):
    """What a task says it took: lists with one number for each of its steps."""

    rows: int
    seconds: list[float]
    cpu_s: list[float]
    nbytes: list[int]  # that came out of the step
    read_bytes: int  # that the first step read
    weight: int  # tasks that these costs represent; 0: not measured
    queued_s: float  # ready to run, and no core was free
    lock_s: float  # how long it took to get the interpreter lock when it was let go once; below 0: nobody tried


@dataclass(frozen=True, slots=True)
class StepName:
    """A step as statistics name it, and what kind of work it is (see `StepStats.kind`)."""

    name: str
    kind: str = "native"


class Sink(Protocol):
    """Receives every task and every step of the loop as it ends. Called by the consumer's thread."""

    def task(self, span: Span, steps: Sequence[StepName], costs: TaskCosts | None) -> None: ...

    def loop(self, asked_s: float, got_s: float, next_s: float) -> None:
        """The loop asked for a batch, got it, and asked for the next one; all monotonic."""


class _Step:
    """Sums of one step."""

    __slots__ = ("bytes_in", "bytes_out", "cpu_s", "off_s", "queued_s")

    def __init__(self) -> None:
        self.cpu_s = self.queued_s = self.off_s = 0.0
        self.bytes_in = self.bytes_out = 0


class _Work:
    """Sums of one kind of tasks: of all of them, of those that were looked at closely, and of the steps of these.

    Those looked at say how the time is divided. How much it was, all of them say: the ones looked at are often the first after a
    pause, and take longer than others.
    """

    __slots__ = ("cpu_s", "names", "off_s", "rows", "seen_cpu_s", "seen_off_s", "seen_rows", "steps")

    def __init__(self, names: Sequence[StepName]) -> None:
        self.names, self.steps = names, [_Step() for _ in names]
        self.cpu_s = self.off_s = self.seen_cpu_s = self.seen_off_s = 0.0
        self.rows = self.seen_rows = 0

    def stats(self, competed: float) -> list[StepStats]:
        return [_step_stats(self, at, competed) for at in range(len(self.names))]


class _WorkerSums:
    __slots__ = ("busy_s", "cpu_s", "tasks")

    def __init__(self) -> None:
        self.tasks, self.busy_s, self.cpu_s = 0, 0.0, 0.0


class Occupancy(NamedTuple):
    """What is under way: units that are complete, all of them, their bytes, and how many bytes they may take."""

    ready: int = 0
    in_flight: int = 0
    nbytes: int = 0
    budget: int = 0


class Meters:
    """Counts as a loader runs; written by the consumer's thread alone."""

    MOST_SPANS = 20_000  # the latest ones; a trace of a long run shows its end

    def __init__(
        self,
        workers: int,
        cores: int = 0,
        queued: Callable[[], float | None] = lambda: None,
        executor: ExecutorStats | None = None,
    ) -> None:
        host = socket.gethostname()
        self._stats = Stats(
            workers=workers,
            cores=cores,
            executor=executor or ExecutorStats(),
            host=host,
            cores_by={f"{host}:{os.getpid()}": cores},
        )
        #: called some times per second, by the consumer's thread when it asks for a batch
        self.watch: Callable[[Meters, float], None] | None = None
        #: called when things were summed up, with the time and whether there was a pause; often, by the consumer's thread
        self.summed: Callable[[float, bool], None] | None = None
        #: what is under way
        self.occupancy: Callable[[], Occupancy] = Occupancy
        self._sinks: tuple[Sink, ...] = ()
        #: where reading takes longest
        self.origins: Callable[[], tuple[OriginStats, ...]] = tuple
        #: called with every unit's batch before it is handed over, by the consumer's thread; not to be kept or changed
        self.viewers: tuple[Callable[[Any], None], ...] = ()
        #: called when the loader is closed
        self.endings: tuple[Callable[[], None], ...] = ()
        self._queued, self._first_queued = queued, 0.0
        self._queued_s: float | None = None
        self._due = False
        self._begun: float | None = None
        self._first: float | None = None
        self._next_cpu = 0.0
        self._spans = LatestRows(self.MOST_SPANS, len(Span._fields))
        # What is handed out is only noted, and summed up some times per second: some loops take 200,000 batches per second.
        self._handed = LatestRows(self.MOST_SPANS, 5)  # asked, got, samples, bytes, time between epochs before it
        self._sums = LoopSums()
        self._along: Along | None = None  # batches that come with the last one
        self._came = CameAlong()  # those that came with earlier ones
        self._ended: float | None = None  # when an epoch ended, and no other has begun
        self._away_s = 0.0  # between epochs, since the last batch
        self._first_batches = 0  # when the clock started
        self._early_s = self._early_cpu_s = 0.0  # in tasks by then
        self._at_move: Stats | None = None  # what was counted when work last moved to other workers
        self._cpu_at, self._summed_s = 0.0, 0.0  # the process's time on cores, and the time, when things were last summed up
        # Sums that change with every task; the rest is in `_stats`.
        self._worked = 0
        self._hidden_s = self._handed_s = self._process_s = 0.0
        self._works: dict[int, _Work] = {}  # by the identity of the names of their steps
        self._workers: dict[int, _WorkerSums] = {}
        self._cost_counts = [0] * BUCKETS
        self._tried = self._taken = 0  # how often the GIL was released, and found taken
        self._rare: dict[str, float] = dict.fromkeys(_RARE, 0)
        self._loop = LoopStats()  # for steps next to busy and idle workers
        self._slowest: tuple[SlowSample, ...] = ()
        self._moments: list[Moment] = []
        self._moment_s, self._last = _MOMENT_S, Moment(0.0, 0.0, 0, 0, 0.0, 0.0, workers)

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks. While there are any, every task in this process is measured."""
        return self._sinks

    @sinks.setter
    def sinks(self, sinks: tuple[Sink, ...]) -> None:
        (Looks.everything.add if sinks else Looks.everything.discard)(id(self))
        self._sinks = sinks

    @property
    def spans(self) -> list[Span]:
        """The latest tasks, oldest first."""
        return list(map(_span, self._spans.rows().tolist()))

    @property
    def waits(self) -> list[tuple[float, float]]:
        """The latest waits of the consumer: asked for a batch, got it."""
        return [(asked, got) for asked, got, *_ in self._handed.rows().tolist()]

    @property
    def samples(self) -> int:
        """Handed out so far."""
        return self._loop_sums().samples

    @property
    def epochs(self) -> int:
        """That have ended so far."""
        return int(self._rare["epochs"])

    @property
    def handed_s(self) -> float:
        """Time it took so far to hand batches over."""
        return self._handed_s

    @property
    def executor(self) -> ExecutorStats:
        """What runs tasks."""
        return self._stats.executor

    def latest(self, most: int) -> tuple[list[Span], list[tuple[float, float]]]:
        """The end of `spans` and of `waits`: cheap enough to be read every second."""
        waits = self._handed.rows(most).tolist()
        return list(map(_span, self._spans.rows(most).tolist())), [(asked, got) for asked, got, *_ in waits]

    @property
    def workers(self) -> int:
        """How many run tasks now."""
        return self._stats.workers

    def timeline(self, since_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Tasks that ended after a time, as rows of (begin, end), and batches handed out after it, as (asked, got)."""
        tasks, handed = self._spans.rows()[:, 3:5], self._handed.rows()[:, :2]
        return tasks[tasks[:, 1] >= since_s], handed[handed[:, 1] >= since_s]

    def request(self) -> float:
        """The loop asks for a batch."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = now
            self._first_queued = self._queued() or 0.0  # now, because workers are not busy yet
        elif self._sinks and self._handed.count and self._ended is None:
            asked, got, *_ = self._handed.last()
            for sink in self._sinks:
                sink.loop(asked, got, now)
        if self._ended is not None:
            self._away_s, self._ended = self._away_s + now - self._ended, None
        if self._due and self.watch is not None:
            self._due = False
            self.watch(self, now)  # not when a batch was delivered: interrupted there, it would be lost
        return now

    def delivered(self, asked_s: float, samples: int, nbytes: int, starved: bool = True, along: Along | None = None) -> None:
        """The loop gets a batch.

        Those that come `along` with it are not waited for, and are counted when statistics are requested. Unless the device
        `starved`, the loop counts as if it had asked only now: the device was busy with earlier batches.
        """
        if self._along is not None:
            self._came = self._came.and_also(self._along)
        self._along = along
        now = time.monotonic()
        if not starved:
            self._hidden_s += now - asked_s
            asked_s = now
        self._handed.append((asked_s, now, samples, nbytes, self._away_s))
        self._away_s = 0.0
        if now >= self._next_cpu or self._handed.count - self._sums.folded >= self.MOST_SPANS:
            self._sum_up(now)

    def epoch_ended(self) -> None:
        """What comes until the next request is not a step of the loop."""
        self._rare["epochs"] += 1
        if self._handed.count:
            self._ended = time.monotonic()

    def epoch_left(self) -> None:
        """The loop has left an epoch in the middle, at an unknown time after the last batch."""
        if self._handed.count and self._ended is None:
            self._ended = self._handed.last()[1]

    def _sum_up(self, now: float) -> None:
        if self._first is None:
            self._stats = replace(self._stats, first_batch_s=now - (self._begun or now))
            self._start_clock(now)
        elif self._handed.count == 2 and self._loop_sums().step_s > PAUSE_S:
            self._start_clock(now)
        before, self._sums = self._sums, self._loop_sums()
        self._next_cpu = now + _CPU_EVERY_S
        cpu_s, spent_s = time.process_time(), now - self._summed_s
        pause = (self._sums.paused_s - before.paused_s) / spent_s if spent_s > 0 else 0.0
        self._process_s += (cpu_s - self._cpu_at) * max(0.0, 1 - pause)
        self._cpu_at, self._summed_s = cpu_s, now
        self._due = self.watch is not None
        if self.summed is not None:
            self.summed(now, pause > 0)
        first = self._first or now
        if now - first >= self._last.at_s + self._moment_s:
            self._moment(now - first)

    def _start_clock(self, now: float) -> None:
        """Measure from here on: after the first batch, or after the second, where the loop took long for the first."""
        sums, came = self._loop_sums(), self._came_along()
        self._sums = LoopSums(sums.folded, sums.samples, sums.nbytes, got_s=sums.got_s)
        self._first = self._summed_s = now
        self._cpu_at = time.process_time()
        self._first_batches = sums.folded + came.batches
        self._stats = replace(self._stats, first_samples=sums.samples + came.samples)
        self._early_s, self._early_cpu_s = self._in_tasks()
        self._handed_s = 0.0
        self._last = Moment(0.0, 0.0, 0, 0, 0.0, self._early_s, self._stats.workers)

    def _came_along(self) -> CameAlong:
        """Batches that came with others, so far. Any thread may ask."""
        along, came = self._along, self._came
        return came if along is None else came.and_also(along)

    @property
    def along(self) -> Along | None:
        """Batches that come with the last one that was waited for."""
        return self._along

    def _loop_sums(self) -> LoopSums:
        """The sums, with what was handed out since they were last taken. Any thread may ask."""
        sums, count = self._sums, self._handed.count
        return sums.and_then(self._handed.rows(count - sums.folded)) if count > sums.folded else sums

    def handed_over(self, seconds: float) -> None:
        """It took so long to hand a batch over to a device or another library."""
        self._handed_s += seconds

    def moved(self, workers: int, executor: ExecutorStats, cores: int | None = None) -> None:
        """Other workers run tasks from now on, on this many cores; None: on the same cores."""
        stats = self._stats
        elapsed_s = self._elapsed(self._loop_sums())
        earlier = stats.earlier_worker_s + (elapsed_s - stats.resized_s) * stats.workers
        moves = executor.moves > stats.executor.moves
        self._stats = replace(stats, earlier_worker_s=earlier, resized_s=elapsed_s, workers=workers, executor=executor)
        self._at_move = self.snapshot(look=False) if moves else self._at_move
        if cores is not None:
            self._stats = replace(self._stats, cores=cores)

    def task(self, span: AnySpan, cpu_s: float, steps: Sequence[StepName], costs: TaskCosts | None) -> None:
        """A task is done: the fields of a `Span`, and what it took; `costs` None: it failed."""
        who, _, number, start_s, stop_s = span
        wall_s = stop_s - start_s
        worker = self._workers.get(who)
        if worker is None:
            worker = self._workers[who] = _WorkerSums()
        worker.tasks += 1
        worker.busy_s += wall_s
        worker.cpu_s += cpu_s
        self._spans.append(span)
        if costs is not None:
            work = self._works.get(id(steps))
            if work is None:
                work = self._works[id(steps)] = _Work(steps)
            work.cpu_s += cpu_s
            work.off_s += wall_s - cpu_s
            work.rows += costs.rows
            if costs.weight:
                work.seen_rows += costs.weight * costs.rows
                work.seen_cpu_s += costs.weight * cpu_s
                work.seen_off_s += costs.weight * (wall_s - cpu_s)
                self._count(work, costs, number >= 0)
        for sink in self._sinks:
            sink.task(Span(*span), steps, costs)

    def _count(self, work: _Work, costs: TaskCosts, of_rows: bool) -> None:
        taken_s = sum(costs.seconds)
        off = taken_s - sum(costs.cpu_s)
        share = min(1.0, costs.queued_s / off) if off > 0 else 0.0  # of the time off a core in which none was free
        weight, came = costs.weight, costs.read_bytes
        for sums, wall_s, cpu_s, nbytes in zip(work.steps, costs.seconds, costs.cpu_s, costs.nbytes):
            sums.cpu_s += weight * cpu_s
            if cpu_s < wall_s:
                queued = share * (wall_s - cpu_s)
                sums.queued_s += weight * queued
                sums.off_s += weight * (wall_s - cpu_s - queued)
            sums.bytes_in += weight * came
            sums.bytes_out += weight * nbytes
            came = nbytes
        if costs.lock_s >= 0:
            self._tried += 1
            self._taken += costs.lock_s > _TAKEN_S
        if of_rows and costs.rows:
            row_s = taken_s / costs.rows
            self._cost_counts[min(BUCKETS - 1, int(row_s * row_s * 1e12).bit_length())] += weight * costs.rows

    def _moment(self, at_s: float) -> None:
        """Note what happened since the last one."""
        last, sums, came = self._last, self._sums, self._came_along()
        totals = Moment(
            at_s,
            at_s - last.at_s,
            sums.folded + came.batches,
            sums.samples + came.samples,
            sums.waited_s,
            self._in_tasks()[0],
            self._stats.workers,
        )
        between = {name: getattr(totals, name) - getattr(last, name) for name in ("batches", "samples", "waited_s", "busy_s")}
        self._moments.append(replace(totals, **between, **self.occupancy()._asdict()))
        self._last = totals
        if len(self._moments) >= _MOMENTS:
            pairs = zip(self._moments[::2], self._moments[1::2])
            self._moments, self._moment_s = [_joined(*pair) for pair in pairs], 2 * self._moment_s

    def _in_tasks(self) -> tuple[float, float]:
        """Time in tasks so far, over all workers, and of that, on a core. Any thread may ask."""
        workers = [*self._workers.values()]
        return sum(worker.busy_s for worker in workers), sum(worker.cpu_s for worker in workers)

    def _elapsed(self, sums: LoopSums) -> float:
        return max(0.0, sums.got_s - self._first - sums.paused_s) if self._first is not None else 0.0

    def worked(self, samples: int) -> None:
        self._worked += samples

    def count(self, **counts: float) -> None:
        """Add to what is counted by name: the fields of `Stats` in `_RARE`."""
        for name, count in counts.items():
            self._rare[name] += count

    @property
    def seeks_unfit(self) -> int:
        """Seek indices so far that did not fit."""
        return int(self._rare["seeks_unfit"])

    def decoding(self, reason: str) -> None:
        """Note where images are decoded from now on, and why."""
        self._stats = replace(self._stats, decode_reason=reason)

    def beside_workers(self, busy: tuple[int, float], calm: tuple[int, float]) -> None:
        """So many further steps, and their time, while most workers were busy, and while hardly any was."""
        loop = self._loop
        self._loop = replace(
            loop,
            busy_steps=loop.busy_steps + busy[0],
            busy_step_s=loop.busy_step_s + busy[1],
            calm_steps=loop.calm_steps + calm[0],
            calm_step_s=loop.calm_step_s + calm[1],
        )

    def slow(self, samples: Iterable[SlowSample]) -> None:
        """Samples that took long; the slowest are kept, each once."""
        slowest = {slow.key: slow for slow in sorted([*self._slowest, *samples], key=lambda slow: slow.seconds)}
        self._slowest = tuple(sorted(slowest.values(), key=lambda slow: -slow.seconds)[:10])

    def look(self) -> None:
        """Ask how long threads were queued: while workers live, because a thread that has ended is no longer counted.

        Only when somebody wants to know, or the end is near: it reads a file for each thread, and beside busy workers each read
        may wait for the interpreter lock.
        """
        queued = self._queued() if self._first is not None else None
        if queued is not None:
            # Apart from `_stats`: any thread may read it, and must not put back what the consumer's thread has replaced since.
            self._queued_s = max(self._queued_s or 0.0, queued - self._first_queued)

    def skipped(self, kinds: Iterable[str]) -> None:
        """Count skipped samples, each by what was wrong with it."""
        by = dict(self._stats.skipped_by)
        for kind in kinds:
            by[kind] = by.get(kind, 0) + 1
        self._stats = replace(self._stats, skipped_by=by, skipped=sum(by.values()))

    def snapshot(self, look: bool = True) -> Stats:
        """What was counted so far; without `look`, how long threads were queued is what was last known."""
        if look:
            self.look()
        sums, came = self._loop_sums(), self._came_along()
        task_s, cpu_s = self._in_tasks()
        competed = self._taken / self._tried if self._tried else 0.0
        return replace(
            self._stats,
            **self._rare,  # type: ignore[arg-type]
            skipped_by=dict(self._stats.skipped_by),  # changing a snapshot changes nothing here
            cores_by=dict(self._stats.cores_by),
            batches=sums.folded + came.batches,
            samples=sums.samples + came.samples,
            bytes=sums.nbytes + came.nbytes,
            elapsed_s=self._elapsed(sums),
            paused_s=sums.paused_s,
            waited_s=sums.waited_s,
            hidden_s=self._hidden_s,
            handed_s=self._handed_s,
            task_s=task_s,
            cpu_s=cpu_s,
            early_s=self._early_s,
            early_cpu_s=self._early_cpu_s,
            process_s=self._process_s,
            queued_s=self._queued_s,
            worked=self._worked,
            steps=merged([work.stats(competed) for work in [*self._works.values()]], lambda step: step.name),
            by_worker=tuple(
                WorkerStats(number, each.tasks, each.busy_s, each.cpu_s) for number, each in sorted(self._workers.items())
            ),
            loop=replace(
                self._loop,
                steps=max(0, sums.folded + came.batches - max(1, self._first_batches)),
                step_s=sums.step_s,
                waits=_histogram(sums.waits.tolist()),
            ),
            sample_costs=_histogram(self._cost_counts),
            slowest=self._slowest,
            origins=self.origins() if look else (),
            history=tuple(self._moments),
        )

    def since_move(self) -> Stats:
        """What was counted since work last moved to other workers, if that is enough; else all of it."""
        stats, before = self.snapshot(), self._at_move
        part = stats if before is None else replace(stats - before, earlier_worker_s=0.0, resized_s=0.0)
        return part if part.measured and part.elapsed_s >= _PART_S else stats


def _span(row: Sequence[float]) -> Span:
    worker, unit, task, start_s, stop_s = row
    return Span(int(worker), int(unit), int(task), start_s, stop_s)


def _joined(first: Moment, second: Moment) -> Moment:
    """Two parts of a run as one."""
    sums = ("length_s", "batches", "samples", "waited_s", "busy_s")
    return replace(second, **{name: getattr(first, name) + getattr(second, name) for name in sums})


def _histogram(counts: list[int]) -> Histogram:
    used = max((number for number, count in enumerate(counts) if count), default=-1)
    return Histogram(tuple(counts[: used + 1]))


def _step_stats(work: _Work, at: int, competed: float) -> StepStats:
    """A step's sums, with the reason for its time off a core.

    Native code waits for nothing but the interpreter lock, when it comes back, or for a device. Reading and functions wait for
    the lock as often as it was found taken, and functions always where it mostly was.
    """
    step, sums = work.names[at], work.steps[at]
    on = work.cpu_s / work.seen_cpu_s if work.seen_cpu_s > 0 else 1.0
    off = max(0.0, work.off_s) / work.seen_off_s if work.seen_off_s > 0 else 1.0
    cpu_s, queued_s, off_s = on * sums.cpu_s, off * sums.queued_s, off * sums.off_s
    of_bytes = work.rows / work.seen_rows if work.seen_rows else 1.0
    lock_s = {"read": competed, "native": 1.0, "device": 0.0}.get(step.kind, 1.0 if competed > 0.5 else competed) * off_s
    return StepStats(
        step.name,
        step.kind,
        work.rows,
        cpu_s + queued_s + off_s,
        cpu_s,
        lock_s,
        queued_s,
        off_s - lock_s,
        round(of_bytes * sums.bytes_in),
        round(of_bytes * sums.bytes_out),
    )
