"""Rows, their columns and reports as frames, and back. What comes in is checked here against what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.written_rows import Report
from ..faults import TaskFault
from ..source.chunk import BytesColumn, Column, Ints
from ..source.sample_names import ListedNames, SourceNames
from ..source.sample_names import Names as SampleNames
from ..source.source import Source
from ..storage.plain_values import Unstorable, read_value, write_value
from ..storage.scratch import NO_NOTES, Notes
from .frames import (
    MAX_BUFFER,
    MAX_DIMENSIONS,
    AnyColumn,
    ArrayColumn,
    Buffer,
    BufferQueue,
    FaultFrame,
    FaultResult,
    FrameError,
    GivenNames,
    NotesFrame,
    NotReadYet,
    ReportFrame,
    RowsColumn,
    RowsResult,
    StringsColumn,
    ValuesColumn,
    numbers_of,
    read_array,
    read_dtype,
    read_numbers,
    sendable,
)

#: causes of causes that are read
_MOST_CAUSES = 9
#: types of the attributes of errors
_PLAIN = (str, bytes, bool, int, float, type(None))
#: types of what a tree of values ends in
_LEAVES = (str, bool, int, float, type(None))
_NOTES = ("seeks_used", "seeks_unfit", "unfit", "damaged", "damage", "pillow", "retried", "cache_hits", "cache_misses")
_MOST_TEXT = 1 << 16


# ---- columns ---------------------------------------------------------------------------------------------------------------


def column_frame(name: str, column: Column, buffers: list[Buffer]) -> AnyColumn:
    """The description of a column, whose bytes are added to `buffers`. Raises Unstorable where a value has no plain bytes."""
    if isinstance(column, BytesColumn):
        buffers.append(_joined(column))
        return StringsColumn(name, numbers_of(column.lengths))
    if isinstance(column, np.ndarray):
        return ArrayColumn(name, *_array(column, buffers))
    if _alike(column):
        return RowsColumn(name, *_array(np.stack(column), buffers))
    own: list[Any] = []
    try:
        trees = [write_value(value, own) for value in column]
    except RecursionError as error:
        raise Unstorable(f"field {name!r}: lists within lists, too many to send") from error
    buffers.append(own[0] if len(own) == 1 else b"".join(bytes(part) for part in own))
    if len(buffers[-1]) > MAX_BUFFER:
        raise Unstorable(f"{len(buffers[-1]):,} bytes of one field")
    return ValuesColumn(name, trees)


def _array(array: NDArray[Any], buffers: list[Buffer]) -> tuple[str, list[int]]:
    if not sendable(array.dtype):
        raise Unstorable(f"an array of {array.dtype}")
    if array.nbytes > MAX_BUFFER:
        raise Unstorable(f"an array of {array.nbytes:,} bytes")
    plain = np.ascontiguousarray(array)
    buffers.append(plain.reshape(-1).view(np.uint8).data if plain.nbytes else b"")
    return array.dtype.str, list(array.shape)


def _joined(column: BytesColumn) -> Buffer:
    lengths = column.lengths
    first = int(column.starts[0]) if len(column) else 0
    if len(column) and np.array_equal(column.starts[1:], (first + np.cumsum(lengths))[:-1]):
        return column.data[first : first + column.nbytes].data  # as they lie
    return b"".join(column.views())


def _alike(column: list[Any]) -> bool:
    """Whether all values are plain arrays of one type and shape."""
    first = column[0] if column else None
    if type(first) is not np.ndarray or not sendable(first.dtype):
        return False
    return all(type(value) is np.ndarray and value.shape == first.shape and value.dtype == first.dtype for value in column)


def read_column(frame: AnyColumn, buffers: BufferQueue, rows: int) -> Column:
    """A column of so many rows. An `ArrayColumn` has the memory of its buffer, others what is theirs."""
    buffer = buffers.take()
    if isinstance(frame, StringsColumn):
        return _read_strings(frame, bytes(buffer) if buffers.lent else buffer, rows)
    if isinstance(frame, ValuesColumn):
        return _read_values(frame, buffer, rows)
    array = read_array(buffer, frame.dtype, frame.shape)
    if array.ndim < 1 or len(array) != rows:
        raise FrameError(f"field {frame.name!r} has the shape {array.shape}, and {rows:,} rows are there")
    return array if isinstance(frame, ArrayColumn) else list(array.copy())


def _read_strings(frame: StringsColumn, buffer: Buffer, rows: int) -> BytesColumn:
    lengths = read_numbers(frame.lengths, f"lengths of {frame.name!r}", MAX_BUFFER + 1, rows)
    ends = np.cumsum(lengths)
    if (int(ends[-1]) if rows else 0) != len(buffer):
        raise FrameError(f"field {frame.name!r}: its lengths do not add up to the {len(buffer):,} bytes that came")
    data = np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)
    return BytesColumn(data, ends - lengths, lengths)


def _read_values(frame: ValuesColumn, buffer: Buffer, rows: int) -> list[Any]:
    if len(frame.trees) != rows:
        raise FrameError(f"field {frame.name!r} has {len(frame.trees):,} values, and {rows:,} rows are there")
    at, whole = 0, memoryview(buffer)

    def take(count: int) -> memoryview:
        nonlocal at
        if type(count) is not int or not 0 <= count <= len(whole) - at:
            raise FrameError(f"field {frame.name!r}: a value says that it has more bytes than came")
        at += count
        return whole[at - count : at]

    try:
        for tree in frame.trees:
            _check_tree(tree)
        values = [read_value(tree, take) for tree in frame.trees]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise FrameError(f"field {frame.name!r}: a value cannot be read: {error}") from error
    if at != len(whole):
        raise FrameError(f"field {frame.name!r}: more bytes came than its values have")
    return values


def _check_tree(tree: Any) -> None:
    """Raise unless a tree is of the types that may be sent. `read_value` checks its form, and sizes by what it takes."""
    if type(tree) in _LEAVES:
        return
    if type(tree) is not list:
        raise FrameError(f"a value of the type {type(tree).__name__}, which trees do not have")
    kind, *about = tree
    if kind in ("l", "t"):
        for each in about[0]:
            _check_tree(each)
    elif kind == "d":
        for key, each in about[0]:
            _check_tree(key)
            _check_tree(each)
    elif kind in ("a", "g", "T"):
        read_dtype(about[0] if isinstance(about[0], str) else "")
        _check_shape(about[1])
        if kind == "T" and "torch" not in sys.modules:
            raise NotReadYet("tensors, and nobody has imported torch in the trainer")
    elif kind != "b":
        raise FrameError(f"a value of the unknown kind {str(kind)[:16]!r}")


def _check_shape(shape: Any) -> None:
    if type(shape) is not list or len(shape) > MAX_DIMENSIONS or not all(type(side) is int and side >= 0 for side in shape):
        raise FrameError("a value with a shape that is not one")


# ---- names -----------------------------------------------------------------------------------------------------------------


def names_frame(names: SampleNames, rows: int) -> GivenNames | None:
    """Names that do not follow from the task; None: these are samples of the source, by their indices."""
    if isinstance(names, SourceNames):
        return None
    indices = np.array([names.index(row) for row in range(rows)], np.int64)
    return GivenNames([names.key(row) for row in range(rows)], [names.origin(row) for row in range(rows)], numbers_of(indices))


def read_names(frame: GivenNames | None, source: Source | None, indices: Ints, rows: int) -> SampleNames:
    """The names of so many rows; `indices` are those of the source's samples they are."""
    if frame is None:
        return SourceNames(source, indices)
    if len(frame.keys) != rows or len(frame.origins) != rows:
        raise FrameError(f"{len(frame.keys):,} keys and {len(frame.origins):,} places came for {rows:,} rows")
    return ListedNames(frame.keys, frame.origins, read_numbers(frame.indices, "indices", 1 << 48, rows).tolist())


