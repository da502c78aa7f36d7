"""What the engine makes here: batches, and chunks of samples on their way to a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.batch import Batch
from ..batch.draft import Draft, column_bytes
from ..engine.executor import Outcome
from ..engine.feed import Unit
from ..errors import BatchError, SampleError
from ..plan.cursor import Cursor
from ..plan.order import Places
from ..sizes import counted
from ..source.chunk import Chunk, Ints, numbers
from ..stage.finish import Finish
from ..stage.runner import Report, Runner
from ..storage.scratch import Scratch

#: told of every task: its outcome, and what it reported
Observer = Callable[[Outcome, "Report | None"], None]


@dataclass(slots=True)
class Part:
    """Rows `first` to `stop` of a batch: one task."""

    unit: BatchUnit
    first: int
    stop: int


@dataclass(slots=True)
class Join:
    """The finishing task of a batch."""

    unit: BatchUnit


class PartFailed(Exception):
    """A task's rows are written up to, and without, the unit's row `row`; `error` is that row's."""

    def __init__(self, row: int, error: SampleError) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


class BatchUnit(Unit):
    """One batch, or several small ones. Its rows are positions of the order, or a chunk of samples that exist already."""

    def __init__(
        self,
        epoch: int,
        rows: Places | Chunk,
        padded: int,
        cursors: Cursors,
        draft: Draft,
        make: BatchMaker,
        observe: Observer,
        skipped: Sequence[SampleError] = (),
    ) -> None:
        self.epoch, self.rows, self.cursors = epoch, len(rows), cursors
        self.nbytes = make.nbytes
        self._added = 0  # bytes beside the slab
        self.finish = make.finishing
        self.draft: Draft | None = draft
        #: which of its rows are in the batch; None: all
        self.kept: Ints | None = None
        self._rows, self._padded, self._make, self._observe = rows, padded, make, observe
        self._front_skipped = list(skipped)  # on the way to this unit
        self._skipped: list[SampleError] = []
        self.damaged = 0  # images decoded as far as they go
        self._errors: dict[int, BaseException] = {}  # by row
        self._batch: Batch | None = None

    def split(self, rows: int) -> list[Any]:
        return [Part(self, first, min(first + rows, self.rows)) for first in range(0, self.rows, rows)]

    def finisher(self) -> Join:
        return Join(self)

    def rows_of(self, first: int, stop: int) -> Places | Chunk:
        """What a task starts from."""
        if isinstance(self._rows, Chunk):
            part = self._rows.take(np.arange(first, stop, dtype=np.int64))
            part.slots = numbers(stop - first)
            return part
        return self._rows.part(first, stop)

    def done(self, outcome: Outcome) -> int:
        report, added = outcome.result if outcome.error is None else (None, 0)
        self._observe(outcome, report)
        if isinstance(outcome.error, PartFailed):
            self._errors[outcome.error.row] = outcome.error.error
        elif outcome.error is not None:
            self._errors[outcome.task.content.first if isinstance(outcome.task.content, Part) else 0] = outcome.error
        elif isinstance(outcome.task.content, Join):
            added -= self._added  # what the tasks had added became what the batch holds now
        elif report is not None:
            self._skipped += report.skipped
            self.damaged += report.notes.damaged
        self._added += added
        return int(added)

    @property
    def error(self) -> BaseException | None:
        """What stands in this unit's way: of several errors the one of the lowest row."""
        return self._errors[min(self._errors)] if self._errors else None

    @property
    def good_rows(self) -> int:
        """How many rows come before the error."""
        return min(self._errors, default=self.rows)

    @property
    def skipped(self) -> list[SampleError]:
        """Bad samples that were left out, in the order of rows: tasks end in any order."""
        return self._front_skipped + sorted(self._skipped, key=lambda error: error.position or 0)

    def before_skipped(self) -> list[int]:
        """How many samples of this unit, bad ones on the way to it among them, come before each of `skipped`."""
        slots = {position: slot for slot, position in reversed([*enumerate(self._rows.positions.tolist())])}
        first = len(self._front_skipped)
        return [*range(first), *(first + slots.get(error.position, 0) for error in self.skipped[first:])]

    def batch(self, stop: int | None = None) -> Batch:
        """The finished batch, or its rows before `stop`; joined here when no finishing task was needed."""
        if self._batch is None:
            self.join(stop)
        assert self._batch is not None
        return self._batch

    def join(self, stop: int | None = None) -> tuple[Report, int]:
        """Make the batch of its rows; returns what that cost, and the bytes it holds beside the slab."""
        try:
            return self._join(stop)
        except MemoryError as error:
            raise _too_large(str(self), self.rows) from error

    def _join(self, stop: int | None) -> tuple[Report, int]:
        assert self.draft is not None
        report, clock = Report(), time.perf_counter()
        columns, rows, keys, kept = self.draft.finish(stop)
        report.lap(clock)
        in_slab = {id(columns[name]) for name in self._make.laid_out & columns.keys()} if self.finish else set()
        self.draft, self.kept = None, kept
        valid = self._valid(kept)
        if rows:
            real = rows if valid is None else int(valid.sum())
            position = int(self._rows.positions[0])
            columns, keys = self._make.finish(columns, rows, real, self.epoch, position, keys, report)
        self._batch = Batch.of(columns, rows, keys, valid)
        if not self.finish:
            return report, 0  # joined by who takes it: nobody counts any more
        return report, sum(column_bytes(column) for column in columns.values() if id(column) not in in_slab)

    def _valid(self, kept: Ints | None) -> NDArray[np.bool_] | None:
        if not self._padded:
            return None
        valid = np.arange(self.rows) < self.rows - self._padded
        return valid if kept is None else valid[kept]

    def __str__(self) -> str:
        return f"the batch of epoch {self.epoch} that ends at row {self.cursors(0).row:,}"


