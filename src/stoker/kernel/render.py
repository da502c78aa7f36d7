"""Stored images to finished pixels in one native call, which releases the GIL once.

Next to a busy training loop, a worker waits milliseconds for the GIL each time it has released it; and while the worker holds
it, the loop waits. So a task's images take one call, including reading, and everything that can be prepared for many calls is
prepared here: an `Input` says where images are, a `Renderer` what becomes of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.device_load import DeviceLoad, KeptPictures
from stoker.kernel.example_columns import Parsing
from stoker.kernel.file_reads import Arena, Paths
from stoker.kernel.library import library, place
from stoker.kernel.native import ROW_DTYPE, Decoder, Images, Program, Spans
from stoker.kernel.records import Blocks, Ints, RecordTable
from stoker.kernel.status import Status
from stoker.kernel.structs import INPUT, PICTURES, READING, SPANS

Boxes = NDArray[np.float32]

_INT64 = np.dtype(np.int64)


def _packing(dtype: np.dtype[np.void], first: str | None = None) -> tuple[struct.Struct, int]:
    """How the fields of a struct of words are packed, from one of them on, and where that is."""
    names = list(dtype.names or ())
    at = names.index(first) if first else 0
    return struct.Struct(f"{len(names) - at}q"), 8 * at


_INPUT, _ = _packing(INPUT)
_ROOM, _ROOM_AT = _packing(INPUT, "buffer")
_PICTURES, _ = _packing(PICTURES)
_ANSWER, _ANSWER_AT = _packing(PICTURES, "bad")
_LOAD, _LOAD_AT = _packing(PICTURES, "load")
_SPANS, _ = _packing(SPANS)
_READING, _ = _packing(READING)


class _Words:
    """A struct of words in memory of its own, at one place."""

    __slots__ = ("at", "memory")

    def __init__(self, packing: struct.Struct) -> None:
        self.memory = bytearray(packing.size)
        self.at = place(np.frombuffer(self.memory, np.uint8))


class StoredSeeks:
    """Seek indices stored in files, for one worker: those of file or record n are row n of a table of one field.

    `longest` is the length of the longest; `sums` are the CRC-32C of the pictures, if these are to be compared.
    """

    def __init__(self, table: RecordTable, fds: NDArray[np.int32], longest: int, sums: NDArray[np.uint32] | None = None) -> None:
        self._table, self._records = table, table.opened(fds)
        self._buffer = np.empty(max(1, longest), np.uint8)
        self._sums = None if sums is None else np.ascontiguousarray(sums, np.uint32)
        at = [self._records.at, place(self._buffer), self._buffer.size, 0 if self._sums is None else place(self._sums), 0]
        self._struct = np.array(at, np.int64)
        self.at = place(self._struct)

    def keep_in(self, kept: KeptPictures | None) -> None:
        """Let the pictures of a load be kept there, and be taken from there."""
        self._struct[4] = 0 if kept is None else kept.notes(self._table)


class InputKind(IntEnum):
    """Where images are."""

    SPANS = 0
    FILES = 1
    RECORDS = 2
    EXAMPLES = 3
    IMAGES = 4


class Input:
    """Images to be rendered by one worker: where they are is prepared once; `tell` selects some of them before each call.

    What is read goes to `arena`. Images without seek indices are decoded too, but more slowly.
    """

    __slots__ = (
        "_arena", "_boxes", "_buffer", "_buffer_at", "_from", "_kind", "_seeks_at", "_struct", "_which", "count", "slots",
        "sought", "stored_seeks",
    )  # fmt: skip

    def __init__(self, kind: InputKind, arena: Arena | None = None, seeks: StoredSeeks | None = None) -> None:
        self._kind, self._arena, self.stored_seeks = int(kind), arena, seeks
        self._seeks_at = 0 if seeks is None else seeks.at
        self._struct, self._from = _Words(_INPUT), 0
        self._which: Ints | None = None
        self._boxes: Boxes | None = None
        # Its address is asked for again only where it is another than last time.
        self._buffer: NDArray[np.uint8] | None = None
        self._buffer_at = 0
        self.count = 0
        #: where its pictures went
        self.slots: Ints | None = None
        #: whether seek indices are at hand
        self.sought = seeks is not None

    @property
    def complete(self) -> bool:
        """Whether all pictures were made in the last call, that is, all records could be read."""
        return bool(_ROOM.unpack_from(self._struct.memory, _ROOM_AT)[3] == self.count)

    @property
    def wrong(self) -> int:
        """How many features of Examples were found to be missing, or others than wanted, in the last call."""
        return int(_ROOM.unpack_from(self._struct.memory, _ROOM_AT)[4])

    def _told(self, which: Ints | None, count: int, boxes: Boxes | None) -> None:
        self.count, self._which = count, None if which is None else np.ascontiguousarray(which, _INT64)
        if (which is not None and which.shape != (count,)) or (boxes is not None and boxes.shape != (count, 4)):
            raise KernelError(f"{count} images, and {None if boxes is None else boxes.shape} boxes")
        self._boxes = None if boxes is None else np.ascontiguousarray(boxes, np.float32)

    def _prepare(self, slots: Ints | None) -> int:
        """Write the struct for the library; returns where it is."""
        self.slots = slots = None if slots is None else np.ascontiguousarray(slots, _INT64)
        which, boxes = self._which, self._boxes
        _INPUT.pack_into(
            self._struct.memory, 0, self._kind, self.count, 0 if which is None else place(which),
            0 if slots is None else place(slots), 0 if boxes is None else place(boxes), self._from, self._seeks_at,
            *self._room(), 0, 0, 0,
        )  # fmt: skip
        return self._struct.at

    def _room(self) -> tuple[int, int]:
        """Where the arena's buffer is, and its size."""
        if self._arena is None:
            return 0, 0
        buffer = self._arena.buffer
        if buffer is not self._buffer:
            self._buffer, self._buffer_at = buffer, place(buffer)
        return self._buffer_at, buffer.size

    def _make_room(self, renderer: Renderer) -> None:
        """Grow the arena as the library asks."""
        assert self._arena is not None
        _, _, needed, done, wrong = _ROOM.unpack_from(self._struct.memory, _ROOM_AT)
        if self._kind != InputKind.FILES:
            self._arena.grow(needed, keep=0)
        elif refused := self._arena.room_for_file(needed, keep=0):
            renderer._refuse(done if self.slots is None else int(self.slots[done]), refused)
            done += 1
        _ROOM.pack_into(self._struct.memory, _ROOM_AT, *self._room(), 0, done, wrong)


