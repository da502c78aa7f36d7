"""Paths as bytes, which is what they are: a name may hold any byte but NUL and the slash, and need not be text."""
# pathlib takes no bytes, so
# ruff: noqa: PTH112, PTH113, PTH115, PTH116

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Union

from ..errors import ConfigError
from ..storage.names import printable as printable
from ..storage.names import unprintable as unprintable

AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL_ONLY = "a URL; only local files are read here: download it, or read shards with stoker.tar(...) or stoker.tfrecord(...)"


def absolute(path: AnyPath) -> bytes:
    """The path from the root, so that it means the same in any working directory; links and ``..`` stay as they are.

    Text that is a URL is refused.
    """
    refuse_url(path, repr(path))
    return os.fsencode(Path(os.fsdecode(as_given(path))).absolute())


def as_given(path: AnyPath) -> bytes:
    """The path as it was given; ConfigError where it is none."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise ConfigError(f"a path must be str, bytes or PathLike, not {type(path).__name__}")
    return os.fsencode(path)


def refuse_url(path: AnyPath, told: str) -> None:
    """Raise where a path is text, and a URL; `told` names it."""
    if isinstance(path, str) and _URL.match(path):
        raise ConfigError(f"{told} is {_LOCAL_ONLY}")


def inside(folder: bytes) -> bytes:
    """What to put in front of a name in this folder."""
    return folder.rstrip(b"/") + b"/"


def joined(folder: bytes, path: bytes) -> bytes:
    """A path that is relative to a folder, from the root; one that is absolute stays as it is."""
    return path if path[:1] == b"/" else inside(folder) + path


def parent_name(path: bytes) -> bytes:
    """The name of the folder a path says its file lies in; empty when it says none."""
    parts = [part for part in path.split(b"/") if part]
    return parts[-2] if len(parts) > 1 and parts[-2] not in (b".", b"..") else b""


def is_file(path: bytes) -> bool:
    """Whether a file is there, links followed."""
    return os.path.isfile(path)


def is_folder(path: bytes) -> bool:
    """Whether a folder is there, links followed."""
    return os.path.isdir(path)


def identity(path: bytes) -> tuple[int, int]:
    """Two numbers that are the same for one and the same file or folder, by whatever path."""
    about = os.stat(path)
    return about.st_dev, about.st_ino


def link_target(path: bytes) -> bytes | None:
    """Where a symbolic link points; None when it is none."""
    try:
        return os.readlink(path)
    except OSError:
        return None
