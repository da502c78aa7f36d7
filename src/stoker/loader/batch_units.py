"""The units of a loader: batches, and chunks of samples on their way to a batch.

A unit stays with the consumer, with its draft, its cursors and its observers. Only values travel to a worker and back: a
`BatchPart` and the `WrittenRows`; a `BatchJoin` and the `JoinedBatch`; rows and the chunk they became. The work itself,
`BatchWork` or `SegmentWork`, is a value too, and goes to a worker once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Union

from numpy.typing import NDArray

from ..batch.batch import Batch
from ..batch.draft import BatchJoin, Draft, column_bytes, join, write_rows
from ..batch.slab import Layout, Lease, Slab, SlabView
from ..batch.written_rows import Placed, Report, WrittenRows, clocks
from ..engine.core_turns import CoreTurns
from ..engine.executor import Outcome, in_words
from ..engine.feed import Unit
from ..errors import SKIP, BatchError, FunctionError, SampleError, WorkerError
from ..faults import TaskFault
from ..plan.cursor import Cursor
from ..plan.order import Places
from ..profiler_ranges import within
from ..sizes import counted
from ..source.chunk import Chunk, Column, FieldSpec, Ints, join_chunks, numbers
from ..source.sample_names import ListedNames, Names, SourceNames
from ..source.source import Source
from ..stage.finish import Finish
from ..stage.ragged import Keys
from ..stage.runner import Runner, note_waits
from ..stage.stage import Targets
from ..storage.scratch import Scratch

if TYPE_CHECKING:
    from ..device.device_decode import DeviceBatch

#: called for every task: its outcome, and what it reported
Observer = Callable[["Outcome[Any, Any]", "Report | None"], None]
#: steps of the unit handed out (counted from 0) -> cursor after them
Cursors = Callable[[int], Cursor]
#: what a task of a segment starts from: places in the epoch, or rows that exist already
Rows = Union[Places, Chunk]
#: keys that an error names
_MOST_KEYS = 16
#: pieces that a lost task is cut into: with more, a task of very many quick samples would take long; with fewer, more workers
#: would end before the sample is found
_PIECES = 32


@dataclass(slots=True)
class BatchPart:
    """Rows to be written to a batch's memory, from row `first` on: one task.

    `device` is memory of that batch on a device, which `decodes` the pictures of these rows.
    """

    rows: Rows
    first: int
    slab: Slab
    device: DeviceBatch | None = None
    decodes: bool = False


@dataclass(slots=True)
class JoinedBatch:
    """A finished batch: its columns, the keys that functions gave it, and the bytes it holds outside the slab.

    When it is sent to another process, columns in the slab's memory are sent as views of it.
    """

    columns: dict[str, Any]
    given: list[str] | None
    nbytes: int
    report: Report
    memory: Slab | Lease | None  # None: it was sent here

    def __reduce__(self) -> tuple[Any, ...]:
        slab = self.memory
        assert isinstance(slab, Slab)  # the process that pickles this got the slab by its address
        views = {name: slab.view_of(column) for name, column in self.columns.items()}
        columns = {name: column if views[name] is None else views[name] for name, column in self.columns.items()}
        return JoinedBatch, (columns, self.given, self.nbytes, self.report, None)


#: for batches joined by the consumer, where there is nothing to report
_UNSEEN = Report()
#: what a batch's tasks start from, and their results
Content = Union[BatchPart, BatchJoin]
Result = Union[WrittenRows, JoinedBatch]


@dataclass(frozen=True, slots=True)
class BatchWork:
    """The work of all batches of a loader: from rows to written rows, and from these to a finished batch."""

    runner: Runner
    finish: Finish
    layout: Layout
    specs: Mapping[str, FieldSpec] | None
    rules: Mapping[str, Any] | None
    needed: frozenset[str]  # fields that every sample must have
    source: Source | None  # it names samples
    cores: CoreTurns | None = None  # limits how many threads compute, if there are many more; None: no limit

    def __call__(self, content: Content, scratch: Scratch) -> Result:
        if self.cores is None:
            return self._made(content, scratch)
        scratch.aside = self.cores.aside
        with self.cores.mine():
            return self._made(content, scratch)

    def _made(self, content: Content, scratch: Scratch) -> Result:
        if isinstance(content, BatchJoin):
            return within("join batch", self._joined, content, scratch)
        rows, first = content.rows, content.first
        if isinstance(rows, Chunk):
            rows.names = rows.names.bound(self.source)
        stop = first + len(rows)
        hoped = content.slab.layout.hoped
        targets = {name: array[first:stop] for name, array in content.slab.arrays.items()}
        promised = {name: array for name, array in targets.items() if name not in hoped} if hoped else targets
        if content.device is not None:
            return self._on_device(content.device, content, targets, promised, scratch)
        chunk, report = self.runner.run(rows, promised, scratch)
        return write_rows(first, targets, hoped, chunk, self.needed, report)

    def _on_device(
        self, device: DeviceBatch, content: BatchPart, targets: Targets, promised: Targets, scratch: Scratch
    ) -> WrittenRows:
        """The same, but all pictures end up on the device, wherever they were made."""
        with device.task(content.first, targets, scratch, decodes=content.decodes) as task:
            chunk, report = self.runner.run(content.rows, promised, scratch)
            written = write_rows(content.first, targets, content.slab.layout.hoped, chunk, self.needed, report)
            task.end(written.slots)
        return written

    def _joined(self, joining: BatchJoin, scratch: Scratch) -> JoinedBatch:
        weight = scratch.weight(self)
        begun_s, queued_s = (time.perf_counter(), scratch.queued_s(time.monotonic())) if weight else (0.0, 0.0)
        joined = self.join(joining, joining.keys(self.source), weight)
        if weight:
            note_waits(joined.report, scratch, begun_s, queued_s)
        return joined

    def join(self, joining: BatchJoin, keys: Keys, weight: int | None) -> JoinedBatch:
        """Make columns of what tasks have written, and run the stages that work on whole batches.

        Also notes how many bytes that takes and, with a `weight`, what it cost (see `Report`). None: neither is noted.
        """
        report, given, nbytes, weigh = _UNSEEN, None, 0, weight is not None
        if weight is not None:
            report = Report()
            report.weight = weight
        clock = clocks() if weight else (0.0, 0.0)
        columns = join(joining, self.specs, self.rules, keys)
        if joining.device is not None:
            columns.update(joining.device.columns(joining.rows, joining.taken))
        if weigh:
            report.lap(clock)
            report.rows = joining.rows
            in_slab = {id(columns[name]) for name, *_ in joining.memory.layout.fields if name in columns}
        if joining.rows and self.finish.acts:
            columns, given = self.finish(columns, joining.rows, joining.real, joining.epoch, joining.position, keys, report)
        if joining.device is not None:
            columns = {name: getattr(column, "tensor", column) for name, column in columns.items()}
        if weigh:
            nbytes = sum(column_bytes(column) for column in columns.values() if id(column) not in in_slab)
        return JoinedBatch(columns, given, nbytes, report, joining.memory)

    def written(self, content: Content) -> list[NDArray[Any]] | None:
        """The rows of the batch that a task writes; None of one that joins them."""
        if not isinstance(content, BatchPart):
            return None
        first, stop = content.first, content.first + len(content.rows)
        return [array[first:stop] for array in content.slab.arrays.values()]

    def leave_out(self, content: Content, result: Result, refusal: Callable[[Any], str]) -> Result:
        """The result of a part without the rows that cannot be sent back. A finished batch has no rows to remove: it fails."""
        if isinstance(result, JoinedBatch):
            assert isinstance(content, BatchJoin)
            _check_columns(result.columns, content.keys(self.source)(), refusal)
            return result
        assert isinstance(content, BatchPart)
        beside: dict[str, Column] = {name: c for name, c in result.loose.items() if not isinstance(c, Placed)}
        positions, slots = content.rows.positions[result.slots], result.slots
        made = Chunk(beside, positions, slots, positions, content.rows.epoch, result.names)
        chunk = self.runner.leave_out(made, result.report, refusal)
        loose = {name: chunk.columns.get(name, Placed.PLACED) for name in result.loose} if len(chunk) else {}
        nbytes = sum(column_bytes(column) for column in chunk.columns.values())
        return WrittenRows(result.first, chunk.slots, loose, nbytes, chunk.names, result.report)


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """The work of a segment's tasks: rows in, a chunk with its own memory out."""

    runner: Runner
    source: Source | None

    def __call__(self, rows: Rows, scratch: Scratch) -> tuple[Chunk, Report]:
        if isinstance(rows, Chunk):
            rows.names = rows.names.bound(self.source)
        chunk, report = self.runner.run(rows, {}, scratch)
        return chunk.own(), report

    def leave_out(self, content: Rows, result: tuple[Chunk, Report], refusal: Callable[[Any], str]) -> tuple[Chunk, Report]:
        """The chunk without the rows that cannot be sent back."""
        chunk, report = result
        return self.runner.leave_out(chunk, report, refusal), report


