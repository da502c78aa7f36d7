"""The image stage: encoded bytes or pixels to finished pixels, one chunk per kernel call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Protocol, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import (
    SKIP,
    BoxError,
    CorruptImage,
    ImageError,
    ImageTooLarge,
    SampleError,
    TruncatedImage,
    UnsupportedImage,
    message_of,
)
from ..image import npy, pillow
from ..image.draws import Drawn, in_words
from ..image.lower import lower, steps_of
from ..image.orient import upright
from ..kernel import describe, native
from ..kernel.native import SeekUse, Spans, Status
from ..kernel.render import ImageInput, Renderer, SpanInput, render
from ..plan.columns import Step
from ..plan.field_effects import crop_fields, image_spec
from ..plan.nodes import Image
from ..plan.order import Places
from ..sizes import a_type
from ..source.chunk import BytesColumn, Chunk, Column, Ints
from ..source.source import Rows, Source
from ..storage.scratch import Scratch
from .boxes import move_column
from .stage import Stage, Targets

_REMEDY = f"replace it, or {SKIP}"
#: what the kernel says of pictures in which Pillow may find no fault
_DAMAGE = (Status.TRUNCATED, Status.CORRUPT)


class DeviceRows(Protocol):
    """Decodes pictures of a task on a device, at their places there: `scratch.device`, set for each task."""

    #: where in the host's memory the task's pictures would go
    host: NDArray[Any]

    def begin(self, renderer: Renderer, program: native.Program) -> None:
        """Let a renderer that is about to begin pass pictures on, from the first of the task."""

    def finish(self, renderer: Renderer) -> Ints:
        """Decode what was passed on, and wait; the rows that the device gave back, for the kernel to render."""


class ImageStage(Stage):
    """Decode, crop, resize, flip, lay out and normalise, written directly into the batch if possible."""

    def __init__(self, step: Step[Image], seed: int) -> None:
        node, given = step.node, step.given(step.node.field)
        self.name = f"image({node.field!r})"
        self.field, self._spec = step.column(node.field), image_spec(node, given)
        self._ops = node.ops
        self._program = program_of(step, seed)
        self._box = next(map(step.column, crop_fields(node)), None)
        self._moved, self._relative = {step.column(name): name for name in node.boxes}, node.relative_boxes
        self._plain = not node.boxes and not node.lenient  # a picture that was rendered needs nothing else

    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        column = encoded(chunk.columns[self.field])
        boxes = self._boxes(chunk)
        if isinstance(column, BytesColumn) and self._spec.fixed:
            chunk.columns[self.field], rows = self._run_fixed(chunk, column, boxes, targets, scratch)
        elif self._spec.fixed and _holds_pixels(column):
            chunk.columns[self.field], rows = self._run_pixels(chunk, column, boxes, targets, scratch)
        else:
            chunk.columns[self.field], rows = self._run_each(chunk, column, boxes, targets, scratch)
        self._move_boxes(chunk, rows, targets)
        return chunk

    def _move_boxes(self, chunk: Chunk, rows: NDArray[np.void], targets: Targets) -> None:
        """Boxes go where their pixels went."""
        for column, name in self._moved.items():
            chunk.columns[column], wrong = move_column(chunk.columns[column], rows, self._relative, targets.get(column))
            for row, message in wrong.items():
                chunk.fail(row, BoxError(f"{_where(chunk, row)}: {name} {message}; {_REMEDY}"))

    def render(
        self, source: Source, places: Places, wanted: Collection[str], out: Targets, targets: Targets, scratch: Scratch
    ) -> tuple[Rows, Renderer] | None:
        """Read and render in one native call: the same pictures in the same memory as `run` would.

        None if that is not possible for these samples, and they must be read first.
        """
        located = source.locate(self.field, places.indices, wanted, out, scratch, self._box)
        if located is None:
            return None
        pixels, renderer = self._out(len(places.positions), targets), self._renderer(scratch)
        try:
            device = self._begin(renderer, places.epoch, places.positions, pixels, scratch)
            for each, slots in located.inputs:
                renderer.add(each, slots)
        finally:
            if located.release is not None:
                located.release()
        back = () if device is None else device.finish(renderer)
        renderer.read_s += located.waited_s
        rows = located.finish(renderer)
        if rows is None:
            return None
        if len(back):
            rows = self._read_again(source, places, np.asarray(back), rows, renderer)
        rows.columns[self.field] = pixels
        return rows, renderer

    def _begin(
        self, renderer: Renderer, epoch: int, positions: Ints, pixels: NDArray[Any], scratch: Scratch
    ) -> DeviceRows | None:
        """Say where pictures go; who decodes some of them on a device, None: nobody does."""
        device: DeviceRows | None = scratch.device
        if device is None or device.host is not pixels:  # the latter: these are not the pictures of a batch
            renderer.load = None  # it still has one where memory ran out when all rows went to the device together
            renderer.begin(epoch, positions, pixels)
            return None
        device.begin(renderer, self._program)
        renderer.begin(epoch, positions, pixels)
        return device

    def _read_again(self, source: Source, places: Places, back: Ints, rows: Rows, renderer: Renderer) -> Rows:
        """Render the pictures that a device gave back: the same as if it had never had them."""
        with closing(Scratch()) as own:  # what the other columns were read to is in use
            fields = [self.field] if self._box is None else [self.field, self._box]
            read = source.read(places.indices[back], fields, {}, own)
            column = cast(BytesColumn, encoded(read.columns[self.field]))
            boxes = None if self._box is None else np.asarray(read.columns[self._box], np.float32)
            good = np.array([row not in read.errors for row in range(len(back))])
            unread = {int(back[row]): error for row, error in read.errors.items()}
            kept = column.take(np.flatnonzero(good)).lasting()
            self._render_back(renderer, kept, None if boxes is None else boxes[good], back[good], own)
        at = {int(row): number for number, row in enumerate(back[good])}

        def bytes_of(row: int) -> bytes | None:
            return kept[at[row]] if row in at else rows.encoded(row) if rows.encoded is not None else None

        return Rows(rows.columns, {**rows.errors, **unread}, bytes_of)

    def _render_back(
        self, renderer: Renderer, column: BytesColumn, boxes: NDArray[np.float32] | None, slots: Ints, scratch: Scratch
    ) -> None:
        """Render encoded pictures to these rows of what the renderer has begun, here and not on a device."""
        if not len(slots):
            return
        seeks = None if column.seeks is None else column.seeks.read(column, scratch)[0]
        renderer.add(SpanInput().tell(Spans(column.data, column.starts, column.lengths), seeks, boxes), slots)

    def settle(self, chunk: Chunk, read: Rows, renderer: Renderer, targets: Targets, scratch: Scratch) -> None:
        """Settle the rows of a chunk whose pictures were rendered as it was read."""
        if self._plain and not renderer.sought and not renderer.bad:
            return
        rows = renderer.rows
        self._note_damaged(rows, chunk, scratch)
        if renderer.sought:
            _note_seeks(rows["seek"], (), chunk, scratch)
        if renderer.bad:
            self._settle(chunk, rows, read.encoded, self._boxes(chunk), cast("NDArray[Any]", read.columns[self.field]), scratch)
        self._move_boxes(chunk, rows, targets)

    def _renderer(self, scratch: Scratch) -> Renderer:
        renderer: Renderer = scratch.keep(self, lambda: Renderer(scratch.decoder, self._program))
        return renderer

    def plan(self, chunk: Chunk, scratch: Scratch) -> NDArray[np.void]:
        """The geometry of every row, for `explain`; decodes what it must to learn the sizes. Bad rows fail, and mean nothing."""
        column, boxes = encoded(chunk.columns[self.field]), self._boxes(chunk)
        sizes = np.ones((len(chunk), 2), np.int32)
        for row in set(range(len(chunk))) - chunk.failures.keys():
            try:
                sizes[row] = _size(column, row, self._program, scratch)
            except (SampleError, MemoryError) as error:
                chunk.fail(row, place_error(error, chunk, row))
        heights, widths = (np.ascontiguousarray(side) for side in sizes.T)
        planned = self._geometry(chunk, np.arange(len(chunk)), widths, heights, boxes)
        _settle_pixels(chunk, planned)
        return planned

    def draws_of(self, chunk: Chunk, planned: NDArray[np.void]) -> list[list[Drawn]]:
        """What the operations drew for every row, for `explain`; `planned` is what `plan` returned."""
        epochs = np.full(len(chunk), chunk.epoch, np.uint32)
        sizes = planned["width"], planned["height"]
        drawn = describe.draws(self._program, *sizes, self._boxes(chunk), epochs, chunk.positions)
        steps = steps_of(self._ops)
        return [in_words(steps, numbers, self._program.choices) for numbers in drawn.tolist()]

    def _run_fixed(
        self, chunk: Chunk, column: BytesColumn, boxes: NDArray[np.float32] | None, targets: Targets, scratch: Scratch
    ) -> tuple[NDArray[Any], NDArray[np.void]]:
        """The pictures, and what became of each."""
        out, renderer = self._out(len(chunk), targets), self._renderer(scratch)
        seeks, unfit = (None, ()) if column.seeks is None else column.seeks.read(column, scratch)
        spans: SpanInput = scratch.keep(SpanInput, SpanInput)
        device = self._begin(renderer, chunk.epoch, chunk.positions, out, scratch)
        renderer.add(spans.tell(Spans(column.data, column.starts, column.lengths), seeks, boxes))
        if device is not None and len(back := device.finish(renderer)):
            self._render_back(renderer, column.take(back), None if boxes is None else boxes[back], back, scratch)
        rows = renderer.rows
        if column.seeks is not None:
            _note_seeks(rows["seek"], unfit, chunk, scratch)
        self._note_damaged(rows, chunk, scratch)
        if renderer.bad:
            self._settle(chunk, rows, column.__getitem__, boxes, out, scratch)
        return out, rows

    def _run_pixels(
        self, chunk: Chunk, column: NDArray[np.uint8], boxes: NDArray[np.float32] | None, targets: Targets, scratch: Scratch
    ) -> tuple[NDArray[Any], NDArray[np.void]]:
        """Decoded images of one size, such as those of arrays, in one call."""
        out, renderer = self._out(len(chunk), targets), self._renderer(scratch)
        renderer.begin(chunk.epoch, chunk.positions, out)
        renderer.add(ImageInput(native.Images(column)).tell(None, boxes))
        if renderer.bad:
            self._settle(chunk, renderer.rows, None, boxes, out, scratch)
        return out, renderer.rows

    def _settle(
        self,
        chunk: Chunk,
        rows: NDArray[np.void],
        encoded: Callable[[int], bytes | None] | None,
        boxes: NDArray[np.float32] | None,
        out: NDArray[Any],
        scratch: Scratch,
    ) -> None:
        """What the kernel left to others is decoded by Pillow; what it refused is an error of its row."""
        for row in np.flatnonzero(rows["status"]).tolist():
            if row in chunk.failures:
                continue
            where, length = int(rows["where"][row]), -1
            try:
                value = None if encoded is None else encoded(row)
                length = -1 if value is None else len(value)
                status = rows["status"][row]
                for_others = status == Status.UNSUPPORTED or (self._program.as_pillow and status in _DAMAGE)
                if value is not None and for_others:
                    where = -1  # what the kernel said of it is no longer the point
                    pixels = decode_elsewhere(value, self._program, scratch)
                    note_damage(chunk, row, scratch)
                    _, rows[row] = self._resample(chunk, row, pixels, boxes, out[row], scratch)
                else:
                    _raise(rows[row])
            except (SampleError, MemoryError) as error:
                chunk.fail(row, place_error(error, chunk, row, where, length))

    def _note_damaged(self, rows: NDArray[np.void], chunk: Chunk, scratch: Scratch) -> None:
        """Count the pictures that the kernel decoded although they are damaged."""
        if self._program.lenient:
            for row in np.flatnonzero((rows["status"] == Status.OK) & (rows["warnings"] > 0)).tolist():
                _count_damage(chunk, row, scratch)

    def _run_each(
        self, chunk: Chunk, column: Column, boxes: NDArray[np.float32] | None, targets: Targets, scratch: Scratch
    ) -> tuple[Column, NDArray[np.void]]:
        """Row by row: for pixels that are decoded already, and for results whose size varies."""
        out: Any = self._out(len(chunk), targets) if self._spec.fixed else [None] * len(chunk)
        rows = np.zeros(len(chunk), native.ROW_DTYPE)
        for row in range(len(chunk)):
            if row in chunk.failures:
                continue
            try:
                pixels = decode_pixels(column, row, self._program, scratch)
                note_damage(chunk, row, scratch)
                if self._spec.fixed:
                    _, rows[row] = self._resample(chunk, row, pixels, boxes, out[row], scratch)
                else:
                    out[row], rows[row] = self._resample(chunk, row, pixels, boxes, None, scratch)
            except (SampleError, MemoryError) as error:
                chunk.fail(row, place_error(error, chunk, row))
        return out, rows

    def _resample(
        self,
        chunk: Chunk,
        row: int,
        pixels: NDArray[np.uint8],
        boxes: NDArray[np.float32] | None,
        out: NDArray[Any] | None,
        scratch: Scratch,
    ) -> tuple[NDArray[Any], np.void]:
        height, width = pixels.shape[:2]
        at = np.array([row])
        if out is None:
            planned = self._geometry(chunk, at, np.array([width], np.int32), np.array([height], np.int32), boxes)[0]
            if planned["status"]:
                _raise(planned)
            shape = self._program.shape(int(planned["out_height"]), int(planned["out_width"]))
            out = np.empty(shape, self._program.dtype)
        image = ImageInput(native.Images(pixels[None])).tell(None, None if boxes is None else boxes[at])
        made = render(scratch.decoder, self._program, image, chunk.epoch, chunk.positions[at], out[None])[0]
        if made["status"]:
            _raise(made)
        return out, made

    def _geometry(self, chunk: Chunk, rows: Any, widths: Any, heights: Any, boxes: Any) -> NDArray[np.void]:
        epochs = np.full(len(rows), chunk.epoch, np.uint32)
        return native.plan(self._program, widths, heights, None if boxes is None else boxes[rows], epochs, chunk.positions[rows])

    def _boxes(self, chunk: Chunk) -> NDArray[np.float32] | None:
        if self._box is None:
            return None
        column = chunk.columns[self._box]
        boxes = np.zeros((len(chunk), 4), np.float32)
        for row in range(len(chunk)):
            try:
                boxes[row] = column[row]
            except (ValueError, TypeError):
                if row not in chunk.failures:
                    message = f"the box {column[row]!r} is not four numbers (ymin, xmin, ymax, xmax)"
                    chunk.fail(row, place_error(BoxError(message), chunk, row))
        return boxes

    def _out(self, rows: int, targets: Targets) -> NDArray[Any]:
        target = targets.get(self.field)
        if target is not None:
            return target
        return np.empty((rows, *(n for n in self._spec.shape if n is not None)), self._spec.dtype)


def program_of(step: Step[Image], seed: int) -> native.Program:
    """What the kernel is to do with the pictures of an image step."""
    node = step.node
    return lower(
        node.ops,
        seed=seed,
        streams=step.streams,
        color=node.color,
        layout=node.layout,
        out=node.out,
        fast=node.fast,
        max_pixels=node.max_pixels,
        orient=node.orient,
        lenient=node.lenient,
        as_pillow=node.as_pillow,
    )


def _settle_pixels(chunk: Chunk, rows: NDArray[np.void]) -> None:
    """What the kernel refused of images that are decoded already is an error of its row."""
    for row in np.flatnonzero(rows["status"]).tolist():
        if row not in chunk.failures:
            try:
                _raise(rows[row])
            except SampleError as error:
                chunk.fail(row, place_error(error, chunk, row))


def _holds_pixels(column: Column) -> TypeGuard[NDArray[np.uint8]]:
    """Whether a column is images of one size, ready for the kernel."""
    return isinstance(column, np.ndarray) and native.Images.fit(column)


def encoded(column: Column) -> Column:
    """A column of encoded images as one buffer; anything else unchanged."""
    if isinstance(column, BytesColumn):
        return column
    if len(column) and all(value is None or is_encoded(value) for value in column):
        return BytesColumn.of(b"" if value is None else _view(value) for value in column)
    return column


def is_encoded(value: Any) -> bool:
    """Whether a value is the bytes of an encoded image; an array or a tensor of uint8 and one dimension is, and never pixels."""
    return isinstance(value, (bytes, bytearray, memoryview)) or (
        getattr(value, "ndim", 0) == 1 and str(value.dtype) in ("uint8", "torch.uint8")
    )


def _view(value: Any) -> memoryview:
    return memoryview(value if isinstance(value, (bytes, bytearray, memoryview)) else cast(Any, np.ascontiguousarray(value)))


def _note_seeks(uses: NDArray[np.int32], unfit: Sequence[int] | Ints, chunk: Chunk, scratch: Scratch) -> None:
    """Count what became of the seek indices of a chunk's images; `unfit` are rows whose index was left out beforehand."""
    notes, became = scratch.notes, uses.tolist()
    notes.seeks_used += became.count(SeekUse.USED)
    count = became.count(SeekUse.UNFIT)
    if count or len(unfit):
        notes.seeks_unfit += count + len(unfit)
        notes.unfit = notes.unfit or chunk.place(int(unfit[0]) if len(unfit) else became.index(SeekUse.UNFIT))


