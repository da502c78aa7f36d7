"""Image operations as values: what to do to an image, not how."""

from __future__ import annotations

from .ops import CenterCrop, CropBox, HorizontalFlip, Normalize, Operation, RandomResizedCrop, Resize

__all__ = ["CenterCrop", "CropBox", "HorizontalFlip", "Normalize", "Operation", "RandomResizedCrop", "Resize"]