def _check_columns(columns: Mapping[str, Any], keys: list[str], refusal: Callable[[Any], str]) -> None:
    for name, column in columns.items():
        if refused := refusal(column):
            raise FunctionError(f"field {name!r} of the batch of {len(keys)} that starts with sample {keys[0]!r} {refused}")


class BatchUnit(Unit[Content, Result]):
    """One batch, or several small ones. Its rows are positions of the order, or a chunk of samples that exist already."""

    def __init__(
        self,
        epoch: int,
        rows: Rows,
        padded: int,
        cursors: Cursors,
        draft: Draft,
        work: BatchWork,
        finish: bool,
        observe: Observer,
        skipped: Sequence[SampleError] = (),
        slow: Sequence[int] = (),
    ) -> None:
        self._slow = slow  # rows that get tasks of their own
        self.epoch, self.rows, self.cursors = epoch, len(rows), cursors
        self.nbytes = draft.slab.layout.nbytes
        self.finish = finish  # a worker joins the rows; else the consumer does, because it costs next to nothing
        self.draft: Draft | None = draft
        #: which of its rows are good; None: all
        self.kept: Ints | None = None
        self._rows, self._padded, self._work, self._observe = rows, padded, work, observe
        self._added = 0  # bytes outside the slab
        self._front_skipped = list(skipped)  # on the way to this unit
        self._errors: dict[int, BaseException] = {}  # by row
        # known when the batch is complete: rows without padding and skipped ones, and damaged images (decoded as far as possible)
        self.samples = self.damaged = 0
        self._skipped: list[TaskFault] = []
        self._batch: Batch | None = None

    def split(self, rows: int) -> list[Content]:
        assert self.draft is not None
        slab, device, count = self.draft.slab, self.draft.device, self.rows
        there = [] if device is None else device.cuts(count)
        begin = there[-1][1] if there else 0
        cuts = [(first, min(first + rows, count)) for first in range(begin, count, rows)]
        if self._slow and not there:
            cuts, self.early = _cuts_around(self._slow, count, rows)
        given = [(first, stop, True) for first, stop in there] + [(first, stop, False) for first, stop in cuts]
        return [BatchPart(self._rows.part(first, stop), first, slab, device, decodes) for first, stop, decodes in given]

    def finisher(self) -> BatchJoin:
        return self._joining(None)

    def done(self, outcome: Outcome[Content, Result]) -> int:
        content, result, added = outcome.task.content, outcome.result, 0
        report = None if result is None or result.report.failure is not None else result.report
        self._observe(outcome, report)
        if isinstance(content, BatchPart):
            if isinstance(result, WrittenRows):
                assert self.draft is not None
                added = self.draft.add(content.first, result)
                if result.report.failure is not None:
                    self._fail(content.first + result.report.failed_slot, result.report.failure.error())
        elif isinstance(result, JoinedBatch):
            added = result.nbytes - self._added  # what the tasks had added became what the batch holds now
            self._complete(content, content.keys(self._work.source), result)
        if outcome.fault is not None:
            first, rows = (content.first, len(content.rows)) if isinstance(content, BatchPart) else (0, self.rows)
            self._fail(first, _explained(outcome.fault.error(), str(self), rows))
        self._added += added
        return added

    def lost(self, outcome: Outcome[Content, Result]) -> None:
        self._observe(outcome, None)

    def pieces(self, content: Content) -> list[Content]:
        if not isinstance(content, BatchPart) or not self._work.runner.by_row:
            return []
        rows = content.rows
        return [replace(content, rows=rows.part(at, stop), first=content.first + at) for at, stop in _cuts(len(rows))]

    def give_up(self, content: Content | None, causes: Sequence[str]) -> int:
        rows, first = (content.rows, content.first) if isinstance(content, BatchPart) else (self._rows, 0)
        error = _ended(rows, self._work.source, causes)
        if not isinstance(content, BatchPart) or len(rows) > 1 or not self._work.runner.skip:
            self._fail(first, error)
            return 0
        assert self.draft is not None
        report = Report()
        report.skipped.append(TaskFault.of(error))
        return self.draft.add(first, WrittenRows(first, numbers(0), {}, 0, ListedNames([], [], []), report))

    def _fail(self, row: int, error: BaseException) -> None:
        self.failed = True
        self._errors[row] = error

    @property
    def error(self) -> BaseException | None:
        """The error of this unit: of several, that of the lowest row."""
        return self._errors[min(self._errors)] if self._errors else None

    @property
    def good_rows(self) -> int:
        """How many rows come before the error."""
        return min(self._errors, default=self.rows)

    @property
    def bad(self) -> list[SampleError]:
        """The errors of bad rows, including padding rows, in the order of positions; known when the batch is complete."""
        errors = [error for fault in self._skipped if isinstance(error := fault.error(), SampleError)]
        return sorted(errors, key=lambda error: error.position or 0)

    @property
    def skipped(self) -> list[SampleError]:
        """Skipped samples, in the order of rows; known when the batch is complete. Padding rows do not count as samples."""
        if not self._skipped:
            return self._front_skipped
        errors = self.bad
        if self._padded:
            by_position = {error.position: error for error in errors}
            own = self._rows.positions[: self.rows - self._padded].tolist()
            errors = [by_position[position] for position in own if position in by_position]
        return self._front_skipped + errors

    @property
    def fronts(self) -> int:
        """How many of the first of `skipped` were skipped on the way to this unit."""
        return len(self._front_skipped)

    def before_skipped(self) -> list[int]:
        """How many samples of this unit, including bad ones on the way to it, come before each of `skipped`."""
        slots = {position: slot for slot, position in reversed([*enumerate(self._rows.positions.tolist())])}
        first = len(self._front_skipped)
        return [*range(first), *(first + slots.get(error.position, 0) for error in self.skipped[first:])]

    def batch(self, stop: int | None = None) -> Batch:
        """The finished batch, or its rows before `stop`; joined here when no finishing task was needed."""
        if self._batch is None:
            joining = self._joining(stop)
            keys = joining.keys(self._work.source)
            try:
                self._complete(joining, keys, self._work.join(joining, keys, None))
            except MemoryError as error:
                raise _explained(error, str(self), self.rows) from error
        assert self._batch is not None
        return self._batch

    def _joining(self, stop: int | None) -> BatchJoin:
        assert self.draft is not None
        return self.draft.joining(self.epoch, int(self._rows.positions[0]), self._padded, stop)

    def _complete(self, joining: BatchJoin, keys: Keys, joined: JoinedBatch) -> None:
        """From here on the batch alone holds its memory."""
        draft, self.draft = self.draft, None
        assert draft is not None
        self.kept = draft.kept
        own = self.rows - self._padded
        self.samples = own if self.kept is None else int((self.kept < own).sum())
        for written in draft.written.values():
            self._skipped += written.report.skipped
            self.damaged += written.report.notes.damaged
        columns = joined.columns
        if joined.memory is None:
            lease = joining.memory
            assert isinstance(lease, Lease)
            columns = {name: lease.column(c) if isinstance(c, SlabView) else c for name, c in columns.items()}
        keys = keys if joined.given is None else joined.given.copy
        valid = draft.valid(self._padded) if self._padded or self.kept is not None else None
        self._batch = Batch.of(columns, joining.rows, keys, valid)

    def __str__(self) -> str:
        return f"{counted(self.rows, 'sample')} of epoch {self.epoch}, starting at row {int(self._rows.positions[0]):,}"


