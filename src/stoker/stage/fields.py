"""`select`, `rename`, `drop`: which columns go on, and under what names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BatchError
from ..plan.nodes import Drop, Rename, Select, verb_of, written
from ..source.chunk import Chunk
from ..storage.scratch import Scratch
from .stage import Stage, Targets


class FieldsStage(Stage):
    """Keeps or renames columns; touches no data."""

    def __init__(self, node: Select | Rename | Drop) -> None:
        self.name = verb_of(node)
        self._node = node

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        chunk.columns = arrange(self._node, chunk.columns)
        return chunk


def arrange(node: Select | Rename | Drop, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns behind a select, rename or drop."""
    if isinstance(node, Select):
        return {name: _there(columns, name, "select") for name in node.fields}
    if isinstance(node, Rename):
        names = dict(node.names)
        for name in names:
            _there(columns, name, "rename")
        renamed = {names.get(name, name): column for name, column in columns.items()}
        if len(renamed) < len(columns):
            raise BatchError(f"{written(node)} gives two fields the same name; the samples have {', '.join(columns)}")
        return renamed
    for name in node.fields:
        _there(columns, name, "drop")
    return {name: column for name, column in columns.items() if name not in node.fields}


def _there(columns: Mapping[str, Any], name: str, verb: str) -> Any:
    if name not in columns:
        raise BatchError(f"{verb} names the field {name!r}, but the samples have {', '.join(columns) or 'no fields'}")
    return columns[name]
