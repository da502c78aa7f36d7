"""`select`, `rename`, `drop` after a function that decides which fields exist; all others are gone when a plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BatchError
from ..plan.columns import AnyNode, Step, arrange
from ..plan.nodes import NameNode, verb_of
from ..source.chunk import Chunk
from ..storage.scratch import Scratch
from .stage import Stage, Targets


class FieldsStage(Stage):
    """Keeps or renames columns; touches no data."""

    def __init__(self, step: Step[NameNode], seed: int) -> None:
        self.name = verb_of(step.node)
        self._node = step.node

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        chunk.columns = arranged(self._node, chunk.columns)
        return chunk


def arranged(node: AnyNode, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns after a select, rename or drop."""
    return arrange(node, columns, "the samples have", BatchError)
