"""The native library, called through ctypes; ``native/include/stoker.h`` is the manual. No other file does this.

Rules kept here: the library is loaded on first use and its ABI checked; every function that returns a status passes
through `_check`, installed as ctypes ``errcheck``, so no caller can forget it; every address handed over is checked
against the bounds of its array, because C cannot. Calls that do real work release the GIL. Those that take microseconds keep
it: with many workers, getting it back costs more than the call.
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections.abc import Callable
from ctypes import c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from stoker.errors import KernelError, StokerError
from stoker.kernel.files import Arena as Arena
from stoker.kernel.files import Paths as Paths
from stoker.kernel.status import OpKind as OpKind
from stoker.kernel.status import Status as Status
from stoker.kernel.status import error_of as error_of

ABI = 1
MAX_OPS = 16

Bytes: TypeAlias = "bytes | bytearray | memoryview | NDArray[np.uint8]"


# ---- structs ---------------------------------------------------------------------------------------------------------


class _Info(ctypes.Structure):
    _fields_ = [(name, c_int32) for name in ("width", "height", "components", "progressive", "scans", "supported")]


class _Op(ctypes.Structure):
    _fields_ = [("kind", c_int32), ("stream", c_uint32), ("p", c_double * 6)]


class _Program(ctypes.Structure):
    _fields_ = [
        ("seed", c_uint64),
        ("max_pixels", c_int64),
        ("max_scans", c_int32),
        ("channels", c_int32),
        ("layout", c_int32),
        ("out_type", c_int32),
        ("exact", c_int32),
        ("lenient", c_int32),
        ("n_ops", c_int32),
        ("scale", c_float * 3),
        ("bias", c_float * 3),
        ("ops", _Op * MAX_OPS),
    ]


_ROW_INTS = ("status", "width", "height", "out_width", "out_height", "flip", "shrink", "warnings")


class _Row(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in _ROW_INTS),
        ("dest", c_int32 * 4),
        ("clip", c_int32 * 4),
        ("view", c_double * 4),
        ("where", c_int64),
        ("message", ctypes.c_char * 120),
    ]


# The results of a call are a NumPy array of these, filled in place.
ROW_DTYPE = np.dtype(
    [
        *((name, np.int32) for name in _ROW_INTS),
        ("dest", np.int32, 4),
        ("clip", np.int32, 4),
        ("view", np.float64, 4),
        ("where", np.int64),
        ("message", "S120"),
    ]
)
if ctypes.sizeof(_Row) != ROW_DTYPE.itemsize:  # pragma: no cover - an ABI with odd alignment
    raise KernelError(f"stk_row is {ctypes.sizeof(_Row)} bytes here, not {ROW_DTYPE.itemsize}")


# ---- loading and calling ---------------------------------------------------------------------------------------------

_Function: TypeAlias = Callable[..., int]

_SIGNATURES: dict[str, list[Any]] = {
    "stk_permute": [c_uint64, c_uint64, c_void_p, c_int64, c_void_p],
    "stk_uniforms": [c_uint64, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "stk_gather": [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64],
    "stk_read_files": [*[c_void_p] * 3, c_int64, c_void_p, c_int64, *[c_void_p] * 4],
    "stk_jpeg_header": [c_void_p, c_int64, c_void_p],
    "stk_image_plan": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p],
    "stk_image_rows": [*[c_void_p] * 8, c_int64, c_int32, c_int32, c_void_p, c_int64, c_void_p],
    "stk_pixels_row": [c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_int64, c_void_p, c_void_p],
    "stk_jpeg_decode": [c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p],
}


#: functions whose callers come again with more room
_MAY_BE_SHORT = ("stk_read_files", "stk_jpeg_decode")


def _check(status: int, function: Any, arguments: tuple[Any, ...]) -> int:
    if status == 0 or (status == Status.SHORT and function.__name__ in _MAY_BE_SHORT):
        return status
    raise error_of(status, f"{function.__name__} refused the call")


#: a call over fewer bytes than this is over before another thread could have the GIL
_BRIEF_BYTES = 1 << 16


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for name, argtypes in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype, function.errcheck = argtypes, c_int32, _check
    return loaded


class _Library:
    """The loaded library: each function of the ABI, declared and checked."""

    def __init__(self, path: Path) -> None:
        loaded = ctypes.CDLL(str(path))
        loaded.stk_abi.restype = c_int32
        if (abi := loaded.stk_abi()) != ABI:
            raise KernelError(f"{path} has ABI {abi}, this Stoker needs {ABI}; rebuild it with `pip install .`")
        _declared(loaded)
        brief = _declared(ctypes.PyDLL(str(path)))  # the same library, called without letting go of the GIL
        self.permute: _Function = loaded.stk_permute
        self.permute_brief: _Function = brief.stk_permute
        self.uniforms: _Function = loaded.stk_uniforms
        self.gather: _Function = loaded.stk_gather
        self.gather_brief: _Function = brief.stk_gather
        self.read_files: _Function = loaded.stk_read_files
        self.jpeg_header: _Function = brief.stk_jpeg_header
        self.image_plan: _Function = brief.stk_image_plan
        self.image_rows: _Function = loaded.stk_image_rows
        self.pixels_row: _Function = loaded.stk_pixels_row
        self.jpeg_decode: _Function = loaded.stk_jpeg_decode
        self.build: Callable[[], bytes] = loaded.stk_build
        loaded.stk_build.restype = c_char_p
        self.simd: Callable[[int], int] = loaded.stk_simd
        loaded.stk_simd.argtypes, loaded.stk_simd.restype = [c_int32], c_int32
        self.decoder_new: Callable[[], int | None] = loaded.stk_decoder_new
        loaded.stk_decoder_new.restype = c_void_p
        self.decoder_free: Callable[[int], None] = loaded.stk_decoder_free
        loaded.stk_decoder_free.argtypes, loaded.stk_decoder_free.restype = [c_void_p], None


_library: _Library | None = None


def _native() -> _Library:
    return _library or _load()


def _load() -> _Library:
    # Two threads may both get here; both load the same file, and the last assignment wins.
    global _library
    name = "libstoker.dylib" if sys.platform == "darwin" else "libstoker.so"
    # An editable install has two folders for this package: the sources, and what was built from them.
    folders = [Path(folder) for folder in sys.modules[__package__].__path__]
    path = next((folder / name for folder in folders if (folder / name).exists()), None)
    if path is None:
        raise KernelError(
            f"the native library is not built: {name} is not in {folders[0]}; run `pip install .` in Stoker's source folder"
        )
    _library = _Library(path)
    return _library


_NoBytes = ctypes.c_char * 0
_INT64 = np.dtype(np.int64)  # NumPy takes a dtype faster than the class it is made from


def _address(array: NDArray[Any]) -> Any:
    """Return what a ``c_void_p`` parameter takes. ``array.ctypes.data`` costs four times as much as a buffer export."""
    try:
        return _NoBytes.from_buffer(cast(Any, array))
    except (TypeError, ValueError, BufferError):  # read-only or not contiguous
        return array.ctypes.data


def _contiguous(array: NDArray[Any], dtype: type[np.generic], count: int, name: str) -> NDArray[Any]:
    result = np.ascontiguousarray(array, dtype)
    if result.ndim != 1 or len(result) != count:
        raise KernelError(f"{name} has shape {result.shape}, not ({count},)")
    return result


# ---- order and randomness --------------------------------------------------------------------------------------------


def build_info() -> str:
    """Describe the build in one line, such as ``libjpeg-turbo 2.1.5, simd avx2``."""
    return _native().build().decode()


def simd(level: int = -1) -> int:
    """Choose the SIMD level (0 scalar, 1 AVX2, -1 the best) and return the one in use. Results do not depend on it."""
    return _native().simd(level)


def permute(n: int, key: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where the permutation of ``0 .. n-1`` chosen by `key` sends each position.

    >>> sorted(permute(5, 42, np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """
    positions = np.ascontiguousarray(positions, _INT64)
    out = np.empty(positions.shape, _INT64)
    call = _native().permute_brief if out.nbytes < _BRIEF_BYTES else _native().permute
    call(n, key, _address(positions), positions.size, _address(out))
    return out


