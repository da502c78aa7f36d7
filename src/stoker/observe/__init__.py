"""Measurements as data, and what is made of them: the verdict, traces, pages, and what other tools read.

>>> import stoker.observe
>>> sorted(stoker.observe.__all__)[0]
'Stats'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .nvtx_ranges import nvtx
    from .prometheus_page import prometheus
    from .rank_stats import gather
    from .stats import Stats, merge
    from .tensorboard_log import tensorboard
    from .trace_events import trace

#: what users meet, by the file it is in: imported when it is asked for
_HOME = {
    "Stats": "stats",
    "gather": "rank_stats",
    "merge": "stats",
    "nvtx": "nvtx_ranges",
    "prometheus": "prometheus_page",
    "tensorboard": "tensorboard_log",
    "trace": "trace_events",
}
__all__ = ["Stats", "gather", "merge", "nvtx", "prometheus", "tensorboard", "trace"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stoker.observe' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
