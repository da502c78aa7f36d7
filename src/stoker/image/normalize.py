"""The last write: pixels as floats."""

from __future__ import annotations

from dataclasses import dataclass

from . import checks
from .checks import put
from .operation import Lowered, Operation

#: means and deviations beyond these are mistakes: of pixels from 0 to 255, most likely
LEAST_STD, MOST = 1e-6, 10
_SCALE = "with pixels from 0 to 1; divide what is meant for pixels from 0 to 255 by 255"


@dataclass(frozen=True, slots=True)
class ToFloat(Operation):
    """Convert to float32 ``pixel / 255``, 0 to 1."""

    def lowered(self) -> Lowered:
        return ()  # the last write does it


@dataclass(frozen=True, slots=True)
class Normalize(Operation):
    """Convert to float32 ``(pixel / 255 - mean) / std``, per channel or with one value for all."""

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        mean, std = self.channels
        if 0 in std:
            raise checks.wrong(self, "std", self.std, "above 0, because pixels are divided by it")
        if not all(LEAST_STD <= s <= MOST for s in std):
            raise checks.wrong(self, "std", self.std, f"from {LEAST_STD:g} to {MOST}, {_SCALE}")
        if not all(abs(m) <= MOST for m in mean):
            raise checks.wrong(self, "mean", self.mean, f"from -{MOST} to {MOST}, {_SCALE}")
        put(self, mean=mean, std=std)

    def lowered(self) -> Lowered:
        return ()

    @property
    def channels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std as tuples, of one value or three."""
        allowed = "one finite number, or one for each of three channels"
        return (
            checks.numbers(self, "mean", self.mean, (1, 3), allowed),
            checks.numbers(self, "std", self.std, (1, 3), allowed),
        )
