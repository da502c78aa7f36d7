"""Operations that move pixels. Definitions are torchvision's; interpolation is bilinear, antialiased when shrinking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ..kernel.status import Border, OpKind
from . import checks
from .checks import Range, put
from .operation import Lowered, Operation, RandomOperation, Size

#: how pixels outside the image are made up
BORDERS = ("constant", "reflect", "edge")


@dataclass(frozen=True, slots=True, repr=False)
class RandomResizedCrop(RandomOperation):
    """Crop a random part (area and aspect drawn from `scale` and `ratio`) and resize it to `size`.

    `size` is one number for a square, or (height, width). Ten tries to fit the drawn shape, then the largest centre crop
    within `ratio`, as torchvision does.
    """

    size: int | tuple[int, int]
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)

    def check(self) -> None:
        put(self, size=checks.sides(self, self.size))
        put(self, scale=checks.span(self, "scale", self.scale, 0, 1, open_low=True))
        put(self, ratio=checks.span(self, "ratio", self.ratio, 1e-5, 1e5))

    def size_after(self, size: Size) -> Size:
        return _both(self.size)

    def lowered(self) -> Lowered:
        return ((OpKind.RANDOM_RESIZED_CROP, (*_both(self.size), *self.scale, *self.ratio)),)


@dataclass(frozen=True, slots=True)
class Resize(Operation):
    """Resize to (height, width), or, with one number, so that the shorter side has that length."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        one = checks.is_number(self.size)
        put(self, size=checks.side(self, "size", self.size) if one else checks.sides(self, self.size))

    def size_after(self, size: Size) -> Size:
        if not isinstance(self.size, int):
            return self.size
        height, width = size
        if height is None or width is None:
            return (None, None)
        short, long = sorted((height, width))
        other = int(self.size * long / short)
        return (self.size, other) if height <= width else (other, self.size)

    def lowered(self) -> Lowered:
        return ((OpKind.RESIZE_SHORT, (self.size,)) if isinstance(self.size, int) else (OpKind.RESIZE, self.size),)


