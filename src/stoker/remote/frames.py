"""What a trainer and its workers, or a pool, say to each other: typed frames, of which every field is bounded and checked.

A message is a header, packed by msgspec, and the buffers that the header describes. Nothing here runs what it reads, and nothing
is believed before it is checked: sizes before memory is taken, shapes before arrays are made, types against a list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from ..errors import StokerError
from ..storage.plain_values import check_characters, named_type

#: rises when frames change; both sides must have the same
PROTOCOL = 4
#: bytes of a header, of one buffer, and of the header of somebody who is not known yet
MAX_HEADER, MAX_BUFFER, MAX_GREETING = 16 << 20, 256 << 20, 64 << 10
#: buffers of a message, rows of a task, tasks of a message, columns of a task, dimensions of an array
MAX_BUFFERS, MAX_ROWS, MAX_TASKS, MAX_COLUMNS, MAX_DIMENSIONS = 4096, 1 << 20, 256, 256, 32
#: types that arrays may have, whatever their byte order: numbers, truth values, times and texts. Objects are not among them
_KINDS = frozenset("biufcmMUS")
#: how these are written; NumPy takes much else for a type
_TYPES = re.compile(r"[<>|]([biufcmM]\d{1,2}(\[\d{0,9}\w{1,2}\])?|[US][1-9]\d{0,8})")

Short = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=1 << 17)]
Count = Annotated[int, Meta(ge=0, le=1 << 48)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
#: int64 numbers, as the machine has them: little-endian
Numbers = Annotated[bytes, Meta(max_length=8 * MAX_ROWS)]
Names = Annotated[list[Text], Meta(max_length=MAX_ROWS)]
Shape = Annotated[list[Count], Meta(max_length=MAX_DIMENSIONS)]
Identity = Annotated[dict[Short, Short], Meta(max_length=32)]
#: a buffer as a socket gives it, or as it is given to one
Buffer = Any


class FrameError(StokerError):
    """A message that does not keep to the protocol; the message says how. Whoever sent it is not listened to any more."""


class NotReadYet(FrameError):
    """A value that this process could read only after it has made such values itself; nobody is to blame."""


# ---- from a worker ---------------------------------------------------------------------------------------------------------


class MemoryAt(Struct, forbid_unknown_fields=True):
    """Memory of a worker or pool that its machine can see: the descriptor of a process, and what its file begins with."""

    pid: Count
    descriptor: Count
    token: Annotated[bytes, Meta(min_length=32, max_length=32)]


class Hello(Struct, tag="hello", forbid_unknown_fields=True, omit_defaults=True):
    """A worker is there. `identity` says what its pipeline is, by name: all of it must be as the trainer's is.

    A pool also says how many rows tasks should have, so that all trainers ask for the same ones. `memory` is where rows lie.
    """

    protocol: int
    version: Short
    identity: Identity
    threads: Annotated[int, Meta(ge=1, le=4096)]
    host: Short
    pid: Count
    rows: Annotated[int, Meta(ge=0, le=MAX_ROWS)] = 0
    memory: MemoryAt | None = None


class Beat(Struct, tag="beat", forbid_unknown_fields=True):
    """Somebody is still there; either side sends it."""


class GivenBack(Struct, tag="back", forbid_unknown_fields=True):
    """A worker is going to leave: it has not begun these, and gets no more."""

    serials: Annotated[list[Count], Meta(max_length=MAX_TASKS * 16)]


class Bye(Struct, tag="bye", forbid_unknown_fields=True):
    """A worker leaves, and has nothing left."""


class Unsendable(Struct, tag="unsendable", forbid_unknown_fields=True):
    """What a task gave cannot be sent: it is of a type that has no plain bytes."""

    serial: Count
    why: Text


class FaultFrame(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An error, as `TaskFault` has it."""

    kind: Short
    message: Text
    arguments: Annotated[list[Any], Meta(max_length=32)] = []
    details: Annotated[dict[Short, Any], Meta(max_length=64)] = {}
    trace: Text = ""
    cause: FaultFrame | None = None