class SpanInput(Input):
    """JPEGs in memory."""

    __slots__ = ("_held", "_seek_spans", "_spans")

    def __init__(self) -> None:
        super().__init__(InputKind.SPANS)
        self._spans, self._seek_spans = _Words(_SPANS), _Words(_SPANS)
        self._from = self._spans.at
        self._held: tuple[Spans, Spans | None] | None = None

    def tell(self, spans: Spans, seeks: Spans | None = None, boxes: Boxes | None = None) -> Input:
        """Image i is span i; `seeks` are seek indices, a span each (an empty one: none)."""
        count = len(spans.starts)
        self._told(None, count, boxes)
        self._held = self._filled(self._spans, spans, count), seeks and self._filled(self._seek_spans, seeks, count)
        self._seeks_at = self._seek_spans.at if seeks else 0
        return self

    def _filled(self, words: _Words, spans: Spans, count: int) -> Spans:
        data, starts, lengths = spans
        if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
            raise KernelError("images and seek indices must lie in one contiguous run of uint8")
        starts, lengths = np.ascontiguousarray(starts, _INT64), np.ascontiguousarray(lengths, _INT64)
        if starts.shape != (count,) or lengths.shape != (count,):
            raise KernelError(f"{count} images at {starts.shape} places of {lengths.shape} lengths")
        _SPANS.pack_into(words.memory, 0, place(data), data.size, place(starts), place(lengths))
        return Spans(data, starts, lengths)


class FileInput(Input):
    """Files, read one at a time; after the call `Renderer.errnos` says which could not be."""

    __slots__ = ("_files", "_paths")

    def __init__(self, paths: Paths, arena: Arena, seeks: StoredSeeks | None = None) -> None:
        super().__init__(InputKind.FILES, arena, seeks)
        self._paths = paths
        self._files = np.array([place(paths.names), place(paths.starts), len(paths)], np.int64)
        self._from = place(self._files)

    def tell(self, which: Ints, boxes: Boxes | None = None) -> Input:
        """Image i is file ``which[i]``."""
        self._told(which, len(which), boxes)
        return self


class ImageInput(Input):
    """Decoded images in memory, read in place."""

    __slots__ = ("_images",)

    def __init__(self, images: Images) -> None:
        super().__init__(InputKind.IMAGES)
        self._images, self._from = images, images.at

    def tell(self, which: Ints | None = None, boxes: Boxes | None = None) -> Input:
        """Image i is number ``which[i]``; None: number i."""
        self._told(which, len(self._images) if which is None else len(which), boxes)
        return self


