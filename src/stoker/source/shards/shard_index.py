"""The index of a shard: where each record lies, what it is called, and what its bytes must be.

A file beside the shard (``shard.tar`` has ``shard.tar.stk``), or in the user's cache folder where the shard's own cannot be
written to. With it every format is read at random. The layout, all numbers little-endian::

    prefix   32 bytes   magic, version, header length, CRC-32C of header, CRC-32C of body, length of the file
                        and, in version 2, 8 bytes more: length of the tail
    header   JSON       what the index says of the shard, and the table of columns; padded with blanks to 8 bytes
    body                the columns, each at a multiple of 8 bytes
    tail                seek indices of JPEGs, byte strings back to back; their lengths and checksums are columns

Every byte is covered by a checksum or compared with what it must be, so a damaged index is noticed before it is used. Columns
that this version does not know are kept and ignored, so later versions can add some.

The tail is what is large: seek indices take about one percent of the pictures, 1.4 GB for ImageNet, and everything else of an
index a hundredth of that. So it is not read with the rest. It stays in the file, and of it is read what a chunk of samples needs,
each string compared with its own checksum (`seeks.py`). Where there is none the file is of version 1, as it always was.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, CorruptIndex, WriteError
from ...kernel.records import crc32c
from ...storage.atomic import publish
from ...storage.blob import Blob
from ..chunk import Ints
from ..paths import printable

SUFFIX = ".stk"
VERSION = 1
#: of a file with a tail
TAIL_VERSION = 2
MAGIC = b"STOKERIX"
_PREFIX = struct.Struct("<8sIIIIQ")
_TAIL = struct.Struct("<Q")
#: what is read of a file at once: mostly all but the tail
_FIRST = 1 << 20
#: what a column may be made of: nothing that could hold an address
_DTYPES = {"<i8", "<u8", "<i4", "<u4", "|u1", "<f4", "<f8"}
#: no index is read that claims to be larger, its tail not counted; nor one with a larger header
MAX_BYTES, MAX_HEADER = 1 << 34, 1 << 24
#: bytes that a record takes of its shard at least: a header of a tar, or the length of a TFRecord and two checksums
_LEAST = {"tar": 512, "tfrecord": 16}
#: bytes around a TFRecord's payload: its length and that one's checksum before it, its own checksum after it
_AROUND_RECORD = 12, 4
#: bytes of columns that an index may have for each byte of its shard; with every sample of one empty file, and 64 fields, it is 3
_BYTES_PER_BYTE = 8
#: columns of a field's seek indices
_SEEK_LENGTH, _SEEK_CRC = "seek_length:", "seek_crc:"


class Keys:
    """Names of records: bytes back to back, and where each ends."""

    __slots__ = ("data", "ends")

    def __init__(self, data: NDArray[np.uint8], ends: Ints) -> None:
        self.data, self.ends = data, ends

    @classmethod
    def of(cls, keys: list[bytes]) -> Keys:
        return cls(np.frombuffer(b"".join(keys), np.uint8), np.cumsum([len(key) for key in keys], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def all(self) -> list[bytes]:
        """Every key; much quicker than one after the other."""
        whole, ends = self.data.tobytes(), self.ends.tolist()
        return [whole[start:end] for start, end in zip([0, *ends], ends)]

    def __getitem__(self, row: int) -> bytes:
        return self.data[int(self.ends[row - 1]) if row else 0 : int(self.ends[row])].tobytes()


class KeysOfShards(Sequence[Keys | None]):
    """The names of several shards' records as three arrays, which processes can share; None of a shard without names."""

    def __init__(self, keys: Sequence[Keys | None]) -> None:
        known = [each for each in keys if each is not None] or [Keys.of([])]
        self._data = np.concatenate([each.data for each in known])
        self._ends = np.concatenate([each.ends for each in known])
        sizes = [(-1, 0) if each is None else (each.data.size, len(each)) for each in keys]
        self._sizes = np.array(sizes, np.int64).reshape(-1, 2)  # bytes, names; -1: it has none
        self._stops = np.cumsum(np.maximum(self._sizes, 0), axis=0)

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, shard: Any) -> Any:
        size, count = self._sizes[shard].tolist()
        stop, end = self._stops[shard].tolist()
        return None if size < 0 else Keys(self._data[stop - size : stop], self._ends[end - count : end])


