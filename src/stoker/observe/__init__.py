"""Measurements as data, and what is made of them: the verdict, traces, pages, and what other tools read.

>>> import stoker.observe
>>> stoker.observe.merge([stoker.observe.Stats(batches=1), stoker.observe.Stats(batches=2)]).batches
3
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..registry import Registry

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
    from .tensorboard_log import tensorboard
    from .trace_events import trace
    from .verdict import Verdict

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
    "tensorboard",
    "trace",
    "watch",
    "write_report",
]

#: what users meet, by the file it is in: imported when it is asked for
_LATER: Registry[Any] = Registry(
    "name",
    {
        "Advice": ("stoker.observe.advice", "Advice", ""),
        "Facts": ("stoker.observe.facts", "Facts", ""),
        "LoaderWatch": ("stoker.observe.live", "LoaderWatch", ""),
        "Speed": ("stoker.observe.measured_speed", "Speed", ""),
        "Stats": ("stoker.observe.stats", "Stats", ""),
        "Verdict": ("stoker.observe.verdict", "Verdict", ""),
        "gather": ("stoker.observe.rank_stats", "gather", ""),
        "merge": ("stoker.observe.stats", "merge", ""),
        "nvtx": ("stoker.observe.nvtx_ranges", "nvtx", ""),
        "prometheus": ("stoker.observe.prometheus_page", "prometheus", ""),
        "speed": ("stoker.observe.measured_speed", "speed", ""),
        "tensorboard": ("stoker.observe.tensorboard_log", "tensorboard", ""),
        "trace": ("stoker.observe.trace_events", "trace", ""),
        "watch": ("stoker.observe.live", "watch", ""),
        "write_report": ("stoker.observe.report", "write_report", ""),
    },
)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _LATER:
            return _LATER.get(name, name)
        raise AttributeError(f"module 'stoker.observe' has no attribute {name!r}")
