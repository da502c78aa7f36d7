"""PyTorch and JAX look into dicts, but not into classes derived from dict unless these are registered.

torchvision's transforms, for example, would silently return such a sample unchanged.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from ..source.sample_names import NamedColumns, NamedSample

_MODULES = ("torch.utils._pytree", "jax.tree_util")
_known: set[str] = set()
_lock = threading.Lock()


def introduce() -> None:
    """Register the dicts that functions get with all frameworks imported so far; cheap if they are registered already."""
    for name in _MODULES:
        if name in sys.modules and name not in _known:
            with _lock:
                _introduce(name)


def _introduce(name: str) -> None:
    register: Any = getattr(sys.modules[name], "register_pytree_node", None)  # None: a module that is still being imported
    if name in _known or register is None:
        return
    for kind in (NamedSample, NamedColumns):
        if name.startswith("torch"):
            register(kind, _flat, lambda values, names: _dict(names, values), serialized_type_name=f"stoker.{kind.__name__}")
        else:
            register(kind, _flat, _dict)
    _known.add(name)


def _flat(fields: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    return list(fields.values()), tuple(fields)


def _dict(names: tuple[str, ...], values: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, values))
