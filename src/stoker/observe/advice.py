"""What would help against each limit, and by how much: predicted where the measured costs allow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..sizes import counted, show_bytes
from .bottleneck import Limit, balance_of, by_pillow, crowded, pillow_in_words, unit_bytes
from .facts import Facts
from .stats import Stats
from .what_if import (
    Costs,
    Prediction,
    costs_of,
    made_samples,
    other_cores,
    predict,
    prefix_bytes,
    prefix_steps,
    read_step,
    used_cores,
    wanted_threads,
)

#: what gives less is not worth saying
_WORTH = 1.15
#: the share of their time that workers are in tasks where nothing keeps them from it
_BUSY = 0.95
#: where functions that hold the interpreter lock are this share of the work, threads do not help
_HELD = 0.6
#: the advised number of threads grows at most by this factor
_AT_ONCE = 4
#: the share of the free memory that a cache may take
_ROOM = 0.8
#: what a sample takes that is found in a cache, and each byte of it, on a core
_FOUND_S, _FOUND_BYTE_S = 1e-5, 5e-10
#: how a resource is called as the next limit
_NAMES = {
    "loop": "the training loop",
    "cores": "the number of cores",
    "python": "the interpreter lock",
    "workers": "the number of workers",
    "alone": "the loop",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that would help."""

    what: str  # in words
    how: str = ""  # as it is written, if it is something to write: "threads=8"
    gain: float | None = None  # times the present rate; None: it cannot be said
    limit_then: str = ""  # what limits then

    def __str__(self) -> str:
        if self.gain is None:
            return self.what
        then = f", then {self.limit_then} is the limit" if self.limit_then else ""
        return f"{self.what} would give {'more than 20' if self.gain > 20 else f'{self.gain:.1f}'}x{then}"


@dataclass(frozen=True, slots=True)
class _Case:
    """A run and its limit, for which something is to be found."""

    stats: Stats
    facts: Facts
    limit: Limit
    costs: Costs
    training: bool

    def gives(self, what: str, how: str, changed: Costs, *, always: bool = False) -> Iterator[Advice]:
        """An advice with what it gives, unless that is not worth saying; `always`: then it is said without a number."""
        found = predict(self.stats, self.costs, changed, self.limit.resource)
        if found.gain >= _WORTH and math.isfinite(found.gain):
            yield Advice(what, how, found.gain, self._then(found))
        elif always:
            yield Advice(f"{what} may help", how)

    def saves(self, what: str, share: float) -> Iterator[Advice]:
        """An advice that saves a share of all time in tasks, whatever that is spent on."""
        work, loop = 1 / max(0.02, 1 - share), self.costs.rates().get("loop", math.inf) / self.stats.samples_per_s
        gain = min(work, max(1.0, loop))
        if gain >= _WORTH:
            yield Advice(what, "", gain, _NAMES["loop"] if gain < work and self.training else "")

    def _then(self, found: Prediction) -> str:
        same = found.limit == self.limit.resource or (found.limit == "loop" and not self.training)
        same = same or (found.limit == "workers" and self.limit.name == "cores")  # each has a core then
        return "" if same else _NAMES.get(found.limit, "")


def find_advice(stats: Stats, facts: Facts, limit: Limit, training: bool = True) -> tuple[Advice, ...]:
    """What would help, the most important first."""
    case = _Case(stats, facts, limit, costs_of(stats, facts), training)
    return tuple(each for find in _ADVICE.get(limit.name, ()) for each in find(case))


# ---- one kind of change each ---------------------------------------------------------------------------------------------


def _more_cores(case: _Case) -> Iterator[Advice]:
    """As many as let the loop be the limit, but no more than there are."""
    costs, stats = case.costs, case.stats
    loop = costs.rates().get("loop", math.inf)
    cores = max(1, stats.cores)
    needed = math.ceil(loop / stats.samples_per_s * cores) - cores if case.training and math.isfinite(loop) else cores
    more = max(1, min(needed, cores))
    there = case.facts.machine_cores
    of = f" (this machine has {there}, and this process may use {stats.cores})" if there >= stats.cores + more else ""
    yield from case.gives(f"{counted(more, 'more core')}{of}", "", costs.with_cores(more))


def _fewer_threads(case: _Case) -> Iterator[Advice]:
    stats, executor = case.stats, case.stats.executor
    if not crowded(stats) or not case.facts.chosen:
        return
    fewer = f"threads={stats.cores}"
    if executor.processes:
        processes = min(executor.processes, stats.cores)
        fewer = f"processes={processes}, threads={stats.cores // processes}"
    yield Advice(f"`{fewer}` would do as much as these {stats.workers}", fewer)


