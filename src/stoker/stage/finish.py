"""What happens to a batch whose rows are complete: batch functions, mixing, selections and renames, in the order written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ..batch.strings import ByteStrings
from ..batch.written_rows import Report
from ..errors import BatchError
from ..plan.nodes import Blend, FinishNode, Function, MapBatch, describe_function, draws
from ..sizes import counted
from ..source.sample_names import KEY
from .blend_batch import Place, blend
from .fields import arrange
from .map_functions import short_name
from .ragged import Keys, map_batch


@dataclass(frozen=True, slots=True)
class Finish:
    """The verbs behind `batch`. Those that draw have random streams of their own, from `first_stream` on."""

    nodes: tuple[FinishNode, ...]
    seed: int
    first_stream: int

    @property
    def steps(self) -> list[str]:
        """What takes time, for statistics: the joining of rows, which comes first, and the verbs that compute."""
        return ["collate", *(_step_of(node) for node in self.nodes if isinstance(node, (MapBatch, Blend)))]

    def __call__(
        self,
        columns: dict[str, Any],
        rows: int,
        real: int,
        epoch: int,
        position: int,
        keys: Keys,
        report: Report,
    ) -> tuple[dict[str, Any], list[str] | None]:
        """The finished columns of a batch whose first row is at `position`; the first `real` rows of it do not pad.

        With them come the keys, where a function gave some.
        What each of `steps` but the first cost is noted in the report.
        """
        clock, given = time.perf_counter(), None
        ours = {id(column): column for column in columns.values()}  # made here: nobody else looks at them
        for number, node in self.numbered():
            if isinstance(node, MapBatch):
                columns = map_batch(node.fn, columns, rows, keys)
                _check_rows(node.fn, columns, rows)
                if KEY in columns:
                    given = columns.pop(KEY)
                    keys = given.copy
                clock = report.lap(clock)
            elif isinstance(node, Blend):
                columns = blend(node, columns, Place(self.seed, epoch, position, number << 8), real, ours, keys)
                ours |= {id(columns[field]): columns[field] for field in (node.image, node.label)}
                clock = report.lap(clock)
            else:
                columns = arrange(node, columns)
        return columns, given

    def numbered(self) -> Iterator[tuple[int, FinishNode]]:
        """The verbs, each with the number of its random streams."""
        return zip(accumulate(map(draws, self.nodes), initial=self.first_stream), self.nodes)


def _step_of(node: MapBatch | Blend) -> str:
    return "blend" if isinstance(node, Blend) else f"map_batch {short_name(node.fn)}"


def _check_rows(fn: Function, columns: Mapping[str, Any], rows: int) -> None:
    for name, column in columns.items():
        length = len(column) if isinstance(column, (list, ByteStrings)) or getattr(column, "shape", ()) != () else rows
        if length != rows:
            raise BatchError(
                f"{describe_function(fn)} made {counted(length, 'row')} of {rows:,} in the field {name!r}; a batch function "
                "keeps their number: use filter or flat_map before batch(), or batch().map_batch().unbatch()"
            )