@dataclass(frozen=True, slots=True)
class CenterCrop(Operation):
    """Crop the centre, (height, width) or a square; an image smaller than that is padded with zeros."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        put(self, size=checks.sides(self, self.size))

    def size_after(self, size: Size) -> Size:
        return _both(self.size)

    def lowered(self) -> Lowered:
        return ((OpKind.CENTER_CROP, _both(self.size)),)


@dataclass(frozen=True, slots=True, repr=False)
class RandomCrop(RandomOperation):
    """Crop (height, width) or a square at a random place, after padding every side by `pad` pixels.

    `pad` is as in `Pad`, `pad_mode` ``"reflect"``, ``"edge"`` or ``"constant"`` (black). An image that is still smaller than
    the crop is a `BoxError`.
    """

    size: int | tuple[int, int]
    pad: int | tuple[int, ...] = 0
    pad_mode: str = "reflect"

    def check(self) -> None:
        put(self, size=checks.sides(self, self.size))
        left, top, right, bottom = padding_of(self, "pad", self.pad)
        put(self, pad=left if left == top == right == bottom else (left, top, right, bottom))
        checks.choice(self, "pad_mode", self.pad_mode, BORDERS)

    def size_after(self, size: Size) -> Size:
        return _both(self.size)

    def lowered(self) -> Lowered:
        crop, padding = (OpKind.RANDOM_CROP, _both(self.size)), padding_of(self, "pad", self.pad)
        return (_bordered(padding, self.pad_mode, 0), crop) if any(padding) else (crop,)


@dataclass(frozen=True, slots=True)
class Pad(Operation):
    """Add pixels around the image.

    `padding` is one number, (left and right, top and bottom) or (left, top, right, bottom). `mode` ``"constant"`` adds the colour
    `fill`, ``"edge"`` repeats the outermost pixels, ``"reflect"`` mirrors without repeating them.
    """

    padding: int | tuple[int, ...]
    mode: str = "constant"
    fill: int | tuple[int, int, int] = 0

    def __post_init__(self) -> None:
        put(self, padding=padding_of(self, "padding", self.padding))
        checks.choice(self, "mode", self.mode, BORDERS)
        put(self, fill=checks.colour(self, "fill", self.fill))

    def size_after(self, size: Size) -> Size:
        left, top, right, bottom = cast("tuple[int, ...]", self.padding)
        height, width = size
        return (None if height is None else height + top + bottom, None if width is None else width + left + right)

    def lowered(self) -> Lowered:
        return (_bordered(cast("tuple[int, ...]", self.padding), self.mode, self.fill),)


@dataclass(frozen=True, slots=True)
class CropBox(Operation):
    """Crop to the box in a field of the sample: (ymin, xmin, ymax, xmax) in pixels, or 0 to 1 with ``relative=True``.

    The box is clipped to the image; one that leaves no pixel is a `BoxError`.
    """

    field: str = "box"
    relative: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.field, str) or not self.field:
            raise checks.wrong(self, "field", self.field, "the name of the field that holds the box")
        if not isinstance(self.relative, bool):
            raise checks.wrong(self, "relative", self.relative, "True (boxes from 0 to 1) or False (boxes in pixels)")

    def size_after(self, size: Size) -> Size:
        return (None, None)

    def lowered(self) -> Lowered:
        return ((OpKind.CROP_BOX, (self.relative,)),)


@dataclass(frozen=True, slots=True, repr=False)
class HorizontalFlip(RandomOperation):
    """Mirror left to right with probability `p`."""

    p: float = 0.5

    def lowered(self) -> Lowered:
        return ((OpKind.HFLIP, (self.p,)),)


@dataclass(frozen=True, slots=True, repr=False)
class VerticalFlip(RandomOperation):
    """Turn upside down with probability `p`."""

    p: float = 0.5

    def lowered(self) -> Lowered:
        return ((OpKind.VFLIP, (self.p,)),)


@dataclass(frozen=True, slots=True, repr=False)
class Rotate(RandomOperation):
    """Rotate about the centre by an angle drawn from `degrees`, counter-clockwise, with probability `p`, keeping the size.

    `degrees` is a range, or one number d for -d to d. Pixels outside the image get the gray level `fill`.
    """

    degrees: float | Range
    fill: int = 0
    p: float = 1.0

    def check(self) -> None:
        put(self, degrees=checks.around(self, "degrees", self.degrees, 360), fill=checks.level(self, "fill", self.fill))

    def lowered(self) -> Lowered:
        low, high = cast(Range, self.degrees)
        # The kernel turns clockwise, as torchvision's affine does; its rotation, and ours, turn the other way.
        return ((OpKind.AFFINE, (-high, -low, 0, 0, 1, 1, 0, 0, 0, 0, self.fill)),)


@dataclass(frozen=True, slots=True, repr=False)
class Affine(RandomOperation):
    """Rotate (clockwise, as torchvision's affine does), move, scale and shear about the centre in one step, keeping the size.

    `degrees` is as in `Rotate`. `translate` (a, b) moves by up to the fraction a of the width and b of the height.
    `scale` is a range of factors. `shear` in degrees: one number s is -s to s along x; (low, high) along x; or (low, high, low,
    high) along x and y. Pixels outside the image get the gray level `fill`. Applied with probability `p`.
    """

    degrees: float | Range
    translate: tuple[float, float] | None = (0.0, 0.0)
    scale: Range | None = (1.0, 1.0)
    shear: float | tuple[float, ...] | None = (0.0, 0.0, 0.0, 0.0)
    fill: int = 0
    p: float = 1.0

    def check(self) -> None:
        put(self, degrees=checks.around(self, "degrees", self.degrees, 360))
        put(self, translate=self._shares(), shear=self._shears(), fill=checks.level(self, "fill", self.fill))
        put(self, scale=checks.span(self, "scale", (1, 1) if self.scale is None else self.scale, 0, 100, open_low=True))

    def _shares(self) -> tuple[float, float]:
        allowed = "(a, b), shares of width and height from 0 to 1"
        x, y = checks.numbers(self, "translate", (0, 0) if self.translate is None else self.translate, (2,), allowed)
        if not (0 <= x <= 1 and 0 <= y <= 1):
            raise checks.wrong(self, "translate", self.translate, allowed)
        return (x, y)

    def _shears(self) -> tuple[float, float, float, float]:
        allowed = "a number, (low, high) or (low, high, low, high), degrees between -90 and 90"
        row = checks.numbers(self, "shear", 0 if self.shear is None else self.shear, (1, 2, 4), allowed)
        row = (0.0 - row[0], row[0]) if len(row) == 1 else row
        low, high, low_y, high_y = row if len(row) == 4 else (*row, 0.0, 0.0)
        if not (-90 < low <= high < 90 and -90 < low_y <= high_y < 90):
            raise checks.wrong(self, "shear", self.shear, allowed)
        return (low, high, low_y, high_y)

    def lowered(self) -> Lowered:
        ranges = (self.degrees, self.translate, self.scale, self.shear)
        return ((OpKind.AFFINE, (*(number for row in ranges for number in cast("tuple[float, ...]", row)), self.fill)),)


def padding_of(operation: Operation, name: str, value: int | tuple[int, ...]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one number, two or four."""
    allowed = f"one, two or four integers, pixels (left, top, right, bottom) from 0 to {checks.MAX_SIDE:,}"
    row = checks.numbers(operation, name, value, (1, 2, 4), allowed)
    if not all(v == math.floor(v) and 0 <= v <= checks.MAX_SIDE for v in row):
        raise checks.wrong(operation, name, value, allowed)
    left, top, right, bottom = (int(v) for v in (row * 4 if len(row) == 1 else row * 2 if len(row) == 2 else row))
    return (left, top, right, bottom)


def _both(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _bordered(sides: tuple[int, ...], mode: str, fill: int | tuple[int, int, int]) -> tuple[OpKind, Sequence[float]]:
    return OpKind.PAD, (*sides, Border[mode.upper()], *checks.levels(fill))
