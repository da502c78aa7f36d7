"""Shards made by hand, byte by byte, from the definitions of their formats: nothing here is shared with Stoker."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..pack.wire import masked

# ---- tar -------------------------------------------------------------------------------------------------------------

#: the two blocks of zeros that end a tar
END = b"\0" * 1024


def header(
    name: bytes, size: int, kind: bytes = b"0", *, magic: bytes = b"ustar\x0000", link: bytes = b"", raw_size: bytes = b""
) -> bytes:
    """The header of a tar member; `raw_size` says the size in other ways than octal digits."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:124] = b"0000644\0000000000\0000000000\0"[:24]
    block[124:136] = raw_size or b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[157 : 157 + len(link)] = link
    block[257 : 257 + len(magic)] = magic
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def member(name: bytes, data: bytes = b"", kind: bytes = b"0", **options: Any) -> bytes:
    """A member with its content, padded to whole blocks."""
    return header(name, len(data), kind, **options) + data + b"\0" * (-len(data) % 512)


def tar(members: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(member(name, data) for name, data in members) + END


def sample_tar(samples: Iterable[tuple[str, Mapping[str, bytes]]]) -> bytes:
    """A tar of samples: (key, {field: bytes})."""
    return tar((f"{key}.{field}".encode(), data) for key, fields in samples for field, data in fields.items())


# ---- TFRecord --------------------------------------------------------------------------------------------------------


def record(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked(length)) + payload + struct.pack("<I", masked(payload))


def tfrecord(payloads: Iterable[bytes]) -> bytes:
    return b"".join(map(record, payloads))


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes) -> bytes:
    """A field of a protocol buffer that has a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: Any, *, packed: bool = True) -> bytes:
    """A tf.train.Feature: bytes, numbers, lists of them; an empty list has no kind, a NumPy array has that of its dtype."""
    if isinstance(value, np.ndarray):
        values, kind = value.tolist(), "if"[value.dtype.kind == "f"]
    else:
        values = value if isinstance(value, list) else [value]
        kind = "" if not values else "b" if isinstance(values[0], bytes) else "f" if isinstance(values[0], float) else "i"
    if kind == "b":
        return field(1, b"".join(field(1, part) for part in values))
    if kind == "f":
        parts = [struct.pack("<f", part) for part in values]
        return field(2, field(1, b"".join(parts)) if packed else b"".join(b"\x0d" + part for part in parts))
    if kind == "i":
        parts = [varint(part) for part in values]
        return field(3, field(1, b"".join(parts)) if packed else b"".join(b"\x08" + part for part in parts))
    return b""


def example(features: Mapping[str | bytes, Any], **options: Any) -> bytes:
    """A tf.train.Example."""
    entries = b""
    for name, value in features.items():
        raw = name if isinstance(name, bytes) else name.encode()
        entries += field(1, field(1, raw) + field(2, feature(value, **options)))
    return field(1, entries)


# ---- LMDB ------------------------------------------------------------------------------------------------------------


def write_lmdb(path: Path, entries: Iterable[tuple[bytes, bytes]], *, subdir: bool = False, **options: Any) -> Path:
    """A database written by the usual library."""
    import lmdb

    opened = lmdb.open(str(path), subdir=subdir, map_size=1 << 24, lock=False, **options)
    with opened as environment, environment.begin(write=True) as transaction:
        for key, value in entries:
            transaction.put(key, value)
    return path
