"""`stoker.tfrecord`: TFRecord files of tf.train.Example, or of any other records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import SKIP, ConfigError, RecordError
from ...kernel.records import Seal, verify_records
from ...storage.blob import Blob
from ...storage.scratch import Scratch
from ..chunk import BYTES, Column, FieldSpec, Ints
from ..paths import unprintable
from ..source import Located, Rows, Targets
from .examples import ExampleColumns, Extraction
from .feature import Feature, check_about, found_features, read_features
from .record_source import RecordSource
from .shard_index import ShardIndex

#: the field of records that are not parsed
RECORD = "record"


class TfrecordSource(RecordSource):
    """Records of TFRecord files, every checksum checked.

    `features` names what to parse; None: whatever was found in the Examples while indexing, or, where the records are something
    else, the single field ``record`` with their bytes; ``"raw"``: that field in any case.
    """

    kind = "tfrecord"
    seal = Seal.AFTER
    after = 4  # the checksum

    def __init__(self, blobs: Sequence[Blob], indexes: Sequence[ShardIndex], features: Any = None, seek: bool = True) -> None:
        super().__init__(blobs, indexes, seek)
        for blob, index in zip(blobs, indexes):
            check_about(index.about, index.size, blob.url)
        chosen = _choose(features, indexes)
        self._examples = None if chosen is None else ExampleColumns(chosen, unprintable)
        self.fields: dict[str, FieldSpec] = {RECORD: BYTES} if self._examples is None else self._examples.fields

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        read = self._read(indices, (0,), scratch)
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
            columns = self._examples.parse(starts, lengths, wanted, Extraction(read.data, read.arena, out, bad))
            for row, error in bad.items():
                errors.setdefault(row, self._placed(error, int(indices[row])))
        self._with_seeks(columns, indices)
        return Rows(columns, errors)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        return None if self._examples is None else self._examples.why_not_located(field, box)

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        if self._examples is not None:
            return self._located_feature(self._examples, field, tuple(wanted), indices, out, scratch, box)
        return self._located_record(field, indices, scratch)

    def _wrong_sum(self, index: int, field: int) -> RecordError:
        blob = self.blobs[self.shard_of(index)]
        return RecordError(
            f"{blob.url}: the record at byte {int(self._start[index, 0]) - 12:,} (sample {self.key(index)!r}) does not match its "
            f"checksum; it is damaged: fetch or make the file again, or {SKIP}"
        )

    def _identity(self) -> tuple[str, ...]:
        return () if self._examples is None else tuple(f"{name}:{feature}" for name, feature in self._examples.features.items())


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
