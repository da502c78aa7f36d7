"""What a sample takes, what there is for it, and what rate follows: now, and if something were changed. Arithmetic alone."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from .facts import Facts
from .stats import Stats, StepStats

#: what of Pillow's work holds the interpreter lock: threads of one process keep about seven cores busy with it
_PILLOW_LOCKED = 1 / 7
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

    def without(self, steps: Collection[StepStats], samples: float) -> Costs:
        """The same if these steps cost nothing."""
        return replace(
            self,
            cpu_s=max(0.0, self.cpu_s - sum(step.cpu_s for step in steps) / samples),
            python_s=max(0.0, self.python_s - sum(step.cpu_s for step in steps if step.kind == "function") / samples),
            wait_s=max(0.0, self.wait_s - sum(step.wait_s for step in steps) / samples),
        )

    def with_workers(self, workers: float, interpreters: int | None = None) -> Costs:
        """The same with another number of workers, perhaps in several interpreters."""
        return replace(self, workers=workers, interpreters=interpreters or self.interpreters, alone=False)

    def with_cores(self, more: int) -> Costs:
        """The same with so many more cores, and a worker for each."""
        return replace(self, cores=self.cores + more, workers=self.workers + more)


def _rate(there: float, taken_s: float) -> float:
    return there / taken_s if taken_s > 0 else math.inf


def made_samples(stats: Stats) -> float:
    """How many samples the measured work was for: also those that were made and not handed out yet."""
    # After a filter work is counted at each of its parts, and only what is handed out says how much came of it.
    return max(1, stats.worked if stats.samples <= stats.worked < 2 * stats.samples else stats.samples)


def costs_of(stats: Stats, facts: Facts) -> Costs:
    """What was measured, for one sample."""
    made = made_samples(stats)
    handed = max(1, stats.samples - stats.first_samples)
    cpu_s = stats.cpu_s / made
    functions = sum(step.cpu_s for step in stats.steps if step.kind == "function")
    images = sum(step.cpu_s for step in stats.steps if step.name.startswith(("image", "decode")))
    by_pillow = images * min(1.0, stats.pillow / max(1, stats.worked)) * _PILLOW_LOCKED
    interpreters = stats.executor.processes or stats.ranks
    python_s = (functions + by_pillow) / made
    if python_s * stats.samples_per_s > interpreters:
        python_s = interpreters / stats.samples_per_s  # some of it was done without the lock
    return Costs(
        workers=max(1, stats.workers),
        cores=free_cores(stats, facts),
        interpreters=interpreters,
        loops=stats.ranks,
        cpu_s=cpu_s,
        python_s=python_s,
        wait_s=sum(step.wait_s for step in stats.steps) / made,
        loop_s=stats.loop.step_s / max(1, stats.samples),
        handed_s=stats.handed_s / handed,
        alone=stats.executor.name == "inline",
    )


def free_cores(stats: Stats, facts: Facts) -> float:
    """How many cores the workers have, or could have: those that nobody else uses."""
    if not stats.cores:
        return math.inf
    left = stats.cores - other_cores(stats)
    if facts.idle_cores is not None:
        left = min(left, used_cores(stats) + facts.idle_cores)
    return max(0.1, left)


def used_cores(stats: Stats) -> float:
    """How many cores the workers kept busy."""
    return stats.cpu_s / made_samples(stats) * stats.samples_per_s


def other_cores(stats: Stats) -> float:
    """How many cores the other threads of this program kept busy: the training loop, and whatever else there is."""
    executor = stats.executor
    # Work that was moved to processes ran in this one before.
    here = min(1.0, executor.since / max(1, stats.batches)) if executor.processes else 1.0
    in_this = stats.cpu_s * here
    if executor.name == "remote":  # whose workers are numbered after those of this process
        in_this = sum(worker.cpu_s for worker in stats.by_worker if worker.number < executor.threads)
    return max(0.0, stats.process_s - in_this) / stats.elapsed_s if stats.elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a change would give: so many times the rate, and what limits then."""

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
    """As many threads as keep up where tasks wait: with the cores, with the interpreter and with the loop."""
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