#: steps of the unit handed out (counted from 0) -> cursor behind them
Cursors = Callable[[int], Cursor]


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """What all batches of a loader have in common; as a function, the work of a task."""

    runner: Runner
    finish: Finish
    finishing: bool  # a worker joins the rows; else the consumer does, because it costs nothing
    nbytes: int
    laid_out: frozenset[str]  # fields that lie in the slab

    def __call__(self, content: Part | Join, scratch: Scratch) -> tuple[Report, int]:
        if isinstance(content, Join):
            return content.unit.join()
        unit, first, stop = content.unit, content.first, content.stop
        draft = unit.draft
        if draft is None:
            raise AssertionError("a batch was joined before its rows were done")
        targets = draft.targets(first, stop)
        try:
            chunk, report = self.runner.run(unit.rows_of(first, stop), targets, scratch)
            added = draft.write(first, targets, chunk)
        except MemoryError as error:
            raise _too_large(str(unit), stop - first) from error
        if report.failure is not None:
            raise PartFailed(first + report.failed_slot, report.failure)
        return report, added


class Marker(Unit):
    """Stands in a feed, in its place among the batches, and needs no work."""

    def split(self, rows: int) -> list[Any]:
        return []

    def done(self, outcome: Outcome) -> int:
        return 0


class EpochEnd(Marker):
    """The border between two epochs; `skipped` are bad samples that came after the last batch, `left` rows that filled none."""

    def __init__(self, epoch: int, skipped: Sequence[SampleError] = (), left: int = 0) -> None:
        self.epoch, self.skipped, self.left = epoch, list(skipped), left

    def before_skipped(self) -> list[int]:
        return [*range(len(self.skipped))]


class Failure(Marker):
    """Stands where the next batch would, had its samples not failed on their way to it."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class ChunkUnit(Unit):
    """Some samples on their way through a segment: one task, one chunk out."""

    def __init__(self, rows: Places | Chunk, observe: Observer) -> None:
        self.start = rows
        self.rows = len(rows)
        self.chunk: Chunk | None = None
        self.error: BaseException | None = None
        self.skipped: list[SampleError] = []
        self._observe = observe

    def split(self, rows: int) -> list[Any]:
        return [self.start]

    def done(self, outcome: Outcome) -> int:
        self.error = outcome.error
        report = None
        if outcome.error is None:
            self.chunk, report = outcome.result
            self.skipped, self.error = report.skipped, report.failure
        self._observe(outcome, report)
        return sum(column_bytes(column) for column in self.chunk.columns.values()) if self.chunk else 0

    def __str__(self) -> str:
        return "samples that are to be filtered or expanded"


def chunk_work(runner: Runner) -> Callable[[Any, Scratch], tuple[Chunk, Report]]:
    """The work of a segment's task: rows in, a chunk that lasts out."""

    def work(rows: Any, scratch: Scratch) -> tuple[Chunk, Report]:
        try:
            chunk, report = runner.run(rows, {}, scratch)
            return chunk.own(), report
        except MemoryError as error:
            raise _too_large("the samples that are filtered or expanded together", len(rows)) from error

    return work


def _too_large(what: str, rows: int) -> BatchError:
    return BatchError(f"{what}: there is not enough memory for {counted(rows, 'sample')} together; make them smaller, or fewer")
