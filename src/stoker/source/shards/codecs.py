"""Fields of a sample as bytes and back, by their extension. Nothing here can run code that came with the data.

``cls``, ``index`` and similar are decimal integers, ``json`` is JSON, ``txt`` is UTF-8 text, ``npy`` is a NumPy array without
objects. Pictures, and everything not named here, stay bytes. In a field with several dots the last part counts: ``seg.png`` is a
picture.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, RecordError
from ...kernel import records
from ..chunk import BYTES, OBJECT, BytesColumn, FieldSpec, array_spec, fits

T = TypeVar("T")

NUMBERS = frozenset({"cls", "cls2", "class", "count", "index", "inx", "id"})
TEXTS = frozenset({"txt", "text", "transcript"})
JSONS = frozenset({"json", "jsn"})
#: what other loaders would unpickle without asking
PICKLES = frozenset({"pkl", "pickle", "pyd", "pth", "pt", "dill"})
#: arrays larger than this are refused before memory is taken
MAX_ARRAY_BYTES = 1 << 34
#: a longer text is not the number of a class
MAX_DIGITS = 32

_INT64 = array_spec(np.int64)


def kind_of(field: str) -> str:
    """The extension that decides how a field is decoded; that of several to choose from (``jpg;png``) is one of theirs."""
    return field.rsplit(";", 1)[-1].rsplit(".", 1)[-1].lower()


def spec_of(field: str) -> FieldSpec:
    """What a decoded field holds."""
    kind = kind_of(field)
    if kind in NUMBERS:
        return _INT64
    return OBJECT if kind in TEXTS or kind in JSONS or kind == "npy" or kind in PICKLES else BYTES


def check_alike(fields: Iterable[str]) -> None:
    """Raise where fields are decoded in different ways, so that one column cannot hold either."""
    ways = {_DECODERS.get(kind_of(field)): field for field in fields}
    if len(ways) > 1:
        told = " and ".join(map(repr, ways.values()))
        raise ConfigError(f"rename: {told} are decoded differently, so they cannot be one field; choose one of them")


def with_first(known: Mapping[str, T], fields: Sequence[str], name: str) -> dict[str, T]:
    """The same with one more entry, which is that of the first of some fields that has one."""
    found = next((field for field in fields if field in known), None)
    return dict(known) if found is None else {**known, name: known[found]}


def decode_field(field: str, data: bytes) -> Any:
    """The value of a field; raises RecordError when the bytes are not what the extension says."""
    decode = _DECODERS.get(kind_of(field))
    if decode is None:
        return data
    try:
        return decode(data)
    except RecordError:
        raise
    except (ValueError, EOFError, OverflowError, RecursionError) as error:
        begin = data[:24]
        raise RecordError(f"field {field!r}: {begin!r}{'...' if len(data) > 24 else ''} cannot be decoded: {error}") from error


def name_sample(error: RecordError, key: str, origin: str) -> RecordError:
    """The same error, extended by the sample's name and where it is stored."""
    error.key, error.origin = key, origin
    error.message = f"{origin}: sample {key!r}: {error.message}"
    return error


def encode_field(field: str, value: Any) -> bytes:
    """The bytes a field is stored as; `decode_field` gives the value back. Raises ConfigError for what has no such bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    kind = kind_of(field)
    whole = isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iu"
    if kind in NUMBERS and (whole or (isinstance(value, (int, np.integer)) and not isinstance(value, bool))):
        return _number_bytes(field, int(value))
    if kind in JSONS:
        return _json_bytes(field, value)
    if kind in TEXTS and isinstance(value, str):
        return text_bytes(value, f"field {field!r}")
    if kind == "npy" and isinstance(value, (np.ndarray, np.generic, int, float, list, tuple)):
        return _npy_bytes(field, value)
    raise ConfigError(
        f"field {field!r}: the extension of its name says how it is stored, and values of type {type(value).__name__} do not "
        f"fit it; {_remedy(field, value)}"
    )


def decimals(column: BytesColumn, out: NDArray[np.int64] | None = None) -> NDArray[np.int64] | None:
    """The decimal integers of a column; None if one of them is not just digits, and must be parsed separately."""
    if not len(column):
        return None
    values = np.empty(len(column), np.int64) if out is None or not out.flags.carray else out
    return values if records.decimals(column.data, column.starts, column.lengths, values) else None


def _remedy(field: str, value: Any) -> str:
    if kind_of(field) in PICKLES:
        return "pickles are never written: store it as json or npy, or pass bytes"
    if isinstance(value, np.ndarray):
        return f"name it '{field}.npy' to store the array, or '{field}.png' to store it as a picture"
    if isinstance(value, str):
        return f"name it '{field}.txt', or pass bytes"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return f"name it '{field}.cls', or pass bytes"
    return "pass bytes, or name it after what it holds: '.json', '.txt', '.cls', '.npy', '.png'"


def name_bytes(name: str, told: str) -> bytes:
    """A name as UTF-8; bytes that are not text are surrogates in it, and come back as they were."""
    return _utf8(name, told, "surrogateescape")


def text_bytes(text: str, told: str) -> bytes:
    """Text as UTF-8, which every reader takes for text again."""
    return _utf8(text, told, "strict")


def _utf8(text: str, told: str, errors: str) -> bytes:
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{told}: {text[error.start : error.end]!r} at place {error.start} is a lone surrogate, which UTF-8 cannot hold; "
            "replace it, or pass bytes"
        ) from error


def _number_bytes(field: str, value: int) -> bytes:
    if not fits(value):
        raise ConfigError(f"field {field!r}: {value} does not fit 64 bits and could not be read back; name it '{field}.txt'")
    return str(value).encode()


def _json_bytes(field: str, value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"field {field!r}: {error}; JSON holds numbers, texts, lists and mappings") from error
    return text_bytes(text, f"field {field!r}: as JSON")


def _npy_bytes(field: str, value: Any) -> bytes:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"field {field!r}: NumPy cannot make an array of it ({error}); use rows of equal length, or store it as json"
        ) from error
    if array.dtype.hasobject:
        raise ConfigError(f"field {field!r} holds Python objects (dtype {array.dtype}); use a numeric dtype")
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def _number(data: bytes) -> int:
    if len(data) > MAX_DIGITS:
        raise ValueError("too long for an integer")
    value = int(data)
    if b"_" in data:
        raise ValueError("it must contain only digits")  # Python takes 1_000
    if not fits(value):
        raise ValueError("it does not fit 64 bits")
    return value


def _array(data: bytes) -> Any:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"npy version {version} is not supported")
    try:
        shape, _, dtype = read(stream)
    except Exception as error:  # NumPy's parser of headers raises whatever comes its way: TokenError, TypeError, MemoryError
        raise ValueError(f"its header cannot be read: {type(error).__name__}") from error
    if dtype.hasobject:
        raise ValueError("it holds pickled Python objects, which are never read")
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    if size > MAX_ARRAY_BYTES or size != len(data) - stream.tell():
        raise ValueError(f"its header says {size:,} bytes of numbers, and {len(data) - stream.tell():,} follow")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def _refused(data: bytes) -> Any:
    raise RecordError(
        "this field is a pickle, which can run any code when it is read; name it in allow_pickle=[...] if you trust who wrote it"
    )


_DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(NUMBERS, _number),
    **dict.fromkeys(TEXTS, lambda data: data.decode("utf-8")),
    **dict.fromkeys(JSONS, json.loads),
    **dict.fromkeys(PICKLES, _refused),
    "npy": _array,
}
