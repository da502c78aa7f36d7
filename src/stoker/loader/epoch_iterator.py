"""The iterator over one epoch of a loader, and how it cuts units into steps.

Iterators move the loader's cursor, so they know its internals; the loader does not hold its iterators.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..batch.batch import Batch, Sample
from ..batch.draft import column_bytes
from ..device.framework_output import Handed
from ..observe.loop_sums import Along
from ..plan.deal import Deal
from ..profiler_ranges import within
from .batch_units import BatchUnit

if TYPE_CHECKING:
    from .loader import Loader


class EpochProgress:
    """What loader and iterator both know of an iteration; the loader does not hold its iterator."""

    __slots__ = ("begun", "ended")

    def __init__(self) -> None:
        self.begun = self.ended = False


class EpochIterator(Iterator[Any]):
    """One epoch of a loader."""

    def __init__(self, loader: Loader, progress: EpochProgress) -> None:
        self._loader, self.progress = loader, progress
        self.portions: Portions | None = None

    def __next__(self) -> Any:
        loader = self._loader
        if not loader._turn.acquire(False):
            loader._await_turn(self.progress)
        try:
            return loader._next(self)
        finally:
            loader._end_turn()


class UnitSteps:
    """What a unit's batch is cut into: a batch, several small batches, or single samples."""

    def __init__(self, batch: Batch, deal: Deal, single: bool) -> None:
        self.batch, self._single = batch, single
        self.size = 1 if single else deal.size
        self.rows = batch.rows
        if single and deal.remainder == "keep":
            self.rows = int(batch.valid.sum())  # a single sample has no `valid`: omit padding
        self.count = -(-self.rows // self.size)
        self._keys = batch.sample_keys if single else []

    def step(self, number: int) -> Batch | Sample:
        batch, size = self.batch, self.size
        if self._single:
            return Sample.of(batch._fields, [column[number] for column in batch], self._keys[number])
        return batch.part(number * size, min((number + 1) * size, batch.rows)) if self.count > 1 else batch


class EarlyStep(NamedTuple):
    """A step that was handed over before it was asked for."""

    unit: BatchUnit
    number: int
    step: Batch | Sample


class Portions:
    """What a unit holds, handed out step by step.

    The loader's cursor moves with them.
    """

    def __init__(self, loader: Loader, unit: BatchUnit) -> None:
        self._loader, self._unit = loader, unit
        self.deal = loader._deal
        batch = unit.batch()
        for view in loader._meters.viewers:
            view(batch)
        self._starved = loader._output.starved()
        if not loader._output.singly:
            batch = self._handed_over(batch)
        self._single = loader._plan.batch is None
        self._steps = UnitSteps(batch, self.deal, self._single)
        self._row_bytes = 0.0 if self._single else _nbytes(batch) / max(1, self._steps.rows)
        self._along = Along(self._steps.size, self._steps.rows, self._row_bytes)
        if not self._steps.count:
            loader._cursor = unit.cursors(unit.rows - 1)

    def __bool__(self) -> bool:
        return self._along.handed < self._steps.count

    def next_step(self) -> tuple[BatchUnit, int, UnitSteps | None] | None:
        """The step that comes next; None: it is in another unit."""
        return (self._unit, self._along.handed, self._steps) if self else None

    def pop(self, asked: float | None) -> Batch | Sample | dict[str, Any]:
        """The next step; `asked` says when it was asked for where somebody may have waited for it, and that is the first."""
        along, steps, loader, unit = self._along, self._steps, self._loader, self._unit
        number = along.handed
        last = number + 1 == steps.count
        early, loader._early = loader._early, None
        if not loader._output.singly:
            step = steps.step(number)
        elif early is not None and early.unit is unit and early.number == number:
            step = early.step
        else:
            step = self._handed_over(steps.step(number))
        loader._cursor = unit.cursors(self._reached(number, last))
        loader._machinery.reached(loader._cursor)
        if asked is not None or loader._meters.along is not along:
            rows = min(steps.size, along.rows - number * steps.size)
            asked = time.monotonic() if asked is None else asked
            with_it = None if number else along
            loader._meters.delivered(asked, rows, int(rows * self._row_bytes), self._starved, with_it)
        along.handed = number + 1
        if last and not self._single:
            steps.batch = self._unit = None  # type: ignore[assignment]  # the user alone holds it now
        return step._asdict() if loader._dicts else step

    def _handed_over(self, step: Handed) -> Handed:
        begun = time.monotonic()
        handed: Handed = within("hand over", self._loader._output.hand_over, step)
        if self._starved:
            self._loader._meters.handed_over(time.monotonic() - begun)
        return handed

    def _reached(self, step: int, last: bool) -> int:
        """Which step of the unit was reached. Where rows were left out by `skip`, the last row stands for all that follow it."""
        if last and self._unit.error is None:
            return -(-self._unit.rows // self._steps.size) - 1
        return int(self._unit.kept[step]) if self._single and self._unit.kept is not None else step


def _nbytes(batch: Batch) -> int:
    try:
        return sum(getattr(column, "nbytes", 0) for column in batch)  # arrays and tensors have it
    except Exception:  # noqa: BLE001  but sparse tensors do not know it
        return sum(map(column_bytes, batch))
