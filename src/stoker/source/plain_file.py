"""Small files that are read whole: lists, tables, and whatever else is no sample."""

from __future__ import annotations

import errno
import os
import stat

from ..errors import ConfigError
from ..units import show_bytes
from .paths import printable

_PIECE = 1 << 20


def read_plain(path: bytes, most: int, flags: int = 0) -> bytes:
    """The content of a plain file of at most `most` bytes.

    Anything else is a ConfigError before memory is taken for it: a size is only what a file says, and a pipe or a device has no
    end that one could wait for. What the system refuses is an OSError, as it is. `flags` are more flags for opening it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        about, data = os.fstat(fd), bytearray()
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(about.st_mode):
            raise ConfigError(f"{printable(path)}: is not a plain file but a pipe or a device; save what it gives as a file")
        while max(about.st_size, len(data)) <= most:
            piece = os.read(fd, _PIECE)
            if not piece:
                return bytes(data)
            data += piece
    finally:
        os.close(fd)
    size = max(about.st_size, len(data))
    raise ConfigError(f"{printable(path)}: has {size:,} bytes, and at most {show_bytes(most)} are read; check what wrote it")