def uniforms(seed: int, epochs: NDArray[np.uint32], positions: NDArray[np.int64], stream: int, draws: int) -> NDArray[np.float64]:
    """Return ``(count, draws)`` uniform numbers in (0, 1), a function of the arguments alone."""
    count = len(positions)
    positions = _contiguous(positions, np.int64, count, "positions")
    epochs = _contiguous(epochs, np.uint32, count, "epochs")
    if not 0 <= stream < 1 << 24 or not 0 <= draws <= 1024:
        raise KernelError(f"stream {stream} or draws {draws} out of range")
    out = np.empty((count, draws), np.float64)
    _native().uniforms(seed, _address(epochs), _address(positions), count, stream, draws, _address(out))
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
        self._from = (_address(array), len(array), array.strides[0], self._row_bytes)
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
        brief = self._in_memory and count * self._row_bytes < _BRIEF_BYTES
        call = _native().gather_brief if brief else _native().gather
        call(*self._from, _address(index), count, _address(out), stride)


def gather(table: NDArray[Any], index: NDArray[np.int64], out: NDArray[Any]) -> None:
    """Copy ``table[index]`` into `out`, once; `Table` is for many times."""
    Table(table).gather(index, out)


def read_files(
    paths: Paths, which: NDArray[np.int64], arena: Arena
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]:
    """Read whole files into `arena` and return (bytes, offsets, errors).

    File ``which[i]`` is ``data[offsets[i]:offsets[i + 1]]``; ``errors[i]`` is 0 or the errno that refused it.
    """
    which = np.ascontiguousarray(which, np.int64)
    count = which.size
    if count and not (int(which.min()) >= 0 and int(which.max()) < len(paths)):
        raise KernelError(f"which is out of range: {len(paths)} paths")
    offsets, errors = np.zeros(count + 1, np.int64), np.zeros(count, np.int32)
    done, needed = c_int64(0), c_int64(0)
    read = _native().read_files
    while read(
        _address(paths.names), _address(paths.starts), _address(which), count, _address(arena.buffer),
        arena.buffer.size, _address(offsets), _address(errors), ctypes.byref(done), ctypes.byref(needed),
    ):  # fmt: skip
        arena.grow(needed.value, keep=int(offsets[done.value]))
    return arena.buffer[: int(offsets[count])], offsets, errors


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


