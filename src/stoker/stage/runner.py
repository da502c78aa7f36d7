"""A run of stages as one function: positions or ready-made rows in, a finished chunk out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Union, cast

import numpy as np
from numpy.typing import NDArray

from ..batch.draft import column_bytes
from ..batch.written_rows import Clock, Report, clocks
from ..errors import BatchError, FunctionError, ReadError, SampleError
from ..faults import TaskFault
from ..kernel.render import Renderer
from ..plan.columns import AnyStep, Work, check_there, columns_before, read_with
from ..plan.nodes import (
    Cached,
    Decode,
    Drop,
    Filter,
    FlatMap,
    Image,
    Map,
    MapFields,
    Regroup,
    Rename,
    Select,
    Unbatch,
)
from ..plan.order import Places
from ..profiler_ranges import Record, recorded, recorder
from ..source.chunk import Chunk, Column, Ints, join_chunks, numbers
from ..source.sample_names import SourceNames
from ..source.source import Rows as SourceRows
from ..source.source import Source
from ..storage.sample_cache import SampleCache
from ..storage.scratch import Scratch
from .cached_rows import CacheStage, RowCache, join_in_order
from .decode import DecodeStage
from .fields import FieldsStage
from .image import ImageStage
from .io_retries import IoRetries, may_pass
from .map_functions import MapFieldsStage, MapStage
from .ragged import FilterStage, FlatMapStage, RegroupStage, UnbatchStage
from .stage import Stage, Targets

NO_TARGETS: Mapping[str, NDArray[Any]] = {}


#: what a runner starts from: places in the epoch, or rows that exist already
Rows = Union[Places, Chunk]
#: a step of a runner: the rows, the memory they may be written to, and the worker's scratch
_Act = Callable[[Any, Targets, Scratch], Chunk]
_Render = Callable[[Places, Targets, Scratch], Union[tuple[Chunk, Renderer], None]]


#: the clocks of a task that is not measured
NOT_LOOKED_AT: tuple[Clock, float] = ((0.0, 0.0), 0.0)
#: how often a worker measures how long the GIL takes to get: rarely, because it sleeps for 70 us each time
_TRY_LOCK_S = 0.1


#: the stage that performs each kind of node
STAGES: dict[type, type[Stage]] = {
    Image: ImageStage,
    Decode: DecodeStage,
    Map: MapStage,
    MapFields: MapFieldsStage,
    Filter: FilterStage,
    FlatMap: FlatMapStage,
    Unbatch: UnbatchStage,
    Regroup: RegroupStage,
    Cached: CacheStage,
    **dict.fromkeys((Select, Rename, Drop), FieldsStage),
}


def make_stages(steps: Iterable[AnyStep], seed: int, retries: IoRetries | None = None) -> list[Stage]:
    """The stages that perform these steps."""
    stages = [STAGES[type(step.node)](step, seed) for step in steps]
    for stage in stages:
        stage.retries = retries
    return stages


def _numbered(names: list[str]) -> list[str]:
    """Names of steps, made unique, so that the costs of two steps are not added up.

    >>> _numbered(["image('jpg')", "cache", "image('jpg')"])
    ["image('jpg')", 'cache', "image('jpg') #2"]
    """
    earlier = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name} #{before + 1}" if before else name for name, before in zip(names, earlier)]


@dataclass(slots=True)
class _Pass:
    """One pass of some rows through the steps: what to call, and a report of what it costs."""

    acts: list[_Act]
    render: _Render
    scratch: Scratch
    report: Report


class Runner:
    """Reads, then applies stages, handling failures after each step.

    With `skip` bad rows are removed and reported; without, the chunk ends before the first of them. The rows before it continue,
    because one of them may fail in a later stage: which row is reported must not depend on how a batch was cut into tasks.
    Running out of memory is also a row's fault, if that row alone is enough for it.
    """

    def __init__(
        self,
        work: Work,
        stages: Sequence[Stage],
        skip: bool,
        read: Reader | None = None,
        store: SampleCache | None = None,
    ) -> None:
        self.skip, self._read = skip, read
        doing = list(zip(work.steps, stages))
        first = None if read is None else read_with(work.steps, read.source)
        if first is not None:
            doing.insert(0, doing.pop(first))
        self._renders = cast(ImageStage, doing[0][1]) if first is not None else None
        self._makes = last_makers([step for step, _ in doing], work.columns)
        self._acts: list[_Act] = [partial(_act, step, stage, makes) for (step, stage), makes in zip(doing, self._makes[1:])]
        self._whole = [stage.whole for _, stage in doing]
        self.steps = _numbered([stage.name for _, stage in doing])
        #: of each step: "read", "native", "device", or "function", which holds the GIL
        self.kinds = ["function" if stage.functions else "native" for _, stage in doing]
        if read:
            self._acts.insert(0, partial(_run_read, read, self._makes[0]))
            self._whole.insert(0, False)
            self.steps.insert(0, "read")
            self.kinds.insert(0, "read")
        #: whether no stage needs rows together, so that each may be processed alone
        self.by_row = not any(self._whole)
        self._columns = work.columns if work.moves else None
        self._functions = [function for stage in stages for function in stage.functions]
        self._cached: RowCache | None = None
        if store is not None and read is not None:
            at = next(at for at, (step, _) in enumerate(doing) if isinstance(step.node, Cached))
            makes = {column: final for before in self._makes[: at + 1] for column, final in before.items()}
            needed = columns_before([step for step, _ in doing[at + 1 :]], work.columns)
            functions = [function for _, stage in doing[:at] for function in stage.functions]
            self._cached, self._cache_at = RowCache(store, read.source, needed, makes, functions), at + 1

    def on_device(self, step: str) -> None:
        """Note that a step of this name waits for a device."""
        self.kinds[self.steps.index(step)] = "device"

    @property
    def reads(self) -> bool:
        """Whether it begins with places in the source, and not with rows that exist already."""
        return self._read is not None

    def run(self, rows: Rows, targets: Targets, scratch: Scratch) -> tuple[Chunk, Report]:
        """Read and transform positions of the order, or only transform a chunk that exists already."""
        report = Report(len(self.steps))
        if self._functions:
            scratch.again, scratch.slow = isinstance(rows, Places), []  # a task before may have failed in the middle
        report.weight = scratch.weight(self)
        clock, queued_s = (clocks(), scratch.queued_s(time.monotonic())) if report.weight else NOT_LOOKED_AT
        record = recorder()
        acts, render = (self._acts, self._rendered) if record is None else self._recorded(record)
        passed = _Pass(acts, render, scratch, report)
        if self._cached is None or not isinstance(rows, Places):
            chunk = self._made(passed, len(self.steps), rows, targets, clock)
        else:
            chunk = self._kept(self._cached, passed, rows, targets, clock)
            targets = targets if len(chunk) == len(rows) else NO_TARGETS
            since = clocks() if report.weight else clock
            chunk = self._through(passed, self._cache_at + 1, len(self.steps), chunk, targets, since)
        if self._columns is not None and len(chunk):
            chunk.columns = _named(chunk, self._columns)
        report.rows = len(chunk)
        report.notes = scratch.take_notes()
        if self._functions:
            report.draws = any(function.draws for function in self._functions)
            if scratch.slow:
                report.slow = tuple(scratch.slow)
        if report.weight:
            report.read_bytes = report.nbytes[0] if self._read is not None else 0
            note_waits(report, scratch, clock[0], queued_s)
        return chunk, report

    def _made(self, passed: _Pass, stop: int, rows: Rows, targets: Targets, clock: Clock) -> Chunk:
        """Send rows through the steps up to `stop`, from the first."""
        first, report = 0, passed.report
        rendered = passed.render(rows, targets, passed.scratch) if self._renders and isinstance(rows, Places) else None
        if rendered is not None:
            first = 2
            chunk, renderer = rendered
            rows, targets = self._settle(chunk, targets, report, self.steps[1])
            if report.weight:
                now = clocks()
                report.seconds[:first] = renderer.read_s, now[0] - clock[0] - renderer.read_s
                report.cpu_s[:first] = renderer.read_cpu_s, now[1] - clock[1] - renderer.read_cpu_s
                report.nbytes[:first] = renderer.read_bytes, _bytes_of(chunk)
                clock = now
        return self._through(passed, first, stop, rows, targets, clock)

    def _kept(self, cached: RowCache, passed: _Pass, places: Places, targets: Targets, clock: Clock) -> Chunk:
        """Rows as they are after the cache: those it has, and the others, made by the steps before it and stored."""
        at, scratch, report = self._cache_at, passed.scratch, passed.report
        found, missing = cached.find(places, targets, scratch)
        clock = _lap(report, at, clock)
        if found is not None and not len(missing):
            report.nbytes[at] = _bytes_of(found)
            return found
        rest = places if found is None else places.take(missing)
        chunk = self._made(passed, at, rest, targets if found is None else NO_TARGETS, clock)
        chunk, clock = cached.narrowed(chunk), clocks() if report.weight else clock
        bad = [error.index for fault in report.skipped if isinstance(error := fault.error(), SampleError)]
        cached.keep(
            rest,
            chunk,
            [index for index in bad if index is not None],
            len(rest) if report.failure is None else report.failed_slot,
        )
        if found is not None:
            chunk.slots = missing[chunk.slots]
            scratch.slow = [(int(missing[slot]), seconds) for slot, seconds in scratch.slow]
            if report.failure is not None:
                stop = report.failed_slot = int(missing[report.failed_slot])
                found = found.take(np.flatnonzero(found.slots < stop))
            chunk = join_in_order(found, chunk)
        report.nbytes[at] = _bytes_of(chunk)
        _lap(report, at, clock)
        return chunk

    def _recorded(self, record: Record) -> tuple[list[_Act], _Render]:
        """The steps, and the combined read and image stage, within ranges that a profiler sees."""
        acts: list[_Act] = [partial(recorded, record, name, act) for name, act in zip(self.steps, self._acts)]
        return acts, partial(recorded, record, " and ".join(self.steps[:2]), self._rendered)

    def _through(self, passed: _Pass, first: int, stop: int, rows: Rows, targets: Targets, clock: Clock) -> Chunk:
        """Send rows through the steps from `first` to `stop`.

        Each step takes them all together. If there is not enough memory for that, they go one at a time through the remaining
        steps, so that the memory needed on the way is that of one row. A stage that needs them together still gets them so.
        """
        at, report = first, passed.report
        while at < stop:
            short: MemoryError | None = None
            if self._whole[at] and report.failure is not None:
                assert isinstance(rows, Chunk)
                rows = rows.take(np.empty(0, np.int64))
            elif len(rows):
                try:
                    chunk = passed.acts[at](rows, targets, passed.scratch)
                except MemoryError as error:
                    if self._whole[at]:
                        raise
                    short = error.with_traceback(None)  # its frames hold memory
                else:
                    rows, targets = self._settle(
                        chunk, targets if len(chunk) == len(rows) else NO_TARGETS, report, self.steps[at]
                    )
            if report.weight:
                clock = _lap(report, at, clock)
                if isinstance(rows, Chunk):
                    report.nbytes[at] = _bytes_of(rows)
            at += 1
            if short is not None:
                targets = NO_TARGETS
                if len(rows) == 1:
                    rows = self._without_memory(rows, short, report, self.steps[at - 1])
                else:
                    begin, at = at - 1, next((later for later in range(at, stop) if self._whole[later]), stop)
                    rows = self._one_by_one(passed, begin, at, rows)
        assert isinstance(rows, Chunk)
        return rows

    def _rendered(self, places: Places, targets: Targets, scratch: Scratch) -> tuple[Chunk, Renderer] | None:
        """The read and the image stage in one native call: the chunk, and the renderer, which knows how much was reading.

        None if the source cannot do it, or there is not enough memory: reading them separately shows which sample is at fault.
        """
        assert self._renders is not None and self._read is not None
        read, out, local = self._read, _local(self._makes[0], targets), _local(self._makes[1], targets)
        try:
            rendered = self._renders.render(read.source, places, read.wanted, out, local, scratch)
        except MemoryError:
            return None
        if rendered is None:
            return None
        rows, renderer = rendered
        if read.retries is not None and any(map(may_pass, rows.errors.values())):
            return None  # read them separately, with retries
        chunk = read.chunk(places, rows)
        self._renders.settle(chunk, rows, renderer, local, scratch)
        return chunk, renderer

    def _one_by_one(self, passed: _Pass, first: int, stop: int, rows: Rows) -> Chunk:
        """The same result as for all rows together; a row for which there is not enough memory is a bad sample."""
        chunks: list[Chunk] = []
        report, earlier = passed.report, passed.report.failure
        for at in range(len(rows)):
            row = rows.take(np.array([at])) if isinstance(rows, Chunk) else rows.part(at, at + 1)
            try:
                chunk = self._through(passed, first, stop, row, NO_TARGETS, clocks()).own()
            except MemoryError as error:
                chunk = self._without_memory(row, error, report, self.steps[first])
            failed = report.failure is not earlier
            if isinstance(rows, Places):
                chunk.slots = chunk.slots + at
                report.failed_slot = at if failed else report.failed_slot
            chunks.append(chunk)
            if failed:
                break
        return self._joined(chunks, report, self.steps[stop - 1])

    def _joined(self, chunks: list[Chunk], report: Report, step: str) -> Chunk:
        """The chunks joined; while there is not enough memory for all of them, the largest becomes a bad sample."""
        while True:
            chunks = [chunk for chunk in chunks if len(chunk)] or chunks[-1:]
            try:
                return join_chunks(chunks)
            except MemoryError as error:
                short = error.with_traceback(None)
            largest = max(range(len(chunks)), key=lambda at: sum(map(column_bytes, chunks[at].columns.values())))
            beside = f", the largest of {len(chunks):,}"
            chunks[largest] = self._without_memory(chunks[largest], short, report, step, beside)
            if not self.skip:
                del chunks[largest + 1 :]

    def _without_memory(self, rows: Rows, cause: MemoryError, report: Report, step: str, beside: str = "") -> Chunk:
        """The rows without the first, for which there is not enough memory."""
        if isinstance(rows, Places):
            assert self._read is not None
            rows = self._read.chunk(rows, SourceRows({}))
        rows.fail(0, rows.out_of_memory(0, cause, beside))
        return self._settle(rows, NO_TARGETS, report, step)[0]

    def leave_out(self, chunk: Chunk, report: Report, refusal: Callable[[Any], str]) -> Chunk:
        """A finished chunk without the rows that have a value which `refusal` rejects; these are bad rows."""
        for name, column in chunk.columns.items():
            if not refusal(column):
                continue
            for row in range(len(column)):
                if refused := refusal(column[row]):
                    chunk.fail(row, FunctionError(f"sample {chunk.name(row)!r}: its field {name!r} {refused}"))
        chunk, _ = self._settle(chunk, NO_TARGETS, report, "send")
        report.rows = len(chunk)
        return chunk

    def _settle(self, chunk: Chunk, targets: Targets, report: Report, step: str) -> tuple[Chunk, Targets]:
        """Remove the rows that failed in a step from the chunk, and report them."""
        if not chunk.failures:
            return chunk, targets
        failed = sorted(chunk.failures)
        for error in chunk.failures.values():
            error.stage = error.stage or step
        if not self.skip:
            report.failure, report.failed_slot = TaskFault.of(chunk.failures[failed[0]]), int(chunk.slots[failed[0]])
            return chunk.take(np.arange(failed[0])), NO_TARGETS
        report.skipped += [TaskFault.of(chunk.failures[row]) for row in failed]
        keep = np.ones(len(chunk), np.bool_)
        keep[failed] = False
        return chunk.take(np.flatnonzero(keep)), NO_TARGETS  # rows no longer line up with their memory


def _lap(report: Report, step: int, clock: Clock) -> Clock:
    """Count the time since `clock` for that step, if this task is measured; returns the new clock."""
    if not report.weight:
        return clock
    now = clocks()
    report.seconds[step] += now[0] - clock[0]
    report.cpu_s[step] += now[1] - clock[1]
    return now


def _bytes_of(chunk: Chunk) -> int:
    """The approximate bytes of a chunk's columns: all values of a list count as large as its first."""
    try:
        return sum(
            column.nbytes if not isinstance(column, list) else len(column) * getattr(column[0], "nbytes", 0) if column else 0
            for column in chunk.columns.values()
        )
    except Exception:  # noqa: BLE001  sparse tensors do not know it
        return 0


