"""What the native library answers, and the exception each answer becomes."""

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
    """Who decodes, or decoded, a JPEG."""

    ANY = 0
    OWN = 1
    TURBO = 2


class SeekUse(IntEnum):
    """What became of a sample's seek index."""

    NONE = 0
    USED = 1
    UNFIT = 2


class OpKind(IntEnum):
    """A geometric operation; its parameters are listed in ``stoker.h``."""

    RESIZE_SHORT = 1
    RESIZE = 2
    CENTER_CROP = 3
    RANDOM_RESIZED_CROP = 4
    CROP_BOX = 5
    HFLIP = 6


_ERRORS: dict[int, type[StokerError]] = {
    Status.IO: ReadError,
    Status.EMPTY: TruncatedImage,
    Status.UNSUPPORTED: UnsupportedImage,
    Status.TRUNCATED: TruncatedImage,
    Status.CORRUPT: CorruptImage,
    Status.LIMIT: ImageTooLarge,
    Status.GEOMETRY: BoxError,
}


def error_of(status: int, message: str) -> Exception:
    """Make the exception that tells of `status`: the sample's fault where it is one, `KernelError` for a wrong call."""
    if status == Status.NOMEM:
        return MemoryError(message)
    kind = _ERRORS.get(status)
    return kind(message) if kind is not None else KernelError(f"{message} [{Status(status).name.lower()}]")
