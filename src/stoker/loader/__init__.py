"""The loader: joins source, plan, engine, batch and device, and is the only package that knows all five.

Its modules are imported on first use: `import stoker`, and building a pipeline, need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.registry import Registry

if TYPE_CHECKING:
    from .build import explained, known_shapes
    from .loader import Loader
    from .loader_options import LoaderOptions
    from .one_epoch import OneEpoch
    from .worker_part import WorkerPart, warn_unsharded

__all__ = ["Loader", "LoaderOptions", "OneEpoch", "WorkerPart", "explained", "known_shapes", "warn_unsharded"]

_LATER: Registry[Any] = Registry(
    "name",
    {
        "Loader": ("stoker.loader.loader", "Loader", ""),
        "LoaderOptions": ("stoker.loader.loader_options", "LoaderOptions", ""),
        "OneEpoch": ("stoker.loader.one_epoch", "OneEpoch", ""),
        "WorkerPart": ("stoker.loader.worker_part", "WorkerPart", ""),
        "explained": ("stoker.loader.build", "explained", ""),
        "known_shapes": ("stoker.loader.build", "known_shapes", ""),
        "warn_unsharded": ("stoker.loader.worker_part", "warn_unsharded", ""),
    },
)

if not TYPE_CHECKING:  # type checkers know what is there, and what is not

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _LATER.get(name, name)