# ---- reports and errors ----------------------------------------------------------------------------------------------------


def fault_frame(fault: TaskFault) -> FaultFrame:
    kind, message, arguments, details, trace, cause = fault.__reduce__()[1]
    public = [(name, value) for name, value in details.items() if _is_attribute(name)]
    return FaultFrame(
        _cut(kind)[:256],
        _cut(message),
        [_cut(argument) for argument in arguments[:32]],
        {name[:256]: _cut(value) for name, value in public[:64]},
        _whole(trace)[-_MOST_TEXT:],
        None if cause is None else fault_frame(cause),
    )


def say_where(result: RowsResult | FaultResult, machine: str) -> None:
    """Let the errors in a result say on which machine: files of the same name may be others there."""
    if isinstance(result, FaultResult):
        faults = [result.fault]
    else:
        faults = [*result.report.skipped, *([result.report.failure] if result.report.failure is not None else [])]
    for fault in faults:
        if fault.arguments == [fault.message]:  # others have a form of their own
            fault.message = f"{fault.message} (on {machine})"
            fault.arguments = [fault.message]
            if "message" in fault.details:
                fault.details["message"] = fault.message


def _cut(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, str):
        return _whole(value)[:_MOST_TEXT]
    return value[:_MOST_TEXT] if isinstance(value, bytes) else value