def jpeg_header(data: Bytes) -> JpegInfo:
    """Read the header of a JPEG; raises an `ImageError` when there is none. Takes no memory from the size it finds."""
    array, info = np.frombuffer(data, np.uint8), _Info()
    try:
        _native().jpeg_header(_address(array), array.size, ctypes.byref(info))
    except StokerError as error:
        raise type(error)(f"not a usable JPEG header in {array.size} bytes: {error}") from None
    return JpegInfo(info.width, info.height, info.components, bool(info.progressive), info.scans, bool(info.supported))


class Op(NamedTuple):
    """One operation: what, which random stream, and up to six numbers."""

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
    _struct: _Program = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build the struct the library reads."""
        if len(self.ops) > MAX_OPS or len(self.scale) < self.channels or len(self.bias) < self.channels:
            raise KernelError(f"at most {MAX_OPS} operations, and a scale and bias for each of {self.channels} channels")
        struct = _Program(
            seed=self.seed & (1 << 64) - 1, max_pixels=self.max_pixels, max_scans=self.max_scans,
            channels=self.channels, layout=int(self.planar), out_type=int(self.as_float), exact=int(self.exact),
            lenient=int(self.lenient), n_ops=len(self.ops),
        )  # fmt: skip
        struct.scale[: len(self.scale)] = self.scale
        struct.bias[: len(self.bias)] = self.bias
        for slot, op in zip(struct.ops, self.ops):
            slot.kind, slot.stream = op.kind, op.stream
            slot.p[: len(op.params)] = op.params
        object.__setattr__(self, "_struct", struct)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the output."""
        return np.dtype(np.float32 if self.as_float else np.uint8)

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        """Return the shape of one output image."""
        return (self.channels, height, width) if self.planar else (height, width, self.channels)


def _optional_boxes(boxes: NDArray[np.float32] | None, count: int) -> NDArray[np.float32] | None:
    if boxes is None:
        return None
    boxes = np.ascontiguousarray(boxes, np.float32)
    if boxes.shape != (count, 4):
        raise KernelError(f"boxes have shape {boxes.shape}, not ({count}, 4)")
    return boxes


def plan(
    program: Program,
    widths: NDArray[np.int32],
    heights: NDArray[np.int32],
    boxes: NDArray[np.float32] | None,
    epochs: NDArray[np.uint32],
    positions: NDArray[np.int64],
) -> NDArray[np.void]:
    """Compute the geometry of `program` for images of these sizes; returns an array of `ROW_DTYPE`."""
    count = len(positions)
    widths = _contiguous(widths, np.int32, count, "widths")
    heights = _contiguous(heights, np.int32, count, "heights")
    epochs = _contiguous(epochs, np.uint32, count, "epochs")
    positions = _contiguous(positions, np.int64, count, "positions")
    boxes = _optional_boxes(boxes, count)
    rows = np.zeros(count, ROW_DTYPE)
    _native().image_plan(
        ctypes.byref(program._struct), _address(widths), _address(heights), None if boxes is None else _address(boxes),
        _address(epochs), _address(positions), count, _address(rows),
    )  # fmt: skip
    return rows


