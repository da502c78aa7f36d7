"""Operations on colours. Definitions are torchvision's, on 8 bits; see docs/reference/image.md for rounding and tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ..kernel.status import OpKind
from . import checks
from .checks import Range, put
from .operation import Lowered, RandomOperation

#: sides of the kernel of a blur
MAX_KERNEL = 255


@dataclass(frozen=True, slots=True, repr=False)
class ColorJitter(RandomOperation):
    """Change brightness, contrast, saturation and hue by random amounts, in random order.

    The first three are ranges of factors, or one number x for max(0, 1 - x) to 1 + x. `hue` is a range within -0.5 to 0.5 of a
    turn, or one number x for -x to x. Parameters left at their default change nothing. Applied with probability `p`.
    """

    brightness: float | Range = (1.0, 1.0)
    contrast: float | Range = (1.0, 1.0)
    saturation: float | Range = (1.0, 1.0)
    hue: float | Range = (0.0, 0.0)
    p: float = 1.0

    def check(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            put(self, **{name: checks.factors(self, name, getattr(self, name))})
        put(self, hue=checks.around(self, "hue", self.hue, 0.5))

    def lowered(self) -> Lowered:
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        return ((OpKind.COLOR_JITTER, (*(number for row in ranges for number in cast(Range, row)), 1)),)


@dataclass(frozen=True, slots=True, repr=False)
class Grayscale(RandomOperation):
    """Remove the colour with probability `p`, keeping the channels: all get the luminance (ITU-R 601)."""

    p: float = 1.0

    def lowered(self) -> Lowered:
        return ((OpKind.GRAYSCALE, ()),)


@dataclass(frozen=True, slots=True, repr=False)
class GaussianBlur(RandomOperation):
    """Blur with a Gaussian of `kernel_size` x `kernel_size` pixels, with probability `p`.

    Its `sigma` is drawn from a range, or is one number.
    """

    kernel_size: int
    sigma: float | Range = (0.1, 2.0)
    p: float = 1.0

    def check(self) -> None:
        if not checks.is_whole(self.kernel_size) or not 1 <= self.kernel_size <= MAX_KERNEL or self.kernel_size % 2 == 0:
            raise checks.wrong(self, "kernel_size", self.kernel_size, f"an odd number from 1 to {MAX_KERNEL}")
        put(self, kernel_size=int(self.kernel_size), sigma=checks.span(self, "sigma", self.sigma, 0, 1000, open_low=True))

    def lowered(self) -> Lowered:
        return ((OpKind.BLUR, (self.kernel_size, *cast(Range, self.sigma))),)


@dataclass(frozen=True, slots=True, repr=False)
class Solarize(RandomOperation):
    """Invert all values >= `threshold`, with probability `p`."""

    threshold: float
    p: float = 0.5

    def check(self) -> None:
        put(self, threshold=checks.number(self, "threshold", self.threshold, 0, 255))

    def lowered(self) -> Lowered:
        return ((OpKind.SOLARIZE, (self.threshold,)),)


@dataclass(frozen=True, slots=True, repr=False)
class Posterize(RandomOperation):
    """Keep the upper `bits` bits of every value, with probability `p`."""

    bits: int
    p: float = 0.5

    def check(self) -> None:
        put(self, bits=checks.whole(self, "bits", self.bits, 0, 8))

    def lowered(self) -> Lowered:
        return ((OpKind.POSTERIZE, (self.bits,)),)


@dataclass(frozen=True, slots=True, repr=False)
class Equalize(RandomOperation):
    """Spread the histogram of every channel evenly, with probability `p`."""

    p: float = 0.5

    def lowered(self) -> Lowered:
        return ((OpKind.EQUALIZE, ()),)


@dataclass(frozen=True, slots=True, repr=False)
class AutoContrast(RandomOperation):
    """Stretch every channel so that its darkest value becomes 0 and its lightest 255, with probability `p`."""

    p: float = 0.5

    def lowered(self) -> Lowered:
        return ((OpKind.AUTO_CONTRAST, ()),)


@dataclass(frozen=True, slots=True, repr=False)
class Sharpness(RandomOperation):
    """Blend with a smoothed image, with probability `p`: a `factor` of 0 smooths, 1 changes nothing, 2 sharpens.

    `factor` is one number, or a range it is drawn from.
    """

    factor: float | Range
    p: float = 0.5

    def check(self) -> None:
        low, high = self.range
        put(self, factor=low if low == high else (low, high))

    @property
    def range(self) -> Range:
        """Least and greatest factor."""
        return checks.span(self, "factor", self.factor, 0, checks.MAX_FACTOR)

    def lowered(self) -> Lowered:
        return ((OpKind.SHARPNESS, self.range),)


@dataclass(frozen=True, slots=True, repr=False)
class Invert(RandomOperation):
    """Turn every value v into 255 - v, with probability `p`."""

    p: float = 0.5

    def lowered(self) -> Lowered:
        return ((OpKind.INVERT, ()),)
