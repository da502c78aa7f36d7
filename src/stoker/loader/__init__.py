"""The loader: joins source, plan, engine, batch and device. The only place that knows all five."""

from __future__ import annotations

from .loader import Loader

__all__ = ["Loader"]
