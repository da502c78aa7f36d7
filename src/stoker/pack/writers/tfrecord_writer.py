"""TFRecord files: records one after another, each with its length and two checksums around it.

::

    length    8 bytes, little-endian
    checksum  of the length: CRC-32C, masked
    record    that many bytes, here a `tf.train.Example`
    checksum  of the record
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...errors import ConfigError
from ...kernel.example_columns import ExampleStats
from ...kernel.records import crc32c_spans, mask_crc
from ...source.paths import AnyPath
from ...source.shards.feature import about_examples
from ...source.shards.shard_index import SeekStrings, ShardIndex, seek_columns
from ..values.example import ExampleEncoder
from ..values.jpegs import SeekMaker
from ..values.written_samples import split_sample, told_sample
from .shard_writer import ShardWriter, WrittenShards, write_shards
from .target import Target, open_target

_GATHER = 1 << 21
_LENGTH = struct.Struct("<Q4x")
_CHECKSUM = b"\0\0\0\0"
_AROUND = _LENGTH.size + len(_CHECKSUM)


class Record(NamedTuple):
    """A record in pieces, in order, and the seek indices of its features that are JPEGs."""

    pieces: list[bytes]
    seeks: Mapping[str, bytes] = MappingProxyType({})


class RecordEncoder:
    """Turns samples into records: a mapping into an Example, bytes into themselves.

    `key` names the feature that holds a sample's key; without it keys are not stored. For `floats` see `ExampleEncoder`. With
    `seek` the seek indices of JPEGs are made.
    """

    def __init__(self, *, key: str | None = None, floats: str = "exact", seek: bool = False) -> None:
        self._key, self._examples = key, ExampleEncoder(floats=floats)
        self._seeks = SeekMaker() if seek else None

    def encode(self, sample: Any, number: int) -> Record:
        """What a sample is written as; `number` is its key when it has none."""
        if isinstance(sample, bytes):
            return Record([sample]) if self._seeks is None else Record([sample], self._seeks.example(sample))
        key, fields = split_sample(sample)
        try:
            if self._key is not None:
                if any(name == self._key for name, _ in fields):
                    raise ConfigError(f"it already has a field {self._key!r}; store keys under another name")
                fields.append((self._key, b"%09d" % number if key is None else key))
            pieces = self._examples.encode(fields)
        except ConfigError as error:
            raise ConfigError(f"{told_sample(number, key)}: {error}") from error
        return Record(pieces) if self._seeks is None else Record(pieces, self._seeks.fields(fields))


class TfrecordWriter(ShardWriter[Record]):
    """Write samples to one TFRecord file, which appears, complete and with its index, when the writer is closed.

    A sample is a mapping of names to values, stored as a `tf.train.Example`: bytes and text as bytes, integers as 64-bit
    integers, other numbers as 32-bit floats; lists and arrays of these, row by row. Bytes instead of a mapping are written as a
    record unchanged. `target`, `index`, `overwrite`, `about`, `seek` and leaving by an exception are as for `TarWriter`, `key`
    and `floats` as for `write_tfrecord`.

    >>> import tempfile
    >>> with TfrecordWriter(tempfile.mkdtemp() + "/train.tfrecord") as file:
    ...     file.write({"image": b"...", "label": 3})
    >>> file.samples
    1
    """

    def __init__(
        self,
        target: Target,
        *,
        index: bool = True,
        overwrite: bool = False,
        about: Mapping[str, Any] | None = None,
        key: str | None = None,
        floats: str = "exact",
        seek: bool = False,
    ) -> None:
        self._encoder = RecordEncoder(key=key, floats=floats, seek=seek)
        super().__init__(open_target(target, index=index, overwrite=overwrite, about=about))
        self._seeks: dict[str, SeekStrings] | None = {} if seek and self._target.indexed else None
        self._starts, self._lengths = array("q"), array("q")
        self._flushed, self._flushed_records = 0, 0
        self._stats = ExampleStats()

    def size_with(self, encoded: Record) -> int:
        """Bytes the file would have with one more record."""
        return self._size + sum(map(len, encoded.pieces)) + _AROUND

    def write(self, sample: Any) -> None:
        """Append a sample. One that cannot be written raises ConfigError, and the file is as if it had not been tried."""
        self.add(self._encoder.encode(sample, self.samples))

    def add(self, encoded: Record) -> None:
        """Append an encoded record."""
        self._check_open()
        length = sum(map(len, encoded.pieces))
        if self._seeks is not None:
            for name, seek in encoded.seeks.items():
                self._seeks.setdefault(name, SeekStrings()).add(seek, self.samples)
        self._starts.append(self._size + _LENGTH.size)
        self._lengths.append(length)
        self._pieces += (_LENGTH.pack(length), *encoded.pieces, _CHECKSUM)
        self._size += length + _AROUND
        self.samples += 1
        if self._size - self._flushed >= _GATHER:
            try:
                self._flush()
            except BaseException:
                self.abandon()
                raise

    def _end(self) -> None:
        self._flush()

    def _flush(self) -> None:
        """Write what was gathered; all its checksums are worked out in one call each, and put where room was left for them."""
        if not self._pieces:
            return
        data = np.frombuffer(bytearray().join(self._pieces), np.uint8)
        self._pieces.clear()
        starts = np.array(self._starts[self._flushed_records :], np.int64) - self._flushed
        lengths = np.array(self._lengths[self._flushed_records :], np.int64)
        heads = starts - _LENGTH.size
        _put(data, heads + 8, crc32c_spans(data, heads, np.full_like(heads, 8)))
        _put(data, starts + lengths, crc32c_spans(data, starts, lengths))
        self._target.write(data)
        self._flushed = self._size
        if self._target.indexed:
            self._stats.add(data, starts, lengths)
            self._flushed_records = self.samples
        else:  # nothing is remembered, however many records go through
            del self._starts[:], self._lengths[:]

    def _index(self, size: int, mtime_ns: int) -> ShardIndex:
        start, length = (np.array(column, np.int64)[:, None] for column in (self._starts, self._lengths))
        about = about_examples(self._stats)
        index = ShardIndex("tfrecord", ("record",), start, length, None, None, size, mtime_ns, sealed=True, about=about)
        if self._seeks is None:
            return index
        columns, tail = seek_columns(dict(sorted(self._seeks.items())), self.samples)
        return replace(index, seeks=columns, tail=tail)


def write_tfrecord(
    pattern: AnyPath,
    samples: Iterable[Any],
    max_bytes: int | str | None = "1GB",
    max_samples: int | None = None,
    overwrite: bool = False,
    *,
    key: str | None = None,
    floats: str = "exact",
    seek: bool = False,
) -> WrittenShards:
    """Write samples to TFRecord files, for TensorFlow or anything else that reads them.

    `pattern`, `max_bytes`, `max_samples`, `overwrite` and `seek` are as for `write_tar`; `TfrecordWriter` describes what samples
    may contain, and a feature has one type in all of them. `key` names a feature for the samples' keys; by default they are not
    stored. An array of doubles that 32-bit floats cannot represent exactly is an error, unless ``floats="round"``.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_tfrecord(folder + "/train-{}.tfrecord", ({"n": n} for n in range(3)), max_samples=2).samples
    3
    """
    encoder = RecordEncoder(key=key, floats=floats, seek=seek)

    def open_writer(path: str) -> TfrecordWriter:
        return TfrecordWriter(path, overwrite=overwrite, seek=seek)

    return write_shards(
        pattern, samples, encoder.encode, open_writer, max_bytes=max_bytes, max_samples=max_samples, overwrite=overwrite
    )


def _put(data: Any, at: Any, crcs: Any) -> None:
    data[at[:, None] + np.arange(4)] = mask_crc(crcs).astype("<u4").view(np.uint8).reshape(-1, 4)