@dataclass(frozen=True, slots=True)
class SeekColumn:
    """Lengths and CRC-32C of the seek indices of one field's JPEGs, one per record; length 0: it has none."""

    length: NDArray[np.uint32]
    crc: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class IndexTail:
    """The seek indices themselves, back to back: `parts`, or, with a `blob`, `length` bytes from `at` of that file on."""

    length: int = 0
    parts: tuple[bytes, ...] = ()
    blob: Blob | None = None
    at: int = 0

    @classmethod
    def of(cls, parts: Iterable[bytes]) -> IndexTail:
        held = tuple(part for part in parts if part)
        return cls(sum(map(len, held)), held)

    def head(self, size: int) -> bytes:
        """Its first `size` bytes, or all of it if it is shorter."""
        if self.blob is None:
            return self.parts[0][:size] if self.parts else b""
        data = bytearray(min(size, self.length))
        self.blob.read_into(self.at, memoryview(data))
        return bytes(data)

    def content(self) -> tuple[bytes, ...]:
        """All of it, for writing it again."""
        if self.blob is None:
            return self.parts
        data = bytearray(self.length)
        self.blob.read_into(self.at, memoryview(data))
        return (bytes(data),)


class SeekStrings:
    """Gathers the seek indices of one field, record after record, for a column and its part of the tail."""

    def __init__(self) -> None:
        self._lengths, self._crcs = array("I"), array("I")
        self._parts: list[bytes] = []

    def add(self, seek: bytes, row: int | None = None) -> None:
        """The next record's, or that of record `row`: those between have none. An empty one does not count."""
        if row is not None:
            self.pad(row)
        self._lengths.append(len(seek))
        self._crcs.append(crc32c(seek) if seek else 0)
        if seek:
            self._parts.append(seek)

    def pad(self, records: int) -> None:
        """Records up to this number have none."""
        missing = bytes(4 * max(0, records - len(self._lengths)))
        self._lengths.frombytes(missing)
        self._crcs.frombytes(missing)

    def column(self) -> SeekColumn:
        return SeekColumn(np.array(self._lengths, np.uint32), np.array(self._crcs, np.uint32))

    @property
    def data(self) -> bytes:
        return b"".join(self._parts)


