"""Image operations as values: what to do to an image, not how."""

from __future__ import annotations

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
from .operation import Operation
from .output import Normalize, ToFloat
from .policies import AutoAugment, RandAugment, TrivialAugment

__all__ = [
    "Affine", "AutoAugment", "AutoContrast", "CenterCrop", "ColorJitter", "CropBox", "Cutout", "Equalize", "GaussianBlur",
    "Grayscale", "HorizontalFlip", "Invert", "Normalize", "Operation", "Pad", "Posterize", "RandAugment", "RandomCrop",
    "RandomErasing", "RandomResizedCrop", "Resize", "Rotate", "Sharpness", "Solarize", "ToFloat", "TrivialAugment",
    "VerticalFlip",
]  # fmt: skip
