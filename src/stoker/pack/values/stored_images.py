"""Pictures as stored bytes: which format they are in, and smaller copies of those that are too large."""

from __future__ import annotations

import io
import re
from typing import Any

from ...errors import CorruptImage, ImageError, ImageTooLarge, UnsupportedImage
from ...image import pillow
from ...image.limits import MAX_PIXELS
from ...image.lower import lower
from ...kernel import native
from ...source.files.walk import IMAGE_EXTENSIONS
from ...storage.scratch import Scratch

#: extensions that say a field is a picture
EXTENSIONS = frozenset(extension.decode().removeprefix(".") for extension in IMAGE_EXTENSIONS)

_MAGICS = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG\r\n\x1a\n": "png",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
    b"II*\0": "tif",
    b"MM\0*": "tif",
    b"\0\0\0\x0cjP  \r\n\x87\n": "jp2",
    b"\xff\x4f\xff\x51": "j2k",
}
_PNM = re.compile(rb"P([1-6])[ \t\r\n]+(?:#|\d)")
_PNM_KINDS = {b"1": "pbm", b"2": "pgm", b"3": "ppm", b"4": "pbm", b"5": "pgm", b"6": "ppm"}
_WHOLE = lower(())
#: what is interpolated when it shrinks; palettes, single bits and 16 bits are mostly masks and depths, and get the nearest pixel
_SMOOTH = {"L", "LA", "RGB", "RGBA", "CMYK"}


def picture_kind(data: bytes) -> str:
    """The extension that fits a picture's bytes, or nothing if they are not a picture.

    >>> picture_kind(b"\\xff\\xd8\\xff\\xe0..."), picture_kind(b"hello")
    ('jpg', '')
    """
    for magic, kind in _MAGICS.items():
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        return "avif"
    if data[:2] == b"BM" and data[6:10] == b"\0\0\0\0":
        return "bmp"
    found = _PNM.match(data[:16])
    return _PNM_KINDS[found[1]] if found else ""


def check_picture(data: bytes, scratch: Scratch) -> None:
    """Decode a picture at full size, as training would, and forget it; raises an ImageError when that fails."""
    if not data:
        raise CorruptImage("it is empty")
    try:
        scratch.decoder.decode(_WHOLE, data)
    except UnsupportedImage:
        pillow.decode(data, 3, MAX_PIXELS)


def shrink(data: bytes, longest: int, quality: int) -> bytes:
    """A JPEG or PNG whose longer side is at most so many pixels; anything smaller, or of another format, as it is, byte for byte.

    Shape, colours, profile and EXIF stay. A JPEG is stored again as JPEG, a PNG as PNG. The same bytes give the same bytes, with
    one version of Pillow. Raises an ImageError when a picture that is too large cannot be decoded.
    """
    kind = picture_kind(data)
    if kind not in ("jpg", "png") or max(_sides(data, kind)) <= longest:
        return data
    try:
        with pillow.open_image(data) as image:
            if max(image.size) <= longest or (kind == "png" and getattr(image, "is_animated", False)):
                return data
            if image.width * image.height > MAX_PIXELS:
                raise ImageTooLarge(f"{image.width} x {image.height} pixels are more than the {MAX_PIXELS:,} allowed")
            return _shrunk(image, kind, longest, quality)
    except ImageError:
        raise
    except Exception as error:  # Pillow raises OSError, SyntaxError, struct.error and others on bad bytes
        raise pillow.fault_of(error) from error


def _sides(data: bytes, kind: str) -> tuple[int, int]:
    """Width and height, from the header alone; as large as can be when that is not to be understood."""
    if kind == "png":
        return (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) if len(data) >= 24 else (1 << 31, 0)
    try:
        header = native.jpeg_header(data)
    except ImageError:
        return 1 << 31, 0
    return header.width, header.height


def _shrunk(image: Any, kind: str, longest: int, quality: int) -> bytes:
    from PIL import Image

    about = {name: image.info[name] for name in ("exif", "icc_profile") if image.info.get(name)}
    smooth = image.mode in _SMOOTH
    # A photograph much too large is decoded at half, a quarter or an eighth of its size, never below twice what is wanted.
    image.thumbnail((longest, longest), Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST, reducing_gap=2.0)
    out = io.BytesIO()
    if kind == "jpg":
        image.save(out, "JPEG", quality=quality, **about)
    else:
        image.save(out, "PNG", **about)
    return out.getvalue()
