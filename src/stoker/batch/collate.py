"""Joins rows: fixed fields were written in place; all others are joined here, with the same result however tasks were cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from ..errors import BatchError, message_of
from ..source.chunk import BytesColumn, FieldSpec
from .strings import ByteStrings

#: what can be stacked without asking
_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray)


class Rule(Enum):
    """Rules that no user writes."""

    #: stack the rows where all have one shape, else leave them a list
    STACK_EQUAL = "stack equal"


STACK_EQUAL = Rule.STACK_EQUAL


def collate(name: str, values: Sequence[Any], spec: FieldSpec, rules: Mapping[str, Any], keys: Any) -> Any:
    """One column from the rows' values.

    `rules[name]` is what pads the field, `list`, or `STACK_EQUAL`. Without a rule numbers and arrays stack, and must have one
    shape; fields known to vary become a list, and those known to be bytes `ByteStrings`.
    """
    try:
        return _joined(name, values, spec, rules, keys)
    except (BatchError, MemoryError):
        raise
    except Exception as error:  # values may be of any type, and fail to become arrays in any way
        raised = f"{type(error).__name__}: {message_of(error)}"
        raise BatchError(
            f"field {name!r} cannot be joined, beginning with sample {keys(0)!r}, because a value raised {raised}; "
            f"convert it with map(), or keep a list with batch(..., pad={{{name!r}: list}})"
        ) from error


def _joined(name: str, values: Sequence[Any], spec: FieldSpec, rules: Mapping[str, Any], keys: Any) -> Any:
    rule = rules.get(name)
    if rule is None and spec.kind == "bytes":
        return values if isinstance(values, ByteStrings) else ByteStrings([BytesColumn.of(values)])
    if isinstance(values, ByteStrings):
        values = list(values)
    if rule is STACK_EQUAL:
        return _stack_equal(values)
    if rule is list or (rule is None and spec.kind == "array" and not spec.fixed):
        return values
    if rule is None:
        return _stack(name, [plain(value) for value in values], keys)
    return pad(name, values, rule, keys)


def plain(value: Any) -> Any:
    """Torch tensors and similar as NumPy arrays; anything else unchanged."""
    return np.asarray(value) if hasattr(value, "__array__") and not isinstance(value, _NUMBERS) else value


def _stack_equal(values: Sequence[Any]) -> Any:
    arrays = [plain(value) for value in values]
    same = all(isinstance(array, np.ndarray) and array.shape == arrays[0].shape for array in arrays)
    return np.stack(arrays) if arrays and same else values


def _stack(name: str, values: list[Any], keys: Any) -> Any:
    if not all(isinstance(value, _NUMBERS) for value in values):
        return values
    first = np.shape(values[0]) if values else ()
    for row, value in enumerate(values):
        if np.shape(value) != first:
            raise BatchError(
                f"field {name!r} does not stack: {first} in sample {keys(0)!r}, {np.shape(value)} in sample {keys(row)!r}; "
                f"use batch(..., pad={{{name!r}: 0}}) to pad, or pad={{{name!r}: list}} for a list"
            )
    return np.stack(values) if first else np.asarray(values)


def pad(name: str, values: Sequence[Any], fill: Any, keys: Any) -> Any:
    """Arrays of one dimensionality in a box that holds the largest, the rest `fill`."""
    arrays = [np.asarray(value) for value in values]
    dims = {array.ndim for array in arrays}
    if len(dims) != 1:
        raise BatchError(f"field {name!r} cannot be padded: its rows have {sorted(dims)} dimensions")
    shape = tuple(max(extents) for extents in zip(*(array.shape for array in arrays)))
    try:
        box = _filled((len(arrays), *shape), fill, np.result_type(*{array.dtype for array in arrays}))
    except (TypeError, ValueError, OverflowError) as error:
        raise BatchError(f"field {name!r} cannot be padded with {fill!r}: {error}") from error
    except MemoryError as error:
        largest = max(range(len(arrays)), key=lambda row: arrays[row].size)
        raise BatchError(
            f"field {name!r} cannot be padded: there is not enough memory for {len(arrays):,} rows of {list(shape)}; sample "
            f"{keys(largest)!r} has {list(arrays[largest].shape)}: cut or filter such samples before batch()"
        ) from error
    for row, array in enumerate(arrays):
        inside = (row, *(slice(extent) for extent in array.shape))
        box[inside] = array
    return box


def _filled(shape: tuple[int, ...], fill: Any, dtype: np.dtype[Any]) -> Any:
    """An array of `fill`, which must be a value of the type: NumPy would make 0 of NaN and 1 of 1.5 without a word."""
    with np.errstate(invalid="ignore"):
        value = np.full((), fill, dtype)
    if dtype.kind in "biu" and not value == fill:
        raise ValueError(f"not a value of type {dtype}")
    return np.full(shape, value, dtype)
