"""The last write: pixels as floats."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from . import checks
from .checks import put
from .operation import Operation


@dataclass(frozen=True, slots=True)
class ToFloat(Operation):
    """Give float32 ``pixel / 255``, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Normalize(Operation):
    """Give float32 ``(pixel / 255 - mean) / std``, per channel or one value for all."""

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        mean, std = self.channels
        put(self, mean=mean, std=std)
        if 0 in std:
            raise ConfigError(f"{self}: a std of 0 divides by zero")

    @property
    def channels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std as tuples, of one value or three."""
        allowed = "one finite number, or one for each of three channels"
        return (
            checks.numbers(self, "mean", self.mean, (1, 3), allowed),
            checks.numbers(self, "std", self.std, (1, 3), allowed),
        )
