"""What a page shows of a run, as plain values: one mapping, in a report for good, or asked for again and again while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..sizes import counted, show_bytes
from .meters import Meters
from .stats import Stats
from .timeline import TimelineRecorder

#: the part of a run that the timeline shows, and how many tasks and waits at most
_SECONDS, _MOST = 2.0, 1500


def page_data(
    title: str,
    stats: Stats,
    why: str,
    *,
    training: bool = True,
    state: str = "ended",
    under: str = "",
    graph: str = "",
    plan: str = "",
    timeline: Mapping[str, Any] | None = None,
    lesson: Sequence[Mapping[str, float]] = (),
    pictures: Sequence[Mapping[str, str]] = (),
    settings: Mapping[str, str] | None = None,
    recent: Sequence[Sequence[float]] = (),
) -> dict[str, Any]:
    """All that `page/page.js` reads.

    `state` is ``"running"``, ``"closed"`` or ``"ended"``. `lesson` holds a mapping for every epoch of training (`epoch`, `loss`,
    `accuracy`, `images_per_s`, `wait_share`), `recent` what was seen lately (seconds, samples/s, shares of time that the loop
    waited and workers were busy). Without `training` nobody worked with the batches, and waiting for them is left out.
    """
    worked_out = {name: getattr(stats, name) for name in ("measured", "samples_per_s", "wait_share", "busy_share")}
    size = f", {show_bytes(stats.bytes)}" if stats.bytes else ""
    amount = f"{counted(stats.samples, 'sample')} in {counted(stats.batches, 'batch', 'batches')}{size}"
    return {
        "title": title,
        "under": under or f"{amount}{f', on {stats.host}' if stats.host else ''}",
        "state": state,
        "training": training,
        "verdict": verdict_data(why),
        "stats": {**stats.as_dict(), **worked_out},
        "graph": graph,
        "plan": plan,
        "timeline": timeline,
        "lesson": [dict(row) for row in lesson],
        "pictures": [dict(picture) for picture in pictures],
        "settings": dict(settings or {}),
        "recent": [list(row) for row in recent],
    }


def verdict_data(why: str) -> dict[str, Any]:
    """A verdict as plain values: its text, what the limit is in a word, and what would help."""
    advice = [
        {"what": each.what, "how": each.how, "gain": each.gain, "limit_then": each.limit_then or ""}
        for each in getattr(why, "advice", ())
    ]
    return {"text": str(why), "limit": getattr(why, "limit", ""), "advice": advice}


def recent_timeline(meters: Meters, seconds: float = _SECONDS, most: int = _MOST) -> dict[str, Any] | None:
    """Who did what in the last seconds: rows of bars (what, from, to), the training loop's first; None where nothing was done."""
    spans, waits = meters.latest(most)
    end = max([*(span.stop_s for span in spans), *(got for _, got in waits)], default=0.0)
    # Of the older of two lists that are cut off nothing is shown, because the other does not reach back as far.
    begun = [min(starts) for starts in ([span.start_s for span in spans], [asked for asked, _ in waits]) if starts]
    start = max([end - seconds, *begun])
    if not spans or end <= start:
        return None
    rows: dict[str, list[tuple[str, float, float]]] = {"loop": []}
    for (asked, got), (then, _) in zip(waits, [*waits[1:], (end, end)]):
        rows["loop"] += [("wait", asked, got), ("step", got, then)]
    for number in sorted({span.worker for span in spans}):
        rows[f"worker {number}"] = []
    for span in spans:
        rows[f"worker {span.worker}"].append(("tasks" if span.task >= 0 else "joining", span.start_s, span.stop_s))
    shown = {
        name: [[what, max(0.0, a - start), b - start] for what, a, b in sorted(bars, key=lambda bar: bar[1]) if b > max(a, start)]
        for name, bars in rows.items()
    }
    return {"length_s": end - start, "rows": [{"name": name, "bars": bars} for name, bars in shown.items() if bars]}


def recorded_timeline(recorder: TimelineRecorder, seconds: float = _SECONDS) -> dict[str, Any] | None:
    """The same with the steps of tasks, from what was recorded."""
    whole = recorder.timeline()
    begun = [min(bar.start_s for bar in row.bars) for row in whole.rows]
    start = max([whole.length_s - seconds, min(begun[1:], default=0.0), 0.0])
    rows = [
        {
            "name": row.name,
            "bars": [[bar.name, max(0.0, bar.start_s - start), bar.stop_s - start] for bar in row.bars if bar.stop_s > start],
        }
        for row in whole.rows
    ]
    return {"length_s": whole.length_s - start, "rows": rows} if len(rows) > 1 and whole.length_s > start else None


def finite(value: Any) -> Any:
    """The same plain value with None for numbers that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(each) for name, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, (list, tuple)) else value
