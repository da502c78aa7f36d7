"""Columns of values that users give with their files: numbers, text, or rows of numbers. The type is found from all values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, message_of
from ...portable_arrays import ArrayInFile, ArrayInMemory, portable
from ...sizes import a_type, short
from ..chunk import OBJECT, Column, FieldSpec, Ints, array_spec, fits

#: one row per sample: numbers, or objects that are all str
Values = NDArray[Any]
#: number of a value -> its place, for messages
Place = Callable[[int], str]

_BUILTIN = (int, float, list, tuple)
_KINDS = "a value is a number, a text, or a list of numbers"


def typed_column(given: Any, place: Place, floats: Any = np.float64) -> Values:
    """The values as one array: what is an array of numbers already keeps its type, Python's floats become `floats`.

    >>> typed_column([1, 2], str).dtype.name, typed_column([[1, 2.5]], str).shape, typed_column(["a"], str).tolist()
    ('int64', (1, 2), ['a'])
    """
    array = as_array(given)
    if array is None:
        return _of_values(list(given), place, floats)
    if array.ndim and np.ma.is_masked(array):
        at = int(np.flatnonzero(np.ma.getmaskarray(array).reshape(len(array), -1).any(axis=1))[0])
        raise ConfigError(f"{place(at)}: a masked value; remove the row, or give it a value with filled(...)")
    if array.dtype.kind in "biuf" and array.ndim:
        return array
    if array.dtype.kind not in "OUT":
        raise ConfigError(f"{place(0)}: {array.dtype} values; {_KINDS}: convert them to one of these")
    return _of_values(array.tolist() if array.ndim else [], place, floats)


def as_array(given: Any) -> NDArray[Any] | None:
    """A column of NumPy, torch, pandas or Arrow as an array; None if `given` is none of these."""
    if isinstance(given, np.ndarray):
        return given
    try:
        if hasattr(given, "__array__"):
            return np.asarray(given)
        return np.asarray(given.to_numpy()) if hasattr(given, "to_numpy") else None
    except Exception as exc:  # a tensor that needs a gradient, or of a type NumPy has not; an object that fails in its own way
        told = f"NumPy cannot read this {type(given).__name__}: {message_of(exc)}"
        raise ConfigError(f"{told}; convert it (PyTorch: tensor.detach().cpu().float().numpy())") from exc


def is_list(given: Any) -> bool:
    """Whether these are several values: a sequence, or an array of any library."""
    if isinstance(given, (str, bytes, type)):
        return False
    return isinstance(given, Sequence) or (_is_array(type(given)) and getattr(given, "ndim", 1) > 0)


def as_list(given: Any, what: str) -> list[Any]:
    """The values of a column, one by one."""
    array = as_array(given)
    if isinstance(given, (str, bytes, dict, set, frozenset)) or not (array is not None or isinstance(given, Iterable)):
        raise ConfigError(f"{what} cannot be {a_type(given)}; use a list or an array")
    return list(given) if array is None else list(np.atleast_1d(array))


def column_spec(column: Values) -> FieldSpec:
    """What a column's field holds."""
    return OBJECT if column.dtype.hasobject else array_spec(column.dtype, *column.shape[1:])


class Texts:
    """A column of texts as two arrays, which processes can share: bytes back to back, and where each text ends."""

    __slots__ = ("_data", "_ends")

    def __init__(self, texts: Values) -> None:
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts.tolist()]
        self._data = np.frombuffer(b"".join(encoded), np.uint8)
        self._ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))

    def rows(self, indices: Ints) -> list[str]:
        return [
            self._data[int(self._ends[at - 1]) if at else 0 : int(self._ends[at])].tobytes().decode("utf-8", "surrogatepass")
            for at in indices.tolist()
        ]


def portable_column(column: Values | Texts) -> Texts | ArrayInMemory | ArrayInFile:
    """A stand-in for a column in another process: Python strings cannot be shared."""
    return column if isinstance(column, Texts) else Texts(column) if column.dtype.hasobject else portable(column)


def column_rows(column: Values | Texts, indices: Ints, out: NDArray[Any] | None) -> Column:
    """Some rows of a column, in `out` if that is given."""
    if isinstance(column, Texts):
        return column.rows(indices)
    rows = column[indices]  # not np.take, which releases the GIL
    if out is None:
        texts: list[str] | None = rows.tolist() if rows.dtype.hasobject else None
        return rows if texts is None else texts
    out[...] = rows
    return out