class NotesFrame(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a worker's scratch memory noted in a task, as `Notes` has it."""

    seeks_used: Count = 0
    seeks_unfit: Count = 0
    unfit: Text = ""
    damaged: Count = 0
    damage: Text = ""
    pillow: Count = 0
    retried: Count = 0
    cache_hits: Count = 0
    cache_misses: Count = 0


class ReportFrame(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a task cost, and which samples it left out, as `Report` has it."""

    seconds: Annotated[list[Seconds], Meta(max_length=256)]
    cpu_s: Annotated[list[Seconds], Meta(max_length=256)]
    nbytes: Annotated[list[Count], Meta(max_length=256)]
    read_bytes: Count = 0
    weight: Count = 0
    queued_s: Seconds = 0.0
    lock_s: Annotated[float, Meta(ge=-1, le=1e9)] = -1.0
    skipped: Annotated[list[FaultFrame], Meta(max_length=MAX_ROWS)] = []
    rows: Count = 0
    failure: FaultFrame | None = None
    failed_slot: Count = 0
    notes: NotesFrame | None = None
    slow: Annotated[list[tuple[Count, Seconds]], Meta(max_length=MAX_ROWS)] = []
    draws: bool = False


class ArrayColumn(Struct, tag="array", forbid_unknown_fields=True):
    """A column that is one array: a buffer."""

    name: Text
    dtype: Annotated[str, Meta(max_length=32)]
    shape: Shape


class RowsColumn(Struct, tag="rows", forbid_unknown_fields=True):
    """A column of arrays that all have one type and shape: a buffer, and the shape with the rows in front."""

    name: Text
    dtype: Annotated[str, Meta(max_length=32)]
    shape: Shape


class StringsColumn(Struct, tag="strings", forbid_unknown_fields=True):
    """A column of byte strings: a buffer, in which they follow each other."""

    name: Text
    lengths: Numbers


class ValuesColumn(Struct, tag="values", forbid_unknown_fields=True):
    """A column of other values: their trees (`plain_values`), and a buffer with what belongs to them."""

    name: Text
    trees: Annotated[list[Any], Meta(max_length=MAX_ROWS)]


AnyColumn = Union[ArrayColumn, RowsColumn, StringsColumn, ValuesColumn]


class GivenNames(Struct, forbid_unknown_fields=True):
    """Which samples these are, where that does not follow from the rows of the task."""

    keys: Names
    origins: Names
    indices: Numbers


class RowsResult(Struct, tag="rows", forbid_unknown_fields=True, omit_defaults=True):
    """What one task gave: which of its rows, their columns, and what it cost.

    `slots` None: all rows. `positions` and `parents` are there where samples were numbered again.
    """

    report: ReportFrame
    columns: Annotated[list[AnyColumn], Meta(max_length=MAX_COLUMNS)] = []
    slots: Numbers | None = None
    positions: Numbers | None = None
    parents: Numbers | None = None
    names: GivenNames | None = None
    wall_s: Seconds = 0.0
    cpu_s: Seconds = 0.0


class FaultResult(Struct, tag="fault", forbid_unknown_fields=True):
    """A task that failed as a whole."""

    fault: FaultFrame
    wall_s: Seconds = 0.0
    cpu_s: Seconds = 0.0


class Results(Struct, tag="results", forbid_unknown_fields=True, omit_defaults=True):
    """What became of a parcel of tasks, one result each, in their order. Buffers of all follow each other.

    With `places` no buffer is sent: each lies in the sender's memory, at an offset and so many bytes, until `Freed` is said.
    """

    serial: Count
    results: Annotated[list[Union[RowsResult, FaultResult]], Meta(max_length=MAX_TASKS)]
    thread: Count
    waited_s: Seconds  # that the parcel lay in the worker until it was begun
    places: Annotated[list[tuple[Count, Count]], Meta(max_length=MAX_BUFFERS)] | None = None


# ---- from the trainer ------------------------------------------------------------------------------------------------------


class Call(Struct, tag="call", forbid_unknown_fields=True):
    """A trainer asks a pool for a `Hello`. `identity` says what its pipeline is; `caller` is the same when it calls again."""

    protocol: int
    version: Short
    identity: Identity
    host: Short
    pid: Count
    caller: Annotated[bytes, Meta(min_length=16, max_length=16)]


class Welcome(Struct, tag="welcome", forbid_unknown_fields=True, omit_defaults=True):
    """A worker may begin. It is to say something every `beat_s` seconds; who says nothing for `silent_s` is lost.

    `mapped`: the trainer, which is the process `pid`, sees the memory of the worker or pool.
    """

    beat_s: Annotated[float, Meta(gt=0, le=3600)]
    silent_s: Annotated[float, Meta(gt=0, le=36000)]
    mapped: bool = False
    pid: Count = 0


class Refused(Struct, tag="refusal", forbid_unknown_fields=True):
    """A worker may not work here, or a pool does not work for a trainer, and why. `stuck`: its process may not, another may."""

    why: Text
    stuck: bool = False


class RowsTask(Struct, forbid_unknown_fields=True):
    """Rows to make: positions of an epoch, and the samples of the source that stand there."""

    epoch: Count
    positions: Numbers
    indices: Numbers

    @property
    def rows(self) -> int:
        return len(self.positions) // 8


class Tasks(Struct, tag="tasks", forbid_unknown_fields=True):
    """A parcel of tasks of one kind of work, which one thread is to do one after the other; with `first` before others.

    `freed` is what `Freed` says: a message less for each answer.
    """

    serial: Count
    kind: Short
    tasks: Annotated[list[RowsTask], Meta(min_length=1, max_length=MAX_TASKS)]
    first: bool = False
    freed: Annotated[list[Count], Meta(max_length=1 << 16)] = []


class Unwanted(Struct, tag="drop", forbid_unknown_fields=True):
    """Nobody waits for these parcels any more."""

    serials: Annotated[list[Count], Meta(max_length=1 << 16)]


class Freed(Struct, tag="freed", forbid_unknown_fields=True):
    """The trainer has what it wanted of these parcels' answers: their places in the pool's memory may be used again."""

    serials: Annotated[list[Count], Meta(max_length=1 << 16)]


class Stranger(Struct, tag="stranger", forbid_unknown_fields=True):
    """Whoever said that is not known: say hello, or call, first."""


class End(Struct, tag="end", forbid_unknown_fields=True):
    """The trainer is done."""


FromWorker = Union[Hello, Beat, GivenBack, Bye, Unsendable, Results, Refused, Stranger]
FromTrainer = Union[Welcome, Refused, Tasks, Unwanted, Freed, Stranger, End, Beat, Call]


class _HelloVersion(Struct, tag="hello"):
    """What a greeting of any protocol says."""

    protocol: int
    version: Short


class _CallVersion(Struct, tag="call"):
    """The same of a call."""

    protocol: int
    version: Short


_encoder = msgspec.msgpack.Encoder()
_from_worker = msgspec.msgpack.Decoder(FromWorker)
_from_trainer = msgspec.msgpack.Decoder(FromTrainer)
_version = msgspec.msgpack.Decoder(Union[_HelloVersion, _CallVersion])


def packed(message: Struct) -> bytes:
    """The header of a message; raises FrameError where a value in it cannot be sent."""
    try:
        header = _encoder.encode(message)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:  # numbers of more than 64 bits, half a character
        raise FrameError(f"a value cannot be sent: {error}") from error
    if len(header) > MAX_HEADER:
        raise FrameError(f"a header of {len(header):,} bytes is more than the {MAX_HEADER:,} that a frame may have")
    return header


def from_worker(header: Buffer) -> FromWorker:
    """What a worker said; raises FrameError."""
    message: FromWorker = _unpacked(_from_worker, header)
    return message


def from_trainer(header: Buffer) -> FromTrainer:
    """What the trainer said; raises FrameError."""
    message: FromTrainer = _unpacked(_from_trainer, header)
    return message


def _unpacked(decoder: msgspec.msgpack.Decoder[Any], header: Buffer) -> Any:
    if len(header) > MAX_HEADER:
        raise FrameError(f"a header of {len(header):,} bytes is more than the {MAX_HEADER:,} that a frame may have")
    try:
        return decoder.decode(header)
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise FrameError(f"a header cannot be read: {error}") from error


def other_version(header: Buffer) -> tuple[int, str] | None:
    """Protocol and version of a greeting that cannot be read here because it is of another protocol; None: it is none."""
    try:
        greeting = _version.decode(header)
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError):
        return None
    return None if greeting.protocol == PROTOCOL else (greeting.protocol, greeting.version)


# ---- arrays ----------------------------------------------------------------------------------------------------------------


def numbers_of(array: NDArray[np.int64]) -> bytes:
    return np.ascontiguousarray(array, "<i8").tobytes()


def read_numbers(data: bytes, what: str, most: int, count: int | None = None) -> NDArray[np.int64]:
    """Numbers from 0 to below `most`, as many as said; they have memory of their own."""
    if len(data) % 8 or (count is not None and len(data) != 8 * count):
        raise FrameError(f"{what}: {len(data):,} bytes are not {'whole' if count is None else f'{count:,}'} numbers")
    found = np.frombuffer(data, "<i8").astype(np.int64)
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < most:
        raise FrameError(f"{what}: a number is not in 0 to {most:,}")
    return found


def sendable(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this type may be sent."""
    return dtype.kind in _KINDS and dtype.subdtype is None and named_type(dtype)


def read_dtype(text: str) -> np.dtype[Any]:
    """The type of that name."""
    if not _TYPES.fullmatch(text):
        raise FrameError(f"arrays of {text[:32]!r} are not sent")
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError) as error:
        raise FrameError(f"{text[:32]!r} is not a type of arrays") from error
    if dtype.str != text:
        raise FrameError(f"arrays of {text[:32]!r} are not sent")
    return dtype


def read_array(buffer: Buffer, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """The array that a buffer holds; it has the memory of the buffer."""
    kind = read_dtype(dtype)
    wanted = math.prod(shape) * kind.itemsize
    if wanted != len(buffer):
        raise FrameError(f"an array of {dtype} and shape {tuple(shape)} takes {wanted:,} bytes, and {len(buffer):,} came")
    array: NDArray[Any] = np.frombuffer(buffer, kind).reshape(shape) if wanted else np.empty(shape, kind)
    try:
        check_characters(array)
    except ValueError as error:
        raise FrameError(str(error)) from error
    return array


class BufferQueue:
    """The buffers of a message, taken one after another. `lent`: their memory is another's, and will be used again."""

    def __init__(self, parts: Sequence[Buffer], lent: bool = False) -> None:
        self.lent = lent
        if len(parts) > MAX_BUFFERS:
            raise FrameError(f"{len(parts):,} buffers are more than the {MAX_BUFFERS:,} that a message may have")
        self._parts: Iterator[Buffer] = iter(parts)

    def take(self) -> Buffer:
        part = next(self._parts, None)
        if part is None:
            raise FrameError("a message has fewer buffers than its header says")
        return part

    def end(self) -> None:
        """Raises where there are more."""
        if next(self._parts, None) is not None:
            raise FrameError("a message has more buffers than its header says")
