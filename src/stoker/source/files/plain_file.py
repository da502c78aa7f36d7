"""Small files that are read whole: lists, tables, and everything else that is not a sample."""

from __future__ import annotations

import errno
import os

from ...errors import ConfigError
from ...sizes import show_bytes
from ..paths import NOT_PLAIN, open_plain, printable

#: bytes read at once: of a small file all, without a megabyte of memory; a file below /proc has a size of 0
_LEAST, _PIECE = 1 << 14, 1 << 20


def read_plain(path: bytes, most: int, flags: int = 0) -> bytes:
    """The content of a plain file of at most `most` bytes.

    Anything else is a ConfigError before memory is allocated for it: a size is only a claim of the file system, and a pipe or a
    device may never end. System errors are raised as OSError, unchanged. `flags` are additional flags for opening it.
    """
    try:
        fd = open_plain(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise ConfigError(f"{printable(path)}: {NOT_PLAIN}; save what it gives as a file") from error
        raise
    try:
        about, data = os.fstat(fd), bytearray()
        while max(about.st_size, len(data)) <= most:
            piece = os.read(fd, max(_LEAST, min(_PIECE, about.st_size + 1)))
            if not piece:
                return bytes(data)
            data += piece
    except MemoryError as error:
        raise ConfigError(f"{printable(path)}: there is not enough memory for its {about.st_size:,} bytes") from error
    finally:
        os.close(fd)
    size = max(about.st_size, len(data))
    raise ConfigError(f"{printable(path)}: has {size:,} bytes, more than the {show_bytes(most)} allowed; check what wrote it")
