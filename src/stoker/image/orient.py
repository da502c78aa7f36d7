"""EXIF orientation: how a camera was held, and the image turned upright."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernel import native

#: the tag of EXIF and TIFF
_ORIENTATION = 0x0112
_JPEG = b"\xff\xd8\xff"


def orientation_of(data: bytes, image: Any) -> int:
    """1 to 8, 1 for upright or not told: of a JPEG by its header, of other formats as Pillow, which has loaded it, knows it."""
    if data.startswith(_JPEG):
        return max(1, native.jpeg_header(data).orientation)
    told = image.getexif().get(_ORIENTATION)
    return told if isinstance(told, int) and 1 <= told <= 8 else 1


def upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Pixels (height, width, channels) as they are meant to be seen."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
