"""Why it is as fast as it is: one paragraph made from a snapshot."""

from __future__ import annotations

import math

from ..sizes import counted, show_bytes
from .stats import Stats

#: steps that compute, and do not wait for anything
_COMPUTING = ("image", "decode", "blend", "collate")
#: a task that is on a core for less than this share of its time waits for something
_ON_CORE = 0.6
#: threads that have no core for this share of the time in which tasks are not on one lack cores, and nothing else
_QUEUED = 0.5
#: threads beside the workers that use this share of the cores are in their way
_OTHERS = 0.2
#: where somebody always holds the interpreter lock, the process uses at least so many cores
_LOCKED = 0.6
#: from so many workers per core on they are in each other's way
_CROWDED = 1.5
#: from this share of the images on it matters who decodes them
_BY_PILLOW = 0.3


def verdict(stats: Stats, *, training: bool = True) -> str:
    """What limits this run, on what evidence, and what would help.

    Without `training` whoever takes the batches does nothing with them, so that waiting for them means nothing.
    """
    if not stats.measured:
        more = "take some batches first" if training else "run at least 2 batches, with `--epochs 5` or a larger `--limit`"
        return f"Too little has run to say anything: {more}."
    return f"{_rate(stats, training)} {_limit(stats, training)}{_chosen(stats)}"


def _chosen(stats: Stats) -> str:
    """Who runs tasks, and why, where that was not for the user to say."""
    executor = stats.executor
    if not executor.reason:
        return ""
    since = f" since batch {executor.since:,}" if executor.since else ""
    return f" Work runs in {workers_told(stats)}{since}: {executor.reason}."


def workers_told(stats: Stats) -> str:
    """How many workers there are, and of what kind."""
    executor = stats.executor
    threads = counted(executor.threads or stats.workers, "thread")
    if not executor.processes:
        return threads
    processes = "1 process" if executor.processes == 1 else f"{executor.processes} processes"
    return processes if executor.threads == 1 else f"{processes} of {threads}"


def _rate(stats: Stats, training: bool) -> str:
    bytes_per_s = stats.bytes / stats.batches * (stats.batches - 1) / stats.elapsed_s
    size = f" ({show_bytes(bytes_per_s)}/s)" if stats.bytes else ""
    waited = f"; the training loop waited {stats.wait_share:.1%} of that time" if training else ""
    skipped = f" {counted(stats.skipped, 'bad sample')} left out." if stats.skipped else ""
    damaged = f" {counted(stats.damaged, 'damaged image')} decoded as far as possible." if stats.damaged else ""
    return f"{stats.samples_per_s:,.0f} samples/s{size} over {stats.elapsed_s:.1f} s{waited}.{skipped}{damaged}{_seeks(stats)}"


def _seeks(stats: Stats) -> str:
    if not stats.seeks_unfit:
        return ""
    told = f"{stats.seeks_unfit:,} of {stats.seeks_used + stats.seeks_unfit:,} seek indices"
    return f" {told} did not fit and were not used: `stoker index --jpeg --force` makes them again."


def _limit(stats: Stats, training: bool) -> str:
    workers, executor = counted(stats.workers, "worker"), stats.executor
    if stats.wait_share < (0.1 if stats.busy_share < 0.9 else 0.05):
        limit = "The training loop is" if training else "Batches were ready when they were asked for: handing them out is"
        return f"{limit} the limit: {workers}, busy {stats.busy_share:.0%} of the time."
    if _crowded(stats) and _cores_used(stats) >= _ON_CORE * stats.cores:
        fewer = f"threads={stats.cores}"
        if executor.processes:
            processes = min(executor.processes, stats.cores)
            fewer = f"processes={processes}, threads={stats.cores // processes}"
        return (
            f"The cores are the limit: the loader has {workers_told(stats)} on {counted(stats.cores, 'core')}, and they take "
            f"turns; `{fewer}` does as much. They spent their time on {_top(stats)}.{_slow_images(stats)}"
        )
    if stats.busy_share < 0.6:
        although = " although the loop waited" if training else ""
        return (
            f"Workers were idle {1 - stats.busy_share:.0%} of the time{although}: "
            "batches were handed out too late. A larger `ahead` or `memory` gives them more to do."
        )
    if stats.core_share < _ON_CORE:
        return (
            f"Workers were in tasks, but only {stats.core_share:.0%} of that on a core. "
            f"Most of the time went into {_top(stats)}. {_waiting(stats, training)}"
        )
    return f"The workers are the limit ({workers}), computing all the time. They spent it on {_top(stats)}.{_slow_images(stats)}"