class Marker(Unit[Content, Result]):
    """A unit without work, at its place among the batches of a feed."""

    def split(self, rows: int) -> list[Content]:
        return []

    def done(self, outcome: Outcome[Content, Result]) -> int:
        return 0

    def give_up(self, content: Content | None, causes: Sequence[str]) -> int:
        raise AssertionError("a marker has no task that could be lost")


class EpochEnd(Marker):
    """The border between two epochs; `skipped` are bad samples after the last batch, `left` rows that did not fill a batch."""

    def __init__(self, epoch: int, skipped: Sequence[SampleError] = (), left: int = 0) -> None:
        self.epoch, self.skipped, self.left = epoch, list(skipped), left
        self.fronts = len(self.skipped)

    def before_skipped(self) -> list[int]:
        return [*range(len(self.skipped))]


class Failure(Marker):
    """Takes the place of the next batch, whose samples failed on their way to it."""

    def __init__(self, error: Exception) -> None:
        self.error = error


#: what a feed of batches hands over
FedUnit = Union[BatchUnit, EpochEnd, Failure]


class ChunkUnit(Unit[Rows, "tuple[Chunk, Report]"]):
    """Some samples on their way through a segment: one task, one chunk out.

    If that task is lost, it is cut into several, which come back in the order of their rows.
    """

    def __init__(self, rows: Rows, work: SegmentWork, observe: Observer) -> None:
        self.start = rows
        self.rows = len(rows)
        self.chunk: Chunk | None = None  # known when it is complete; or the part before `error`
        self.error: BaseException | None = None
        self.skipped: list[SampleError] = []
        self._work, self._observe = work, observe
        self._chunks: list[Chunk] = []
        self._passed = 0  # rows

    def split(self, rows: int) -> list[Rows]:
        return [self.start]

    def lost(self, outcome: Outcome[Rows, tuple[Chunk, Report]]) -> None:
        self._observe(outcome, None)

    def pieces(self, content: Rows) -> list[Rows]:
        return [content.part(at, stop) for at, stop in _cuts(len(content))] if self._work.runner.by_row else []

    def done(self, outcome: Outcome[Rows, tuple[Chunk, Report]]) -> int:
        chunk: Chunk | None = None
        report: Report | None = None
        skipped: list[SampleError] = []
        error: BaseException | None = None
        if outcome.result is not None:
            chunk, report = outcome.result
            chunk.names = chunk.names.bound(self._work.source)
            skipped = [bad for fault in report.skipped if isinstance(bad := fault.error(), SampleError)]
        fault = report.failure if report is not None else outcome.fault
        if fault is not None:
            error = _explained(fault.error(), _TOGETHER, self.rows)
        self._observe(outcome, report)
        self._take_in(outcome.task.content, chunk, skipped, error)
        return sum(column_bytes(column) for column in chunk.columns.values()) if chunk else 0

    def give_up(self, content: Rows | None, causes: Sequence[str]) -> int:
        assert content is not None  # it has no finishing task
        error = _ended(content, self._work.source, causes)
        if len(content) > 1 or not self._work.runner.skip:
            self._take_in(content, None, [], error)
        else:
            none = numbers(0)
            self._take_in(content, Chunk({}, none, none, none, content.epoch, ListedNames([], [], [])), [error], None)
        return 0

    def _take_in(self, rows: Rows, chunk: Chunk | None, skipped: list[SampleError], error: BaseException | None) -> None:
        if chunk is not None:
            chunk.slots = chunk.slots + self._passed if self._passed else chunk.slots
            self._chunks.append(chunk)
        self._passed += len(rows)
        self.skipped += skipped
        self.error, self.failed = error, error is not None
        if self._chunks and (self.failed or self._passed == self.rows):
            try:
                self.chunk = join_chunks(self._chunks)
            except (BatchError, MemoryError) as failure:
                self.error = _explained(failure, _TOGETHER, self.rows)
            self._chunks = []

    def __str__(self) -> str:
        return "samples that are to be filtered or expanded"


