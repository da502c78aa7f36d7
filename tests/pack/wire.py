"""TFRecord files and tf.train.Examples decoded by plain Python, from their definitions: nothing here is shared with Stoker."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path: Path) -> list[bytes]:
    """The records of a TFRecord file, all checksums checked."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked(data[at : at + 8])
        record = data[at + 12 : at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert len(record) == length and crc == masked(record)
        found.append(record)
        at += length + 16
    return found


def example(data: bytes) -> dict[str, tuple[str, list[Any]]]:
    """An Example: the kind and the values of each feature."""
    found: dict[str, tuple[str, list[Any]]] = {}
    for number, features in _fields(data):
        assert number == 1
        for number, entry in _fields(features):
            assert number == 1
            parts = dict(_fields(entry))
            name = parts[1].decode()
            assert name not in found
            found[name] = _feature(parts[2])
    return found


def _feature(data: bytes) -> tuple[str, list[Any]]:
    lists = list(_fields(data))
    if not lists:
        return "", []
    [(kind, values)] = lists
    found: list[Any] = []
    for number, part in _fields(values):
        assert number == 1
        if kind == 1:
            found.append(part)
        elif kind == 2:
            found += struct.unpack(f"<{len(part) // 4}f", part)
        else:
            at = 0
            while at < len(part):
                value, at = _varint(part, at)
                found.append(value - (1 << 64) if value >> 63 else value)
    return {1: "bytes", 2: "float", 3: "int"}[kind], found


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        assert tag & 7 == 2, "every field of an Example has a length"
        length, at = _varint(data, at)
        assert at + length <= len(data)
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
