"""`stoker.tar`: tar shards by WebDataset's conventions, with random access."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, RecordError
from ...kernel.records import RecordTable
from ...kernel.render import RecordInput
from ...sizes import a_type, counted
from ...storage.blob import Blob
from ...storage.scratch import Scratch
from ..chunk import BYTES, BytesColumn, Column, FieldSpec, Ints, fits
from ..source import Located, Rows, Source, Targets
from .codecs import PICKLES, check_alike, decimals, decode_field, kind_of, name_sample, spec_of, with_first
from .record_source import Read, RecordSource, whole
from .shard_index import Keys, ShardIndex

#: what turns a field's bytes into its value
Decoder = Callable[[str, bytes], Any]


class TarSource(RecordSource):
    """Samples of tar shards: files of one basename are one sample, their extensions its fields.

    A sample without a field that others have is an error of that sample, unless `defaults` gives the value to use. Only the
    fields that are wanted are read.
    """

    kind = "tar"

    def __init__(
        self,
        blobs: Sequence[Blob],
        indexes: Sequence[ShardIndex],
        defaults: Mapping[str, Any] | None = None,
        allow_pickle: Collection[str] = (),
        decode: bool = True,
        seek: bool = True,
    ) -> None:
        super().__init__(blobs, indexes, seek)
        self._ignored = sum(int(index.about.get("ignored", 0)) for index in indexes)
        self._defaults = dict(defaults or {})
        check_named(self._defaults, self.stored, "defaults")
        check_named(allow_pickle, self.stored, "allow_pickle")
        self._pickles = frozenset(allow_pickle)
        self._decode = decode
        self.fields: dict[str, FieldSpec] = {name: spec_of(name) if decode else BYTES for name in self.stored}
        for name, value in self._defaults.items():
            _check_default(name, value, self.fields[name])

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        names = tuple(wanted)
        read = self._read(indices, [self.stored.index(name) for name in names], scratch)
        columns: dict[str, Column] = {}
        for at, name in enumerate(names):
            self._note_missing(read, at, name, indices)
            columns[name] = self._decoded(read, at, name, out.get(name), indices)
        self._with_seeks(columns, indices)
        return Rows(columns, read.errors)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        if self.fields[field] != BYTES:
            return f"{field!r} is decoded by its extension"
        return None if box is None else f"its boxes, {box!r}, are decoded by Python"

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        names = tuple(wanted)
        image = names.index(field)

        def finish(records: RecordInput) -> Rows:
            read = whole(records, scratch.arena)
            columns = {
                name: self._decoded(read, at, name, out.get(name), indices) for at, name in enumerate(names) if at != image
            }
            self._with_seeks(columns, indices)
            return Rows(columns, read.errors, read.column(image).__getitem__)

        return self._located(field, names, indices, scratch, finish)

    def either(self, fields: tuple[str, ...]) -> tuple[Source, str]:
        if self._decode:
            check_alike(fields)
        made, name, at = copy.copy(self), ";".join(fields), [self.stored.index(field) for field in fields]
        chosen = (np.arange(len(self)), np.take(at, (self._length[:, at] >= 0).argmax(axis=1)))
        made.stored, made.fields = (*self.stored, name), {**self.fields, name: self.fields[fields[0]]}
        made._start, made._length = (np.column_stack([table, table[chosen]]) for table in (self._start, self._length))
        made._crc = None if self._crc is None else np.column_stack([self._crc, self._crc[chosen]])
        made._mean = np.maximum(made._length, 0).mean(axis=0)
        made._table = RecordTable(made._start, made._length, made._crc, made._ends, made.seal)
        # The seek indices of one field are enough: one that belongs to another picture is found not to fit, and ignored.
        made._seeks, made._defaults = with_first(self._seeks, fields, name), with_first(self._defaults, fields, name)
        if self.indexes:
            made._fingerprint = ""  # its defaults count
        made._pickles = self._pickles | ({name} if self._pickles >= set(fields) else set())
        return made, name

    def _note_missing(self, read: Read, at: int, name: str, indices: Ints) -> None:
        if name in self._defaults:
            return
        for row in np.flatnonzero(read.lengths[:, at] < 0).tolist():
            read.errors.setdefault(row, self._partial(int(indices[row]), name))

    def _partial(self, index: int, name: str) -> RecordError:
        has = [stored for stored, length in zip(self.stored, self._length[index].tolist()) if length >= 0 and ";" not in stored]
        names = name.split(";")
        lacks = " or ".join(map(repr, names))
        shard, key = self.shard_of(index), self.key(index)
        others = [
            self.blobs[number].url
            for number, keys in enumerate(self._keys)
            if number != shard and keys is not None and self._holds(keys, shard, index)
        ]
        split = f"; {others[0]} has a sample of that key too: was it split between shards?" if others else ""
        return RecordError(
            f"{self.origin(index)}: sample {key!r} has no {lacks}, only {', '.join(has)}{split}; write it again whole, leave "
            f"the field out with select(), or set tar(..., defaults={{{names[0]!r}: ...}})"
        )

    def _holds(self, theirs: Keys, shard: int, index: int) -> bool:
        ours = self._keys[shard]
        assert ours is not None
        key = ours[index - int(self._firsts[shard])]
        return any(theirs[row] == key for row in range(len(theirs)))

    def _decoded(self, read: Read, at: int, name: str, into: NDArray[Any] | None, indices: Ints) -> Column:
        column, spec = read.column(at), self.fields[name]
        missing = set() if read.whole else set(np.flatnonzero(read.lengths[:, at] < 0).tolist())
        if spec == BYTES and not missing:
            return column
        if spec.kind == "array" and not missing and not read.errors and (numbers := decimals(column, into)) is not None:
            return numbers
        decode = self._decoder(name) if spec != BYTES else _keep
        wrong: dict[int, RecordError] = {}
        values = decode_column(column, name, decode, read.errors.keys(), missing, self._defaults.get(name, 0), wrong)
        for row, error in wrong.items():
            read.errors[row] = name_sample(error, self.key(int(indices[row])), self.origin(int(indices[row])))
        if spec.kind != "array":
            return values
        if into is None:
            into = np.empty(len(values), np.int64)
        into[...] = values
        return into

    def _decoder(self, name: str) -> Decoder:
        if name in self._pickles and kind_of(name) in PICKLES:
            from .unpickle import decode_pickle

            return decode_pickle
        return decode_field

    def describe(self) -> str:
        told = f"; {counted(self._ignored, 'file')} in them belong to no sample" if self._ignored else ""
        return super().describe() + told

    def _identity(self) -> tuple[str, ...]:
        return ("decode" if self._decode else "raw", repr(sorted(self._defaults.items())))


def decode_column(
    column: BytesColumn,
    name: str,
    decode: Decoder,
    bad: Collection[int],
    missing: Collection[int],
    default: Any,
    wrong: dict[int, RecordError],
) -> list[Any]:
    """The values of a column, `default` if missing.

    What cannot be decoded is noted in `wrong`; these rows, and rows that are bad already, get the value 0.
    """
    values: list[Any] = []
    for row in range(len(column)):
        value: Any = 0
        if row in missing:
            value = default
        elif row not in bad:
            try:
                value = decode(name, column[row])
            except RecordError as error:
                wrong[row] = error
        values.append(value)
    return values


def check_named(names: Collection[str], fields: Sequence[str], option: str) -> None:
    """Raise when an option names a field that is not there."""
    if isinstance(names, str):
        raise ConfigError(f"{option}={names!r}: must be a list of field names")
    for name in names:
        if name not in fields:
            raise ConfigError(f"{option} names the field {name!r}, but the fields here are {', '.join(fields)}")


def _check_default(name: str, value: Any, spec: FieldSpec) -> None:
    """Raise when a field cannot hold its default."""
    if spec.kind == "array" and not (isinstance(value, (int, np.integer)) and fits(int(value))):
        raise ConfigError(f"tar(defaults={{{name!r}: {value!r}}}): {name!r} holds integers of 64 bits; use one")
    if spec is BYTES and not isinstance(value, bytes):
        raise ConfigError(f"tar(defaults={{{name!r}: ...}}): {name!r} holds bytes; use bytes, not {a_type(value)}")


def _keep(name: str, data: bytes) -> bytes:
    return data
