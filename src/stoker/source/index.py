"""The index of a shard: where each record lies, what it is called, and what its bytes must be.

A file beside the shard (``shard.tar`` has ``shard.tar.stk``), or in the user's cache folder where the shard's own cannot be
written to. With it every format is read at random. The layout, all numbers little-endian::

    prefix   32 bytes   magic, version, header length, CRC-32C of header, CRC-32C of body, length of the file
    header   JSON       what the index says of the shard, and the table of columns; padded with blanks to 8 bytes
    body                the columns, each at a multiple of 8 bytes

Every byte is covered by a checksum or compared with what it must be, so a damaged index is noticed before it is used. Columns
that this version does not know are kept and ignored, so later versions can add some.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptIndex
from ..kernel.records import crc32c
from .chunk import Ints

SUFFIX = ".stk"
VERSION = 1
MAGIC = b"STOKERIX"
_PREFIX = struct.Struct("<8sIIIIQ")
#: what a column may be made of: nothing that could hold an address
_DTYPES = {"<i8", "<u8", "<i4", "<u4", "|u1", "<f4", "<f8"}
#: no index is read that claims to be larger
MAX_BYTES = 1 << 34


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


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What is known of a shard: `n` records with up to `F` fields each.

    `start` and `length` are (n, F): where in the shard each field's bytes lie; length -1: the record has no such field. `crc` is
    the CRC-32C of those bytes; None where the shard holds checksums of its own. `keys` is None where records have no name but
    their number.

    `size`, `mtime_ns` and `etag` are what the shard was when the index was made (mtime 0 and "": not known). `sealed` means the
    index was made on purpose, by who wrote the shard or by ``stoker index``: then it is the truth, and a shard that differs is an
    error. Otherwise it is only a memory of the last look, and is made again. `about` is whatever else the format knows, as JSON.
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

    def __len__(self) -> int:
        return len(self.start)

    def to_bytes(self) -> bytes:
        """The file's content; the same index always gives the same bytes."""
        columns: dict[str, NDArray[Any]] = {"start": self.start, "length": self.length}
        if self.crc is not None:
            columns["crc"] = self.crc
        if self.keys is not None:
            columns |= {"key_data": self.keys.data, "key_ends": self.keys.ends}
        columns |= self.extra
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
        header = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        body = b"".join(parts)
        total = _PREFIX.size + len(header) + len(body)
        return _PREFIX.pack(MAGIC, VERSION, len(header), crc32c(header), crc32c(body), total) + header + body

    @classmethod
    def from_bytes(cls, data: bytes, told: str) -> ShardIndex:
        """The index in a file's content, checked; `told` names the file in messages."""
        header, body = _split(data, told)
        try:
            head = json.loads(header)
            columns = {entry["name"]: _column(entry, body) for entry in head["columns"]}
            index = cls(
                kind=str(head["kind"]),
                fields=tuple(map(str, head["fields"])),
                start=columns.pop("start"),
                length=columns.pop("length"),
                crc=columns.pop("crc", None),
                keys=Keys(columns.pop("key_data"), columns.pop("key_ends")) if "key_ends" in columns else None,
                size=int(head["size"]),
                mtime_ns=int(head["mtime_ns"]),
                etag=str(head["etag"]),
                sealed=bool(head["sealed"]),
                about=dict(head["about"]),
                extra=columns,
            )
            index._check(int(head["records"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise _bad(told, f"it contradicts itself ({error})") from error
        return index

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
        if self.keys is not None:
            ends = self.keys.ends
            if ends.shape != (records,) or ends.dtype != np.int64 or self.keys.data.dtype != np.uint8 or self.keys.data.ndim != 1:
                raise ValueError("keys of another shape")
            if records and (int(ends[0]) < 0 or bool((ends[1:] < ends[:-1]).any()) or int(ends[-1]) != self.keys.data.size):
                raise ValueError("keys that overlap")


def _split(data: bytes, told: str) -> tuple[bytes, memoryview]:
    if len(data) < _PREFIX.size or data[:8] != MAGIC:
        raise _bad(told, f"it begins with {data[:8]!r}, which no index does")
    _, version, length, header_crc, body_crc, total = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise _bad(told, f"it is of version {version}, and this Stoker reads version {VERSION}")
    if total != len(data):
        raise _bad(told, f"it has {len(data):,} bytes and should have {total:,}")
    header, body = data[_PREFIX.size : _PREFIX.size + length], memoryview(data)[_PREFIX.size + length :]
    if crc32c(header) != header_crc or crc32c(body) != body_crc:
        raise _bad(told, "its checksum is wrong")
    return header, body


def _column(entry: dict[str, Any], body: memoryview) -> NDArray[Any]:
    shape, at = tuple(int(extent) for extent in entry["shape"]), int(entry["at"])
    if entry["dtype"] not in _DTYPES or any(extent < 0 for extent in shape) or len(shape) > 4 or at < 0 or at % 8:
        raise ValueError(f"column {entry['name']!r} is of an unknown kind")
    dtype, count = np.dtype(entry["dtype"]), 1
    for extent in shape:
        count *= extent
    if at + count * dtype.itemsize > len(body):
        raise ValueError(f"column {entry['name']!r} ends behind the file")
    return np.frombuffer(body, dtype, count, at).reshape(shape)


def _bad(told: str, why: str) -> CorruptIndex:
    return CorruptIndex(f"{told}: not a usable index: {why}; delete it, or make it again with `stoker index --force`", shard=told)
