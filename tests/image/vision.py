"""torchvision, the one people compare with: its transforms where it is installed, whatever becomes of its C library."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

#: operators that torchvision's Python files speak of when they are imported, though no transform uses them
_OPERATORS = ("nms", "qnms")


def _declare_operators() -> Any:
    """Stand in for torchvision's C library where it does not load (built for another kind of torch); None where it does."""
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return None
    try:
        torch.ops.load_library(str(Path(found.origin).with_name("_C.so")))
    except OSError:
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return declared
    return None


_declared = _declare_operators()  # declarations last as long as this
pytest.importorskip("torchvision")

from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

BILINEAR = v2.InterpolationMode.BILINEAR

__all__ = ["BILINEAR", "as_array", "as_tensor", "functional", "torch", "v1", "v2"]


def as_tensor(pixels: NDArray[Any]) -> Any:
    """(height, width, channels) as torchvision has it: (channels, height, width)."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def as_array(image: Any) -> NDArray[Any]:
    """A tensor, or an image of Pillow's, as (height, width, channels)."""
    pixels = image.numpy().transpose(1, 2, 0) if isinstance(image, torch.Tensor) else np.asarray(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels
