"""One stored image: what it is, and a small copy of it for a page."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..batch.batch_pictures import shrunk
from ..errors import ImageError
from ..image.lower import lower
from ..image.pillow import open_image
from ..kernel import native
from ..stage.image import decode_bytes
from ..storage.scratch import Scratch

#: longest side of a thumbnail, in pixels
_SIDE = 224
#: largest image that is decoded
_MOST_PIXELS = 200_000_000
_WHOLE = lower((), fast=False, max_pixels=_MOST_PIXELS)


#: ymin, xmin, ymax, xmax
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Picture:
    """A sample's stored image; `problem` says why it cannot be used, or is empty."""

    index: int
    key: str
    label: int | None
    class_name: str | None
    size: int  # bytes
    problem: str = ""
    width: int = 0
    height: int = 0
    format: str = ""
    mode: str = ""
    thumbnail: bytes = b""  # a JPEG
    field: str = ""  # where it is stored; nothing where the sample has no picture
    about: str = ""  # the other fields, in a line
    boxes: tuple[Box, ...] = ()  # of its objects, as shares of the picture
    objects: tuple[str, ...] = ()  # what these are

    @property
    def pixels(self) -> str:
        return f"{self.width} x {self.height}" if self.width else "?"

    @property
    def kind(self) -> str:
        """Format and colour mode, or that it is bad."""
        return "bad" if self.problem else f"{self.format} {self.mode}".strip()

    @property
    def told_label(self) -> str:
        if self.label is None:
            return ""
        return f"{self.label}" if self.class_name is None else f"{self.label} {self.class_name}"

    def facts(self) -> dict[str, Any]:
        """All but the thumbnail, as plain data."""
        facts = asdict(self)
        del facts["thumbnail"], facts["about"], facts["boxes"], facts["objects"]
        return facts


def look(picture: Picture, data: bytes, thumbnail: bool) -> Picture:
    """The picture, with everything its bytes show; they are decoded as in training, so that the same damage is found."""
    if picture.problem:
        return picture
    if not data:
        return replace(picture, problem="the file is empty")
    known = replace(picture, **_header(data))
    scratch = Scratch()
    try:
        pixels = decode_bytes(data, _WHOLE, scratch)
    except ImageError as error:
        return replace(known, problem=str(error))
    finally:
        scratch.close()
    return replace(known, thumbnail=shrunk(pixels, _SIDE)[0]) if thumbnail else known


def picture_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a picture, from its header; None if that cannot be read."""
    try:
        header = native.jpeg_header(data)
    except ImageError:
        known = _header(data)
        return (known["width"], known["height"]) if known else None
    return header.width, header.height


def _header(data: bytes) -> dict[str, Any]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with open_image(data) as image:
                return {"width": image.width, "height": image.height, "format": image.format or "?", "mode": image.mode}
    except Exception:  # noqa: BLE001  Pillow raises nearly anything on bad bytes; decoding them says what is wrong
        return {}
