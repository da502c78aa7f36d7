"""Images stored as NumPy arrays, `.npy`: uint8 pixels after a header, which is checked first. Never a pickle."""

from __future__ import annotations

import io
import math

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptImage, ImageTooLarge, TruncatedImage, UnsupportedImage

MAGIC = b"\x93NUMPY"
#: what a header may take; NumPy writes about a hundred bytes
_MOST_HEADER = 10_000


def decode(data: bytes, channels: int, max_pixels: int) -> NDArray[np.uint8]:
    """Pixels (height, width, channels) of an npy file's bytes; raises an `ImageError` without the file's name."""
    return in_channels(_pixels(data, max_pixels), channels)


def in_channels(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """RGB or gray: a fourth channel is dropped, gray is repeated, RGB becomes gray by ITU-R 601, as Pillow and the kernel do."""
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if channels == 1 and pixels.shape[2] > 1:
        weighed = pixels[:, :, :3].astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)
        pixels = ((weighed + 32768) >> 16).astype(np.uint8)[:, :, None]
    elif channels == 3:
        pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3]
    return np.ascontiguousarray(pixels)


def _pixels(data: bytes, max_pixels: int) -> NDArray[np.uint8]:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(stream, max_header_size=_MOST_HEADER)
    except Exception as error:  # NumPy's parser of headers raises whatever comes its way: TokenError, TypeError, MemoryError
        raise CorruptImage(f"the header of this npy cannot be read: {type(error).__name__}") from error
    if dtype != np.uint8 or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise UnsupportedImage(
            f"an npy of {dtype}{list(shape)} is not an image: decode() takes uint8 (height, width[, 1, 3 or 4]); "
            "for other arrays use .map(field=fn)"
        )
    if min(shape) < 1:
        raise CorruptImage(f"an npy of shape {list(shape)} has no pixels")
    if shape[0] * shape[1] > max_pixels:
        raise ImageTooLarge(f"{shape[1]} x {shape[0]} pixels are more than the {max_pixels:,} allowed")
    size, left = math.prod(shape), len(data) - stream.tell()
    if size > left:
        raise TruncatedImage(f"the header of this npy says {size:,} bytes of pixels, and {left:,} follow")
    if size < left:
        raise CorruptImage(f"the header of this npy says {size:,} bytes of pixels, and {left:,} follow")
    flat = np.frombuffer(data, np.uint8, size, stream.tell())
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
