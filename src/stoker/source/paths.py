"""Paths as bytes, which is what they are: a name may hold any byte but NUL and the slash, and need not be text."""
# pathlib takes no bytes, so
# ruff: noqa: PTH110, PTH112, PTH113, PTH115, PTH116

from __future__ import annotations

import errno
import os
import stat

from ..storage.names import AnyPath as AnyPath
from ..storage.names import absolute as absolute
from ..storage.names import file_name as file_name
from ..storage.names import path_bytes as path_bytes
from ..storage.names import printable as printable
from ..storage.names import refuse_url as refuse_url
from ..storage.names import unprintable as unprintable

NOT_PLAIN = "not a plain file but a pipe, a socket or a device"


def inside(folder: bytes) -> bytes:
    """What to put in front of a name in this folder."""
    return folder.rstrip(b"/") + b"/"


def joined(folder: bytes, path: bytes) -> bytes:
    """A path that is relative to a folder, from the root; one that is absolute stays as it is."""
    return path if path[:1] == b"/" else inside(folder) + path


def parent_name(path: bytes) -> bytes:
    """The name of the folder that contains the file of a path; empty if the path has none."""
    parts = [part for part in path.split(b"/") if part]
    return parts[-2] if len(parts) > 1 and parts[-2] not in (b".", b"..") else b""


def is_there(path: bytes) -> bool:
    """Whether anything is there, links followed."""
    return os.path.exists(path)


def is_file(path: bytes) -> bool:
    """Whether a file is there, links followed."""
    return os.path.isfile(path)


def open_plain(path: bytes, flags: int = 0) -> int:
    """A descriptor to read a plain file; OSError if it is anything else, which is never waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):  # a socket
            raise OSError(errno.ENXIO, NOT_PLAIN) from error
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
    raise OSError(code, NOT_PLAIN if code == errno.ENXIO else os.strerror(code))


def is_folder(path: bytes) -> bool:
    """Whether a folder is there, links followed."""
    return os.path.isdir(path)


def identity(path: bytes) -> tuple[int, int]:
    """Two numbers that are the same for one and the same file or folder, by whatever path."""
    about = os.stat(path)
    return about.st_dev, about.st_ino


def stamp(path: bytes) -> bytes:
    """Size and time of a file, which change with its contents; empty if there is no file."""
    try:
        about = os.stat(path)
    except OSError:
        return b""
    return b"%d %d" % (about.st_size, about.st_mtime_ns)


def link_target(path: bytes) -> bytes | None:
    """Where a symbolic link points; None if it is not a link."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def shard_and_offset(origin: str) -> tuple[str, int | None]:
    """The file and the byte in it that a sample's origin names; None: it names no byte.

    >>> shard_and_offset("shards/a.tar, byte 1,536"), shard_and_offset("cats/1.jpg")
    (('shards/a.tar', 1536), ('cats/1.jpg', None))
    """
    shard, comma, place = origin.rpartition(", byte ")
    return (shard, int(place.replace(",", ""))) if comma else (origin, None)
