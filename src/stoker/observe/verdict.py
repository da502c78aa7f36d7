"""Why it is as fast as it is: one paragraph made from a snapshot."""

from __future__ import annotations

from ..units import show_bytes
from .meters import Stats


def verdict(stats: Stats) -> str:
    """What limits this run, on what evidence, and what would help."""
    if stats.batches < 2 or stats.elapsed_s <= 0:
        return "Too little has run to say anything: take some batches first."
    return f"{_rate(stats)} {_limit(stats)}"


def _rate(stats: Stats) -> str:
    per_s = stats.bytes / stats.batches * (stats.batches - 1) / stats.elapsed_s
    skipped = f" {stats.skipped:,} bad samples were left out." if stats.skipped else ""
    return (
        f"{stats.samples_per_s:,.0f} samples/s ({show_bytes(per_s)}/s) over {stats.elapsed_s:.1f} s; "
        f"the training loop waited {stats.wait_share:.1%} of that time.{skipped}"
    )


def _limit(stats: Stats) -> str:
    if stats.wait_share < 0.05:
        return f"The training loop is the limit: the {stats.workers} workers were busy {stats.busy_share:.0%} of the time."
    if stats.busy_share < 0.6:
        return (
            f"Workers were idle {1 - stats.busy_share:.0%} of the time although the loop waited: "
            "batches were handed out too late. A larger `ahead` or `memory` gives them more to do."
        )
    cpu = stats.cpu_s / stats.task_s if stats.task_s > 0 else 1.0
    if cpu < 0.6:
        return (
            f"Workers were busy, but only {cpu:.0%} of that on a core: they waited for {_top(stats)}. "
            "More threads than cores help when this is reading; when it is a Python function, it holds the GIL."
        )
    return f"The {stats.workers} workers are the limit, computing all the time. They spent it on {_top(stats)}."


def _top(stats: Stats, count: int = 3) -> str:
    total = sum(stats.steps_s.values()) or 1.0
    steps = sorted(stats.steps_s.items(), key=lambda step: -step[1])[:count]
    return ", ".join(f"{name} ({seconds / total:.0%})" for name, seconds in steps)
