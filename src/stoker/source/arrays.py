"""`stoker.arrays`: NumPy arrays and memory maps, one row per sample."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, SourceEmpty, message_of
from ..kernel import native
from ..kernel.records import crc32c
from ..kernel.render import ImageInput
from ..portable_arrays import ArrayInFile, ArrayInMemory, in_file, portable
from ..sizes import counted
from ..storage.scratch import Scratch
from .chunk import Column, FieldSpec, Ints, array_spec
from .paths import stamp
from .source import Located, Rows, Source, Targets, digest, why_no_boxes

#: bytes that are copied at a time for a checksum
_PIECE_BYTES = 4 << 20


class ArraysSource(Source):
    """Rows of arrays that share their first dimension."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        if not arrays:
            raise ConfigError("arrays() needs at least one named array, e.g. arrays(image=x, label=y)")
        self._arrays = {name: _rows_array(name, value) for name, value in arrays.items()}
        lengths = {name: len(array) for name, array in self._arrays.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise ConfigError(f"the arrays of arrays() must have the same length, not {told} rows")
        self._length = next(iter(lengths.values()))
        if not self._length:
            raise SourceEmpty(f"arrays({', '.join(lengths)}) has no rows")
        self.fields: dict[str, FieldSpec] = {
            name: array_spec(array.dtype, *array.shape[1:]) for name, array in self._arrays.items()
        }
        self._images = {name: native.Images(array) for name, array in self._arrays.items() if native.Images.fit(array)}
        self._tables = {name: native.Table(array) for name, array in self._arrays.items()}

    def __len__(self) -> int:
        return self._length

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        columns: dict[str, Column] = {}
        for name in wanted:
            array = self._arrays[name]
            into = out.get(name)
            if into is None:
                into = np.empty((len(indices), *array.shape[1:]), array.dtype)
            self._tables[name].gather(indices, into)
            columns[name] = into
        return Rows(columns)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        if field not in self._images:
            return f"{field!r} is not an array of uint8 images with 1, 3 or 4 channels"
        return None if box is None else why_no_boxes(self.fields[box], box)

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located:
        """Images are rendered from their place in memory."""
        images: ImageInput = scratch.keep((self, field), lambda: ImageInput(self._images[field]))
        boxes = None if box is None else self._arrays[box][indices]
        others = [name for name in wanted if name != field]
        return Located([(images.tell(indices, boxes), None)], lambda _: self.read(indices, others, out, scratch))

    def __getstate__(self) -> dict[str, ArrayInMemory | ArrayInFile]:
        # Tables are addresses, and mean nothing in another process.
        return {name: portable(array) for name, array in self._arrays.items()}

    def __setstate__(self, arrays: dict[str, ArrayInMemory | ArrayInFile]) -> None:
        self.__init__({name: sent.array() for name, sent in arrays.items()})  # type: ignore[misc]

    def key(self, index: int) -> str:
        return str(index)

    def fingerprint(self) -> str:
        # The contents are not hashed: arrays may be memory maps larger than memory. Shape, type and the ends say enough to
        # catch a mistaken resume.
        parts: list[bytes | str | int] = []
        for name, array in self._arrays.items():
            parts += [name, str(array.dtype), str(array.shape), array[0].tobytes()[:4096], array[-1].tobytes()[:4096]]
        return digest("arrays", *parts)

    def version(self) -> str:
        return digest("versions", *(part for name, array in self._arrays.items() for part in (name, array_version(array))))

    def describe(self) -> str:
        return f"arrays({', '.join(self._arrays)}): {counted(self._length, 'row')}"


def array_version(array: NDArray[Any]) -> str:
    """Text that changes with an array: by a checksum of its numbers, or by size and time of the file that it is mapped from."""
    kind = f"{array.dtype.str} {array.shape}"
    if array.size and (found := in_file(array)) is not None:
        return f"{kind} {array.strides} {found.at} {stamp(os.fsencode(found.path)).decode()}"
    rows, crc = array.reshape(1) if not array.ndim else array, 0
    step = max(1, _PIECE_BYTES * len(rows) // max(1, array.nbytes))
    for first in range(0, len(rows), step):
        crc = crc32c(np.ascontiguousarray(rows[first : first + step]).tobytes(), crc)
    return f"{kind} {crc}"


def _rows_array(name: str, value: Any) -> NDArray[Any]:
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except Exception as error:  # lists of unequal length; an object that fails in its own way
        raised = f"{type(error).__name__}: {message_of(error)}"
        raise ConfigError(f"arrays({name}=...): NumPy cannot make an array of this {type(value).__name__} ({raised})") from error
    if array.ndim == 0:
        raise ConfigError(f"arrays({name}=...) is a single value; use an array with one row per sample")
    if array.dtype.hasobject:
        raise ConfigError(f"arrays({name}=...) holds Python objects (dtype {array.dtype}); use stoker.stream, or a numeric dtype")
    if array.dtype.names:
        raise ConfigError(
            f"arrays({name}=...) is a structured array; pass its fields separately, as {name}=x[{array.dtype.names[0]!r}]"
        )
    if array.dtype.isbuiltin == 2:
        raise ConfigError(
            f"arrays({name}=...) has numbers of type {array.dtype}, which is not a NumPy type; pass float32, or bytes "
            f"({name}.view(np.uint8)), and convert them with map_batch()"
        )
    # Rows must be contiguous to be copied whole; the first axis may have any stride (memory maps, slices).
    return array if array[:1].flags.c_contiguous else np.ascontiguousarray(array)
