"""The loader: joins source, plan, engine, batch and device. The only place that knows all five.

What a pipeline asks of it is imported when it is first asked for: `import stoker`, and making a pipeline, need none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.registry import Registry

if TYPE_CHECKING:
    from .build import explained, known_shapes
    from .loader import Loader
    from .one_epoch import OneEpoch
    from .supply import EpochSteps

__all__ = ["EpochSteps", "Loader", "OneEpoch", "explained", "known_shapes"]

_LATER: Registry[Any] = Registry(
    "name",
    {
        "EpochSteps": ("stoker.loader.supply", "EpochSteps", ""),
        "Loader": ("stoker.loader.loader", "Loader", ""),
        "OneEpoch": ("stoker.loader.one_epoch", "OneEpoch", ""),
        "explained": ("stoker.loader.build", "explained", ""),
        "known_shapes": ("stoker.loader.build", "known_shapes", ""),
    },
)

if not TYPE_CHECKING:  # type checkers know what is there, and what is not

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _LATER.get(name, name)
