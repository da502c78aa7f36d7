"""Parameters of operations: checked once, and put in normal form, so that equal operations are equal values."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError

if TYPE_CHECKING:
    from .operation import Operation

#: (low, high), both included
Range = tuple[float, float]
#: the longest side of an image an operation may ask for
MAX_SIDE = 65535
#: the strongest change of brightness, contrast, saturation, sharpness
MAX_FACTOR = 100


def put(operation: Operation, **values: Any) -> None:
    """Set fields; in `__post_init__`, the one moment a frozen value may still be put in normal form."""
    for name, value in values.items():
        object.__setattr__(operation, name, value)


def wrong(operation: Operation, name: str, value: Any, allowed: str) -> ConfigError:
    """The error that names operation, parameter, value and what is allowed."""
    return ConfigError(f"{type(operation).__name__}: {name}={value!r} must be {allowed}")


def is_number(value: Any) -> bool:
    """Whether a value is one finite number, as people mean it."""
    if isinstance(value, (float, np.floating)):
        return math.isfinite(value)
    return is_whole(value) and abs(int(value)) <= sys.float_info.max  # larger ones overflow in arithmetic with floats


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def row_of(value: Any) -> tuple[Any, ...] | None:
    """What people write several numbers as, as a tuple; None for anything else."""
    if isinstance(value, np.ndarray):
        return tuple(value) if value.ndim == 1 else None
    return tuple(value) if isinstance(value, (tuple, list)) else None


def number(operation: Operation, name: str, value: Any, low: float, high: float, what: str = "a number") -> float:
    """One number from `low` to `high`."""
    if not is_number(value) or not low <= value <= high:
        raise wrong(operation, name, value, f"{what} {_span(low, high)}")
    return float(value)


def whole(operation: Operation, name: str, value: Any, low: int, high: int, what: str = "an integer") -> int:
    """One integer from `low` to `high`."""
    if not is_whole(value) or not low <= value <= high:
        raise wrong(operation, name, value, f"{what} {_span(low, high)}")
    return int(value)


def probability(operation: Any) -> float:
    """The `p` of an operation that has one."""
    return number(operation, "p", operation.p, 0, 1, "a probability,")


def name(operation: Operation, parameter: str, value: Any) -> str | None:
    """A name, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise wrong(operation, parameter, value, "a name, or None")
    return value


def side(operation: Operation, name: str, value: Any) -> int:
    """A length in pixels."""
    if not is_whole(value) or not 0 < value <= MAX_SIDE:
        raise wrong(operation, name, value, f"a number of pixels, an integer from 1 to {MAX_SIDE:,}")
    return int(value)


def sides(operation: Operation, value: Any, name: str = "size") -> tuple[int, int]:
    """(height, width) from one number or two."""
    pair = (value, value) if is_number(value) else row_of(value) or ()
    if len(pair) != 2 or not all(is_whole(v) and 0 < v <= MAX_SIDE for v in pair):
        raise wrong(operation, name, value, f"a number or (height, width), integers from 1 to {MAX_SIDE:,}")
    return (int(pair[0]), int(pair[1]))


def span(operation: Operation, name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> Range:
    """A range (low, high) in order, within limits; one number is the range of just that number."""
    pair = (value, value) if is_number(value) else row_of(value) or ()
    inside = len(pair) == 2 and all(map(is_number, pair)) and low <= pair[0] <= pair[1] <= high
    if not inside or (open_low and pair[0] == low):
        raise wrong(operation, name, value, f"a range (low, high) {_span(low, high, open_low)}")
    return (float(pair[0]), float(pair[1]))


def around(operation: Operation, name: str, value: Any, limit: float) -> Range:
    """A range; one number x means from -x to x."""
    if is_number(value) and 0 <= value <= limit:
        return (0.0 - value, float(value))  # not -value, which may be a zero below zero
    if is_number(value):
        raise wrong(operation, name, value, f"a number {_span(0, limit)} or a range (low, high)")
    return span(operation, name, value, -limit, limit)


def factors(operation: Operation, name: str, value: Any) -> Range:
    """A range of factors; one number x means from 1 - x (not below 0) to 1 + x."""
    if is_number(value) and 0 <= value <= MAX_FACTOR - 1:
        return (max(0.0, 1 - float(value)), 1 + float(value))
    if is_number(value):
        raise wrong(operation, name, value, f"a number from 0 to {MAX_FACTOR - 1} or a range (low, high)")
    return span(operation, name, value, 0, MAX_FACTOR)


def level(operation: Operation, name: str, value: Any) -> int:
    """A gray level."""
    return whole(operation, name, value, 0, 255, "a gray level, an integer")


def colour(operation: Operation, name: str, value: Any) -> int | tuple[int, int, int]:
    """A gray level, or three of them: red, green, blue."""
    row = row_of(value)
    if row is None:
        return level(operation, name, value)
    if len(row) != 3 or not all(is_whole(v) and 0 <= v <= 255 for v in row):
        raise wrong(operation, name, value, "one level or (red, green, blue), integers from 0 to 255")
    red, green, blue = (int(v) for v in row)
    return red if red == green == blue else (red, green, blue)


def levels(fill: int | tuple[int, int, int]) -> tuple[int, int, int]:
    """Red, green and blue of a colour that was checked."""
    return (fill, fill, fill) if isinstance(fill, int) else fill


def choice(operation: Operation, name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise wrong(operation, name, value, f"one of {', '.join(map(repr, choices))}")
    return value


def numbers(operation: Operation, name: str, value: Any, counts: tuple[int, ...], what: str) -> tuple[float, ...]:
    """Some finite numbers, as many as one of `counts`."""
    row = (value,) if is_number(value) else row_of(value) or ()
    if len(row) not in counts or not all(map(is_number, row)):
        raise wrong(operation, name, value, what)
    return tuple(float(v) for v in row)


def _span(low: float, high: float, open_low: bool = False) -> str:
    return f"above {low:g}, at most {high:g}" if open_low else f"from {low:g} to {high:g}"
