"""One JPEG in memory -> a given rectangle of it -> 224 x 224 pixels, in one thread: what others call for that."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from peers.crops import SIDE

#: (left, top, right, bottom)
Box = tuple[int, int, int, int]
Cut = Callable[[bytes, Box], Any]


def simplejpeg_opencv() -> Cut:
    """libjpeg-turbo with its fast settings decodes all; OpenCV resizes the rectangle (bilinear, without antialiasing)."""
    import cv2
    import simplejpeg

    cv2.setNumThreads(1)

    def cut(encoded: bytes, box: Box) -> Any:
        left, top, right, bottom = box
        pixels = simplejpeg.decode_jpeg(encoded, colorspace="RGB", fastdct=True, fastupsample=True)
        return cv2.resize(pixels[top:bottom, left:right], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)

    return cut


def pillow() -> Cut:
    """Pillow decodes all and resizes the rectangle (bilinear, antialiased)."""
    from PIL import Image

    def cut(encoded: bytes, box: Box) -> Any:
        with Image.open(io.BytesIO(encoded)) as opened:
            return opened.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)

    return cut


def torchvision() -> Cut:
    """torchvision's own decoder (libjpeg-turbo) decodes all; torch resizes the rectangle (bilinear, antialiased)."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2.functional import resized_crop

    torch.set_num_threads(1)

    def cut(encoded: bytes, box: Box) -> Any:
        left, top, right, bottom = box
        pixels = decode_jpeg(torch.frombuffer(bytearray(encoded), dtype=torch.uint8), ImageReadMode.RGB)
        return resized_crop(pixels, top, left, bottom - top, right - left, [SIDE, SIDE], antialias=True)

    return cut
