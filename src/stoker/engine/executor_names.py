"""Executors by name; a new one is one line here."""

from __future__ import annotations

from ..registry import Registry
from .executor import Executor

EXECUTORS: Registry[type[Executor]] = Registry(
    "executor",
    {
        "auto": ("stoker.engine.auto_executor", "AutoExecutor", ""),
        "threads": ("stoker.engine.threads", "ThreadExecutor", ""),
        "processes": ("stoker.engine.process_executor", "ProcessExecutor", ""),
        "inline": ("stoker.engine.inline", "InlineExecutor", ""),
        "ray": ("stoker.engine.ray_executor", "RayExecutor", "ray"),
    },
)