def column_digest(column: Values) -> list[bytes]:
    """What a fingerprint covers of a column: all its values, and their type unless they are plain integers."""
    if column.dtype == np.int64 and column.ndim == 1:
        return [column.tobytes()]
    if column.dtype.hasobject:
        lengths = np.fromiter(map(len, column), np.int64, len(column))
        return [b"text", lengths.tobytes(), "".join(column).encode("utf-8", "surrogatepass")]
    return [f"{column.dtype.str}{column.shape[1:]}".encode(), column.tobytes()]


def _of_values(values: list[Any], place: Place, floats: Any) -> Values:
    types = set(map(type, values))
    if any(_is_array(kind) for kind in types):
        values = [_plain(value) for value in values]
        types = set(map(type, values))
    kinds = {_kind(kind) for kind in types}
    if kinds == {"text"}:
        return np.array([str(value) for value in values], object)
    if kinds == {"integer"}:
        return _integers(values, types, place)
    if kinds == {"list"}:
        return _rows(values, place, floats if types <= set(_BUILTIN) else None)
    if kinds <= {"integer", "float"}:
        return _floats(np.array(values), floats if types <= {*_BUILTIN, bool} else None, place)
    raise ConfigError(_odd_one(values, place))


def _is_array(kind: type) -> bool:
    return (hasattr(kind, "__array__") or hasattr(kind, "to_numpy")) and not issubclass(kind, np.generic)


def _plain(value: Any) -> Any:
    """An array of no dimensions, as torch gives them, as the number it holds."""
    array = as_array(value) if _is_array(type(value)) else None
    return value if array is None else array[()]


def _kind(kind: type) -> str:
    if issubclass(kind, str):
        return "text"
    if issubclass(kind, (float, np.floating)):
        return "float"
    if issubclass(kind, (list, tuple, np.ndarray)):
        return "list"
    return "integer" if hasattr(kind, "__index__") or issubclass(kind, np.bool_) else ""


def _integers(values: list[Any], types: set[type], place: Place) -> Values:
    if all(issubclass(kind, (bool, np.bool_)) for kind in types):
        return np.array(values, np.bool_)
    numbers = values if types == {int} else [int(value) for value in values]
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        at = next(at for at, number in enumerate(numbers) if not fits(number))
        raise ConfigError(f"{place(at)}: {numbers[at]} does not fit 64 bits; use a text") from None


def _rows(values: list[Any], place: Place, floats: Any) -> Values:
    rows = [_row(value) for value in values]
    for at, row in enumerate(rows):
        if row is None:
            raise ConfigError(f"{place(at)}: {short(values[at])} is not a list of numbers of one length; {_KINDS}")
        if row.shape != rows[0].shape:  # type: ignore[union-attr]
            told = " x ".join(map(str, row.shape))
            raise ConfigError(f"{place(at)}: {told} numbers, where {place(0)} has {len(values[0])}; all need the same length")
    column = np.stack(rows)  # type: ignore[arg-type]
    return _floats(column, floats, place) if column.dtype.kind == "f" else column


def _row(value: Any) -> NDArray[Any] | None:
    try:
        row = np.asarray(value)
    except ValueError:  # lists of unequal lengths in it
        return None
    return row if row.dtype.kind in "biuf" else None


def _floats(column: Values, floats: Any, place: Place) -> Values:
    if floats is None or column.dtype == floats:
        return column
    with np.errstate(over="ignore"):
        made: Values = column.astype(floats)
    wrong = np.isinf(made) & np.isfinite(column)
    if wrong.any():
        at = int(np.flatnonzero(wrong.reshape(len(column), -1).any(axis=1))[0])
        raise ConfigError(f"{place(at)}: too large for {made.dtype}; pass an array of float64")
    return made


def _odd_one(values: list[Any], place: Place) -> str:
    """Which value is of no kind, or of another than the first."""
    kinds = [_kind(type(value)) for value in values]
    if "" in kinds:
        at = kinds.index("")
        told = "None" if values[at] is None else f"{short(values[at])}, {a_type(values[at])}"
        return f"{place(at)}: {told}; {_KINDS}"
    at = next(at for at, kind in enumerate(kinds) if kind != kinds[0] and {kind, kinds[0]} != {"integer", "float"})
    article = "an" if kinds[at] == "integer" else "a"
    told = f"{short(values[at])} is {article} {kinds[at]}, where {place(0)} has the {kinds[0]} {short(values[0])}"
    return f"{place(at)}: {told}; all need to be of one kind"