class RecordInput(Input):
    """A column of records, ``fields[image]``, read together with the other `fields`.

    Or, with `examples`, a feature of the Examples that records are, parsed together with others: JPEGs, or, where `pixels` is
    given, images like those as they are. After the call `at` and `lengths`, (records, fields), say where in the arena's buffer
    what was read lies. Where it is not `complete`, something could not be read, or a record lacks a field.
    """

    __slots__ = (
        "_about", "_fds", "_fields", "_opened", "_parsing", "_pixels", "_reading", "_spots", "_status", "_table", "at", "lengths",
    )  # fmt: skip

    def __init__(
        self,
        table: RecordTable,
        fields: Sequence[int],
        image: int,
        arena: Arena,
        *,
        behind: int = 0,
        gap: int = 0,
        seeks: StoredSeeks | None = None,
        examples: bool = False,
        pixels: Images | None = None,
    ) -> None:
        super().__init__(InputKind.EXAMPLES if examples else InputKind.RECORDS, arena, seeks)
        self._table, self._fields, self._pixels = table, np.array(fields, _INT64), pixels
        self._about = (place(self._fields), len(fields), behind, gap, image)
        self._reading = _Words(_READING)
        self._from = self._reading.at
        self._fds: NDArray[np.int32] | None = None
        self._make_spots(0)

    def tell(
        self,
        fds: NDArray[np.int32],
        indices: Ints,
        boxes: Boxes | None = None,
        parsing: Parsing | None = None,
        blocks: Blocks | None = None,
    ) -> RecordInput:
        """Image i is that of record ``indices[i]``; `fds` are the descriptors of the table's files, or `blocks` hold their bytes.

        Of an image that lies in one block and could be made, nothing comes to the arena's buffer.

        Of Examples `parsing` says which features are wanted, `image` being one of them, and has them after the call.
        """
        count = len(indices)
        self._told(indices, count, boxes)
        if fds is not self._fds or blocks is not None:
            self._fds, self._opened = fds, self._table.opened(fds, blocks)
        self._parsing, features = parsing, (0, 0, 0, 0, 0)
        if parsing is not None:
            pixels = 0 if self._pixels is None else self._pixels.at
            features = place(parsing.table), len(parsing.table), place(parsing.status), place(parsing.bad), pixels
        if parsing is None or count > len(self.at):  # where Examples lie concerns nobody afterwards
            self._make_spots(count)
        _READING.pack_into(self._reading.memory, 0, self._opened.at, *self._about, *self._spots, *features)
        return self

    def _make_spots(self, count: int) -> None:
        shape = (count, len(self._fields))
        self.at, self.lengths, self._status = np.empty(shape, _INT64), np.empty(shape, _INT64), np.empty(shape, np.int32)
        self._spots = place(self.at), place(self.lengths), place(self._status)


