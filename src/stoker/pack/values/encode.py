"""How the fields of a tar are stored: by extension, as WebDataset's writer does it, but never as a pickle.

Besides what `source/shards/codecs.py` encodes, these are pictures as NumPy arrays, tensors and Pillow images, numbers given as
text, and text in fields whose extension means nothing.
"""

from __future__ import annotations

import io
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, RecordError
from ...source.shards.codecs import JSONS, NUMBERS, PICKLES, decode_field, encode_field, kind_of, text_bytes

#: extension -> the format Pillow writes
FORMATS = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), "JPEG"),
    **dict.fromkeys(("ppm", "pgm", "pbm", "pnm"), "PPM"),
    **dict.fromkeys(("tif", "tiff"), "TIFF"),
    "png": "PNG",
    "webp": "WEBP",
    "bmp": "BMP",
}
#: of the formats that lose something
QUALITY = 100
_LOSSY = ("JPEG", "WEBP")
#: extensions that promise something text is not
_NOT_TEXT = frozenset({*FORMATS, *PICKLES, *JSONS, "npy", "npz", "gz"})
#: floats may be this far outside of 0 to 1
_SLACK = 1e-3


def encode_value(field: str, value: Any) -> bytes:
    """The bytes a value is stored as; raises ConfigError, with a remedy, for what has none.

    >>> encode_value("cls", "3"), encode_value("html", "<p>"), encode_value("png", np.zeros((2, 2), np.uint8))[1:4]
    (b'3', b'<p>', b'PNG')
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    kind = kind_of(field)
    if kind in NUMBERS:
        return encode_field(field, _number(field, value))
    if isinstance(value, str) and kind in FORMATS:
        raise ConfigError(
            f"field {field!r}: expected an image, got text; to store the file of that name pass Path(name).read_bytes()"
        )
    if isinstance(value, str) and kind not in _NOT_TEXT:
        return text_bytes(value, f"field {field!r}")
    if kind in FORMATS and (_is_image(value) or hasattr(value, "__array__")):
        return _picture(field, FORMATS[kind], value)
    if kind == "npy" and hasattr(value, "__array__"):
        value = _array(field, value)
    return encode_field(field, value)


def _number(field: str, value: Any) -> Any:
    """A whole number, where a value is one or is the digits of one; anything else as it is."""
    if isinstance(value, str):
        try:
            return decode_field(field, value.encode())
        except (RecordError, UnicodeEncodeError) as error:
            raise ConfigError(
                f"field {field!r}: {value[:24]!r} is not an integer; pass its number, or name the field '{field}.txt'"
            ) from error
    try:
        return value if isinstance(value, bool) else operator.index(value)  # tensors of one number have it too
    except TypeError:
        return value


def _picture(field: str, format: str, value: Any) -> bytes:
    if not _is_image(value):
        value = _array(field, value)
        if value.ndim == 1 and value.dtype == np.uint8:
            return bytes(value.tobytes())  # encoded already, as tensorpack and OpenCV hold it
        value = _image_of(_pixels(field, value))
    out = io.BytesIO()
    try:
        value.save(out, format, **({"quality": QUALITY} if format in _LOSSY else {}))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"field {field!r}: Pillow cannot write an image of mode {value.mode} as {format} ({error}); convert it first, "
            "e.g. image.convert('RGB')"
        ) from error
    return out.getvalue()


def _array(field: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # tensors of a device, or with a gradient
        raise ConfigError(f"field {field!r}: NumPy cannot make an array of this {type(value).__name__}: {error}") from error


def _pixels(field: str, array: NDArray[Any]) -> NDArray[Any]:
    """Pixels as Pillow takes them: uint8 (height, width[, 3 or 4]), or uint16 (height, width)."""
    if array.ndim not in (2, 3) or not array.size or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
        hint = " (channels first: CHW); use array.transpose(1, 2, 0), or tensor.permute(1, 2, 0)" if first else ""
        raise ConfigError(
            f"field {field!r}: expected channels-last (HWC) pixels, (height, width) or (height, width, 1, 3 or 4), got shape "
            f"{list(array.shape)}{hint}"
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype.kind == "f":
        return _levels(field, array)
    if array.dtype != np.uint8 and not (array.dtype == np.uint16 and array.ndim == 2):
        raise ConfigError(
            f"field {field!r}: pixels of type {array.dtype} cannot be stored in a picture; convert them to uint8 (0 to 255) or "
            f"float (0 to 1), or store the array itself as '{field}.npy'"
        )
    return array


def _levels(field: str, array: NDArray[Any]) -> NDArray[np.uint8]:
    least, most = float(array.min()), float(array.max())
    if not (least > -_SLACK and most < 1 + _SLACK):  # written so that NaN is refused too
        raise ConfigError(
            f"field {field!r}: pixels of type {array.dtype} must be between 0 and 1, but these are {least:g} to {most:g}; divide "
            "them by 255, or convert them to uint8"
        )
    # Rounded, where WebDataset cuts off: so levels that were divided by 255 come back as they were.
    levels: NDArray[np.uint8] = np.rint(array.clip(0, 1) * 255).astype(np.uint8)
    return levels


def _image_of(pixels: NDArray[Any]) -> Any:
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(pixels))


def _is_image(value: Any) -> bool:
    from ...image.pillow import is_image  # takes long to import, and mostly values are bytes

    return is_image(value)