def seek_columns(gathered: Mapping[str, SeekStrings], records: int) -> tuple[dict[str, SeekColumn], IndexTail]:
    """Columns and tail of an index; fields without any seek index are omitted."""
    columns, parts = {}, []
    for name, strings in gathered.items():
        strings.pad(records)
        if data := strings.data:
            columns[name] = strings.column()
            parts.append(data)
    return columns, IndexTail.of(parts)


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What is known of a shard: `n` records with up to `F` fields each.

    `start` and `length` are (n, F): where in the shard each field's bytes are; length -1: the record has no such field. `crc` is
    the CRC-32C of those bytes; None if the shard has checksums of its own. `keys` is None if records have no name but their
    number.

    `size`, `mtime_ns` and `etag` are those of the shard when the index was made (mtime 0 and "": unknown). `sealed` means that
    the index was made on purpose, by the writer of the shard or by ``stoker index``: then it is authoritative, and a shard that
    differs is an error. Otherwise it is only a cached result, and is made again. `about` is additional information of the format,
    as JSON.

    `seeks` has a column for each field with JPEGs that have seek indices; None: none were made yet. A field is that of the
    samples: in a TFRecord's Examples, a feature. `tail` has the indices, in the order of `seeks`, then of records.
    """

    kind: str
    fields: tuple[str, ...]
    start: Ints
    length: Ints
    crc: NDArray[np.uint32] | None
    keys: Keys | None
    size: int
    mtime_ns: int = 0
    etag: str = ""
    sealed: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)
    seeks: dict[str, SeekColumn] | None = None
    tail: IndexTail = field(default_factory=IndexTail)

    def __len__(self) -> int:
        return len(self.start)

    def to_bytes(self) -> bytes:
        """The file's content; the same index always gives the same bytes."""
        return b"".join(self.to_parts())

    def to_parts(self) -> list[bytes]:
        """The same in pieces: a tail may be large, and need not be copied to be written. ConfigError: none could read it."""
        columns: dict[str, NDArray[Any]] = {"start": self.start, "length": self.length}
        if self.crc is not None:
            columns["crc"] = self.crc
        if self.keys is not None:
            columns |= {"key_data": self.keys.data, "key_ends": self.keys.ends}
        columns |= self.extra
        for name, seeks in (self.seeks or {}).items():
            columns |= {_SEEK_LENGTH + name: seeks.length, _SEEK_CRC + name: seeks.crc}
        table, parts, at = [], [], 0
        for name, column in columns.items():
            data = np.ascontiguousarray(column).tobytes()
            table.append({"name": name, "dtype": column.dtype.str, "shape": list(column.shape), "at": at})
            parts += [data, b"\0" * (-len(data) % 8)]
            at += len(data) + -len(data) % 8
        head = {
            "kind": self.kind, "fields": list(self.fields), "records": len(self), "size": self.size, "mtime_ns": self.mtime_ns,
            "etag": self.etag, "sealed": self.sealed, "about": self.about, "columns": table,
        }  # fmt: skip
        if self.seeks is not None:
            head["seeks"] = list(self.seeks)
        header = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        if len(header) > MAX_HEADER:
            raise ConfigError(f"the header of the index would take {len(header):,} bytes, and readers take {MAX_HEADER:,}")
        body = b"".join(parts)
        tail = _TAIL.pack(self.tail.length) if self.tail.length else b""
        total = _PREFIX.size + len(tail) + len(header) + len(body) + self.tail.length
        version = TAIL_VERSION if tail else VERSION
        prefix = _PREFIX.pack(MAGIC, version, len(header), crc32c(header), crc32c(body), total) + tail
        return [prefix + header, body, *self.tail.content()]

    def keep(self, beside: bytes | None, home: Path) -> str:
        """Write the index next to its data, or else as `home`, in the user's cache folder; returns the path.

        Raises WriteError if it can be written nowhere, ConfigError if no reader could read it.
        """
        parts, refused = self.to_parts(), ""
        if beside is not None:
            try:
                publish(beside, *parts)
                return printable(beside)
            except WriteError as error:
                refused = f"{error}; and "
        try:
            home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            publish(os.fsencode(home), *parts)
        except (OSError, WriteError) as error:
            raise WriteError(f"{refused}{home}: {error}") from error
        return str(home)

    @classmethod
    def from_bytes(cls, data: bytes, told: str) -> ShardIndex:
        """The index in a file's content, checked; `told` names the file in messages."""
        return IndexHeader.of(_Beginning(data), len(data), told).load()

    @classmethod
    def read(cls, blob: Blob) -> ShardIndex:
        """The index in a file, checked; its tail stays there, and is looked at when it is needed."""
        return IndexHeader.read(blob).load()

    def _check(self, records: int) -> None:
        """Whether the columns agree with each other and lie within the shard."""
        shape = (records, len(self.fields))
        if not self.fields or self.start.shape != shape or self.length.shape != shape:
            raise ValueError(
                f"columns of {self.start.shape} and {self.length.shape} for {records} records, {len(self.fields)} fields"
            )
        if self.start.dtype != np.int64 or self.length.dtype != np.int64:
            raise ValueError("places that are not 64-bit numbers")
        if self.crc is not None and (self.crc.shape != shape or self.crc.dtype != np.uint32):
            raise ValueError("checksums of another shape")
        if len(set(self.fields)) < len(self.fields):
            raise ValueError("a field twice")
        ends = self.start + np.maximum(self.length, 0)  # may wrap: caught by the sign
        if records and (int(self.length.min()) < -1 or int(self.start.min()) < 0 or int(ends.min()) < 0):
            raise ValueError("a place before the beginning")
        if records and int(ends.max()) > self.size:
            raise ValueError(f"a record that ends at byte {int(ends.max())} of {self.size}")
        if records and self.kind == "tfrecord":
            before, after = _AROUND_RECORD
            if int(self.length.min()) < 0 or int(self.start.min()) < before or int(ends.max()) > self.size - after:
                raise ValueError("a record without its length and checksums around it")
        if self.keys is not None:
            ends = self.keys.ends
            if ends.shape != (records,) or ends.dtype != np.int64 or self.keys.data.dtype != np.uint8 or self.keys.data.ndim != 1:
                raise ValueError("keys of another shape")
            if records and (int(ends[0]) < 0 or bool((ends[1:] < ends[:-1]).any()) or int(ends[-1]) != self.keys.data.size):
                raise ValueError("keys that overlap")
        if self.tail.length != sum(int(seeks.length.sum(dtype=np.uint64)) for seeks in (self.seeks or {}).values()):
            raise ValueError(f"a tail of {self.tail.length} bytes, which is not what its columns say")
        for seeks in (self.seeks or {}).values():
            if any(column.shape != (records,) or column.dtype != np.uint32 for column in (seeks.length, seeks.crc)):
                raise ValueError("seek indices of another shape")


