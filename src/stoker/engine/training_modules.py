"""Modules that train when they are imported, as a script without a main guard does: worker processes must not import them."""

from __future__ import annotations

import sys

_known: set[str] = set()


def note_training(name: str) -> None:
    """This module was imported, and trained meanwhile."""
    _known.add(name)


def trains(name: str) -> bool:
    """Whether a module has trained while it was imported, or may be doing so: its import, or that of its package, is not over."""
    parts = name.split(".")
    modules = (sys.modules.get(".".join(parts[:end])) for end in range(1, len(parts) + 1))
    return name in _known or any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in modules)