def _waiting(stats: Stats, training: bool) -> str:
    """Why a task is not on a core: no core was free, or it waited, judged by where it spent its time."""
    name = max(stats.steps_s, key=lambda step: stats.steps_s[step], default="")
    if stats.executor.processes:
        return _waiting_elsewhere(stats, name)
    if stats.queued_s is not None and stats.queued_s >= _QUEUED * (stats.task_s - stats.cpu_s):
        return _cores_taken(stats, training)
    if name == "read":
        return "Reading waits for storage: more threads than cores help."
    if not name.startswith(_COMPUTING) and stats.process_s < _LOCKED * stats.elapsed_s:
        return "It waits for something outside this program (a network, a disk, a sleep): more threads than cores help."
    if not name.startswith(_COMPUTING):
        return (
            "A Python function holds the interpreter lock, so that others wait: use processes, make it do less, or vectorise it."
        )
    if _many_by_pillow(stats) and stats.workers > 1:
        return (
            f"{_pillow_told(stats)}, which holds the interpreter lock part of the time, so that threads wait for each other: "
            f"store them as JPEG, or use processes; more than {counted(math.ceil(_cores_used(stats)), 'thread')} will not help."
        )
    if stats.queued_s is None:
        return "Decoding does not wait: other programs took the cores, or Python code of this one held the interpreter lock."
    return f"Python code elsewhere in this program{_perhaps(training)} held the interpreter lock meanwhile."


def _waiting_elsewhere(stats: Stats, name: str) -> str:
    """The same for tasks of other processes, of which less is known."""
    if stats.executor.threads > 1 and not name.startswith((*_COMPUTING, "read")):
        return "A Python function holds the lock of its process's interpreter, or waits: more processes help, with fewer threads."
    return (
        "Workers wait for storage, a network or a sleep, or other programs took their cores: more threads per process may help."
    )


def _perhaps(training: bool) -> str:
    return ", perhaps the training itself," if training else ""


def _cores_taken(stats: Stats, training: bool) -> str:
    others = (stats.process_s - stats.cpu_s) / stats.elapsed_s
    if others >= _OTHERS * stats.cores:
        who = f"other threads of this program{_perhaps(training)} used {others:.1f} of {stats.cores}"
    else:
        who = f"other programs took them; this one used {stats.process_s / stats.elapsed_s:.1f} of {stats.cores}"
    own = f" The loader itself has {workers_told(stats)}." if _crowded(stats) else ""
    return f"They waited for a core: {who}.{own}"


def _slow_images(stats: Stats) -> str:
    return f" {_pillow_told(stats)}; JPEG is decoded several times as fast." if _many_by_pillow(stats) else ""


def _many_by_pillow(stats: Stats) -> bool:
    return stats.pillow > _BY_PILLOW * stats.worked


def _pillow_told(stats: Stats) -> str:
    return f"{counted(stats.pillow, 'image')} of {counted(stats.worked, 'sample')} were decoded by Pillow (PNG, WebP and others)"


def _crowded(stats: Stats) -> bool:
    """Whether there are many more workers than cores."""
    return stats.workers >= _CROWDED * stats.cores > 0


def _cores_used(stats: Stats) -> float:
    """How many cores the workers kept busy, on average."""
    return stats.core_share * stats.busy_share * stats.workers


def _top(stats: Stats, count: int = 3) -> str:
    """The costliest steps with their shares, those that round to nothing omitted."""
    total = sum(stats.steps_s.values()) or 1.0
    steps = sorted(stats.steps_s.items(), key=lambda step: -step[1])[:count]
    return ", ".join(f"{name} ({seconds / total:.0%})" for name, seconds in steps if seconds >= 0.005 * total)