class _Beginning:
    """A file of which the first bytes are here; without a blob, all of them."""

    def __init__(self, first: bytes | bytearray, blob: Blob | None = None) -> None:
        self._first, self.blob = memoryview(first).toreadonly(), blob

    def get(self, at: int, length: int) -> memoryview:
        here = self._first[at : at + length]
        if len(here) == length or self.blob is None:
            return here
        data = bytearray(length)
        data[: len(here)] = here
        self.blob.read_into(at + len(here), memoryview(data)[len(here) :])
        return memoryview(data).toreadonly()


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The beginning of an index, checked: what it describes, and where its columns and its tail are; `load` reads them.

    A file may claim anything. So its size must agree with the table of columns, and must not exceed what a shard of `size` bytes
    can need, before memory is allocated for it; and whether the shard has that size can be checked before that.
    """

    told: str
    kind: str
    size: int
    mtime_ns: int
    etag: str
    sealed: bool
    fields: tuple[str, ...]
    columns: tuple[str, ...]
    seeks: tuple[str, ...] | None  # fields with seek indices; None: none were made yet
    said: dict[str, Any]
    file: _Beginning
    at: int  # where the columns begin
    length: int  # bytes they take
    crc: int
    tail: int  # bytes after them

    @classmethod
    def read(cls, blob: Blob) -> IndexHeader:
        """The header in a file. Of a file that does not even begin as an index does, the error's `offset` is 0."""
        size = blob.stat().size
        first = bytearray(min(size, _FIRST))
        blob.read_into(0, memoryview(first))
        return cls.of(_Beginning(first, blob), size, blob.url)

    @classmethod
    def of(cls, file: _Beginning, size: int, told: str) -> IndexHeader:
        first = file.get(0, min(size, _PREFIX.size + _TAIL.size))
        version, length, header_crc, body_crc, total = _prefix(first, told)
        if total != size:
            raise _bad(told, f"it has {size:,} bytes and should have {total:,}")
        begin, tail = _PREFIX.size, 0
        if version == TAIL_VERSION:
            begin += _TAIL.size
            tail = int(_TAIL.unpack_from(first, _PREFIX.size)[0]) if len(first) == begin else 0
            if not 0 < tail < size:
                raise _bad(told, f"it has {size:,} bytes, which cannot hold a tail of {tail:,}")
        body = size - tail - begin - length
        if body < 0 or length > MAX_HEADER or body > MAX_BYTES:
            raise _bad(told, f"it claims a header of {length:,} bytes and columns of {body:,}")
        header = file.get(begin, length)
        if crc32c(bytes(header)) != header_crc:
            raise _bad(told, "its checksum is wrong")
        with _contradictions(told):
            said = json.loads(bytes(header))
            _check_room(said, body)
            about = str(said["kind"]), int(said["size"]), int(said["mtime_ns"]), str(said["etag"]), bool(said["sealed"])
            fields, columns = tuple(map(str, said["fields"])), tuple(str(entry["name"]) for entry in said["columns"])
            seeks = None if said.get("seeks") is None else tuple(map(str, said["seeks"]))
        return cls(told, *about, fields, columns, seeks, said, file, begin + length, body, body_crc, tail)

    def load(self) -> ShardIndex:
        """The index, checked; its tail stays in the file."""
        try:
            body = self.file.get(self.at, self.length)
        except MemoryError as error:
            raise _bad(self.told, f"its columns take {self.length:,} bytes, more than there is memory") from error
        if crc32c(np.frombuffer(body, np.uint8)) != self.crc:
            raise _bad(self.told, "its checksum is wrong")
        end = self.at + self.length
        blob = self.file.blob
        tail = IndexTail.of((bytes(self.file.get(end, self.tail)),)) if blob is None else IndexTail(self.tail, (), blob, end)
        with _contradictions(self.told):
            return self._index(body, tail if self.tail else IndexTail())

    def _index(self, body: memoryview, tail: IndexTail) -> ShardIndex:
        said = self.said
        columns = {entry["name"]: _column(entry, body) for entry in said["columns"]}
        index = ShardIndex(
            kind=self.kind,
            fields=self.fields,
            start=columns.pop("start"),
            length=columns.pop("length"),
            crc=columns.pop("crc", None),
            keys=Keys(columns.pop("key_data"), columns.pop("key_ends")) if "key_ends" in columns else None,
            size=self.size,
            mtime_ns=self.mtime_ns,
            etag=self.etag,
            sealed=self.sealed,
            about=dict(said["about"]),
            seeks=None
            if self.seeks is None
            else {name: SeekColumn(columns.pop(_SEEK_LENGTH + name), columns.pop(_SEEK_CRC + name)) for name in self.seeks},
            extra=columns,
            tail=tail,
        )
        index._check(int(said["records"]))
        return index