def note_waits(report: Report, scratch: Scratch, begun_s: float, queued_s: float) -> None:
    """At the end of a measured task: note how long it had no core, and at intervals how long it takes to get the GIL."""
    if begun_s >= scratch.tried_s + _TRY_LOCK_S:
        report.lock_s = _try_lock(scratch)
        scratch.tried_s = begun_s
    # This may be the sum over all tasks that this one represents.
    report.queued_s = max(0.0, scratch.queued_s(time.monotonic()) - queued_s) / report.weight


def _try_lock(scratch: Scratch) -> float:
    """Release the GIL and measure how long it takes to get it back; time without a core does not count."""
    queued, begun = scratch.queued_s(), time.perf_counter()
    time.sleep(0)  # long enough for another thread to take it: 70 us
    return max(0.0, time.perf_counter() - begun - (scratch.queued_s() - queued))


def last_makers(steps: Sequence[AnyStep], columns: Mapping[str, str] | None) -> list[dict[str, str]]:
    """For the read and each step: which final fields it is the last to make, as {column: final name}.

    Only the last maker of a field may write to its final memory: otherwise a later one would read what an earlier one wrote
    there while it writes itself.
    """
    makers = dict.fromkeys((columns or {}).values(), 0)  # column -> step
    for number, step in enumerate(steps, 1):
        if step.node.effect.whole:
            makers = {}  # what a function got or returned is elsewhere in memory
        makers.update((step.column(name), number) for name in step.node.effect.makes)
    table: list[dict[str, str]] = [{} for _ in range(len(steps) + 1)]
    for name, column in (columns or {}).items():
        if column in makers:
            table[makers[column]][column] = name
    return table


