"""Which seek index belongs to which row of a column of pictures. None has been read yet (`seeks.py` knows where they are)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernel.native import Spans
from ...storage.scratch import Scratch

if TYPE_CHECKING:
    from ..chunk import BytesColumn
    from .seeks import SeekTable

Ints = NDArray[np.int64]


class Seeks:
    """The seek indices of a column's rows: row i has record ``rows[i]`` of table ``tables[which[i]]``, or none where that is -1.

    Mostly there is one table, and `which` is None.
    """

    __slots__ = ("rows", "tables", "which")

    def __init__(self, tables: Sequence[SeekTable], rows: Ints, which: Ints | None = None) -> None:
        self.tables, self.rows, self.which = tuple(tables), rows, which

    def take(self, rows: Any) -> Seeks:
        return Seeks(self.tables, self.rows[rows], None if self.which is None else self.which[rows])

    def read(self, column: BytesColumn, scratch: Scratch) -> tuple[Spans | None, Ints]:
        """See `SeekTable.read`; `column` are the pictures, row by row."""
        if self.which is None:
            return self.tables[0].read(self.rows, column, scratch)
        starts, lengths = np.zeros(len(self.rows), np.int64), np.zeros(len(self.rows), np.int64)
        parts, wrong, filled = [np.empty(0, np.uint8)], [np.empty(0, np.int64)], 0
        for number, table in enumerate(self.tables):
            here = np.flatnonzero(self.which == number)
            spans, bad = table.read(self.rows[here], column.take(here), scratch)
            wrong.append(here[bad])
            if spans is not None:  # the next table is read to the same memory
                first, last = int(spans.starts.min()), int((spans.starts + spans.lengths).max())
                starts[here], lengths[here] = spans.starts - first + filled, spans.lengths
                parts.append(spans.data[first:last].copy())
                filled += last - first
        return (Spans(np.concatenate(parts), starts, lengths) if filled else None), np.concatenate(wrong)


def merged(pieces: Sequence[tuple[Ints, Seeks | None]], count: int) -> Seeks | None:
    """Those of several columns whose rows go to the given places of one with `count` rows; None where no column has any."""
    known = [(places, seeks) for places, seeks in pieces if seeks is not None]
    tables = list(dict.fromkeys(table for _, seeks in known for table in seeks.tables))
    if not tables:
        return None
    rows, which = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    for places, seeks in known:
        numbers = np.array([tables.index(table) for table in seeks.tables] + [-1], np.int64)
        rows[places] = seeks.rows
        which[places] = numbers[0] if seeks.which is None else numbers[seeks.which]
    return Seeks(tables, rows, None if len(tables) == 1 and not which.any() else which)