def _cache(case: _Case) -> Iterator[Advice]:
    """Keep what the first steps make, where that fits."""
    stats, facts = case.stats, case.facts
    steps = prefix_steps(stats, facts)
    nbytes = prefix_bytes(stats, facts)
    if (
        not steps
        or not nbytes
        or (facts.stored == "memory" and len(steps) < 2)
        or any(s.name.startswith("cache") for s in stats.steps)
    ):
        return
    changed = case.costs.without(steps, stats)
    found_s = _FOUND_S + nbytes / max(1, facts.samples) * _FOUND_BYTE_S
    changed = replace(changed, cpu_s=changed.cpu_s + found_s)
    after = f"after {steps[-1].name}"
    if nbytes <= _ROOM * facts.memory_left:
        fits = f"{show_bytes(nbytes)} of {show_bytes(facts.memory_left)} free"
        yield from case.gives(f'`.cache("memory")` {after}, which fits in memory ({fits}),', '.cache("memory")', changed)
    elif any(True for _ in case.gives("", "", changed)):
        yield Advice(f"a cache on a disk {after} (`.cache(path)`, {show_bytes(nbytes)}) may help", ".cache(path)")


def _next_epoch(case: _Case) -> Iterator[Advice]:
    """The system keeps what was read, if there is room."""
    stats, facts, read = case.stats, case.facts, read_step(case.stats)
    if read is None or stats.epochs or not facts.samples or facts.stored not in ("files", "shards"):
        return
    nbytes = int(read.bytes_in / max(1, read.samples) * facts.samples)
    if 0 < nbytes <= _ROOM * facts.memory_left:
        changed = replace(case.costs, wait_s=max(0.0, case.costs.wait_s - read.wait_s / made_samples(read, stats)))
        yield from case.gives(f"the next epoch, with all {show_bytes(nbytes)} in memory,", "", changed)


def _seek_index(case: _Case) -> Iterator[Advice]:
    if case.facts.seekless and case.limit.step.startswith("image") and not by_pillow(case.stats):
        yield Advice("a seek index (`stoker index --jpeg`) may save a fifth of decoding", "stoker index --jpeg")


def _shards(case: _Case) -> Iterator[Advice]:
    read = read_step(case.stats)
    if case.facts.stored == "files" and read is not None and read.wall_s >= 0.15 * (case.stats.task_s or 1.0):
        share = read.wall_s / (case.stats.task_s or 1.0)
        yield Advice(
            f"reading single files is {share:.0%} of the work, and shards (`stoker pack`) may save most of it", "stoker pack"
        )


def _no_pillow(case: _Case) -> Iterator[Advice]:
    if by_pillow(case.stats):
        known = "" if case.limit.name == "python" else f": {pillow_in_words(case.stats)}"
        yield Advice(f"JPEGs decode several times as fast as the images that Pillow decodes{known}")


def _step_free(case: _Case) -> Iterator[Advice]:
    """What there is to gain at most from a cheaper function."""
    step = next((step for step in case.stats.steps if step.name == case.limit.step and step.kind == "function"), None)
    if step is not None:
        changed = case.costs.without([step], case.stats)
        found = predict(case.stats, case.costs, changed, case.limit.resource)
        if _WORTH <= found.gain < 20:
            how = "" if step.name.startswith("map_batch") else ", or vectorised with `map_batch`,"
            yield Advice(f"{step.name} made cheaper{how} would give up to {found.gain:.1f}x")


def _processes(case: _Case) -> Iterator[Advice]:
    stats = case.stats
    processes = max(1, stats.cores)
    if processes > stats.executor.processes:
        how = f"processes={processes}, threads=1"
        yield from case.gives(f"`{how}`", how, case.costs.with_workers(processes, processes), always=True)


def _feeder(case: _Case) -> Iterator[Advice]:
    if not case.stats.executor.processes:
        yield Advice("a worker process with its own interpreter (`processes=1`) may help", "processes=1")


def _workers_for_cores(case: _Case) -> Iterator[Advice]:
    if case.costs.python_s >= _HELD * (case.costs.cpu_s + case.costs.wait_s):
        yield from _processes(case)
        return
    threads = max(1, case.stats.cores)
    if case.costs.alone:  # and what it waits for, it could wait for at the same time
        threads = max(threads, wanted_threads(replace(case.costs, alone=False)))
    yield from case.gives(f"`threads={threads}`", f"threads={threads}", case.costs.with_workers(threads), always=True)


def _threads_for_waiting(case: _Case) -> Iterator[Advice]:
    """More threads, where tasks wait; what they wait for may have its own limit."""
    stats = case.stats
    if stats.executor.processes:
        yield Advice("more threads per process may help")
        return
    # Not more than some times as many: what they wait for may have a limit of its own, which shows when it is reached.
    threads = min(wanted_threads(case.costs), _AT_ONCE * stats.workers)
    if threads > stats.workers:
        changed = case.costs.with_workers(threads)
        yield from case.gives(f"`threads={threads}`", f"threads={threads}", changed, always=True)


def _blocks(case: _Case) -> Iterator[Advice]:
    """Fewer requests, each for many samples."""
    facts = case.facts
    if not case.stats.worked or facts.requests <= 0.5 * case.stats.worked:
        return
    if 0 < facts.memory_for_blocks <= _ROOM * facts.memory_left:
        how = f'memory="{math.ceil(facts.memory_for_blocks / 1e6)}MB"'
        yield Advice(f"`{how}` reads many samples with one request, ahead of the plan", how)
    else:
        yield Advice("`shuffle(window=...)` reads many samples with one request", "shuffle(window=...)")


