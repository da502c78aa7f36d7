"""Finds what limits a run: a list of limits, each with the evidence it needs; the first that has it is named. Arithmetic only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..engine.auto_policy import Setting
from ..sizes import counted, show_bytes
from .facts import Facts
from .stats import OriginStats, Stats, StepStats
from .what_if import costs_of, made_samples, other_cores, read_step, used_cores

#: a run that is shorter says nothing
SHORT_S = 1.0
#: a loop that waits for less than this share of its time has what it needs; the second: while workers are busy all the time
_CALM, _CALM_BUSY = 0.1, 0.05
#: steps that take longer by this share next to busy workers are slowed by them
SLOWED = 0.1
#: and by this share in total, because not all steps are next to busy workers
_IN_ALL = 0.05
#: how many of each kind are needed to say so
_STEPS = 5
#: cores of which this share is busy are all busy
_FULL = 0.85
#: workers that have nothing to do for this share of the time, while the loop waits, are not what it waits for
_IDLE = 0.25
#: where functions compute for this share of the time, and others find the lock taken, it is always held
_HELD = 0.6
#: a share of the time in tasks that explains them
_MOSTLY = 0.3
#: tasks that take so many times as long as most, for a sample, have slow ones in them; the second: without other evidence
_SLOW, _SLOW_ALONE = 2.5, 5.0
#: and so many seconds at least: who has no core for a moment takes longer, too
_SLOW_S = 1e-3
#: where such tasks are at most this share, and take at least this share of the time, they are the limit
_FEW, _SLOW_SHARE = 0.4, 0.25
#: a shard whose samples take so many times as long to read as others, and what it must cost of all time in tasks
_SLOW_SHARD, _SLOW_SHARD_SHARE = 2.0, 0.15
#: from this share of samples on that were not in a cache it may be cold
_COLD = 0.05
#: a loop that waits for more than this share of its time does not only wait for the interpreter to take what is ready
_ASKING = 0.5
#: where so many units are ready nearly always, the loop does not wait for them
_READY, _NEARLY = 2, 0.8
#: bytes in and out per second on a core from which on moving them is the work
_BANDWIDTH = 2e9
#: where it takes this share of a request until its answer begins, the server is late, and not the network slow; after so many
_LATE, _ANSWERS = 0.7, 10
#: from this share of the images on it matters who decodes them
_BY_PILLOW = 0.3
#: where less than this share of what was read came from a disk, reading does not wait for it
_FROM_DISK = 0.05
#: where less than this share of the cores is idle, the machine is busy
_BUSY_MACHINE = 0.15
#: from so many workers per core on they are in each other's way
_CROWDED = 1.5


@dataclass(frozen=True, slots=True)
class Balance:
    """Where the time went: shares, and cores."""

    waited: float  # of the loop's time: for batches
    handed: float  # of the loop's time: handing them over; part of `waited`
    busy: float  # of the workers' time: in tasks
    cpu: float  # of the time in tasks: on a core
    lock: float  # waiting for the interpreter lock
    queued: float  # ready to run, and no core was free
    wait: float  # waiting for storage, a network, a sleep
    used: float  # cores that workers kept busy
    others: float  # cores that other threads of this program kept busy
    cores: float  # that there are

    @property
    def full(self) -> bool:
        """Whether this program keeps all its cores busy."""
        return self.cores > 0 and self.used + self.others >= _FULL * self.cores

    @property
    def idle(self) -> float:
        return 1 - self.busy


def balance_of(stats: Stats) -> Balance:
    """Where the time of a run went."""
    steps = stats.steps
    in_steps = sum(step.wall_s for step in steps) or 1.0
    return Balance(
        waited=stats.wait_share,
        handed=min(1.0, stats.handed_s / stats.elapsed_s / stats.ranks),
        busy=stats.busy_share,
        cpu=min(1.0, sum(step.cpu_s for step in steps) / in_steps),
        lock=sum(step.lock_s for step in steps) / in_steps,
        queued=sum(step.queued_s for step in steps) / in_steps,
        wait=sum(step.wait_s for step in steps) / in_steps,
        used=min(used_cores(stats), float(stats.cores or 1e9)),
        others=other_cores(stats),
        cores=float(stats.cores),
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """What limits a run, in a word and in a sentence; `resource` is what it is called in `what_if.Costs.rates`."""

    name: str
    sentence: str  # without its full stop
    resource: str = "cores"
    step: str = ""  # the step that it shows in
    excess: float = 0.0  # share of the time in tasks that would be saved without it


#: looks for the evidence of one limit
_Test = Callable[[Stats, Facts, Balance], Limit | None]


def find_limit(stats: Stats, facts: Facts, training: bool = True) -> Limit:
    """The limit of a run that was measured for long enough."""
    balance = balance_of(stats)
    calm = balance.waited < (_CALM if balance.busy < 0.9 else _CALM_BUSY)
    if training:
        tests = _SATISFIED if calm else (_alone, _handover, _slowed_asking, *_WAITING)
    else:
        tests = _EMPTY_LOOP if calm else (_alone, _handover, *_WAITING)
    found = (test(stats, facts, balance) for test in tests)
    return next(limit for limit in found if limit is not None)


# ---- the loop does not wait ----------------------------------------------------------------------------------------------


def _slowed(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    more, loop = slowed_by(stats), stats.loop
    if more < SLOWED or more * loop.busy_steps / max(1, loop.busy_steps + loop.calm_steps) < _IN_ALL:
        return None
    shared = "" if stats.executor.processes else " and the interpreter"
    return Limit(
        "slowed",
        f"The loader slows the training loop: its steps take {more:.0%} longer while workers are busy, because they share "
        f"{counted(stats.cores, 'core')}{shared} with {workers_in_words(stats)}",
        "loop",
    )


def slowed_by(stats: Stats) -> float:
    """How much longer steps take while workers are busy, where enough of them were seen; 0: not at all, or not known."""
    loop = stats.loop
    return loop.interference or 0.0 if min(loop.busy_steps, loop.calm_steps) >= _STEPS else 0.0


def _slowed_asking(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    """Batches are ready, and the loop needs the interpreter, or a core, to take them."""
    if balance.waited > _ASKING:
        return None
    return _slowed(stats, facts, balance) if _mostly_ready(stats) else None


def _mostly_ready(stats: Stats) -> bool:
    """Whether there were always batches to take."""
    ready = sum(moment.ready >= _READY for moment in stats.history)
    return bool(stats.history) and ready >= _NEARLY * len(stats.history)


def _loop(stats: Stats, facts: Facts, balance: Balance) -> Limit:
    spare = f"{counted(stats.workers, 'worker')}, busy {balance.busy:.0%} of the time"
    rates = costs_of(stats, facts).rates()
    able = min(rate for name, rate in rates.items() if name != "loop") / stats.samples_per_s
    if balance.busy < 0.8 and able > 1.2:
        spare += f": they could feed a loop {'more than 10' if able > 10 else f'at least {able:.1f}'} times as fast"
    return Limit("loop", f"Fast enough: the training loop itself is the limit ({spare})", "loop")


def _hand_out(stats: Stats, facts: Facts, balance: Balance) -> Limit:
    ready = "Batches were ready when they were requested: delivering them is the limit"
    return Limit("handout", f"{ready} ({counted(stats.workers, 'worker')}, busy {balance.busy:.0%} of the time)", "loop")


# ---- the loop waits ------------------------------------------------------------------------------------------------------


def _alone(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if stats.executor.name != "inline":
        return None
    return Limit("workers", 'There are no workers (`executor="inline"`): each batch is made when it is requested', "alone")


def _handover(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if balance.handed < 0.5 * balance.waited:
        return None
    speed = f" ({show_bytes(stats.bytes / stats.handed_s)}/s)" if stats.bytes else ""
    to = "the device" if facts.device else "the framework"
    return Limit(
        "handover", f"Handing batches over to {to} is the limit: it takes {balance.handed:.0%} of the time{speed}", "loop"
    )


def _cold(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    asked = stats.cache_hits + stats.cache_misses
    missed = stats.cache_misses / asked if asked else 0.0
    saved = _before_cache(stats)
    if missed < _COLD or saved < _MOSTLY:
        return None
    if facts.samples and stats.cache_misses > 1.2 * facts.samples:
        small = f"A cache that is too small is the limit: {missed:.0%} of the samples were not in it"
        return Limit(
            "cache", f"{small}, and making them, many of them again, took {saved:.0%} of the workers' time", excess=saved
        )
    cold = f"A cold cache is the limit: {missed:.0%} of the samples were not in it yet"
    return Limit("cold", f"{cold}, and making them took {saved:.0%} of the workers' time", excess=saved)


def _before_cache(stats: Stats) -> float:
    """Share of the workers' time in steps that a cache saves."""
    names = [step.name for step in stats.steps]
    at = next((number for number, name in enumerate(names) if name.startswith("cache")), 0)
    return sum(step.wall_s for step in stats.steps[:at]) / (sum(step.wall_s for step in stats.steps) or 1.0)


