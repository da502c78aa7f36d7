"""Measurements as data, and what is made of them: the verdict, traces, pages, and output for other tools.

>>> import stoker.observe
>>> stoker.observe.merge([stoker.observe.Stats(batches=1), stoker.observe.Stats(batches=2)]).batches
3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registry import imported_later

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
    "Advice", "Facts", "LoaderWatch", "Speed", "Stats", "Verdict", "gather", "merge", "nvtx", "prometheus", "speed",
    "tensorboard", "trace", "watch", "write_report",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know what is there
    __getattr__ = imported_later(
        __name__,
        {
            "Advice": "advice", "Facts": "facts", "LoaderWatch": "live", "Speed": "measured_speed", "Stats": "stats",
            "Verdict": "verdict", "gather": "rank_stats", "merge": "stats", "nvtx": "nvtx_ranges",
            "prometheus": "prometheus_page", "speed": "measured_speed", "tensorboard": "tensorboard_log", "trace": "trace_events",
            "watch": "live", "write_report": "report",
        },
    )  # fmt: skip
