"""Measurements as data, and what is made of them: the verdict, traces, pages, and what other tools read.

>>> import stoker.observe
>>> stoker.observe.merge([stoker.observe.Stats(batches=1), stoker.observe.Stats(batches=2)]).batches
3
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .advice import Advice
    from .facts import Facts
    from .live import LoaderWatch, watch
    from .measured_speed import Speed, speed
    from .nvtx_ranges import nvtx
    from .prometheus_page import prometheus
    from .rank_stats import gather
    from .report import write_report
    from .stats import Stats, merge
    from .trace_events import trace
    from .verdict import Verdict

#: what users meet, by the file it is in: imported when it is asked for
_HOME = {
    "Advice": "advice",
    "Facts": "facts",
    "LoaderWatch": "live",
    "Speed": "measured_speed",
    "Stats": "stats",
    "Verdict": "verdict",
    "gather": "rank_stats",
    "merge": "stats",
    "nvtx": "nvtx_ranges",
    "prometheus": "prometheus_page",
    "speed": "measured_speed",
    "trace": "trace_events",
    "watch": "live",
    "write_report": "report",
}
__all__ = [
    "Advice",
    "Facts",
    "LoaderWatch",
    "Speed",
    "Stats",
    "Verdict",
    "gather",
    "merge",
    "nvtx",
    "prometheus",
    "speed",
    "trace",
    "watch",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stoker.observe' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
