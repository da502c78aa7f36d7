"""What a sample costs, what is available, and the resulting rate: now, and if something were changed. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from .facts import Facts
from .stats import Stats, StepStats

#: what of Pillow's work holds the interpreter lock: threads of one process keep about seven cores busy with it
_PILLOW_LOCKED = 1 / 7
#: batches that may be in the making, about
_AHEAD = 64
#: as many threads as are worth trying where tasks wait
MOST_THREADS = 64


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that one sample takes of each resource, and how much of each there is."""

    workers: float
    cores: float  # that workers can have
    interpreters: int  # that run functions
    loops: int  # training loops: one for each rank
    cpu_s: float
    python_s: float  # of that, holding the interpreter lock
    wait_s: float  # of a worker that waits for storage, a network, a sleep
    loop_s: float  # of the training loop
    handed_s: float  # of the training loop, to hand a batch over
    alone: bool = False  # the loop makes its batches itself

    def rates(self) -> dict[str, float]:
        """The most samples per second that each resource allows."""
        loop_s = self.loop_s + self.handed_s
        if self.alone:
            return {"alone": _rate(self.loops, self.cpu_s + self.wait_s + loop_s)}
        return {
            "loop": _rate(self.loops, loop_s),
            "cores": _rate(self.cores, self.cpu_s),
            "python": _rate(self.interpreters, self.python_s),
            "workers": _rate(self.workers, self.cpu_s + self.wait_s),
        }

    def without(self, steps: Collection[StepStats], stats: Stats) -> Costs:
        """The same if these steps cost nothing."""
        functions = [step for step in steps if step.kind == "function"]
        return replace(
            self,
            cpu_s=max(0.0, self.cpu_s - _each(stats, steps, "cpu_s")),
            python_s=max(0.0, self.python_s - _each(stats, functions, "cpu_s")),
            wait_s=max(0.0, self.wait_s - _each(stats, steps, "wait_s")),
        )

    def with_workers(self, workers: float, interpreters: int | None = None) -> Costs:
        """The same with another number of workers, perhaps in several interpreters."""
        return replace(self, workers=workers, interpreters=interpreters or self.interpreters, alone=False)

    def with_cores(self, more: int) -> Costs:
        """The same with more cores, and a worker for each."""
        return replace(self, cores=self.cores + more, workers=self.workers + more)


def _rate(there: float, taken_s: float) -> float:
    return there / taken_s if taken_s > 0 else math.inf


def made_samples(step: StepStats, stats: Stats) -> int:
    """How many samples a step's work was for: also those that were made and not handed out yet."""
    # Where a later filter leaves most of them out, only what is handed out says how much came of it.
    ahead = stats.samples + _AHEAD * stats.first_samples
    return max(1, step.samples if step.samples <= stats.samples + ahead else stats.samples)


def _each(stats: Stats, steps: Collection[StepStats], what: str) -> float:
    """Seconds of one kind that one sample takes in these steps."""
    return float(sum(getattr(step, what) / made_samples(step, stats) for step in steps))


def costs_of(stats: Stats, facts: Facts) -> Costs:
    """What was measured, for one sample."""
    handed = max(1, stats.samples - stats.first_samples)
    in_steps = sum(step.cpu_s for step in stats.steps)
    # What tasks do besides their steps is divided among these.
    cpu_s = _each(stats, stats.steps, "cpu_s") * stats.cpu_s / in_steps if in_steps else stats.cpu_s / max(1, stats.samples)
    functions = [step for step in stats.steps if step.kind == "function"]
    images = [step for step in stats.steps if step.name.startswith(("image", "decode"))]
    by_pillow = _each(stats, images, "cpu_s") * min(1.0, stats.pillow / max(1, stats.worked)) * _PILLOW_LOCKED
    interpreters = stats.executor.processes or stats.ranks
    python_s = _each(stats, functions, "cpu_s") + by_pillow
    if python_s * stats.samples_per_s > interpreters:
        python_s = interpreters / stats.samples_per_s  # some of it was done without the lock
    return Costs(
        workers=max(1, stats.workers),
        cores=free_cores(stats, facts),
        interpreters=interpreters,
        loops=stats.ranks,
        cpu_s=cpu_s,
        python_s=python_s,
        wait_s=_each(stats, stats.steps, "wait_s"),
        loop_s=stats.loop.step_s / max(1, stats.samples),
        handed_s=stats.handed_s / handed,
        alone=stats.executor.name == "inline",
    )


def free_cores(stats: Stats, facts: Facts) -> float:
    """How many cores the workers have, or could have: those that no other program uses."""
    if not stats.cores:
        return math.inf
    left = stats.cores - other_cores(stats)
    if facts.idle_cores is not None:
        left = min(left, used_cores(stats) + facts.idle_cores)
    return max(0.1, left)


def read_step(stats: Stats) -> StepStats | None:
    return next((step for step in stats.steps if step.kind == "read"), None)


def used_cores(stats: Stats) -> float:
    """How many cores the workers kept busy."""
    return max(0.0, stats.cpu_s - stats.early_cpu_s) / stats.elapsed_s if stats.elapsed_s > 0 else 0.0


def other_cores(stats: Stats) -> float:
    """How many cores the other threads of this program kept busy: the training loop, and whatever else there is."""
    executor = stats.executor
    # Work that was moved to processes ran in this one before.
    moved = executor.since / max(1, stats.batches) if stats.earlier_worker_s else 0.0
    here = min(1.0, moved) if executor.processes else 1.0
    in_this = used_cores(stats) * here
    if executor.name == "remote":  # whose workers are numbered after those of this process
        mine = sum(worker.cpu_s for worker in stats.by_worker if worker.number < executor.threads)
        in_this *= mine / stats.cpu_s if stats.cpu_s else 1.0
    return max(0.0, stats.process_s / stats.elapsed_s - in_this) if stats.elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """The result of a change: the rate as a factor, and the limit after it."""

    gain: float
    limit: str


def predict(stats: Stats, now: Costs, changed: Costs, resource: str) -> Prediction:
    """What a change would give, `resource` being the limit now.

    What the limit gives now is what was measured; the others give what the arithmetic says, and at least that.
    """
    measured = stats.samples_per_s
    before, after = now.rates(), changed.rates()
    fits = {name: measured / rate if rate > 0 and (name == resource or rate < measured) else 1.0 for name, rate in before.items()}
    rates = {name: rate * fits.get(name, 1.0) for name, rate in after.items()}
    limit = min(rates, key=lambda name: rates[name])
    return Prediction(rates[limit] / measured if measured > 0 else 1.0, limit)


def wanted_threads(now: Costs) -> int:
    """How many threads keep up if tasks wait: with the cores, with the GIL and with the loop."""
    rates = now.rates()
    most = min(rates[name] for name in ("loop", "cores", "python"))
    needed = MOST_THREADS if math.isinf(most) else math.ceil(most * (now.cpu_s + now.wait_s) - 0.1)
    return max(1, min(MOST_THREADS, needed))


def prefix_steps(stats: Stats, facts: Facts) -> tuple[StepStats, ...]:
    """The steps that a cache would save, as they were measured."""
    return tuple(step for step in stats.steps if step.name in facts.prefix)


def prefix_bytes(stats: Stats, facts: Facts) -> int:
    """What a cache after those steps would hold; 0: not known."""
    steps = prefix_steps(stats, facts)
    last = steps[-1] if steps else StepStats("")
    return int(last.bytes_out / max(1, last.samples) * facts.samples)
