"""The status codes of the native library, and the exception for each."""

from __future__ import annotations

from enum import IntEnum

from stoker.errors import (
    BoxError,
    CorruptImage,
    ImageTooLarge,
    KernelError,
    ReadError,
    StokerError,
    TruncatedImage,
    UnsupportedImage,
)


class Status(IntEnum):
    """What became of a call or of one sample in it."""

    OK = 0
    ARGUMENT = 1
    NOMEM = 2
    SHORT = 3
    IO = 4
    EMPTY = 5
    UNSUPPORTED = 6
    TRUNCATED = 7
    CORRUPT = 8
    LIMIT = 9
    GEOMETRY = 10


class DecoderKind(IntEnum):
    """Which decoder decodes, or decoded, a JPEG."""

    ANY = 0
    OWN = 1
    TURBO = 2
    DEVICE = 3  # a load took it (`device_load.py`)


class SeekUse(IntEnum):
    """What became of a sample's seek index."""

    NONE = 0
    USED = 1
    UNFIT = 2


class OpKind(IntEnum):
    """An operation; its parameters are listed in ``stoker.h``. From AFFINE on they are effects, on finished pixels."""

    RESIZE_SHORT = 1
    RESIZE = 2
    CENTER_CROP = 3
    RANDOM_RESIZED_CROP = 4
    CROP_BOX = 5
    HFLIP = 6
    VFLIP = 7
    PAD = 8
    RANDOM_CROP = 9
    AFFINE = 20
    COLOR_JITTER = 21
    GRAYSCALE = 22
    BLUR = 23
    SOLARIZE = 24
    POSTERIZE = 25
    EQUALIZE = 26
    AUTO_CONTRAST = 27
    SHARPNESS = 28
    INVERT = 29
    ERASE = 30
    POLICY = 40


class PassKind(IntEnum):
    """What the operations that are done at once do."""

    RESAMPLE = 0
    MOVE = 1
    WARP = 2
    COLOURS = 3
    NEIGHBOURS = 4
    ERASE = 5
    POLICY = 6


class Border(IntEnum):
    """What pixels outside an image are."""

    CONSTANT = 0
    REFLECT = 1
    EDGE = 2


class AugmentKind(IntEnum):
    """An effect that a policy may choose; ``stoker.h`` defines what its magnitude means."""

    IDENTITY = 0
    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    ROTATE = 5
    BRIGHTNESS = 6
    COLOR = 7
    CONTRAST = 8
    SHARPNESS = 9
    POSTERIZE = 10
    SOLARIZE = 11
    AUTO_CONTRAST = 12
    EQUALIZE = 13
    INVERT = 14


_ERRORS: dict[int, type[StokerError]] = {
    Status.NOMEM: ImageTooLarge,
    Status.IO: ReadError,
    Status.EMPTY: TruncatedImage,
    Status.UNSUPPORTED: UnsupportedImage,
    Status.TRUNCATED: TruncatedImage,
    Status.CORRUPT: CorruptImage,
    Status.LIMIT: ImageTooLarge,
    Status.GEOMETRY: BoxError,
}


def error_of(status: int, message: str) -> Exception:
    """Make the exception for `status`: the sample's fault if it is one, `KernelError` for a wrong call."""
    kind = _ERRORS.get(status)
    return kind(message) if kind is not None else KernelError(f"{message} [{Status(status).name.lower()}]")