class Decoder:
    """Scratch memory for decoding images; one thread at a time. Use it with ``with``, or call `close`."""

    def __init__(self) -> None:
        library = _native()
        handle = library.decoder_new()
        if not handle:
            raise MemoryError("no memory for a decoder")
        self._handle: int | None = handle
        self._free = weakref.finalize(self, library.decoder_free, handle)

    def close(self) -> None:
        """Free the memory; harmless when done already."""
        self._handle = None
        self._free()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        if self._handle is None:
            raise KernelError("the decoder is closed")
        return self._handle

    def rows(
        self,
        program: Program,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        boxes: NDArray[np.float32] | None,
        epochs: NDArray[np.uint32],
        positions: NDArray[np.int64],
        out: NDArray[Any],
    ) -> NDArray[np.void]:
        """Decode and transform images into ``out[0], out[1], ...``; returns what became of each (`ROW_DTYPE`).

        A bad image does not raise: its row has a status and a message, and its pixels are undefined.
        """
        count = len(positions)
        starts = _contiguous(starts, np.int64, count, "starts")
        lengths = _contiguous(lengths, np.int64, count, "lengths")
        epochs = _contiguous(epochs, np.uint32, count, "epochs")
        positions = _contiguous(positions, np.int64, count, "positions")
        boxes = _optional_boxes(boxes, count)
        rows = np.zeros(count, ROW_DTYPE)
        if count == 0:
            return rows
        if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
            raise KernelError("data must be one contiguous run of uint8")
        if int(starts.min()) < 0 or int(lengths.min()) < 0 or int((starts + lengths).max()) > data.size:
            raise KernelError(f"starts and lengths reach outside the {data.size} bytes of data")
        height, width = _output_size(program, out, count)
        _native().image_rows(
            self._open(), ctypes.byref(program._struct), _address(data), _address(starts), _address(lengths),
            None if boxes is None else _address(boxes), _address(epochs), _address(positions), count, width, height,
            _address(out), out.strides[0], _address(rows),
        )  # fmt: skip
        return rows

    def pixels(self, program: Program, pixels: NDArray[np.uint8], row: NDArray[np.void] | np.void, out: NDArray[Any]) -> None:
        """Transform decoded pixels (HWC or HW uint8) as `row`, made by `plan` for their size, says."""
        height, width = pixels.shape[:2]
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        if pixels.dtype != np.uint8 or pixels.strides[1] != channels or (pixels.ndim == 3 and pixels.strides[2] != 1):
            raise KernelError("pixels must be uint8 with contiguous rows")
        record = np.asarray(row, ROW_DTYPE).reshape(1)
        if _output_size(program, out[None], 1) != (int(record["out_height"][0]), int(record["out_width"][0])):
            raise KernelError(f"the plan gives {record['out_height'][0]}x{record['out_width'][0]}, out has shape {out.shape}")
        _native().pixels_row(
            self._open(), ctypes.byref(program._struct), _address(pixels), width, height, channels, pixels.strides[0],
            _address(record), _address(out),
        )  # fmt: skip

    def decode(self, program: Program, data: Bytes) -> NDArray[np.uint8]:
        """Decode a whole JPEG to HWC pixels of ``program.channels``; raises an `ImageError` when that fails."""
        array, row = np.frombuffer(data, np.uint8), np.zeros(1, ROW_DTYPE)
        out = np.empty((0, 0, program.channels), np.uint8)
        # The first call has no room: it tells the size, or what is wrong with the image.
        while self._decode(program, array, out, row) == Status.SHORT:
            out = np.empty((int(row["height"][0]), int(row["width"][0]), program.channels), np.uint8)
        if row["status"][0] != Status.OK:
            where, message = int(row["where"][0]), row["message"][0].decode("utf-8", "replace")
            place = f" at byte {where:,} of {array.size:,}" if where >= 0 else ""
            raise error_of(int(row["status"][0]), message + place)
        return out

    def _decode(self, program: Program, data: NDArray[np.uint8], out: NDArray[np.uint8], row: NDArray[np.void]) -> int:
        return _native().jpeg_decode(
            self._open(), ctypes.byref(program._struct), _address(data), data.size, _address(out), out.nbytes, _address(row)
        )  # fmt: skip


def _output_size(program: Program, out: NDArray[Any], count: int) -> tuple[int, int]:
    """Return (height, width) of the images in `out`, after checking that `count` of them fit there densely."""
    shape = out.shape
    if len(shape) == 3 and program.channels == 1:
        height, width = shape[1:]
    elif len(shape) == 4 and shape[1 if program.planar else 3] == program.channels:
        height, width = shape[2:] if program.planar else shape[1:3]
    else:
        raise KernelError(f"out has shape {shape}, which holds no images of {program.channels} channels")
    dense = out[:1].flags.c_contiguous and out.flags.writeable
    if out.dtype != program.dtype or not dense or len(out) < count:
        raise KernelError(f"out must be {count} or more images of {program.dtype}, each contiguous; it is {out.dtype}{shape}")
    if count > 1 and out.strides[0] < height * width * program.channels * out.itemsize:
        raise KernelError("the images in out overlap")
    return height, width
