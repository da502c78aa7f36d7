"""Ray: workers on a cluster, a Ray data set as a source, and a pipeline as a Ray datasource.

``loader(executor="ray")``, ``stoker map --on ray`` and ``stoker pack --on ray`` run their tasks on actors. Results do not
depend on it: batches and shards are those that any other executor makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registry import imported_later

if TYPE_CHECKING:
    from .dataset_source import source
    from .pipeline_datasource import Datasource

__all__ = ["Datasource", "source"]


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # type checkers know what is there
    __getattr__ = imported_later(__name__, {"Datasource": "pipeline_datasource", "source": "dataset_source"}, "ray")
