"""Arrays on their way to another process: by name if a file holds them, else as plain bytes that both can share.

Pickled with protocol 5 and a buffer callback, plain bytes are passed as a buffer, which may be in shared memory; the receiver
must expect arrays that cannot be written to. NumPy does this only for contiguous arrays of its own class, and for most types;
everything else, including memory maps of whole data sets, it copies into the pickle.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ShardChanged, SourceNotFound

#: bytes at each end of an array that are compared with those of the file by its name
_END_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ArrayInMemory:
    """The bytes of an array, and what they mean."""

    raw: NDArray[Any]
    dtype: np.dtype[Any]

    def array(self) -> NDArray[Any]:
        return self.raw.view(self.dtype)


@dataclass(frozen=True, slots=True)
class ArrayInFile:
    """An array in a file of this machine, which is mapped again to be read."""

    path: str
    size: int
    mtime_ns: int | None  # None: the process that mapped it may write to it
    at: int  # the first byte of the file that it takes
    length: int
    first: int  # its first number is so many bytes later: strides may be negative
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def array(self) -> NDArray[Any]:
        try:
            about = os.stat(self.path)  # noqa: PTH116  a name, not a path to work with
            if about.st_size != self.size or self.mtime_ns not in (None, about.st_mtime_ns):
                raise ShardChanged(
                    f"{self.path}: was changed or replaced while it was mapped; create the pipeline again",
                    shard=self.path,
                )
            data = np.memmap(self.path, np.uint8, "r", self.at, (self.length,))
        except OSError as error:
            raise SourceNotFound(f"{self.path}: cannot be mapped again: {error.strerror}; restore the file") from error
        found: NDArray[Any] = np.ndarray(self.shape, self.dtype, data, self.first, self.strides)
        return found


def portable(array: NDArray[Any]) -> ArrayInMemory | ArrayInFile:
    """A stand-in for an array in another process; its `array()` is equal to it, and may be read-only."""
    found = None if array.dtype.hasobject or not array.size else in_file(array)
    if found is not None:
        return found
    plain = np.ascontiguousarray(array).reshape(array.shape)
    # Some types refuse to be buffers (dates), and big-endian numbers come back as little-endian ones; bytes are bytes.
    return ArrayInMemory(plain.view(f"V{array.itemsize}") if array.itemsize else plain, array.dtype)


def in_file(array: NDArray[Any]) -> ArrayInFile | None:
    """The array by the name of its file; None if it has none, or another file has that name now."""
    root = _mapped(array)
    if root is None or root.mode not in ("r", "r+", "w+") or root.filename is None:  # "c": its changes are its own
        return None
    held: mmap.mmap = root._mmap
    whole = np.frombuffer(held, np.uint8)
    first, low, high = array.ctypes.data, *_bounds(array)
    begin = low - whole.ctypes.data
    if not 0 <= begin <= begin + high - low <= whole.size:
        return None
    length, at = high - low, begin + root.offset - root.offset % mmap.ALLOCATIONGRANULARITY
    path = str(Path(root.filename).absolute())
    if not _is_still(path, at, whole[begin : begin + length]):
        return None
    about = os.stat(path)  # noqa: PTH116
    known = about.st_mtime_ns if root.mode == "r" else None
    return ArrayInFile(path, about.st_size, known, at, length, first - low, array.dtype, array.shape, array.strides)


def _mapped(array: NDArray[Any]) -> Any:
    """The memory map that an array is, or is a view of; None where there is none."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and getattr(base, "_mmap", None) is not None:
            return base
        base = base.base
    return None


def _bounds(array: NDArray[Any]) -> tuple[int, int]:
    """The addresses of the first byte and of the one after the last; axes may go backwards."""
    steps = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides)]
    first = array.ctypes.data
    return first + sum(step for step in steps if step < 0), first + sum(step for step in steps if step > 0) + array.itemsize


def _is_still(path: str, at: int, mapped: NDArray[np.uint8]) -> bool:
    """Whether the file of this name has what is mapped: a file that was replaced or removed lives on in its maps."""
    count = min(_END_BYTES, mapped.size)
    try:
        with open(path, "rb") as file:
            begin, end = os.pread(file.fileno(), count, at), os.pread(file.fileno(), count, at + mapped.size - count)
    except OSError:
        return False
    return begin == mapped[:count].tobytes() and end == mapped[mapped.size - count :].tobytes()
