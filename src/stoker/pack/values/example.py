"""`tf.train.Example` messages, made without TensorFlow.

An Example maps names to lists of bytes, of 64-bit integers or of 32-bit floats. The wire format leaves some freedom, and none of
it is used: features are in the order of their names, and numbers are packed. So equal samples give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...sizes import a_type
from ...source.chunk import fits

#: kinds of lists, by the number of their field in a Feature
BYTES, FLOAT, INT = 1, 2, 3
_KINDS = {BYTES: "bytes", FLOAT: "float", INT: "int"}
#: protocol buffers end here
_MAX_BYTES = (1 << 31) - 1
_FEW = 32
_SMALL = [bytes([number]) for number in range(128)]
_LIST = b"\x0a"  # field 1, length-delimited: what every level of an Example begins with
_TAGS = {kind: bytes([kind << 3 | 2]) for kind in _KINDS}

List = tuple[int, list[bytes]]  # the kind (0: an empty list, which has none), and the message in pieces


class ExampleEncoder:
    """Turns fields into Examples; a field is of one kind in all of them.

    ``floats="exact"`` refuses arrays of doubles that 32-bit floats do not hold; ``"round"`` takes the nearest, as is always done
    with Python's own floats.

    >>> b"".join(ExampleEncoder().encode([("label", 3)]))
    b'\\n\\x10\\n\\x0e\\n\\x05label\\x12\\x05\\x1a\\x03\\n\\x01\\x03'
    """

    def __init__(self, *, floats: str = "exact") -> None:
        if floats not in ("exact", "round"):
            raise ConfigError(f"floats={floats!r}: choose 'exact' or 'round'")
        self._round = floats == "round"
        self._known: dict[str, tuple[int, bytes]] = {}  # name -> its kind, and the bytes its entry begins with

    def encode(self, fields: Iterable[tuple[str, Any]]) -> list[bytes]:
        """An Example in pieces, in order. A field that is None is omitted."""
        pieces, total = [b""], 0
        for name, value in sorted(fields, key=itemgetter(0)):
            if value is None:
                continue
            try:
                kind, body = list_of(value, self._round)
            except ConfigError as error:
                raise ConfigError(f"field {name!r}: {error}") from error
            size = sum(map(len, body))
            feature = _TAGS[kind] + varint(size) if kind else b""
            head, inner = self._head(name, kind), len(feature) + size
            entry = head + varint(inner) + feature
            pieces.append(_LIST + varint(len(entry) + size) + entry)
            total += len(pieces[-1]) + size
            pieces += body
        if total > _MAX_BYTES:
            raise ConfigError(f"{total:,} bytes are too many for one record, of which TensorFlow reads 2 GiB at most; split it")
        pieces[0] = _LIST + varint(total)
        return pieces

    def _head(self, name: str, kind: int) -> bytes:
        known, head = self._known.get(name, (0, b""))
        if not head:
            try:
                data = name.encode()
            except UnicodeEncodeError as error:
                raise ConfigError(f"field {name!r}: the name of a feature must be valid UTF-8; rename it") from error
            head = _LIST + varint(len(data)) + data + b"\x12"
        if kind and known not in (0, kind):
            raise ConfigError(
                f"field {name!r}: holds {_KINDS[kind]} here and {_KINDS[known]} in an earlier sample; a feature has one type: "
                "convert one of them, e.g. by float(...)"
            )
        self._known[name] = kind or known, head
        return head


def list_of(value: Any, rounding: bool) -> List:
    """A value as the list of a feature."""
    kind = type(value)
    if kind is bytes:
        return BYTES, [_LIST + varint(len(value)), value]
    if kind is int and 0 <= value < 128:
        return INT, [b"\x0a\x01" + _SMALL[value]]
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return _strings([value])
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(part, (bytes, bytearray, memoryview, str)) for part in value):
            return _strings(value)
        if not value:
            return 0, []
        if any(isinstance(part, (bytes, bytearray, memoryview, str, type(None), dict)) for part in value):
            raise ConfigError("the values of a list must be of one kind: bytes and texts, or numbers")
        if len(value) <= _FEW and all(type(part) is int for part in value):
            return _few_ints(value)
    elif kind is int:
        return _few_ints([value])
    elif kind is dict or value is None:
        raise ConfigError("a mapping is not a list of numbers or bytes; make each entry a field, or pass json.dumps(...)")
    return _numbers(value, rounding)


def varint(number: int) -> bytes:
    """A number from 0 on, seven bits a byte, the lowest first."""
    if number < 128:
        return _SMALL[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def packed_ints(numbers: NDArray[np.int64]) -> bytes:
    """Numbers as varints back to back; negative ones as their 64 bits, which takes ten bytes."""
    wide = np.ascontiguousarray(numbers).view(np.uint64)
    if wide.size and int(wide.max()) < 128:
        return wide.astype(np.uint8).tobytes()
    counts = np.ones(wide.size, np.int64)
    for bits in range(7, 64, 7):
        counts += (wide >> np.uint64(bits)) > 0
    ends = np.cumsum(counts)
    out = np.empty(int(ends[-1]) if wide.size else 0, np.uint8)
    for place in range(int(counts.max(initial=0))):
        here = counts > place
        low = (wide[here] >> np.uint64(7 * place)) & np.uint64(127)
        out[(ends - counts)[here] + place] = low.astype(np.uint8) | np.where(counts[here] > place + 1, 128, 0).astype(np.uint8)
    return out.tobytes()


def _strings(values: Iterable[Any]) -> List:
    body = []
    for value in values:
        try:
            data = value.encode() if isinstance(value, str) else bytes(value)
        except UnicodeEncodeError as error:
            raise ConfigError(f"{value!r} cannot be encoded as UTF-8; pass bytes") from error
        body += [_LIST + varint(len(data)), data]
    return BYTES, body


def _few_ints(values: Iterable[int]) -> List:
    packed = b""
    for value in values:
        if not fits(value):
            raise ConfigError(f"{value} does not fit 64 bits; pass str(...) or bytes")
        packed += varint(value & (1 << 64) - 1)
    return INT, _packed(packed)


def _packed(data: bytes) -> list[bytes]:
    return [_LIST + varint(len(data)), data] if data else []


def _numbers(value: Any, rounding: bool) -> List:
    """Anything NumPy makes an array of, row by row: an Example holds no shapes."""
    try:
        array = np.asarray(value).reshape(-1)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{a_type(value)} is not a list of numbers or bytes: {error}") from error
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >= 1 << 63:
        raise ConfigError(f"{int(array.max())} does not fit a signed 64-bit integer; pass its bytes")
    if array.dtype.kind in "biu":
        return INT, _packed(packed_ints(array.astype(np.int64)))
    if array.dtype.kind == "f":
        # A Python float is always a double; an array of doubles was chosen on purpose.
        return FLOAT, _packed(_floats(array, rounding or not isinstance(value, np.ndarray)))
    if array.dtype.kind in "SU":
        return _strings(array.tolist())
    told = f"an array of {array.dtype}" if isinstance(value, np.ndarray) else f"{a_type(value)}"
    raise ConfigError(f"{told} is not a list of numbers or bytes; convert it, or pass its bytes")


def _floats(array: NDArray[Any], rounding: bool) -> bytes:
    with np.errstate(over="ignore", invalid="ignore"):
        single = array.astype("<f4")
    if array.dtype.itemsize > 4:
        lost = ~np.isfinite(single) & np.isfinite(array) if rounding else (single.astype(array.dtype) != array) & ~np.isnan(array)
        if lost.any():
            number = float(array[int(np.argmax(lost))])
            raise ConfigError(
                f"{number!r} does not fit a 32-bit float, the only float type of a feature; pass np.float32(...), its bytes, or "
                "floats='round'"
            )
    return single.tobytes()
