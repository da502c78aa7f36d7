"""What a page shows of a run, as plain values: one mapping, stored in a report, or requested repeatedly while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..batch.written_rows import Report
from ..sizes import counted, show_bytes
from .meters import Meters, StepName
from .stats import Stats
from .timeline import TimelineRecorder

#: the part of a run that the timeline shows, and how many tasks and waits at most
_SECONDS, _MOST = 2.0, 1500
#: what is known of tasks whose steps were not recorded
_WHOLE = (StepName("tasks"),)


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


def recent_timeline(meters: Meters) -> dict[str, Any] | None:
    """Who did what in the last seconds, from what meters remember of any run: whole tasks; None where nothing was done."""
    spans, waits = meters.latest(_MOST)
    recorder = TimelineRecorder(_MOST)
    for span in spans:
        whole = Report(1)
        whole.seconds[0] = span.stop_s - span.start_s
        recorder.task(span, _WHOLE, whole)
    end = max([*(span.stop_s for span in spans), *(got for _, got in waits)], default=0.0)
    for (asked, got), (then, _) in zip(waits, [*waits[1:], (end, end)]):
        recorder.loop(asked, got, then)
    return recorded_timeline(recorder)


def recorded_timeline(recorder: TimelineRecorder) -> dict[str, Any] | None:
    """Rows of bars (what, from, to), the training loop's first, from what was recorded of the last seconds."""
    whole = recorder.timeline()
    begun = [min(bar.start_s for bar in row.bars) for row in whole.rows]
    start = max([whole.length_s - _SECONDS, min(begun[1:], default=0.0), 0.0])
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
