"""Mixes the images of a batch with each other, in the batch's own memory: each with the previous one, the first with the last."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.library import address, library


def blend(images: NDArray[Any], share: float) -> None:
    """Make each image ``share * itself + (1 - share) * the one before it``, in place; bytes are rounded half up.

    >>> pair = np.array([[10], [20]], np.uint8)
    >>> blend(pair, 0.75)
    >>> pair.tolist()
    [[13], [18]]
    """
    _check(images)
    if images.dtype not in (np.uint8, np.float32) or not 0 <= share <= 1:
        raise KernelError(f"blend takes bytes or float32 and a share from 0 to 1, not {images.dtype} and {share}")
    if len(images) > 1:
        spare = np.empty_like(images[0])
        library().mixup(address(images), len(images), spare.size, int(images.dtype == np.float32), share, address(spare))


def paste(images: NDArray[Any], box: tuple[int, int, int, int], planar: bool) -> None:
    """Replace the box (top, left, bottom, right) of each image by what it was in the one before it, in place.

    Images are (height, width[, channels]), or with `planar` (channels, height, width).
    """
    _check(images)
    shape = images.shape[1:]
    if len(shape) not in (2, 3) or (planar and len(shape) != 3):
        raise KernelError(f"paste takes images of two or three dimensions, not {shape}")
    height, width = shape[1:] if planar else shape[:2]
    top, left, bottom, right = box
    if not (0 <= top <= bottom <= height and 0 <= left <= right <= width):
        raise KernelError(f"the box {box} is not within {height} x {width}")
    planes, pixel = (shape[0], images.itemsize) if planar else (1, images.itemsize * (shape[2] if len(shape) == 3 else 1))
    row = width * pixel
    if len(images) > 1:
        told = np.array([top * row + left * pixel, (right - left) * pixel, bottom - top, row, planes, height * row], np.int64)
        spare = np.empty_like(images[0])
        library().cutmix(address(images), len(images), spare.nbytes, address(told), address(spare))


def _check(images: NDArray[Any]) -> None:
    if images.ndim < 2 or not images.flags.carray:
        raise KernelError(f"images must be one writeable, contiguous run; these are {images.dtype}{images.shape}")
