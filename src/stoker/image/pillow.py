"""Pillow, for what the kernel does not decode: PNG, WebP, CMYK JPEG, whatever the file is named; in a build without
libjpeg-turbo, progressive JPEG too.

One rule makes every kind of image RGB (or gray), the same wherever it is decoded: alpha is dropped, palettes are looked up,
more than 8 bits are cut to the upper 8, CMYK is converted as Pillow does.

Pillow knows more formats than are safe to try: its plug-in for EPS runs Ghostscript on the bytes. `open_image` allows only those
in `FORMATS`, and is the one place in the package that opens an image with Pillow.
"""

from __future__ import annotations

import functools
import io
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptImage, ImageError, ImageTooLarge, TruncatedImage, UnsupportedImage
from ..kernel import native
from .limits import MAX_SCANS
from .orient import orientation_of, upright

#: what is opened: Pillow's names of formats, and everyone else's
FORMATS = {
    "JPEG": "JPEG",
    "JPEG2000": "JPEG 2000",
    "PNG": "PNG",
    "WEBP": "WebP",
    "AVIF": "AVIF",
    "GIF": "GIF",
    "TIFF": "TIFF",
    "BMP": "BMP",
    "PPM": "PPM",
    "ICO": "ICO",
    "TGA": "TGA",
}
_JPEG = b"\xff\xd8\xff"
#: formats without 32-bit images: what Pillow holds in 32 bits are 16, from 0 to 65,535
_SIXTEEN_BITS = ("PNG", "PPM")
#: what Pillow says of a damaged WebP, and of one there is no memory for
_NO_WEBP_DECODER = "could not create decoder object"
#: the tag of TIFF
_BITS_PER_SAMPLE = 258


def decode(data: bytes, channels: int, max_pixels: int, orient: bool = False, as_pillow: bool = False) -> NDArray[np.uint8]:
    """Pixels (height, width, channels) of an image in one of `FORMATS`; raises an `ImageError` without the file's name.

    With `orient` they are turned upright, as EXIF says. A TIFF's own orientation is always followed, by Pillow itself. With
    `as_pillow` pixels of more than 8 bits are what Pillow makes of them: cut off at 255.
    """
    from PIL import Image

    try:
        with open_image(data) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise ImageTooLarge(f"{width} x {height} pixels are more than the {max_pixels:,} allowed")
            if channels == 1:
                image.draft("L", None)  # the luminance a JPEG has, as the kernel takes it; other formats ignore this
            pixels = _to_pixels(image, channels, as_pillow)
            return upright(pixels, orientation_of(data, image)) if orient else pixels
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLarge(str(error)) from error
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error and others on bad bytes
        raise fault_of(error) from error


def open_image(data: bytes) -> Any:
    """An image of Pillow's with its header read, if `data` is in one of `FORMATS`; raises `UnsupportedImage` if not.

    A damaged header raises whatever Pillow raises.
    """
    from PIL import Image, UnidentifiedImageError

    if data.startswith(_JPEG):
        return _open_jpeg(data)
    known = _known_formats()
    try:
        return Image.open(io.BytesIO(data), formats=known)
    except UnidentifiedImageError as error:
        names = ", ".join(FORMATS[name] for name in known)
        raise UnsupportedImage(f"it begins with {data[:12]!r} and is not a supported image ({names})") from error


@functools.cache
def _known_formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this Pillow has: AVIF came late, and others may be left out of a build."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def is_image(value: Any) -> bool:
    """Whether a value is an image of Pillow's, as functions give; where Pillow was never imported there is none."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(value, pil.Image)


def pixels_of(image: Any, channels: int) -> NDArray[np.uint8]:
    """Pixels (height, width, channels) of an image of Pillow's, by the same rule; raises an `ImageError`."""
    if 0 in image.size:
        raise UnsupportedImage(f"an image of {image.size[0]} x {image.size[1]} has no pixels")
    try:
        return _to_pixels(image, channels)
    except ImageError:
        raise
    except Exception as error:  # Pillow reads a file only now, if a function has just opened it
        raise fault_of(error) from error


def _check_scans(data: bytes) -> None:
    """Refuse a JPEG of more scans than any decoder here may read; Pillow would read them all."""
    scans = native.jpeg_header(data).scans
    if scans > MAX_SCANS:
        raise ImageTooLarge(f"{scans:,} scans are more than the {MAX_SCANS} allowed")


def fault_of(error: Exception) -> ImageError:
    """What an exception of Pillow's says about the image: damage, or that there is no memory for it."""
    if isinstance(error, MemoryError):
        return ImageTooLarge("there is not enough memory to decode it")
    kind = TruncatedImage if "truncated" in str(error).lower() else CorruptImage
    either = " (it is damaged, or there is not enough memory)" if str(error) == _NO_WEBP_DECODER else ""
    return kind(f"Pillow cannot decode it: {error}{either}")


def _open_jpeg(data: bytes) -> Any:
    """The JPEG itself: `Image.open` would hold it to a limit of Pillow's own, and tries other formats where it is an odd one."""
    from PIL.JpegImagePlugin import JpegImageFile

    _check_scans(data)
    try:
        return JpegImageFile(io.BytesIO(data))
    except SyntaxError as error:
        raise UnsupportedImage(f"Pillow does not decode this kind of JPEG: {error}") from error


def _sample_bits(image: Any) -> int:
    """Bits of a sample that Pillow holds in 16 or 32: it scales to 16 but for TIFFs of 12, whose values it leaves as they are."""
    return int(image.tag_v2[_BITS_PER_SAMPLE][0]) if image.format == "TIFF" else 16


def _to_pixels(image: Any, channels: int, as_pillow: bool = False) -> NDArray[np.uint8]:
    deep = not as_pillow and (image.mode in ("I", "F") or image.mode.startswith("I;16"))
    if deep and (image.mode.startswith("I;16") or (image.mode == "I" and image.format in _SIXTEEN_BITS)):
        gray = (np.asarray(image) >> (_sample_bits(image) - 8)).astype(np.uint8)
        return gray[:, :, None] if channels == 1 else np.repeat(gray[:, :, None], 3, axis=2)
    if deep:
        raise UnsupportedImage(f"images of mode {image.mode} (32 bits per channel) have no defined range; convert them to 8 bits")
    if image.mode == "LAB":
        image = image.convert("RGB")  # there is no direct way to gray
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # what Pillow advises before dropping the alpha of a palette
    pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return np.ascontiguousarray(pixels[:, :, None] if channels == 1 else pixels)
