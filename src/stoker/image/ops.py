"""The operations of `stoker.image`: frozen values with checked parameters.

Distributions and pixels follow torchvision's definitions; interpolation is bilinear, antialiased when shrinking. An operation
knows its parameters and the size it leaves; `lower.py` turns a list of them into one kernel program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ConfigError

#: what people write several numbers as
_ROW = (tuple, list, np.ndarray)
#: height and width behind an operation; None where it depends on the image
Size = tuple[int | None, int | None]


class Operation:
    """One step of an `.image(...)` stage."""

    __slots__ = ()

    def size_after(self, size: Size) -> Size:
        """The image's height and width behind this operation."""
        return size


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Operation):
    """Crop a random part (area and aspect drawn from `scale` and `ratio`) and resize it to `size`.

    `size` is one number for a square, or (height, width). Ten tries to fit the drawn shape, then the largest centre crop
    within `ratio`, as torchvision does.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _set(self, "size", _pair(self, self.size))
        _set(self, "scale", _range(self, "scale", self.scale, upper=1.0))
        _set(self, "ratio", _range(self, "ratio", self.ratio))

    def size_after(self, size: Size) -> Size:
        return _both(self.size)


@dataclass(frozen=True, slots=True)
class Resize(Operation):
    """Resize to (height, width), or, given one number, so that the shorter side has that length."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        if isinstance(self.size, (int, np.integer)):
            _positive(self, self.size)
            _set(self, "size", int(self.size))
        else:
            _set(self, "size", _pair(self, self.size))

    def size_after(self, size: Size) -> Size:
        if not isinstance(self.size, int):
            return self.size
        height, width = size
        if height is None or width is None:
            return (None, None)
        short, long = sorted((height, width))
        other = int(self.size * long / short)
        return (self.size, other) if height <= width else (other, self.size)


@dataclass(frozen=True, slots=True)
class CenterCrop(Operation):
    """Cut the centre out, (height, width) or a square; an image smaller than that is padded with zeros."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        _set(self, "size", _pair(self, self.size))

    def size_after(self, size: Size) -> Size:
        return _both(self.size)


@dataclass(frozen=True, slots=True)
class CropBox(Operation):
    """Crop to the box in a field of the sample: (ymin, xmin, ymax, xmax) in pixels, or 0 to 1 with ``relative=True``.

    The box is clipped to the image; one that leaves no pixel is a `BoxError`.
    """

    field: str = "box"
    relative: bool = False

    def size_after(self, size: Size) -> Size:
        return (None, None)


@dataclass(frozen=True, slots=True)
class HorizontalFlip(Operation):
    """Mirror left to right with probability `p`."""

    p: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.p, (int, float)) or not 0 <= self.p <= 1:
            raise ConfigError(f"HorizontalFlip(p={self.p!r}): p is a probability, 0 to 1")


@dataclass(frozen=True, slots=True)
class Normalize(Operation):
    """Give float32 ``(pixel / 255 - mean) / std``, per channel or one value for all."""

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            _set(self, name, _channels(self, name, getattr(self, name)))
        if 0 in self.channels[1]:
            raise ConfigError(f"{self}: a std of 0 divides by zero")

    @property
    def channels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std as tuples, of one value or three."""
        return _channels(self, "mean", self.mean), _channels(self, "std", self.std)


def _set(operation: Operation, name: str, value: Any) -> None:
    object.__setattr__(operation, name, value)  # the one moment a frozen value may still be put in normal form


def _both(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _positive(operation: Operation, *values: Any) -> None:
    for value in values:
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 < value <= 65535:
            raise ConfigError(f"{type(operation).__name__}: size {value!r} is not a whole number of pixels from 1 to 65,535")


def _pair(operation: Operation, size: Any) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, (int, np.integer)) else tuple(size) if isinstance(size, _ROW) else ()
    if len(pair) != 2:
        raise ConfigError(f"{type(operation).__name__}: size {size!r} is neither a number nor (height, width)")
    _positive(operation, *pair)
    return (int(pair[0]), int(pair[1]))


def _range(operation: Operation, name: str, value: Any, upper: float = math.inf) -> tuple[float, float]:
    low, high = value if isinstance(value, _ROW) and len(value) == 2 else (0, 0)
    if not 0 < low <= high or high > upper or not math.isfinite(high):
        most = f", at most {upper:g}" if math.isfinite(upper) else ""
        raise ConfigError(f"{type(operation).__name__}: {name}={value!r} is not a range (low, high) above 0{most}")
    return (float(low), float(high))


def _channels(operation: Operation, name: str, value: Any) -> tuple[float, ...]:
    values = tuple(value) if isinstance(value, _ROW) else (value,)
    if len(values) not in (1, 3) or not all(isinstance(v, (int, float, np.number)) and math.isfinite(v) for v in values):
        raise ConfigError(f"Normalize: {name}={value!r} needs one finite number, or one for each of three channels")
    return tuple(float(v) for v in values)