def note_damage(chunk: Chunk, row: int, scratch: Scratch) -> None:
    """Count a picture in which the decoder has just found damage, if it has."""
    if scratch.decoder.warnings:
        scratch.decoder.warnings = 0
        _count_damage(chunk, row, scratch)


def _count_damage(chunk: Chunk, row: int, scratch: Scratch) -> None:
    scratch.notes.damaged += 1
    scratch.notes.damage = scratch.notes.damage or _where(chunk, row)


def decode_pixels(column: Column, row: int, program: native.Program, scratch: Scratch) -> NDArray[np.uint8]:
    """The pixels (height, width, channels) of one row: decoded, or as stored."""
    value = column[row]
    return decode_bytes(value, program, scratch) if is_encoded(value) else as_pixels(value, program.channels)


def decode_bytes(value: Any, program: native.Program, scratch: Scratch) -> NDArray[np.uint8]:
    """A whole image, decoded by the kernel if it can, else by Pillow."""
    if not is_encoded(value):
        raise UnsupportedImage(f"{a_type(value)} is not an encoded image; decode() takes bytes")
    data = _view(value)
    try:
        return scratch.decoder.decode(program, data)
    except UnsupportedImage:
        pass
    except (CorruptImage, TruncatedImage):
        if not program.as_pillow:
            raise
    return decode_elsewhere(data.tobytes(), program, scratch)


