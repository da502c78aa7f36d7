"""A timeline of tasks and waits as a Chrome trace, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from typing import Any

from .meters import Meters

_CONSUMER = 0


def trace_text(meters: Meters) -> str:
    """Every recorded task and wait, as JSON."""
    spans, waits = meters.spans, meters.waits
    start = min((span.start_s for span in spans), default=0.0)
    events: list[dict[str, Any]] = [_name(_CONSUMER, "training loop (waiting)")]
    events += [_name(worker + 1, f"worker {worker}") for worker in sorted({span.worker for span in spans})]
    for span in spans:
        label = f"unit {span.unit}" if span.task >= 0 else f"join unit {span.unit}"
        events.append(_event(label, span.worker + 1, span.start_s - start, span.stop_s - span.start_s))
    for asked_s, got_s in waits:
        events.append(_event("wait", _CONSUMER, asked_s - start, got_s - asked_s))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _event(name: str, thread: int, start_s: float, length_s: float) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": 1, "tid": thread, "ts": start_s * 1e6, "dur": length_s * 1e6}


def _name(thread: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}
