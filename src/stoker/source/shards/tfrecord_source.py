"""`stoker.tfrecord`: TFRecord files of tf.train.Example, or of anything."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, RecordError
from ...kernel.native import Images
from ...kernel.records import MOST_WANTED, verify_records
from ...storage.blob import Blob
from ...storage.local import LocalBlob
from ...storage.scratch import Scratch
from ..chunk import BYTES, BytesColumn, Column, FieldSpec, Ints
from ..paths import unprintable
from ..source import Drawing, Rows
from .examples import ExampleColumns
from .feature import Feature, check_about, found_features, read_features
from .record_source import RecordSource
from .shard_index import ShardIndex

#: the field of records that are not parsed
RECORD = "record"
_CRC_BYTES = 4


class TfrecordSource(RecordSource):
    """Records of TFRecord files, every checksum checked.

    `features` names what to parse; None: whatever was found in the Examples while indexing, or, where the records are something
    else, the single field ``record`` with their bytes; ``"raw"``: that field in any case.
    """

    kind = "tfrecord"
    masked = True

    def __init__(self, blobs: Sequence[Blob], indexes: Sequence[ShardIndex], features: Any = None, seek: bool = True) -> None:
        super().__init__(blobs, indexes, seek)
        for blob, index in zip(blobs, indexes):
            check_about(index.about, index.size, blob.url)
        chosen = _choose(features, indexes)
        self._examples = None if chosen is None else ExampleColumns(chosen, unprintable)
        self.fields: dict[str, FieldSpec] = {RECORD: BYTES} if self._examples is None else self._examples.fields

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        return self._rows(indices, wanted, out, scratch)

    def draws(self, field: str) -> bool:
        """Pixels that lie in the records as they are."""
        feature = None if self._examples is None else self._examples.features.get(field)
        if feature is None or not feature.raw or feature.default is not None:
            return False
        return Images.fit(np.broadcast_to(np.zeros((), feature.dtype), (1, *(feature.shape or ()))).copy())

    def draw(
        self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch, drawing: Drawing
    ) -> Rows | None:
        """Images are taken from where they were read to; with anything wrong, `read` finds out what."""
        return self._draw_at_once(indices, wanted, out, scratch, drawing) or self._draw_in_steps(
            indices, wanted, out, scratch, drawing
        )

    def _draw_at_once(
        self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch, drawing: Drawing
    ) -> Rows | None:
        """In one native call, a few records at a time: where there are only numbers beside the image, and nothing is wrong."""
        assert self._examples is not None
        names, image = list(wanted), drawing.field
        if len(names) > MOST_WANTED or not self._examples.are_numbers(name for name in names if name != image):
            return None
        held = self._hold(indices)
        if held is None:
            return None
        try:
            made = drawing.pictures.examples(
                self._table, held.fds, indices, *self._examples.asked(names, len(indices), out), names.index(image),
                self._scattered(scratch, image).one, drawing.epoch, drawing.positions, drawing.out, behind=_CRC_BYTES,
                gap=LocalBlob.gap,
            )  # fmt: skip
        finally:
            held.release()
        if made is None:
            return None
        columns: dict[str, Column] = {
            name: drawing.out if column is None else self._examples.numbers(name, column, out.get(name))
            for name, column in zip(names, made)
        }
        return Rows(columns, {})

    def _draw_in_steps(
        self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch, drawing: Drawing
    ) -> Rows | None:
        began = time.perf_counter()
        rows = self._rows(indices, wanted, out, scratch, in_place=drawing.field)
        column, spec = rows.columns[drawing.field], self.fields[drawing.field]
        assert isinstance(column, BytesColumn)
        if rows.errors or (column.lengths != spec.nbytes).any():
            return None
        read_s = time.perf_counter() - began
        images = self._scattered(scratch, drawing.field).images(column.data)
        drawing.pictures.arrays(images, column.starts, drawing.epoch, drawing.positions, drawing.out)
        drawing.pictures.read_s = read_s
        rows.columns[drawing.field] = drawing.out
        return rows

    def _scattered(self, scratch: Scratch, field: str) -> _Scattered:
        found: _Scattered = scratch.keep((self, field), lambda: _Scattered(self.fields[field]))
        return found

    def _rows(
        self,
        indices: Ints,
        wanted: Collection[str],
        out: Mapping[str, NDArray[Any]],
        scratch: Scratch,
        in_place: str | None = None,
    ) -> Rows:
        read = self._read(indices, (0,), scratch, behind=_CRC_BYTES)
        starts, lengths, errors = read.at[:, 0], read.lengths[:, 0], read.errors
        wrong = () if read.checked else np.flatnonzero(~verify_records(read.data, starts, lengths)).tolist()
        if errors or wrong:
            for row in wrong:
                errors.setdefault(row, self._wrong_sum(int(indices[row]), 0))
            lengths = np.where([row in errors for row in range(len(indices))], 0, lengths)
        columns: dict[str, Column] = {}
        if self._examples is None:
            columns = {name: read.column(0) for name in wanted}
        elif wanted:
            bad: dict[int, Exception] = {}
            columns = self._examples.parse(read.data, starts, lengths, read.arena, wanted, out, bad, in_place)
            for row, error in bad.items():
                errors.setdefault(row, self._placed(error, int(indices[row])))
        self._with_seeks(columns, indices)
        return Rows(columns, errors)

    def _placed(self, error: Exception, index: int) -> RecordError:
        return RecordError(f"{self.origin(index)}: {error}")

    def _wrong_sum(self, index: int, field: int) -> RecordError:
        blob = self.blobs[self.shard_of(index)]
        return RecordError(
            f"{blob.url}: the record at byte {int(self._start[index, 0]) - 12:,} (sample {self.key(index)!r}) does not match its "
            "checksum; it is damaged: fetch or make the file again, or use on_error('skip')"
        )

    def _identity(self) -> tuple[str, ...]:
        return () if self._examples is None else tuple(f"{name}:{feature}" for name, feature in self._examples.features.items())


class _Scattered:
    """Images of one shape that begin at any byte of a buffer: image i is the one at byte i."""

    def __init__(self, spec: FieldSpec) -> None:
        self._one = np.empty(tuple(extent or 0 for extent in spec.shape), np.uint8)
        #: such an image
        self.one = Images(self._one[None])
        self._last: tuple[NDArray[np.uint8], Images] | None = None

    def images(self, data: NDArray[np.uint8]) -> Images:
        """Mostly the buffer is the same as last time, and then they are too."""
        if self._last is None or self._last[0] is not data:
            shape = (data.size - self._one.size + 1, *self._one.shape)
            self._last = data, Images(np.lib.stride_tricks.as_strided(data, shape, (1, *self._one.strides), writeable=False))
        return self._last[1]


def _choose(features: Any, indexes: Sequence[ShardIndex]) -> dict[str, Feature] | None:
    if isinstance(features, str) and features == "raw":
        return None
    if features is None:
        return found_features([(len(index), index.about) for index in indexes]) or None
    chosen = read_features(features)
    known = {entry["name"] for index in indexes for entry in index.about.get("features", ())}
    looked = all(index.about.get("examples") for index in indexes if len(index))
    for name, feature in chosen.items():
        if looked and name not in known and feature.default is None and feature.shape is not None:
            raise ConfigError(
                f"tfrecord(features=...) names {name!r}, which no record has, only {', '.join(sorted(known)) or 'no features'}"
            )
    return chosen
