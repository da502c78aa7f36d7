"""Measurements as plain frozen data: fit for JSON, can be added over ranks, and subtracted to get a part of a run.

All times are in seconds, all sizes in bytes. `verdict.py` turns them into text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar, cast

from ..errors import ConfigError

#: buckets of a histogram: two for every doubling, from a microsecond on
BUCKETS = 64


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often something took how long."""

    counts: tuple[int, ...] = ()  # of bucket 0, 1, ...: see `bucket`; as many as are needed

    @staticmethod
    def bucket(seconds: float) -> int:
        """The bucket of a time: the one of times below 2 ** (bucket / 2) microseconds."""
        return min(BUCKETS - 1, int(seconds * seconds * 1e12).bit_length())

    @property
    def total(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """A time that this share of all times does not exceed; 0 without any. Exact to a factor of 1.2."""
        left = share * self.total
        for number, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return float(2.0 ** ((number - 0.5) / 2)) * 1e-6
        return 0.0

    def __add__(self, other: Histogram) -> Histogram:
        return self._with(other, 1)

    def __sub__(self, other: Histogram) -> Histogram:
        return self._with(other, -1)

    def _with(self, other: Histogram, sign: int) -> Histogram:
        length = max(len(self.counts), len(other.counts))
        mine, theirs = (counts + (0,) * (length - len(counts)) for counts in (self.counts, other.counts))
        return Histogram(tuple(a + sign * b for a, b in zip(mine, theirs)))


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one step of the pipeline took, over all workers. The four ways to spend time add up to `wall_s`."""

    name: str  # "read", "image jpg", "map augment", "collate", "map_batch mix", ...
    kind: str = "native"  # "read"; "native": the interpreter lock is free; "device": so it is, for a GPU; "function": Python code
    samples: int = 0  # that came in
    wall_s: float = 0.0
    cpu_s: float = 0.0  # on a core
    lock_s: float = 0.0  # waiting for the interpreter lock
    queued_s: float = 0.0  # ready to run, and no core was free
    wait_s: float = 0.0  # waiting for storage, a network, a sleep
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def sample_s(self) -> float:
        """Time of one worker for one sample."""
        return self.wall_s / max(1, self.samples)


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What one worker did."""

    number: int
    tasks: int = 0
    busy_s: float = 0.0  # in tasks
    cpu_s: float = 0.0  # of that, on a core


@dataclass(frozen=True, slots=True)
class LoopStats:
    """The training loop: the time between getting a batch and requesting the next, and how long it waited then.

    `busy_*` and `calm_*` are the same steps while most workers were busy, and while hardly any were: if steps next to busy
    workers take longer, the loader slows the loop.
    """

    steps: int = 0
    step_s: float = 0.0
    busy_steps: int = 0
    busy_step_s: float = 0.0
    calm_steps: int = 0
    calm_step_s: float = 0.0
    waits: Histogram = Histogram()

    @property
    def interference(self) -> float | None:
        """How much longer a step takes while workers are busy: 0.3 is 30 %; None: not known."""
        if not self.busy_steps or not self.calm_steps or not self.calm_step_s:
            return None
        return self.busy_step_s / self.busy_steps / (self.calm_step_s / self.calm_steps) - 1


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample that took much longer than others, and what it took: time of a worker."""

    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class OriginStats:
    """What reading from one shard, or folder, or host took: time of workers."""

    name: str
    samples: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """A part of the run: what happened in it, and what was waiting at its end."""

    at_s: float  # when it ended, after the first batch
    length_s: float
    batches: int
    samples: int
    waited_s: float  # the training loop, for batches
    busy_s: float  # all workers, in tasks
    workers: int
    ready: int = 0  # units (batches, or groups of small ones) that were complete
    in_flight: int = 0  # units in the making, those ready included
    nbytes: int = 0  # memory of these
    budget: int = 0  # what they may take: loader(memory=)


@dataclass(frozen=True, slots=True)
class ExecutorStats:
    """What runs tasks: a number of processes with `threads` threads each or, with 0, threads of this process."""

    name: str = "threads"  # "inline", "threads", "processes", or whatever else there is
    processes: int = 0
    threads: int = 0
    since: int = 0  # batches that had been handed out by then
    reason: str = ""  # why; empty: the user said so
    moves: int = 0  # how often work was moved until then
    remote: int = 0  # workers on other machines in addition to these
    remote_threads: int = 0  # of all of them


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of what a loader measured since it was made.

    `later - earlier` is what happened between two of them; `merge` adds up those of several ranks; `as_dict` and `from_dict` make
    plain values of them, fit for JSON, and the other way round.
    """

    batches: int = 0
    samples: int = 0
    first_samples: int = 0  # of these, in the first batch: the clock starts then
    bytes: int = 0
    epochs: int = 0
    skipped: int = 0  # bad samples skipped by on_error("skip")
    skipped_by: Mapping[str, int] = field(default_factory=dict)  # of these, by step and error: {"map resize: FunctionError": 3}
    first_batch_s: float = 0.0  # from the first request to the first batch
    elapsed_s: float = 0.0  # from the first batch to the last one handed out, without pauses
    paused_s: float = 0.0  # meanwhile, between epochs, and in steps that took far longer than others: a validation, a checkpoint
    waited_s: float = 0.0  # of that, time the training waited for a batch
    hidden_s: float = 0.0  # time the program waited for a batch while its device was still busy with earlier ones
    handed_s: float = 0.0  # of that, time it took to hand batches over to a device or another library
    task_s: float = 0.0  # time in tasks, over all workers
    cpu_s: float = 0.0  # of that, time on a core
    early_s: float = 0.0  # of `task_s`, before the first batch was handed out
    early_cpu_s: float = 0.0  # of `cpu_s`, before the first batch was handed out
    process_s: float = 0.0  # time on a core of the whole process, in `elapsed_s`
    queued_s: float | None = None  # meanwhile its threads were ready to run and had no core; None: the system does not say
    workers: int = 0
    earlier_worker_s: float = 0.0  # time that workers had before their number was what it is now
    resized_s: float = 0.0  # `elapsed_s` by then
    executor: ExecutorStats = ExecutorStats()
    cores: int = 0  # that this process may use, its share where ranks share a machine; 0: not known
    pillow: int = 0  # images decoded by Pillow: PNG, WebP and whatever else the kernel leaves to it
    retried: int = 0  # reads and calls of functions that were tried again, by retry(n)
    damaged: int = 0  # images decoded as far as they go, with lenient=True
    seeks_used: int = 0  # images whose crop was reached by a seek index
    seeks_unfit: int = 0  # seek indices that did not fit their image, and were not used
    cache_hits: int = 0  # samples found by cache(), and those that were not
    cache_misses: int = 0
    device_images: int = 0  # images decoded on a GPU, by loader(decode_on=...)
    device_refused: int = 0  # images that the GPU gave back, and the CPU decoded
    device_s: float = 0.0  # time that the GPU's work on them was under way, by its own clock, over all workers
    device_bytes: int = 0  # memory of the GPU that they took, added up
    decode_reason: str = ""  # where images are decoded, and why; empty: on the CPU, as nobody asked for anything else
    lost: int = 0  # tasks whose worker was lost before they ended, and that ran again
    draws: int = 0  # tasks whose functions draw from random generators that all threads of a process share
    worked: int = 0  # samples those tasks worked on, the ones not handed out yet included
    steps: tuple[StepStats, ...] = ()  # in the order of the pipeline
    by_worker: tuple[WorkerStats, ...] = ()
    loop: LoopStats = LoopStats()
    sample_costs: Histogram = Histogram()  # time of a worker for one sample
    slowest: tuple[SlowSample, ...] = ()  # the slowest first
    origins: tuple[OriginStats, ...] = ()  # where reading took longest for each sample, the slowest first
    history: tuple[Moment, ...] = ()  # the whole run in parts, which grow longer with it
    ranks: int = 1  # whose measurements these are
    host: str = ""
    cores_by: Mapping[str, int] = field(default_factory=dict)  # `cores` by process, as in {"node1:4711": 8}

    @property
    def measured(self) -> bool:
        """Whether there are rates and shares: they are taken from the first batch to the last."""
        return self.batches > 1 and self.elapsed_s > 0 and self.samples > self.first_samples

    @property
    def samples_per_s(self) -> float:
        later = self.samples - self.first_samples  # the first batch was there when the clock started
        return later / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time in which the training loop waited for data."""
        return min(1.0, self.waited_s / self.elapsed_s / self.ranks) if self.elapsed_s > 0 else 0.0

    @property
    def core_share(self) -> float:
        """Share of the time in tasks that was spent on a core, and not waiting for something."""
        return min(1.0, self.cpu_s / self.task_s) if self.task_s > 0 else 1.0

    @property
    def busy_share(self) -> float:
        """Share of the workers' time spent in tasks."""
        spent = self.earlier_worker_s + (self.elapsed_s - self.resized_s) * self.workers
        return min(1.0, max(0.0, self.task_s - self.early_s) / spent) if spent > 0 else 0.0

    @property
    def steps_s(self) -> dict[str, float]:
        """Time in tasks, by step."""
        return {step.name: step.wall_s for step in self.steps}

    def __sub__(self, earlier: Stats) -> Stats:
        """What was measured between two snapshots of one loader."""
        if earlier.batches > self.batches:
            raise ConfigError("stats: the later snapshot comes first, as in `later - earlier`")
        queued = None if self.queued_s is None else self.queued_s - (earlier.queued_s or 0.0)
        before = {step.name: step for step in earlier.steps}
        workers = {worker.number: worker for worker in earlier.by_worker}
        skipped = {kind: count - earlier.skipped_by.get(kind, 0) for kind, count in self.skipped_by.items()}
        return replace(
            self,
            **{name: getattr(self, name) - getattr(earlier, name) for name in _COUNTS},
            queued_s=queued,
            skipped_by={kind: count for kind, count in skipped.items() if count},
            steps=tuple(_less(step, before[step.name]) if step.name in before else step for step in self.steps),
            by_worker=tuple(_less(each, workers[each.number]) if each.number in workers else each for each in self.by_worker),
            loop=_less(self.loop, earlier.loop),
            sample_costs=self.sample_costs - earlier.sample_costs,
            history=tuple(moment for moment in self.history if moment.at_s > earlier.elapsed_s + earlier.paused_s),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Stats:
        """The result of `as_dict`, possibly after a round trip through JSON; unknown names are ignored."""
        known = _known(cls, values)
        for name, kind in (("executor", ExecutorStats), ("loop", LoopStats), ("sample_costs", Histogram)):
            if name in known:
                known[name] = _made(kind, known[name])
        for name, kind in _LISTS.items():
            known[name] = tuple(_made(kind, each) for each in known.get(name, ()))
        return cls(**known)


_LISTS: dict[str, type[Any]] = {
    "steps": StepStats,
    "by_worker": WorkerStats,
    "slowest": SlowSample,
    "origins": OriginStats,
    "history": Moment,
}
#: what adds up as a loader runs
_COUNTS = (
    "batches", "samples", "first_samples", "bytes", "epochs", "skipped", "elapsed_s", "waited_s", "hidden_s", "handed_s",
    "paused_s", "task_s", "cpu_s", "early_s", "early_cpu_s", "process_s", "earlier_worker_s", "resized_s", "pillow", "retried",
    "damaged", "seeks_used", "seeks_unfit", "cache_hits", "cache_misses", "device_images",
    "device_refused", "device_s", "device_bytes", "lost", "draws", "worked",
)  # fmt: skip
#: of these, what ranks have in common
_TOGETHER = ("epochs", "elapsed_s", "paused_s", "resized_s", "first_batch_s")
_T = TypeVar("_T")


def merge(ranks: Iterable[Stats]) -> Stats:
    """The measurements of several ranks, or of several loaders that ran at the same time, as one."""
    given = list(ranks)
    if not given:
        raise ConfigError("merge: there are no statistics to merge")
    queued = [stats.queued_s for stats in given if stats.queued_s is not None]
    cores: dict[str, int] = {}  # loaders of one process have the same, and each rank has its share
    for stats in given:
        for process, count in (stats.cores_by or {stats.host: stats.cores}).items():
            cores[process] = max(cores.get(process, 0), count)
    workers = [worker for stats in given for worker in stats.by_worker]
    totals: dict[str, Any] = {name: sum(getattr(stats, name) for stats in given) for name in (*_COUNTS, "workers", "ranks")}
    totals |= {name: max(getattr(stats, name) for stats in given) for name in _TOGETHER}
    origins = merged([stats.origins for stats in given], lambda origin: origin.name)
    return replace(
        given[0],
        **totals,
        queued_s=sum(queued) if queued else None,
        cores=sum(cores.values()),
        cores_by=cores,
        host=", ".join(sorted({name for stats in given for name in stats.host.split(", ")})),
        skipped_by=_counted(stats.skipped_by for stats in given),
        steps=merged([stats.steps for stats in given], lambda step: step.name),
        by_worker=tuple(replace(worker, number=number) for number, worker in enumerate(workers)),
        loop=_summed([stats.loop for stats in given]),
        sample_costs=_summed([stats.sample_costs for stats in given]),
        slowest=tuple(sorted((slow for stats in given for slow in stats.slowest), key=lambda slow: -slow.seconds)[:10]),
        origins=tuple(sorted(origins, key=lambda origin: -origin.wall_s / max(1, origin.samples))[:8]),
    )


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def _made(kind: type[Any], values: Mapping[str, Any]) -> Any:
    known = _known(kind, values)
    if kind is LoopStats and "waits" in known:
        known["waits"] = _made(Histogram, known["waits"])
    if kind is Histogram:
        known["counts"] = tuple(known.get("counts", ()))
    return kind(**known)


def _less(later: _T, earlier: _T) -> _T:
    """The numbers of a value of this module without those of another; what is not a number stays.

    Reasons for time off a core are estimates over all of a run, so the later sum of one may be the smaller.
    """
    return _combined([later, earlier], lambda a, b: a - b if isinstance(a, Histogram) else max(type(a)(0), a - b))


def _summed(values: Sequence[_T]) -> _T:
    return _combined(values, lambda a, b: a + b)


def _combined(values: Sequence[_T], combine: Callable[[Any, Any], Any]) -> _T:
    total: Any = values[0]
    if isinstance(total, Histogram):
        for value in values[1:]:
            total = combine(total, value)
        return cast(_T, total)
    for value in values[1:]:
        changed = {
            each.name: combine(getattr(total, each.name), getattr(value, each.name))
            for each in fields(total)
            if each.name not in ("name", "kind", "number")
        }
        total = replace(total, **changed)
    return cast(_T, total)


def merged(lists: Sequence[Sequence[_T]], name_of: Callable[[_T], str]) -> tuple[_T, ...]:
    """Values of the same name as one, in the order in which they come."""
    named: dict[str, list[_T]] = {}
    for values in lists:
        for value in values:
            named.setdefault(name_of(value), []).append(value)
    return tuple(_summed(values) for values in named.values())


def _counted(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total