def _shard(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    slow = slow_origin(stats)
    if slow is None:
        return None
    origin, usual_s, excess = slow
    return Limit(
        "shard",
        f"One slow place is the limit: reading a sample takes {_ms(origin.wall_s / origin.samples)} from {origin.name} and "
        f"{_ms(usual_s)} from elsewhere, which costs {excess:.0%} of the workers' time",
        "workers",
        excess=excess,
    )


def slow_origin(stats: Stats) -> tuple[OriginStats, float, float] | None:
    """The shard whose samples take much longer to read than others: it, what others take, and what share of time it costs."""
    origins = [origin for origin in stats.origins if origin.samples]
    read = read_step(stats)
    if not origins or read is None or not stats.task_s:
        return None
    slowest = max(origins, key=lambda origin: origin.wall_s / origin.samples)
    others = [origin for origin in origins if origin is not slowest]
    # Where only slow ones are listed, the others are what is left of all reading.
    samples = max(sum(origin.samples for origin in others), read.samples - slowest.samples)
    seconds = max(sum(origin.wall_s for origin in others), read.wall_s - slowest.wall_s)
    if samples <= 0 or not seconds:
        return None
    usual_s = seconds / samples
    excess = (slowest.wall_s - slowest.samples * usual_s) / stats.task_s
    if slowest.wall_s / slowest.samples < _SLOW_SHARD * usual_s or excess < _SLOW_SHARD_SHARE:
        return None
    return slowest, usual_s, min(0.95, excess)


def _tail(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if _mostly_ready(stats):
        return None
    share, excess, usual_s = slow_samples(stats)
    read = read_step(stats)
    kept = read.wait_s / (stats.task_s or 1.0) if read is not None and _in_memory(read, facts) else 0.0
    if share > _FEW or excess < max(_SLOW_SHARE, balance.queued + balance.lock + kept):
        return None  # tasks that sometimes wait for a core or the GIL take longer, too
    if excess - _before_cache(stats) < _SLOW_SHARE:
        return None  # those that were not in the cache yet are the slow ones
    if read is not None and read.wait_s > 0.5 * stats.task_s:
        return None
    worst = next(iter(stats.slowest), None)
    example = f"; {worst.key!r} took {_ms(worst.seconds)}" if worst is not None else ""
    return Limit(
        "tail",
        f"A few slow samples are the limit: most take {_ms(usual_s)}, but some much longer, which costs {excess:.0%} of the "
        f"workers' time{example}",
        excess=excess,
    )


def slow_samples(stats: Stats) -> tuple[float, float, float]:
    """The share of samples in tasks that took much longer than most, what share of the time that cost, and what most take."""
    times = _SLOW if stats.slowest else _SLOW_ALONE
    counts = stats.sample_costs.counts
    usual_s = stats.sample_costs.quantile(0.5)
    seconds = [2.0 ** ((number - 0.5) / 2) * 1e-6 for number in range(len(counts))]
    # Rows are not all of the work where whole batches are worked on, too.
    total_s = max(stats.task_s, sum(count * each for count, each in zip(counts, seconds)))
    slow = [(count, each) for count, each in zip(counts, seconds) if each > max(times * usual_s, _SLOW_S)]
    excess_s = sum(count * (each - usual_s) for count, each in slow)
    return sum(count for count, _ in slow) / max(1, stats.sample_costs.total), excess_s / total_s if total_s else 0.0, usual_s


def _memory(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if balance.idle < _IDLE:
        return None
    unit, units = unit_bytes(stats, facts)
    if unit and units <= 2 + stats.workers // 3:
        return Limit(
            "memory",
            f"The memory budget is the limit: it holds {counted(units, 'batch', 'batches')} of {show_bytes(unit)}, so "
            f"workers are idle {balance.idle:.0%} of the time although batches are needed",
            "memory",
        )
    if facts.ahead is not None and facts.ahead <= 2 + stats.workers // 3:
        return Limit(
            "ahead",
            f"`ahead={facts.ahead}` is the limit: workers are idle {balance.idle:.0%} of the time although batches are needed",
            "memory",
        )
    return None


def unit_bytes(stats: Stats, facts: Facts) -> tuple[float, int]:
    """Bytes of one unit in the making, and how many of them the memory budget holds; (0, 0): not known."""
    held = [moment.nbytes / moment.in_flight for moment in stats.history if moment.in_flight]
    unit = max(stats.bytes / stats.batches, *held, 0.0)
    budget = facts.budget or max((moment.budget for moment in stats.history), default=0)
    return (unit, max(1, int(budget / unit))) if unit and budget else (0.0, 0)


def _late(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if balance.idle < 0.4:
        return None
    taking = balance.others >= 0.7 * stats.ranks and stats.loop.step_s < 0.3 * stats.elapsed_s * stats.ranks
    if taking or _mostly_ready(stats):
        each = f"{counted(round(stats.samples / stats.batches), 'sample')}, {stats.elapsed_s / stats.batches * 1e6:,.0f} us each"
        small = f"they are small ({each}), and workers are idle {balance.idle:.0%} of the time"
        return Limit("handout", f"Handing out batches is the limit: {small}", "loop")
    if facts.stored == "stream":
        idle = f"workers are idle {balance.idle:.0%} of the time and wait for its samples"
        return Limit("stream", f"The stream is the limit: {idle}", "loop")
    idle = f"workers were idle {balance.idle:.0%} of the time, although batches were needed"
    return Limit("ahead", f"Too few batches are prepared ahead: {idle}", "memory")


def _full(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    return _computing(stats, facts, balance) if balance.full else None


def _no_cores(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if balance.queued < max(_MOSTLY, balance.lock, balance.wait) or (facts.idle_cores or 0.0) > 0.5 * balance.cores:
        return None
    return _others_on_cores(stats, balance, balance.queued)


def _others_on_cores(stats: Stats, balance: Balance, share: float) -> Limit:
    own = f", and other threads of this program {balance.others:.1f}" if balance.others >= 0.2 else ""
    return Limit(
        "cores",
        f"Other programs on this machine are the limit: workers waited for a core {share:.0%} of their time, and used "
        f"{balance.used:.1f} of {counted(stats.cores, 'core')}{own}",
    )


def _lock(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    functions = [step for step in stats.steps if step.kind == "function"]
    share = sum(step.wall_s for step in functions) / (stats.task_s or 1.0)
    if stats.draws and share >= _MOSTLY and not stats.executor.processes and balance.lock + balance.wait >= _MOSTLY:
        name = max(functions, key=lambda step: step.wall_s).name
        return Limit(
            "python",
            "Python functions that draw from the random generators of the process are the limit: only one runs at a time "
            f"({name})",
            "python",
            name,
        )
    if balance.lock < max(_MOSTLY, balance.queued) and not _always_held(stats, functions, balance):
        return None
    if functions and sum(step.cpu_s for step in functions) >= _MOSTLY * stats.cpu_s:
        top = max(functions, key=lambda step: step.cpu_s)
        held = f"Python code that holds the interpreter lock is the limit: {top.name} is {_share_of(top, stats)} of the work"
        turns = f"and runs in one thread at a time, so workers compute only {balance.cpu:.0%} of their time"
        return Limit("python", f"{held} {turns}", "python", top.name)
    if by_pillow(stats):
        held = f"The interpreter lock is the limit: {pillow_in_words(stats)} and holds it part of the time"
        return Limit("python", f"{held}; threads wait for it {balance.lock:.0%} of theirs", "python", _top(stats).name)
    return _held_elsewhere(balance.lock)


def _always_held(stats: Stats, functions: list[StepStats], balance: Balance) -> bool:
    """Whether functions hold the lock nearly always, also while they have no core, as far as can be seen."""
    off_s = sum(step.lock_s + step.wait_s for step in functions)
    taken = sum(step.lock_s for step in functions) / off_s if off_s else 0.0
    costs = costs_of(stats, Facts())
    held = costs.python_s * stats.samples_per_s / costs.interpreters
    return held >= _HELD and taken >= _MOSTLY and stats.workers > costs.interpreters and balance.cpu < 1 - _MOSTLY


def _held_elsewhere(share: float) -> Limit:
    waited = f"The interpreter lock is the limit: workers wait for it {share:.0%} of their time"
    return Limit("interpreter", f"{waited}, while Python code elsewhere in this program holds it", "python")


def _wait(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if balance.wait < _MOSTLY:
        return None
    top = max(stats.steps, key=lambda step: step.wait_s)
    share = f"{top.wait_s / (stats.task_s or 1.0):.0%} of the workers' time"
    if top.kind == "device":
        if balance.used >= _FULL * stats.workers:
            return None  # tasks wait for their turn to compute
        return Limit("device", f"Decoding on the GPU is the limit: {top.name} waits for it {share}", "workers", top.name)
    if top.kind != "read":
        waiting = f"A function that waits (for a network, a disk, a sleep) is the limit: waiting in {top.name} takes {share}"
        return Limit("waiting", waiting, "workers", top.name)
    # Reading from memory waits for nothing but the lock; where a loop in Python makes other steps wait for it, reading does too.
    if facts.stored == "memory" or (facts.stored != "network" and balance.lock >= 0.1 and balance.others >= 0.6 * stats.ranks):
        return _held_elsewhere(balance.lock + balance.wait)
    if _in_memory(top, facts) and facts.idle_cores is not None and facts.idle_cores < _BUSY_MACHINE * balance.cores:
        return _others_on_cores(stats, balance, balance.queued + balance.wait)
    each = f"{_ms(top.wait_s / max(1, top.samples))} per sample"
    speed = f", {show_bytes(top.bytes_in / made_samples(top, stats) * stats.samples_per_s)}/s" if top.bytes_in else ""
    if facts.stored == "network":
        if facts.requests >= _ANSWERS and facts.answer_s >= _LATE * (facts.answer_s + facts.receive_s):
            late = f"an answer starts after {_ms(facts.answer_s)} and takes {_ms(facts.receive_s)}"
            return Limit("server", f"A server that answers late is the limit: {late}; reading waits {share}", "workers", "read")
        return Limit("network", f"The network is the limit: reading waits for it {share} ({each}{speed})", "workers", "read")
    return Limit("storage", f"Storage is the limit: reading waits for it {share} ({each}{speed})", "workers", "read")


def _in_memory(read: StepStats, facts: Facts) -> bool:
    """Whether files that were read came from memory, where the system keeps what was read before, and not from a disk."""
    if facts.stored not in ("files", "shards") or facts.disk_bytes is None:
        return facts.stored == "memory"
    return facts.disk_bytes < _FROM_DISK * read.bytes_in


def _few_workers(stats: Stats, facts: Facts, balance: Balance) -> Limit | None:
    if not stats.workers < stats.cores - balance.others - 0.5:
        return None
    few = f"Too few workers are the limit: {workers_in_words(stats)} for {counted(stats.cores, 'core')}, computing all the time"
    return Limit("workers", f"{few}, mostly {_tops(stats)}", "workers", _top(stats).name)


def _computing(stats: Stats, facts: Facts, balance: Balance) -> Limit:
    top = _top(stats)
    busy = f"{balance.used:.1f} of {stats.cores} cores are busy with {_tops(stats)}" if stats.cores else _tops(stats)
    if crowded(stats):
        busy += f", for which {workers_in_words(stats)} take turns"
    if balance.others >= 0.2 * max(1.0, balance.cores):
        busy += f", {balance.others:.1f} with other threads of this program"
    if top.name.startswith(("image", "decode")):
        return Limit("decode", f"Decoding is the limit: {busy}", "cores", top.name)
    if top.cpu_s and (top.bytes_in + top.bytes_out) / top.cpu_s > _BANDWIDTH:
        rate = show_bytes((top.bytes_in + top.bytes_out) / made_samples(top, stats) * stats.samples_per_s)
        return Limit("bandwidth", f"Memory bandwidth is the limit: {busy}, moving {rate}/s", "cores", top.name)
    if top.kind == "function":
        return Limit("function", f"A function is the limit: {busy}", "cores", top.name)
    return Limit("compute", f"The cores are the limit: {busy}", "cores", top.name)


_SATISFIED: tuple[_Test, ...] = (_slowed, _loop)
_EMPTY_LOOP: tuple[_Test, ...] = (_hand_out,)
_WAITING: tuple[_Test, ...] = (
    _cold, _shard, _tail, _memory, _late, _full, _lock, _no_cores, _wait, _few_workers, _computing,
)  # fmt: skip


# ---- words ---------------------------------------------------------------------------------------------------------------


def workers_in_words(stats: Stats) -> str:
    """How many workers there are, and of what kind."""
    executor = stats.executor
    here = str(Setting(executor.processes, executor.threads or stats.workers))
    if not executor.remote:
        return here
    return f"{here} here and {counted(executor.remote, 'remote worker')} with {counted(executor.remote_threads, 'thread')}"


def crowded(stats: Stats) -> bool:
    """Whether there are many more workers than cores."""
    return stats.workers >= _CROWDED * stats.cores > 0


def by_pillow(stats: Stats) -> bool:
    """Whether many images were decoded by Pillow."""
    return stats.pillow > _BY_PILLOW * stats.worked


def pillow_in_words(stats: Stats) -> str:
    return f"Pillow decoded {min(stats.pillow, stats.worked):,} of {counted(stats.worked, 'sample')} (PNG, WebP and others)"


def _top(stats: Stats) -> StepStats:
    """The step that took the most time on cores."""
    return max(stats.steps, key=lambda step: step.cpu_s, default=StepStats("nothing that was measured"))


def _tops(stats: Stats) -> str:
    """The two costliest steps with their shares, those that round to nothing omitted."""
    steps = [step for step in sorted(stats.steps, key=lambda step: -step.cpu_s)[:2] if step.cpu_s >= 0.05 * stats.cpu_s]
    return " and ".join(f"{step.name} ({_share_of(step, stats)})" for step in steps) or "tasks"


def _share_of(step: StepStats, stats: Stats) -> str:
    return f"{step.cpu_s / (sum(each.cpu_s for each in stats.steps) or 1.0):.0%}"


def _ms(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
