"""Image operations as values: what to do to an image, not how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .batch_mixing import CutMix, MixUp
from .colour import (
    AutoContrast,
    ColorJitter,
    Equalize,
    GaussianBlur,
    Grayscale,
    Invert,
    Posterize,
    Sharpness,
    Solarize,
)
from .erase import Cutout, RandomErasing
from .foreign_operations import unknown_operation
from .geometry import (
    Affine,
    CenterCrop,
    CropBox,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Rotate,
    VerticalFlip,
)
from .normalize import Normalize, ToFloat
from .operation import Operation
from .policies import AutoAugment, RandAugment, TrivialAugment

__all__ = [
    "Affine", "AutoAugment", "AutoContrast", "CenterCrop", "ColorJitter", "CropBox", "CutMix", "Cutout", "Equalize",
    "GaussianBlur", "Grayscale", "HorizontalFlip", "Invert", "MixUp", "Normalize", "Operation", "Pad", "Posterize",
    "RandAugment", "RandomCrop", "RandomErasing", "RandomResizedCrop", "Resize", "Rotate", "Sharpness", "Solarize",
    "ToFloat", "TrivialAugment", "VerticalFlip",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know what is there

    def __getattr__(name: str) -> Any:
        """An answer to the names that other libraries taught."""
        if not name[:1].isupper():  # a module of this package that is not imported yet, or Python asks for its own
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise unknown_operation(__name__, name, __all__)
