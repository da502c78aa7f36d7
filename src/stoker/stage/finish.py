"""Finishes a batch whose rows are complete: batch functions, mixing, selections and renames, in the order written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ..batch.strings import ByteStrings
from ..batch.written_rows import Report, clocks
from ..errors import BatchError
from ..plan.columns import Step, Work
from ..plan.nodes import Blend, Function, MapBatch, describe_function, verb_of
from ..sizes import counted
from ..source.sample_names import KEY
from .blend_batch import blend
from .fields import arranged
from .map_functions import short_name
from .ragged import Keys, map_batch
from .user_function import UserFunction


@dataclass(frozen=True, slots=True)
class Finish:
    """The verbs after `batch`."""

    work: Work
    seed: int
    functions: tuple[UserFunction, ...] = field(init=False, compare=False)  # of its `map_batch` steps, in order

    def __post_init__(self) -> None:
        steps = [(step.node, step.streams[0]) for step in self.work.steps if isinstance(step.node, MapBatch)]
        functions = tuple(UserFunction(node.fn, self.seed, stream, node.seeded) for node, stream in steps)
        object.__setattr__(self, "functions", functions)

    @property
    def acts(self) -> bool:
        """Whether anything happens to a batch."""
        return self.work.moves or bool(self.work.steps)

    @property
    def steps(self) -> list[str]:
        """What takes time, for statistics: the joining of rows, which comes first, and the verbs that compute."""
        nodes = [step.node for step in self.work.steps if not step.node.effect.arranges]
        verbs = [f"map_batch {short_name(node.fn)}" if isinstance(node, MapBatch) else verb_of(node) for node in nodes]
        return ["collate", *verbs]

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
        clock, given = clocks(), None
        functions = iter(self.functions)
        ours = {id(column): column for column in columns.values()}  # made here: nothing else uses them
        for step in self.work.steps:
            node = step.node
            if isinstance(node, MapBatch):
                if step.columns is not None:
                    columns = {name: columns[column] for name, column in step.columns.items()}
                # It may have changed the batch in place, and then cannot be run again.
                function = next(functions)
                columns = map_batch(function, columns, rows, keys, (epoch, position), False)
                report.draws = report.draws or function.draws
                _check_rows(node.fn, columns, rows)
                if KEY in columns:
                    given = columns.pop(KEY)
                    keys = given.copy
                clock = report.lap(clock)
            elif isinstance(node, Blend):
                seed = (self.seed, epoch, position, step.streams[0])
                columns = blend(cast("Step[Blend]", step), columns, seed, real, ours, keys)
                ours |= {id(columns[column]): columns[column] for column in step.reads}
                clock = report.lap(clock)
            else:
                columns = arranged(node, columns)
        if self.work.moves:
            assert self.work.columns is not None
            columns = {name: columns[column] for name, column in self.work.columns.items()}
        return columns, given


def _check_rows(fn: Function, columns: Mapping[str, Any], rows: int) -> None:
    for name, column in columns.items():
        length = len(column) if isinstance(column, (list, ByteStrings)) or getattr(column, "shape", ()) != () else rows
        if length != rows:
            raise BatchError(
                f"{describe_function(fn)} made {counted(length, 'row')} of {rows:,} in the field {name!r}; a batch function "
                "must keep their number: use filter or flat_map before batch(), or batch().map_batch().unbatch()"
            )