def _more_memory(case: _Case) -> Iterator[Advice]:
    stats = case.stats
    unit, _ = unit_bytes(stats, case.facts)
    option = case.facts.ahead_option
    how, what = f"{option}=8", f"a larger `{option}`"
    if case.limit.name == "memory" and unit:
        size = math.ceil(unit * (4 + stats.workers // 3) / 1e6)
        how = f'memory="{size}MB"'
        what = f"`{how}`"
    elif case.facts.ahead is not None:
        how = f"ahead={max(8, 2 * (2 + stats.workers // 3))}"
        what = f"`{how}`"
    if case.limit.name == "ahead" and case.facts.ahead is None:  # it is not known what keeps workers from work
        yield Advice(f"{what} may help", how)
        return
    gains = {name: rate / stats.samples_per_s for name, rate in case.costs.rates().items()}
    gains["workers"] = 1 / max(0.05, balance_of(stats).busy)
    limit = min(gains, key=lambda name: gains[name])
    if gains[limit] < _WORTH:
        yield Advice(f"{what} may help", how)
    else:
        yield Advice(what, how, gains[limit], case._then(Prediction(gains[limit], limit)))


def _lighter_batches(case: _Case) -> Iterator[Advice]:
    yield from case.gives("a hand-over that costs nothing", "", replace(case.costs, handed_s=0.0))
    yield Advice('smaller types (`out="uint8"`, normalised on the device) cost less')


def _near_shard(case: _Case) -> Iterator[Advice]:
    # Batches come in order: while all wait for that shard, workers have less and less to do.
    left = (1 - case.limit.excess) * min(1.0, balance_of(case.stats).busy / _BUSY)
    yield from case.saves("a copy of that shard on the storage of the others", 1 - left)


def _without_slow(case: _Case) -> Iterator[Advice]:
    where = {
        "tail": "the same workers without the slow samples (made smaller in advance, or removed by a `filter`)",
        "cold": "the next epochs, which find them in the cache,",
        "cache": "a larger cache",
    }
    yield from case.saves(where[case.limit.name], case.limit.excess)


def _without_others(case: _Case) -> Iterator[Advice]:
    """The cores that other programs had."""
    stats = case.stats
    now = replace(case.costs, cores=max(0.1, used_cores(stats)))
    cores = max(now.cores, stats.cores - other_cores(stats))
    yield from replace(case, costs=now).gives("all cores for this program", "", replace(now, cores=min(cores, now.workers)))


def _step_back(case: _Case) -> Iterator[Advice]:
    """Fewer threads than cores, as many as keep up with the loop; or threads that have another interpreter."""
    stats, costs, loop = case.stats, case.costs, case.stats.loop
    calm_s = loop.calm_step_s / max(1, loop.calm_steps)
    step_s = stats.elapsed_s * stats.ranks / max(1, loop.steps)  # with its waits: batches were ready
    gain = step_s / calm_s if calm_s else 1.0
    threads = max(1, min(math.ceil(1.2 * gain * used_cores(stats)), stats.cores - 1))
    gain = min(gain, costs.with_workers(threads).rates()["workers"] / stats.samples_per_s)
    if threads < stats.workers and not stats.executor.processes and gain >= 1.05:
        yield Advice(f"`threads={threads}`", f"threads={threads}", gain)
    if not stats.executor.processes:
        yield Advice("`processes=1` takes the workers' Python out of the loop's interpreter", "processes=1")


_Find = Callable[[_Case], Iterator[Advice]]
_COMPUTING: tuple[_Find, ...] = (_fewer_threads, _more_cores, _cache, _seek_index, _no_pillow, _step_free, _shards)
_ADVICE: dict[str, tuple[_Find, ...]] = {
    "decode": _COMPUTING,
    "function": _COMPUTING,
    "compute": _COMPUTING,
    "bandwidth": (_more_cores, _lighter_batches, _fewer_threads),
    "cores": (_without_others, _fewer_threads),
    "python": (_processes, _step_free, _no_pillow, _cache),
    "interpreter": (_feeder,),
    "workers": (_workers_for_cores, _cache),
    "waiting": (_threads_for_waiting, _cache),
    "network": (_blocks, _threads_for_waiting, _cache),
    "server": (_blocks, _threads_for_waiting, _cache),
    "storage": (_threads_for_waiting, _next_epoch, _shards, _cache),
    "memory": (_more_memory,),
    "ahead": (_more_memory,),
    "handover": (_lighter_batches,),
    "handout": (lambda case: iter([Advice("larger batches cost less per sample")]),),
    "stream": (
        lambda case: iter([Advice("the work that the stream does for each sample can move to `map`, where workers do it")]),
    ),
    "tail": (_without_slow,),
    "shard": (_near_shard,),
    "cold": (_without_slow,),
    "cache": (_without_slow,),
    "slowed": (_step_back,),
}