def decode_elsewhere(value: bytes, program: native.Program, scratch: Scratch) -> NDArray[np.uint8]:
    """A whole image that the kernel has declined: an array, a JPEG that has to be turned upright, or one for Pillow."""
    if value.startswith(npy.MAGIC) and not program.as_pillow:
        return npy.decode(value, program.channels, program.max_pixels)
    if program.orient and value.startswith(b"\xff\xd8"):
        with suppress(UnsupportedImage):  # then the kernel does not decode it at all
            level = scratch.decoder.decode(replace(program, orient=False), value)
            return upright(level, native.jpeg_header(value).orientation)
    scratch.notes.pillow += 1
    return pillow.decode(value, program.channels, program.max_pixels, program.orient, program.as_pillow)


def as_pixels(value: Any, channels: int) -> NDArray[np.uint8]:
    """Pixels that are decoded already, after a look at their type and shape; those of a Pillow image in so many `channels`."""
    if pillow.is_image(value):
        return pillow.pixels_of(value, channels)  # not its memory, which may be indices of a palette, or inks
    try:
        pixels = np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # lists of unequal length; tensors of a device, or with a gradient; what fails in its own way
        told = f"{a_type(value)} is neither encoded bytes nor uint8 pixels"
        raise UnsupportedImage(f"{told} (NumPy cannot make an array of it: {message_of(error)})") from error
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        told = f"{pixels.dtype}{list(pixels.shape)}" if pixels.dtype.kind in "biufc" else f"{a_type(value)}"
        first = pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4)
        raise UnsupportedImage(
            f"{told} is neither encoded bytes nor uint8 pixels (height, width[, 1, 3 or 4])"
            f"{'; expected channels last (height, width, channels), got them first' if first else ''}"
        )
    if not pixels.size:
        raise UnsupportedImage(f"an image of shape {list(pixels.shape)} has no pixels")
    return np.ascontiguousarray(pixels)


