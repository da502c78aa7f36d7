"""Values of any kind in an Example, which has bytes and 64-bit integers: what a field was, and the conversion both ways."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...sizes import a_type
from ...source.chunk import fits
from ...source.shards.codecs import encode_field

#: what `source/shards/lmdb_source.py` takes for the dtype of plain numbers
_PLAIN_DTYPES = "biufc"


@dataclass(frozen=True, slots=True)
class Field:
    """What a field is, in all samples. `dtype` and `shape` belong to the kind ``array``."""

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()

    def told(self) -> str:
        return f"{self.dtype}{list(self.shape)}" if self.kind == "array" else self.kind

    def as_json(self) -> dict[str, Any]:
        about: dict[str, Any] = {"kind": self.kind}
        return about | {"dtype": self.dtype, "shape": list(self.shape)} if self.kind == "array" else about


_JSON, _NPY = Field("json"), Field("npy")
_IN_JSON = ("int", "float", "str", "json")


def field_of(name: str, value: Any) -> Field:
    """What a value is."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Field("bytes")
    if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, (str, float)):
        dtype = value.dtype
        if dtype.hasobject:
            raise ConfigError(f"field {name!r} is an array of Python objects; use a dtype of numbers or texts")
        return Field("array", dtype.str, value.shape) if dtype.kind in _PLAIN_DTYPES and value.size else _NPY
    if isinstance(value, str):
        return Field("str")
    if isinstance(value, float):
        return Field("float")
    if isinstance(value, int) and not isinstance(value, bool) and fits(value):
        return Field("int")
    return _JSON


def merged(name: str, one: Field, other: Field) -> Field:
    """What holds both."""
    if one == other:
        return one
    if {one.kind, other.kind} <= {"array", "npy"}:
        return _NPY
    if one.kind in _IN_JSON and other.kind in _IN_JSON:
        return _JSON
    raise ConfigError(f"field {name!r} is {other.told()} here and {one.told()} in the samples before; convert one of them")


def stored(field: Field, value: Any) -> bytes | int:
    """A value as what an Example holds."""
    if field.kind == "int":
        return int(value)
    if field.kind == "bytes":
        return bytes(value)
    if field.kind == "array":
        data: bytes = value.tobytes()
        return data
    if field.kind == "float":
        return struct.pack("<d", value)
    if field.kind == "str":
        try:
            return str(value).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{value!r} cannot be encoded as UTF-8; pass bytes") from error
    if field.kind == "json":
        _check_json(value)
    return encode_field(field.kind, value)


def loaded(field: Field, data: bytes | int) -> Any:
    """The value again, for storing it in another way."""
    if isinstance(data, int):
        return data
    if field.kind == "array":
        return np.frombuffer(data, field.dtype).reshape(field.shape)
    if field.kind == "float":
        return struct.unpack("<d", data)[0]
    return data.decode()


def _check_json(value: Any) -> None:
    """Whether JSON holds a value without changing it."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str):
                raise ConfigError(f"a mapping with the key {name!r}: keys in JSON must be str")
            _check_json(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_json(part)
    elif value is not None and not isinstance(value, (str, int, float)):
        raise ConfigError(
            f"{a_type(value)} cannot be stored; use bytes, a text, a number, an array, or lists and mappings of texts and numbers"
        )


def parse_example(data: bytes) -> dict[str, bytes | int]:
    """The features of an Example that was encoded here, of one value each."""
    features: dict[str, bytes | int] = {}
    _, at = _varint(data, 1)
    while at < len(data):
        _, at = _varint(data, at + 1)  # an entry: its name, then its feature
        size, at = _varint(data, at + 1)
        name, at = data[at : at + size].decode(), at + size
        _, at = _varint(data, at + 1)
        kind = data[at] >> 3
        _, at = _varint(data, at + 1)
        size, at = _varint(data, at + 1)
        if kind == 3:
            number, at = _varint(data, at)
            features[name] = number - (1 << 64 if number >> 63 else 0)
        else:
            features[name], at = data[at : at + size], at + size
    return features


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place after it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