def _act(step: AnyStep, stage: Stage, makes: dict[str, str], chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
    """Run a step. A function over whole samples sees fields by the names that users know at its place."""
    view = step.columns if step.node.effect.whole else None
    if view is None and step.view is None:  # its fields could not be looked up when the plan was made
        for name in step.columns or ():
            check_there(step.node, name, chunk.columns, "the samples have", BatchError)
    columns = dict(chunk.columns)
    try:
        if view is None:
            return stage.run(chunk, _local(makes, targets), scratch)
        chunk.columns = _named(chunk, view)
        return stage.run(chunk, NO_TARGETS, scratch)
    except MemoryError:
        chunk.columns, chunk.failures = columns, {}  # as before, for another try
        raise


def _run_read(read: Reader, makes: dict[str, str], places: Places, targets: Targets, scratch: Scratch) -> Chunk:
    return read(places, _local(makes, targets), scratch)


def _named(chunk: Chunk, view: Mapping[str, str]) -> dict[str, Column]:
    try:
        return {name: chunk.columns[column] for name, column in view.items()}
    except KeyError as error:
        raise BatchError(f"the field {error.args[0]!r} is gone; the samples here have {', '.join(chunk.columns)}") from None


def _local(makes: dict[str, str], targets: Targets) -> Targets:
    """The targets a step may write to, under the names it knows."""
    return {name: targets[final] for name, final in makes.items() if final in targets} if targets else targets


class Reader:
    """Places in an epoch to a chunk of source rows."""

    def __init__(self, source: Source, wanted: tuple[str, ...], retries: IoRetries | None = None) -> None:
        self.source, self.wanted, self.retries = source, wanted, retries

    def __call__(self, places: Places, targets: Targets, scratch: Scratch) -> Chunk:
        indices = places.indices
        rows = self.source.read(indices, self.wanted, targets, scratch)
        if rows.errors and self.retries is not None:
            rows = self.retries.read(rows, len(indices), partial(self._again, indices, scratch), scratch)
        return self.chunk(places, rows)

    def _again(self, indices: Ints, scratch: Scratch, which: Ints) -> SourceRows:
        return self.source.read(indices[which], self.wanted, NO_TARGETS, scratch)

    def chunk(self, places: Places, rows: SourceRows) -> Chunk:
        """What a source has read, with the names of its samples and the errors among them."""
        source, positions, indices = self.source, places.positions, places.indices
        chunk = Chunk(
            rows.columns,
            positions,
            numbers(len(positions)),
            positions,
            places.epoch,
            SourceNames(source, indices),
        )
        for row, error in rows.errors.items():
            bad = error if isinstance(error, SampleError) else _read_error(error, source, int(indices[row]))
            bad.stage = "read"
            chunk.fail(row, bad)
        return chunk


def _read_error(error: Exception, source: Source, index: int) -> ReadError:
    wrapped = ReadError(f"{source.origin(index)}: could not be read: {error}")
    wrapped.__cause__ = error
    return wrapped
