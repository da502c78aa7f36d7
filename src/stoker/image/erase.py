"""Operations that blank a rectangle. Colours are levels of the 8-bit image: erasing comes before `Normalize`."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernel.status import OpKind
from . import checks
from .checks import Range, put
from .operation import Lowered, RandomOperation


@dataclass(frozen=True, slots=True, repr=False)
class Cutout(RandomOperation):
    """Fill one rectangle of `size` with the colour `fill`, with probability `p`.

    Its centre is any pixel, so part of it may be outside the image.
    """

    size: int | tuple[int, int]
    fill: int | tuple[int, int, int] = 0
    p: float = 1.0

    def check(self) -> None:
        put(self, size=checks.sides(self, self.size), fill=checks.colour(self, "fill", self.fill))

    def lowered(self) -> Lowered:
        return ((OpKind.ERASE, (0, 0, 0, 0, *checks.sides(self, self.size), *checks.levels(self.fill))),)


@dataclass(frozen=True, slots=True, repr=False)
class RandomErasing(RandomOperation):
    """With probability `p` fill a rectangle: its area drawn from `scale` (a share of the image), its aspect from `ratio`.

    `value` is a gray level, (red, green, blue), or ``"random"`` for noise. Ten tries to fit a rectangle smaller than the image,
    then none.
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: int | tuple[int, int, int] | str = 0

    def check(self) -> None:
        put(self, scale=checks.span(self, "scale", self.scale, 0, 1))
        put(self, ratio=checks.span(self, "ratio", self.ratio, 1e-5, 1e5))
        if isinstance(self.value, str):
            if self.value != "random":
                raise checks.wrong(self, "value", self.value, "a level, (red, green, blue) or 'random'")
        else:
            put(self, value=checks.colour(self, "value", self.value))

    def lowered(self) -> Lowered:
        levels = (0, 0, 0) if isinstance(self.value, str) else checks.levels(self.value)
        return ((OpKind.ERASE, (*self.scale, *self.ratio, 0, 0, *levels, isinstance(self.value, str))),)
