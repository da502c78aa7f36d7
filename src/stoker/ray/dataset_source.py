"""`stoker.ray.source`: the rows of a Ray data set, read by index from the object store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.data.block import BlockAccessor

from ..engine.ray_session import goes_to_ray
from ..errors import ConfigError, ReadError, SourceEmpty
from ..pipeline import Pipeline
from ..sizes import a_type, counted
from ..source.chunk import BYTES, OBJECT, BytesColumn, Column, FieldSpec, Ints, array_spec, spread_columns
from ..source.source import Rows, Source, digest
from ..storage.scratch import Scratch

#: blocks that a process has mapped at once; they lie in the object store
_OPEN_BLOCKS = 8
#: seconds for a block to arrive from another machine
_BLOCK_S = 600.0


def source(dataset: Any) -> Pipeline:
    """The rows of a `ray.data.Dataset` as samples: a field for each column.

    The data set is executed once, and its blocks stay in the object store, spilled to disk where they are too many. Order,
    shuffles and resuming are Stoker's from there on. Read by threads (the default) or by ``executor="ray"``.
    """
    if not hasattr(dataset, "to_arrow_refs"):
        raise ConfigError(f"stoker.ray.source() takes a ray.data.Dataset, got {a_type(dataset)}")
    return Pipeline(RayDataSource.of(dataset.materialize()))


@ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]
def _look(block: Any) -> tuple[int, str]:
    """Rows of a block, and a hash over it."""
    return block.num_rows, digest("block", str(block.schema), *_some_bytes(block))


def _some_bytes(block: Any) -> list[bytes]:
    """What tells blocks apart: the beginning and the end of each column."""
    found = []
    for column in block.columns:
        for chunk in column.chunks:
            found += [part.to_pybytes() for buffer in chunk.buffers() if buffer for part in (buffer[:4096], buffer[-4096:])]
    return found


class RayDataSource(Source):
    """Rows of blocks in the object store."""

    def __init__(self, blocks: list[Any], lengths: Ints, fields: Mapping[str, FieldSpec], mark: str) -> None:
        self._blocks, self._lengths, self._mark = blocks, lengths, mark
        self._ends = np.cumsum(lengths)
        self.fields = fields
        self._open: OrderedDict[int, Any] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, dataset: Any) -> RayDataSource:
        references = dataset.to_arrow_refs()
        looks = ray.get([_look.remote(reference) for reference in references], timeout=_BLOCK_S)
        full = [(reference, *look) for reference, look in zip(references, looks) if look[0]]
        if not full:
            raise SourceEmpty("stoker.ray.source(): the data set has no rows")
        blocks = [reference for reference, _, _ in full]
        first = BlockAccessor.for_block(ray.get(blocks[0], timeout=_BLOCK_S))
        fields = {name: _spec(column) for name, column in first.to_numpy().items()}
        return cls(blocks, np.array([rows for _, rows, _ in full]), fields, digest("ray", *(mark for _, _, mark in full)))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        numbers = np.searchsorted(self._ends, indices, side="right")
        pieces: dict[str, list[tuple[Ints, Column]]] = {name: [] for name in wanted}
        errors: dict[int, Exception] = {}
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            rows = indices[places] - (self._ends[number] - self._lengths[number])
            block = BlockAccessor.for_block(self._block(number))
            columns = BlockAccessor.for_block(block.take(rows.tolist())).to_numpy(list(wanted)) if wanted else {}
            for name in wanted:
                pieces[name].append((places, self._column(name, columns[name], places, indices, errors)))
        return Rows({name: spread_columns(parts, len(indices), out.get(name)) for name, parts in pieces.items()}, errors)

    def _column(self, name: str, values: Any, places: Ints, indices: Ints, errors: dict[int, Exception]) -> Column:
        spec = self.fields[name]
        if spec == BYTES:
            for place, value in zip(places.tolist(), values):
                if value is None:
                    errors.setdefault(place, ReadError(f"{self.origin(int(indices[place]))}: its {name!r} is missing (null)"))
            return BytesColumn.of([value or b"" for value in values])
        if spec.fixed:
            if values.dtype == object or values.shape[1:] != spec.shape:
                told = f"{self.origin(int(indices[places[0]]))}: its {name!r} and those next to it are not {spec}, unlike others"
                for place in places.tolist():
                    errors.setdefault(place, ReadError(told))
                return np.zeros((len(places), *(n or 0 for n in spec.shape)), spec.dtype)
            return np.asarray(values, spec.dtype)
        return list(values)

    def _block(self, number: int) -> Any:
        with self._lock:
            if (found := self._open.get(number)) is not None:
                self._open.move_to_end(number)
                return found
        block = ray.get(self._blocks[number], timeout=_BLOCK_S)
        with self._lock:
            self._open[number] = block
            while len(self._open) > _OPEN_BLOCKS:
                self._open.popitem(last=False)
        return block

    def key(self, index: int) -> str:
        return str(index)

    def origin(self, index: int) -> str:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return f"row {index - int(self._ends[number] - self._lengths[number]):,} of block {number:,} of the Ray data set"

    def fingerprint(self) -> str:
        return self._mark

    def describe(self) -> str:
        return f"Ray data set: {counted(len(self), 'row')} in {counted(len(self._blocks), 'block')}"

    def __reduce__(self) -> tuple[Any, ...]:
        if not goes_to_ray():
            raise TypeError("blocks of a Ray data set are read by threads of this process, or with executor='ray'")
        # References have to be pickled by Ray, which keeps what they refer to.
        return _opened, (ray.cloudpickle.dumps(self._blocks), self._lengths, dict(self.fields), self._mark)


def _opened(blocks: bytes, lengths: Ints, fields: dict[str, FieldSpec], mark: str) -> RayDataSource:
    return RayDataSource(ray.cloudpickle.loads(blocks), lengths, fields, mark)


def _spec(column: NDArray[Any]) -> FieldSpec:
    """What a column of the first block says of its field."""
    if column.dtype != object:
        return array_spec(column.dtype, *column.shape[1:]) if column.dtype.kind in "biuf" else OBJECT
    kinds = {type(value) for value in column if value is not None}
    return BYTES if kinds == {bytes} else OBJECT
