"""Measurements as data, and what is made of them: the verdict, traces, pages, and what other tools read.

>>> import stoker.observe
>>> 'Stats' in stoker.observe.__all__
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .advice import Advice
    from .facts import Facts
    from .measured_speed import Speed, speed
    from .rank_stats import gather
    from .stats import Stats, merge
    from .verdict import Verdict

#: what users meet, by the file it is in: imported when it is asked for
_HOME = {
    "Advice": "advice",
    "Facts": "facts",
    "Speed": "measured_speed",
    "Stats": "stats",
    "Verdict": "verdict",
    "gather": "rank_stats",
    "merge": "stats",
    "speed": "measured_speed",
}
__all__ = ["Advice", "Facts", "Speed", "Stats", "Verdict", "gather", "merge", "speed"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stoker.observe' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