def _whole(text: str) -> str:
    """A text that can be sent: what a file's name has that is not UTF-8 becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_attribute(name: str) -> bool:
    """Whether errors may have an attribute of this name on the other side; what classes of users have for themselves stays."""
    return name.isidentifier() and not name.startswith("_")


def read_fault(frame: FaultFrame, depth: int = 0) -> TaskFault:
    values = [*frame.arguments, *frame.details.values()]
    if depth > _MOST_CAUSES or not all(type(value) in _PLAIN for value in values):
        raise FrameError("an error with values that are not plain, or with too many causes")
    if not all(map(_is_attribute, frame.details)):
        raise FrameError("an error with an attribute that cannot be one")
    cause = None if frame.cause is None else read_fault(frame.cause, depth + 1)
    return TaskFault(frame.kind, frame.message, tuple(frame.arguments), frame.details, frame.trace, cause)


def report_frame(report: Report) -> ReportFrame:
    notes = report.notes
    return ReportFrame(
        seconds=[*map(_seconds, report.seconds)],
        cpu_s=[*map(_seconds, report.cpu_s)],
        nbytes=[int(count) for count in report.nbytes],
        read_bytes=int(report.read_bytes),
        weight=report.weight,
        queued_s=_seconds(report.queued_s),
        lock_s=report.lock_s,
        skipped=[fault_frame(fault) for fault in report.skipped],
        rows=report.rows,
        failure=None if report.failure is None else fault_frame(report.failure),
        failed_slot=int(report.failed_slot),
        notes=None if notes is NO_NOTES else NotesFrame(**{name: _cut(getattr(notes, name)) for name in _NOTES}),
        slow=[(slot, _seconds(seconds)) for slot, seconds in report.slow],
        draws=report.draws,
    )


def _seconds(value: float) -> float:
    """Clocks may differ by a little, so that a difference of them is below 0."""
    return max(0.0, float(value))


def read_report(frame: ReportFrame, steps: int, rows: int) -> Report:
    """The report of a task of so many rows, by a runner of so many steps."""
    if not len(frame.seconds) == len(frame.cpu_s) == len(frame.nbytes) == steps:
        raise FrameError(f"costs of {len(frame.seconds)} steps came, and the pipeline has {steps}")
    if frame.failed_slot >= max(1, rows) or len(frame.skipped) > rows or any(slot >= rows for slot, _ in frame.slow):
        raise FrameError(f"a report names rows that a task of {rows:,} does not have")
    report = Report()
    report.seconds, report.cpu_s, report.nbytes = frame.seconds, frame.cpu_s, frame.nbytes
    report.read_bytes, report.weight, report.queued_s, report.lock_s = (
        frame.read_bytes,
        frame.weight,
        frame.queued_s,
        frame.lock_s,
    )
    report.skipped = [read_fault(fault) for fault in frame.skipped]
    report.rows, report.failed_slot, report.draws = frame.rows, frame.failed_slot, frame.draws
    report.failure = None if frame.failure is None else read_fault(frame.failure)
    report.slow = tuple(frame.slow)
    if frame.notes is not None:
        report.notes = Notes(**{name: getattr(frame.notes, name) for name in _NOTES})
    return report


def read_columns(frames: Sequence[AnyColumn], buffers: BufferQueue, rows: int) -> dict[str, Column]:
    """Columns of so many rows each, by their names."""
    columns = {frame.name: read_column(frame, buffers, rows) for frame in frames}
    if len(columns) != len(frames):
        raise FrameError("a field came twice")
    return columns


def read_slots(data: bytes | None, rows: int) -> Ints:
    """Which rows of a task of `rows` rows these are, in their order."""
    if data is None:
        return np.arange(rows, dtype=np.int64)
    slots = read_numbers(data, "rows", rows)
    if len(slots) > 1 and int(np.diff(slots).min()) <= 0:
        raise FrameError("the rows of a task do not follow each other")
    return slots


def check_target(name: str, column: Any, target: NDArray[Any], rows: int) -> NDArray[Any]:
    """The column as what may be written to the rows of a batch's memory."""
    if not isinstance(column, np.ndarray) or column.dtype != target.dtype or column.shape != (rows, *target.shape[1:]):
        raise FrameError(f"field {name!r} is not of the type and shape that batches have")
    return column


def owned(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The same, but arrays have memory of their own, which may be written to."""
    return {name: column.copy() if isinstance(column, np.ndarray) else column for name, column in columns.items()}