class Renderer:
    """Makes the pictures of one program, for one worker: `begin` says where they go, each `add` fills some of them.

    Then `rows` says what became of each (`ROW_DTYPE`; valid until the next `begin`), `bad` how many have a status other than 0,
    `read_s` the time spent reading, `read_cpu_s` what of that was on a core, `read_bytes` what was read, and `sought` whether
    seek indices were at hand. The pixels of bad ones are undefined.

    With a `load` pictures that a device can decode are put there: their rows say `DecoderKind.DEVICE`, and
    their pixels are left as they are.
    """

    def __init__(self, decoder: Decoder, program: Program) -> None:
        self.bad, self.read_s, self.read_cpu_s, self.read_bytes, self.sought = 0, 0.0, 0.0, 0, False
        self._count = 0
        self._decoder, self._program, self._program_at = decoder, program, place(program._struct)
        self._dtype = program.dtype
        self._memory: NDArray[np.void] = np.zeros(0, ROW_DTYPE)
        self._memory_at = 0
        self._struct = _Words(_PICTURES)
        self._shape: tuple[int, ...] = ()
        self._size = 0, 0  # width and height
        self._held: tuple[Any, ...] = ()
        self._load: DeviceLoad | None = None

    def begin(self, epoch: int, positions: Ints, out: NDArray[Any]) -> None:
        """Row i is for the sample at ``positions[i]`` of an epoch, and goes to ``out[i]``."""
        positions = np.ascontiguousarray(positions, _INT64)
        shape = out.shape
        count = shape[0]
        if positions.shape != (count,):
            raise KernelError(f"out has shape {shape}, and the positions are {positions.shape}")
        if shape[1:] != self._shape or out.dtype != self._dtype or not out.flags.carray:
            height, width = _output_size(self._program, out)
            self._size, self._shape = (width, height), shape[1:]
        if count > len(self._memory):
            self._memory = np.zeros(max(count, 2 * len(self._memory)), ROW_DTYPE)
            self._memory_at = place(self._memory)
        self._count, self._held, self.sought = count, (positions, out), False
        _PICTURES.pack_into(
            self._struct.memory, 0, self._decoder.handle, self._program_at, count, place(positions), epoch, *self._size,
            place(out), out.strides[0], self._memory_at, 0, 0, 0, 0, 0 if self._load is None else self._load.address,
        )  # fmt: skip

    @property
    def load(self) -> DeviceLoad | None:
        """Where pictures for a device are put, from the next `add` on; None: all are rendered."""
        return self._load

    @load.setter
    def load(self, load: DeviceLoad | None) -> None:
        self._load = load
        _LOAD.pack_into(self._struct.memory, _LOAD_AT, 0 if load is None else load.address)

    @property
    def rows(self) -> NDArray[np.void]:
        """What became of each picture."""
        return self._memory[: self._count]

    def add(self, source: Input, slots: Ints | None = None) -> None:
        """Make the pictures of an input: picture i is row ``slots[i]``, or row i."""
        if source.count != (self._count if slots is None else len(slots)):
            raise KernelError(f"{source.count} images do not fit {self._count} rows")
        self.sought |= source.sought
        if self._load is not None and source.stored_seeks is not None:
            source.stored_seeks.keep_in(self._load.kept)
        call, at, source_at = library().render, self._struct.at, source._prepare(slots)
        while call(source_at, at):
            if self._load is None or not self._load.make_room():
                source._make_room(self)
        self.bad, ns, cpu_ns, self.read_bytes, _ = _ANSWER.unpack_from(self._struct.memory, _ANSWER_AT)
        self.read_s, self.read_cpu_s = ns * 1e-9, cpu_ns * 1e-9

    def finish(self, slots: Ints) -> Ints:
        """Finish pictures that a device has started, whose bytes are at the beginning of these rows; returns the failed ones."""
        slots = np.ascontiguousarray(slots, _INT64)
        library().finish(self._struct.at, place(slots), len(slots))
        failed: Ints = slots[self.rows["status"][slots] != Status.OK]
        return failed

    def errnos(self, source: FileInput) -> dict[int, int]:
        """Of the files of an input that could not be read: their numbers in it -> errno."""
        rows = self.rows if source.slots is None else self.rows[source.slots]
        return {row: int(rows["where"][row]) for row in np.flatnonzero(rows["status"] == Status.IO).tolist()}

    def _refuse(self, row: int, code: int) -> None:
        """Note that the file of a row could not be read."""
        self.rows[row] = np.zeros((), ROW_DTYPE)
        self.rows["status"][row], self.rows["where"][row] = Status.IO, code
        bad, *reading = _ANSWER.unpack_from(self._struct.memory, _ANSWER_AT)
        _ANSWER.pack_into(self._struct.memory, _ANSWER_AT, bad + 1, *reading)


def render(decoder: Decoder, program: Program, images: Input, epoch: int, positions: Ints, out: NDArray[Any]) -> NDArray[np.void]:
    """Render once: returns what became of each image (`ROW_DTYPE`). `Renderer` is for many times."""
    renderer = Renderer(decoder, program)
    renderer.begin(epoch, positions, out)
    renderer.add(images)
    return renderer.rows


def _output_size(program: Program, out: NDArray[Any]) -> tuple[int, int]:
    """Return (height, width) of the images in `out`, after checking that they lie there densely."""
    shape = out.shape
    if len(shape) == 3 and program.channels == 1:
        height, width = shape[1:]
    elif len(shape) == 4 and shape[1 if program.planar else 3] == program.channels:
        height, width = shape[2:] if program.planar else shape[1:3]
    else:
        raise KernelError(f"out has shape {shape}, which holds no images of {program.channels} channels")
    if out.dtype != program.dtype or not out[:1].flags.c_contiguous or not out.flags.writeable:
        raise KernelError(f"out must be images of {program.dtype}, each contiguous and writeable; it is {out.dtype}{shape}")
    if len(out) > 1 and out.strides[0] < height * width * program.channels * out.itemsize:
        raise KernelError("the images in out overlap")
    return height, width