#: what a chunk on its way is to users
_TOGETHER = "the samples that are filtered or expanded together"


def _cuts(rows: int) -> list[tuple[int, int]]:
    """The pieces of `rows` rows: where each begins and ends. A single row is not cut."""
    step = -(-rows // _PIECES)
    return [(at, min(at + step, rows)) for at in range(0, rows, step)] if rows > 1 else []


def _cuts_around(slow: Sequence[int], count: int, rows: int) -> tuple[list[tuple[int, int]], set[int]]:
    """Parts of about `rows` rows, and of one for each slow row; and the numbers of the latter."""
    cuts: list[tuple[int, int]] = []
    alone: set[int] = set()
    first = 0
    for slot in (*slow, count):
        tasks = -(-(slot - first) // rows)
        for number in range(tasks):
            cuts.append((first + number * (slot - first) // tasks, first + (number + 1) * (slot - first) // tasks))
        if slot < count:
            alone.add(len(cuts))
            cuts.append((slot, slot + 1))
        first = slot + 1
    return cuts, alone


def described(source: Source | None, content: Any) -> str:
    """The samples of a task, whatever its content."""
    if isinstance(content, BatchJoin):
        return f"the batch of {_listed(content.keys(source)())}"
    rows = content.rows if isinstance(content, BatchPart) else content
    names = _names(rows, source)
    return _listed([names.key(row) for row in range(len(rows))])


def _listed(keys: list[str]) -> str:
    """The number of samples, and the names of some."""
    named = ", ".join(map(repr, keys[:_MOST_KEYS])) + (" ..." if len(keys) > _MOST_KEYS else "")
    return f"sample {named}" if len(keys) == 1 else f"{counted(len(keys), 'sample')} ({named})"


def _names(rows: Rows, source: Source | None) -> Names:
    return rows.names.bound(source) if isinstance(rows, Chunk) else SourceNames(source, rows.indices)


def _explained(error: BaseException, what: str, rows: int) -> BaseException:
    """An error of a task; if it ran out of memory, with the samples that needed it."""
    if not isinstance(error, MemoryError):
        return error
    short = BatchError(f"{what}: there is not enough memory for {counted(rows, 'sample')} together; make them smaller, or fewer")
    short.__cause__ = error
    return short


def _ended(rows: Rows, source: Source | None, causes: Sequence[str]) -> WorkerError:
    """The error of rows whose workers ended repeatedly; for a single row, that sample's."""
    how = in_words(causes)
    if len(rows) > 1:
        return WorkerError(
            f"the process that worked on {described(source, rows)} together {how}; find the sample that causes it with "
            "loader(executor='inline'), and remove it with filter()"
        )
    names = _names(rows, source)
    key, origin, position = names.key(0), names.origin(0), int(rows.positions[0])
    error = WorkerError(
        f"sample {key!r} ({origin}): the process that worked on it {how}; {SKIP}, or debug it with loader(executor='inline')",
        key=key,
        origin=origin,
        position=position,
    )
    error.index, error.stage = names.index(0), "worker"
    return error
