"""Operations that blank a rectangle. Colours are levels of the 8-bit image: erasing comes before `Normalize`."""

from __future__ import annotations

from dataclasses import dataclass

from . import checks
from .checks import Range, put
from .operation import Operation


@dataclass(frozen=True, slots=True)
class Cutout(Operation):
    """Fill one rectangle of `size` with the colour `fill`, with probability `p`.

    Its centre is any pixel, so part of it may lie outside.
    """

    size: int | tuple[int, int]
    fill: int | tuple[int, int, int] = 0
    p: float = 1.0

    def __post_init__(self) -> None:
        put(self, size=checks.sides(self, self.size), fill=checks.colour(self, "fill", self.fill))
        put(self, p=checks.probability(self, self.p))


@dataclass(frozen=True, slots=True)
class RandomErasing(Operation):
    """With probability `p` fill a rectangle: its area drawn from `scale` (a share of the image), its aspect from `ratio`.

    `value` is a gray level, (red, green, blue), or ``"random"`` for noise. Ten tries to fit a rectangle smaller than the image,
    then none.
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: int | tuple[int, int, int] | str = 0

    def __post_init__(self) -> None:
        put(self, p=checks.probability(self, self.p))
        put(self, scale=checks.span(self, "scale", self.scale, 0, 1))
        put(self, ratio=checks.span(self, "ratio", self.ratio, 1e-5, 1e5))
        if isinstance(self.value, str):
            if self.value != "random":
                raise checks.wrong(self, "value", self.value, "a level, (red, green, blue) or 'random'")
        else:
            put(self, value=checks.colour(self, "value", self.value))
