"""Order, randomness, bytes and images: the native library as functions of arrays. ``native/include/stoker.h`` is the manual."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from stoker.errors import ImageTooLarge, KernelError, StokerError
from stoker.kernel.file_reads import Arena as Arena
from stoker.kernel.file_reads import Paths as Paths
from stoker.kernel.library import BRIEF_BYTES, Owned, address, contiguous, library
from stoker.kernel.library import Bytes as Bytes
from stoker.kernel.status import AugmentKind as AugmentKind
from stoker.kernel.status import Border as Border
from stoker.kernel.status import DecoderKind as DecoderKind
from stoker.kernel.status import OpKind as OpKind
from stoker.kernel.status import SeekUse as SeekUse
from stoker.kernel.status import Status as Status
from stoker.kernel.status import error_of as error_of
from stoker.kernel.structs import CHOICE, IMAGES, JPEG_INFO, PROGRAM
from stoker.kernel.structs import MAX_OPS as MAX_OPS
from stoker.kernel.structs import MAX_PARAMS as MAX_PARAMS
from stoker.kernel.structs import ROW_DTYPE as ROW_DTYPE

SEEK_STEP = 16  # MCUs between two states of a seek index
#: copies of at least this many bytes bypass the caches: less may still be there when it is read
_PAST_CACHES = 1 << 20
_INT64 = np.dtype(np.int64)  # NumPy takes a dtype faster than the class it is made from


# ---- order and randomness --------------------------------------------------------------------------------------------


def build_info() -> str:
    """Describe the build in one line: ``libjpeg-turbo 2.1.5, simd avx2``, or ``no libjpeg-turbo, simd avx2``."""
    return library().build().decode()


def simd(level: int = -1) -> int:
    """Choose the SIMD level (0 scalar, 1 AVX2 or NEON, 2 AVX-512, -1 the fastest); returns that in use. It changes no result."""
    return library().simd(level)


def permute(n: int, key: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where the permutation of ``0 .. n-1`` chosen by `key` sends each position.

    >>> sorted(permute(5, 42, np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """
    positions = np.ascontiguousarray(positions, _INT64)
    out = np.empty(positions.shape, _INT64)
    call = library().permute_brief if out.nbytes < BRIEF_BYTES else library().permute
    call(n, key, address(positions), positions.size, address(out))
    return out


def uniforms(seed: int, epochs: NDArray[np.uint32], positions: NDArray[np.int64], stream: int, draws: int) -> NDArray[np.float64]:
    """Return ``(count, draws)`` uniform numbers in (0, 1), a function of the arguments alone."""
    count = len(positions)
    positions = contiguous(positions, np.int64, count, "positions")
    epochs = contiguous(epochs, np.uint32, count, "epochs")
    if not 0 <= stream < 1 << 32 or not 0 <= draws <= 1024:
        raise KernelError(f"stream {stream} or draws {draws} out of range")
    out = np.empty((count, draws), np.float64)
    library().uniforms(seed, address(epochs), address(positions), count, stream, draws, address(out))
    return out


# ---- moving bytes ----------------------------------------------------------------------------------------------------


def _has_dense_rows(array: NDArray[Any]) -> bool:
    return array.flags.c_contiguous or array[:1].flags.c_contiguous


