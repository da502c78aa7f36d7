"""Ray: workers on a cluster, a Ray data set as a source, and a pipeline as a Ray datasource.

``loader(executor="ray")``, ``stoker map --on ray`` and ``stoker pack --on ray`` run their tasks on actors. Results do not
depend on it: batches and shards are those that any other executor makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..registry import Registry

if TYPE_CHECKING:
    from .dataset_source import source
    from .pipeline_datasource import Datasource

__all__ = ["Datasource", "source"]

_LATER: Registry[Any] = Registry(
    "name",
    {
        "Datasource": ("stoker.ray.pipeline_datasource", "Datasource", "ray"),
        "source": ("stoker.ray.dataset_source", "source", "ray"),
    },
)


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # type checkers know what is there

    def __getattr__(name: str) -> Any:
        """What is imported when it is first used: it needs Ray."""
        if name in _LATER:
            return _LATER.get(name, f"stoker.ray.{name}")
        raise AttributeError(f"module 'stoker.ray' has no attribute {name!r}; it has {', '.join(__all__)}")