def _size(column: Column, row: int, program: native.Program, scratch: Scratch) -> tuple[int, int]:
    if isinstance(column, BytesColumn):
        try:
            info = native.jpeg_header(column[row])
            turned = program.orient and info.orientation >= 5
            return (info.width, info.height) if turned else (info.height, info.width)
        except ImageError:
            pass
    height, width = decode_pixels(column, row, program, scratch).shape[:2]
    return int(height), int(width)


def _raise(row: Any) -> None:
    raise native.error_of(int(row["status"]), row["message"].decode("utf-8", "replace") or "it could not be decoded")


def place_error(error: SampleError | MemoryError, chunk: Chunk, row: int, where: int = -1, length: int = -1) -> SampleError:
    """The same error with file, place and remedy in its message; running out of memory becomes an error of the image."""
    if isinstance(error, MemoryError):
        cause, error = error, ImageTooLarge("there is not enough memory for its pixels")
        error.__cause__ = cause
    place = f" at byte {where:,} of {length:,}" if where >= 0 else f" ({length:,} bytes)" if length >= 0 else ""
    placed = type(error)(f"{_where(chunk, row)}: {error}{place}; {_REMEDY}")
    placed.__cause__ = error.__cause__
    return placed


def _where(chunk: Chunk, row: int) -> str:
    """The file and byte of a row; of what is stored nowhere, such as rows of arrays, which sample it is."""
    place, key = chunk.place(row), chunk.name(row)
    return f"sample {key!r}" if place == key else place