class Table:
    """The rows of an array (or memory map), prepared once for many gathers. Rows are contiguous, any stride apart."""

    def __init__(self, array: NDArray[Any]) -> None:
        if not _has_dense_rows(array):
            raise KernelError("gather needs rows that are contiguous")
        self._array, self._dtype, self._row_shape = array, array.dtype, array.shape[1:]
        self._row_bytes = math.prod(self._row_shape) * array.itemsize
        self._from = (address(array), len(array), array.strides[0], self._row_bytes)
        self._in_memory = array.base is None  # a view may be of a file, and then any read may wait for a disk

    def gather(self, index: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Copy row ``index[i]`` to ``out[i]``; an index out of range raises before anything is written."""
        index = np.ascontiguousarray(index, _INT64)
        count, shape, flags = index.size, out.shape, out.flags
        if out.dtype != self._dtype or shape != (count, *self._row_shape) or not flags.writeable:
            raise KernelError(f"{count} rows of {self._dtype}{self._row_shape} do not fit {out.dtype}{shape}")
        if not (flags.c_contiguous or _has_dense_rows(out)):
            raise KernelError("gather needs rows that are contiguous")
        stride = out.strides[0] if count > 1 else self._row_bytes
        brief = self._in_memory and count * self._row_bytes < BRIEF_BYTES
        call = library().gather_brief if brief else library().gather
        call(*self._from, address(index), count, address(out), stride)


def copy_past_caches(array: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy `array` to `out`, of the same type and shape. If it is large, it bypasses the processor's caches."""
    if array.dtype != out.dtype or array.shape != out.shape or not out.flags.writeable:
        raise KernelError(f"{array.dtype}{array.shape} does not fit {out.dtype}{out.shape}")
    if out.nbytes < _PAST_CACHES or not (array.flags.c_contiguous and out.flags.c_contiguous):
        out[...] = array
    else:
        library().copy(address(out), address(array), out.nbytes)


def read_files(
    paths: Paths, which: NDArray[np.int64], arena: Arena
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]:
    """Read whole files into `arena` and return (data, offsets, errors).

    File ``which[i]`` is ``data[offsets[i]:offsets[i + 1]]``; ``errors[i]`` is 0 or the errno that refused it: ENXIO what is
    not a plain file, EFBIG more than `MAX_FILE_BYTES`, ENOMEM what there is no memory for. A MemoryError
    means that they do not fit together. `data` is the whole buffer of the arena: what follows the last file means nothing.
    """
    which = np.ascontiguousarray(which, np.int64)
    count = which.size
    if count and not (int(which.min()) >= 0 and int(which.max()) < len(paths)):
        raise KernelError(f"which is out of range: {len(paths)} paths")
    offsets, errors = np.zeros(count + 1, np.int64), np.zeros(count, np.int32)
    done, needed = np.zeros(1, np.int64), np.zeros(1, np.int64)
    read = library().read_files
    while read(
        address(paths.names), address(paths.starts), address(which), count, address(arena.buffer),
        arena.buffer.size, address(offsets), address(errors), address(done), address(needed),
    ):  # fmt: skip
        at = int(done[0])
        end = int(offsets[at])
        if refused := arena.room_for_file(int(needed[0]), end):
            errors[at], offsets[at + 1], done[0] = refused, end, at + 1
    return arena.buffer, offsets, errors


# ---- images ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JpegInfo:
    """What a JPEG's header says."""

    width: int
    height: int
    components: int
    progressive: bool
    scans: int
    supported: bool
    orientation: int = 0  # of its Exif segment, 1 to 8; 0: it does not say


def jpeg_header(data: Bytes) -> JpegInfo:
    """Read the header of a JPEG; raises an `ImageError` when there is none. Takes no memory from the size it finds."""
    array, told = np.frombuffer(data, np.uint8), np.zeros(1, JPEG_INFO)
    try:
        library().jpeg_header(address(array), array.size, address(told))
    except StokerError as error:
        raise type(error)(f"not a usable JPEG header in {array.size} bytes: {error}") from None
    width, height, components, progressive, scans, supported, orientation = told[0].tolist()
    return JpegInfo(width, height, components, bool(progressive), scans, bool(supported), orientation)


def seek_step(seek: bytes) -> int:
    """MCUs between two entries of a seek index, by its first bytes; 0 where these are of none."""
    return int.from_bytes(seek[2:4], "little") if len(seek) >= 4 and seek[:2] == b"S\x01" else 0


def seek_fits(data: Bytes, seek: Bytes) -> bool:
    """Whether a seek index was made for this JPEG, judging from headers and a few bytes."""
    array, index = np.frombuffer(data, np.uint8), np.frombuffer(seek, np.uint8)
    return library().seek_check(address(array), array.size, address(index), index.size) == Status.OK


class Augment(NamedTuple):
    """One effect of a policy; see ``stk_augment``."""

    kind: int
    mirrored: bool = False
    relative: bool = False
    fill: int = 0
    probability: float = 1.0
    magnitude: float = 0.0


class Op(NamedTuple):
    """One operation: what, which random stream, and up to twelve numbers."""

    kind: OpKind
    stream: int
    params: tuple[float, ...]


@dataclass(frozen=True)
class Program:
    """What to do to every image: a plain value. Equal programs do equal things.

    `scale` and `bias` are per channel, and matter where `as_float` is set: the output is then ``pixel * scale + bias``.
    """

    ops: tuple[Op, ...] = ()
    seed: int = 0
    channels: int = 3
    planar: bool = False
    as_float: bool = False
    scale: tuple[float, ...] = (1.0, 1.0, 1.0)
    bias: tuple[float, ...] = (0.0, 0.0, 0.0)
    exact: bool = False
    lenient: bool = False
    max_pixels: int = 100_000_000
    max_scans: int = 100
    decoder: DecoderKind = DecoderKind.ANY
    orient: bool = False  # leave JPEGs that have to be turned upright to others
    as_pillow: bool = False  # let others try what is refused, too
    choices: tuple[tuple[Augment, Augment], ...] = ()  # of policies
    _choices: NDArray[np.void] = field(init=False, repr=False, compare=False)
    _struct: NDArray[np.void] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build the struct the library reads."""
        if len(self.ops) > MAX_OPS or len(self.scale) < self.channels or len(self.bias) < self.channels:
            raise KernelError(f"at most {MAX_OPS} operations, and a scale and bias for each of {self.channels} channels")
        struct, choices = np.zeros(1, PROGRAM), np.zeros(max(1, len(self.choices)), CHOICE)
        for slot, pair in zip(choices["effect"], self.choices):
            slot[:] = [tuple(effect) for effect in pair]
        object.__setattr__(self, "_choices", choices)
        told = struct[0]
        told["choices"], told["n_choices"] = choices.ctypes.data, len(self.choices)
        told["seed"], told["max_pixels"], told["max_scans"] = self.seed & (1 << 64) - 1, self.max_pixels, self.max_scans
        told["channels"], told["layout"], told["out_type"] = self.channels, self.planar, self.as_float
        told["exact"], told["lenient"], told["decoder"], told["n_ops"] = self.exact, self.lenient, self.decoder, len(self.ops)
        told["orient"] = self.orient
        told["scale"][: len(self.scale)] = self.scale
        told["bias"][: len(self.bias)] = self.bias
        for slot, op in zip(told["ops"], self.ops):
            slot["kind"], slot["stream"] = op.kind, op.stream
            slot["p"][: len(op.params)] = op.params
        object.__setattr__(self, "_struct", struct)

    def __reduce__(self) -> tuple[Any, ...]:
        # The struct holds an address, which means nothing elsewhere: it is built again there.
        return Program, tuple(getattr(self, each.name) for each in fields(self) if each.init)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the output."""
        return np.dtype(np.float32 if self.as_float else np.uint8)

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        """Return the shape of one output image."""
        return (self.channels, height, width) if self.planar else (height, width, self.channels)


def optional_boxes(boxes: NDArray[np.float32] | None, count: int) -> NDArray[np.float32] | None:
    """Boxes as the library takes them: four floats each, side by side; or none."""
    if boxes is None:
        return None
    boxes = np.ascontiguousarray(boxes, np.float32)
    if boxes.shape != (count, 4):
        raise KernelError(f"boxes have shape {boxes.shape}, not ({count}, 4)")
    return boxes


def image_table(
    widths: NDArray[np.int32],
    heights: NDArray[np.int32],
    boxes: NDArray[np.float32] | None,
    epochs: NDArray[np.uint32],
    positions: NDArray[np.int64],
) -> tuple[NDArray[Any] | None, ...]:
    """Sizes, boxes and positions of images as the library takes them, in its order; as many of each as positions."""
    count = len(positions)
    return (
        contiguous(widths, np.int32, count, "widths"),
        contiguous(heights, np.int32, count, "heights"),
        optional_boxes(boxes, count),
        contiguous(epochs, np.uint32, count, "epochs"),
        contiguous(positions, np.int64, count, "positions"),
    )


def plan(
    program: Program,
    widths: NDArray[np.int32],
    heights: NDArray[np.int32],
    boxes: NDArray[np.float32] | None,
    epochs: NDArray[np.uint32],
    positions: NDArray[np.int64],
) -> NDArray[np.void]:
    """Compute the geometry of `program` for images of these sizes; returns an array of `ROW_DTYPE`."""
    about, count = image_table(widths, heights, boxes, epochs, positions), len(positions)
    rows = np.zeros(count, ROW_DTYPE)
    library().image_plan(address(program._struct), *map(address, about), count, address(rows))
    return rows


class Images:
    """Decoded images of one size, (n, h, w) or (n, h, w, c) of uint8 with 1, 3 or 4 channels, prepared once for many calls.

    The pixels of an image are contiguous; images, and their rows, may be any distance apart.
    """

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        channels = pixels.shape[3] if pixels.ndim == 4 else 1
        if not self.fit(pixels):
            raise KernelError(f"pixels must be images of uint8 with contiguous rows; they are {pixels.dtype}{pixels.shape}")
        self._array = pixels
        self._struct = np.zeros(1, IMAGES)
        self._struct[0] = (pixels.ctypes.data, len(pixels), *_distances(pixels), pixels.shape[2], pixels.shape[1], channels)
        self.at = self._struct.ctypes.data

    @staticmethod
    def fit(pixels: NDArray[Any]) -> bool:
        """Whether an array is such images."""
        if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or not pixels.size:
            return False
        channels = pixels.shape[3] if pixels.ndim == 4 else 1
        images, rows = _distances(pixels)
        return channels in (1, 3, 4) and pixels[:1, :1].flags.c_contiguous and images >= 0 and rows >= pixels.shape[2] * channels

    def __len__(self) -> int:
        return len(self._array)

    def __reduce__(self) -> NoReturn:
        raise KernelError("images prepared for the kernel cannot be pickled or copied: they are addresses; send the array")


def _distances(pixels: NDArray[Any]) -> tuple[int, int]:
    """Bytes from image to image and from row to row. The strides of an axis of one mean nothing, and may be anything."""
    rows = pixels.strides[1] if pixels.shape[1] > 1 else pixels[0, 0].size
    return pixels.strides[0] if len(pixels) > 1 else 0, rows


class Decoder(Owned):
    """Scratch memory for decoding images; one thread at a time. Use it with ``with``, or call `close`."""

    def __init__(self) -> None:
        super().__init__(library().decoder_new(), library().decoder_free, "decoder")
        #: what was wrong with images that `decode` decoded all the same; whoever looks sets it back
        self.warnings = 0

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode(self, program: Program, data: Bytes) -> NDArray[np.uint8]:
        """Decode a whole JPEG to HWC pixels of ``program.channels``; raises an `ImageError` when that fails."""
        array, row = np.frombuffer(data, np.uint8), np.zeros(1, ROW_DTYPE)
        out = np.empty((0, 0, program.channels), np.uint8)
        # The first call has no room: it tells the size, or what is wrong with the image.
        while self._decode(program, array, out, row) == Status.SHORT:
            out = _room_for_pixels(int(row["height"][0]), int(row["width"][0]), program.channels)
        if row["status"][0] != Status.OK:
            where, message = int(row["where"][0]), row["message"][0].decode("utf-8", "replace")
            place = f" at byte {where:,} of {array.size:,}" if where >= 0 else ""
            raise error_of(int(row["status"][0]), message + place)
        self.warnings += int(row["warnings"][0])
        return out

    def seek_index(self, program: Program, data: Bytes, step: int = SEEK_STEP) -> tuple[bytes, np.void]:
        """Make the seek index of a JPEG: (index, its row). Empty if the row's status is not OK."""
        array, row, size = np.frombuffer(data, np.uint8), np.zeros(1, ROW_DTYPE), np.zeros(1, np.int64)
        out = np.empty(4096, np.uint8)
        while library().seek_make(
            self.handle, address(program._struct), address(array), array.size, step, address(out), out.size,
            address(size), address(row),
        ):  # fmt: skip
            out = np.empty(int(size[0]), np.uint8)
        return out[: int(size[0])].tobytes(), row[0]

    def _decode(self, program: Program, data: NDArray[np.uint8], out: NDArray[np.uint8], row: NDArray[np.void]) -> int:
        return library().jpeg_decode(
            self.handle, address(program._struct), address(data), data.size, address(out), out.nbytes, address(row)
        )  # fmt: skip


def _room_for_pixels(height: int, width: int, channels: int) -> NDArray[np.uint8]:
    try:
        return np.empty((height, width, channels), np.uint8)
    except MemoryError as error:
        raise ImageTooLarge(f"there is not enough memory for {width} x {height} pixels") from error


class Spans(NamedTuple):
    """Byte strings in one buffer: string i is ``data[starts[i]:starts[i] + lengths[i]]``."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
