"""The loader: joins source, plan, engine, batch and device, and is the only package that knows all five.

Its modules are imported on first use: `import stoker`, and building a pipeline, need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registry import imported_later

if TYPE_CHECKING:
    from .build import explained, known_shapes
    from .loader import Loader
    from .loader_options import LoaderOptions
    from .one_epoch import OneEpoch
    from .worker_part import WorkerPart, warn_unsharded

__all__ = ["Loader", "LoaderOptions", "OneEpoch", "WorkerPart", "explained", "known_shapes", "warn_unsharded"]

if not TYPE_CHECKING:  # type checkers know what is there
    __getattr__ = imported_later(
        __name__,
        {
            "Loader": "loader", "LoaderOptions": "loader_options", "OneEpoch": "one_epoch", "WorkerPart": "worker_part",
            "explained": "build", "known_shapes": "build", "warn_unsharded": "worker_part",
        },
    )  # fmt: skip
