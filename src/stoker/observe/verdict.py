"""Why it is as fast as it is: one paragraph made from a snapshot."""

from __future__ import annotations

from ..units import counted, show_bytes
from .meters import Stats


def verdict(stats: Stats) -> str:
    """What limits this run, on what evidence, and what would help."""
    if stats.batches < 2 or stats.elapsed_s <= 0:
        return "Too little has run to say anything: take some batches first."
    return f"{_rate(stats)} {_limit(stats)}"


def _rate(stats: Stats) -> str:
    per_s = stats.bytes / stats.batches * (stats.batches - 1) / stats.elapsed_s
    skipped = f" {counted(stats.skipped, 'bad sample')} left out." if stats.skipped else ""
    damaged = f" {counted(stats.damaged, 'damaged image')} decoded as far as possible." if stats.damaged else ""
    return (
        f"{stats.samples_per_s:,.0f} samples/s ({show_bytes(per_s)}/s) over {stats.elapsed_s:.1f} s; "
        f"the training loop waited {stats.wait_share:.1%} of that time.{skipped}{damaged}{_seeks(stats)}"
    )


def _seeks(stats: Stats) -> str:
    if not stats.seeks_unfit:
        return ""
    told = f"{stats.seeks_unfit:,} of {stats.seeks_used + stats.seeks_unfit:,} seek indices"
    return f" {told} did not fit and were not used: `stoker index --jpeg --force` makes them anew."


def _limit(stats: Stats) -> str:
    workers = counted(stats.workers, "worker")
    if stats.wait_share < (0.1 if stats.busy_share < 0.9 else 0.05):
        return f"The training loop is the limit: {workers}, busy {stats.busy_share:.0%} of the time."
    if stats.busy_share < 0.6:
        return (
            f"Workers were idle {1 - stats.busy_share:.0%} of the time although the loop waited: "
            "batches were handed out too late. A larger `ahead` or `memory` gives them more to do."
        )
    on_core = stats.cpu_s / stats.task_s if stats.task_s > 0 else 1.0
    if on_core < 0.6:
        return f"Workers were in tasks, but only {on_core:.0%} of that on a core. {_waiting(stats)}"
    return f"The workers are the limit ({workers}), computing all the time. They spent it on {_top(stats)}."


def _waiting(stats: Stats) -> str:
    """Why a task is not on a core, judged by where it spent its time."""
    name = max(stats.steps_s, key=lambda step: stats.steps_s[step], default="")
    told = f"Most of the time went into {_top(stats)}. "
    if name == "read":
        return told + "Reading waits for storage: more threads than cores help."
    if name.startswith(("image", "decode")):
        return told + "Decoding does not wait: other work, perhaps the training itself, took the cores."
    return told + "A Python function holds the interpreter lock, so that others wait: make it do less, or vectorise it."


def _top(stats: Stats, count: int = 3) -> str:
    total = sum(stats.steps_s.values()) or 1.0
    steps = sorted(stats.steps_s.items(), key=lambda step: -step[1])[:count]
    return ", ".join(f"{name} ({seconds / total:.0%})" for name, seconds in steps)
