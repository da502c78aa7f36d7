"""Image operations as values: what to do to an image, not how."""

from __future__ import annotations

from .mixing import CutMix, MixUp
from .ops import CenterCrop, CropBox, HorizontalFlip, Normalize, Operation, RandomResizedCrop, Resize

__all__ = [
    "CenterCrop",
    "CropBox",
    "CutMix",
    "HorizontalFlip",
    "MixUp",
    "Normalize",
    "Operation",
    "RandomResizedCrop",
    "Resize",
]