def _prefix(first: memoryview, told: str) -> tuple[int, int, int, int, int]:
    """Version, length of the header, its checksum, that of the columns, and length of the file."""
    if len(first) < _PREFIX.size or first[:8] != MAGIC:
        raise _bad(told, f"it begins with {bytes(first[:8])!r}, which no index does", offset=0)
    _, version, *rest = _PREFIX.unpack_from(first)
    if version not in (VERSION, TAIL_VERSION):
        raise _bad(told, f"it is of version {version}, and this Stoker reads versions {VERSION} and {TAIL_VERSION}")
    length, header_crc, body_crc, total = rest
    return version, length, header_crc, body_crc, total


@contextlib.contextmanager
def _contradictions(told: str) -> Iterator[None]:
    """What goes wrong with what a header says is the file's fault."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise _bad(told, f"it contradicts itself ({error})") from error


def _check_room(said: dict[str, Any], body: int) -> None:
    """Whether the columns take as many bytes as there are, and no more than the shard can need."""
    records, size, least = int(said["records"]), int(said["size"]), _LEAST.get(said["kind"])
    end = max((_bounds(entry)[1] for entry in said["columns"]), default=0)
    if end + -end % 8 != body:
        raise ValueError(f"its columns end at byte {end:,} of {body:,}")
    if least is not None and not (0 <= records * least <= size and body <= _BYTES_PER_BYTE * size + _FIRST):
        raise ValueError(f"{records:,} records and {body:,} bytes about a shard of {size:,} bytes")


def _bounds(entry: dict[str, Any]) -> tuple[int, int]:
    """Where a column begins in the body, and where it ends."""
    shape, at = [int(extent) for extent in entry["shape"]], int(entry["at"])
    if entry["dtype"] not in _DTYPES or any(extent < 0 for extent in shape) or len(shape) > 4 or at < 0 or at % 8:
        raise ValueError(f"column {entry['name']!r} is of an unknown kind")
    return at, at + math.prod(shape) * np.dtype(entry["dtype"]).itemsize


def _column(entry: dict[str, Any], body: memoryview) -> NDArray[Any]:
    at, end = _bounds(entry)
    return np.frombuffer(body[at:end], entry["dtype"]).reshape([int(extent) for extent in entry["shape"]])


def _bad(told: str, why: str, offset: int | None = None) -> CorruptIndex:
    message = f"{told}: not a usable index: {why}; delete it, or make it again with `stoker index --force`"
    return CorruptIndex(message, shard=told, offset=offset)
