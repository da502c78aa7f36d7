"""The seek indices of a folder of images: one file in it, `.seek.stk`, made by ``stoker index --jpeg FOLDER``.

It is an index like those of shards (`shard_index.py`), of the kind ``files``: one record per file, whose key is its path below
the folder, and whose length and checksum are the file's. So a changed file is noticed by its content when it is read:
modification times do not survive copying, and a folder may be copied with its sidecar. (The time is stored too, for making the
sidecar again.)

Nothing depends on it: a sidecar that cannot be used is reported and ignored.
"""
# pathlib takes no bytes, so
# ruff: noqa: PTH116

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ...errors import CorruptIndex, ReadError, ShardError, SourceNotFound
from ...sizes import counted, show_bytes
from ...storage.home import index_home
from ...storage.local import LocalBlob
from ..chunk import Ints
from ..files.walk import list_files
from ..paths import inside, printable
from .seeks import SeekTable, places
from .shard_index import SUFFIX, IndexHeader, ShardIndex

_log = logging.getLogger("stoker")
NAME = b".seek" + SUFFIX.encode()
KIND = "files"
FIELD = "image"
#: column of the files' times of change, in nanoseconds
MTIME = "mtime_ns"
#: columns that a sidecar has at least
_COLUMNS = {"start", "length", "crc", "key_data", "key_ends", MTIME}
#: bytes of columns that any sidecar may have, enough for some five million files, and those that it may have for each file
_FREE_BYTES, _BYTES_PER_FILE = 1 << 29, 1 << 10
_WITHOUT = "images are read without their seek indices; `stoker index --jpeg --force` on the folder makes it again"


def seek_table(paths: Sequence[bytes], folder: bytes | None = None) -> SeekTable | None:
    """The seek indices of these files, by their absolute paths; None if there are none.

    The sidecar is searched in `folder`, or else in the folder that contains all the files, and then in the folders above.
    """
    if not paths:
        return None
    if folder is None:
        folder = os.path.commonpath([os.path.dirname(min(paths)) or b"/", os.path.dirname(max(paths)) or b"/"])  # noqa: PTH120
    found = _find_sidecar(folder, len(paths))
    return None if found is None else _matched(paths, *found)


def _find_sidecar(folder: bytes, files: int) -> tuple[bytes, ShardIndex] | None:
    """The nearest sidecar that can be used for so many files, and the folder it is of, with a slash after it."""
    trusted = _owners(folder)
    while True:
        base = inside(folder)
        for path in (base + NAME, os.fsencode(_home_of(base))):
            index = _read_sidecar(path, lambda: files, trusted)
            if index is not None:
                return base, index
        if base == b"/":
            return None
        folder = os.path.dirname(base[:-1])  # noqa: PTH120


def own_sidecar(folder: bytes) -> ShardIndex | None:
    """The sidecar of exactly this folder, for making it again."""
    base = inside(folder)
    files = _counter(base)
    return _read_sidecar(base + NAME, files) or _read_sidecar(os.fsencode(_home_of(base)), files)


def _read_sidecar(path: bytes, files: Callable[[], int], trusted: frozenset[int] | None = None) -> ShardIndex | None:
    """The sidecar in a file; None where there is none that can be used, which is logged. For `files` see `_load`."""
    try:
        if trusted is not None and (owner := os.stat(path).st_uid) not in trusted:
            _log.warning("%s: belongs to user %d, not to you or the owner of the images, and is not used", printable(path), owner)
            return None
        return _load(path, files)
    except (FileNotFoundError, NotADirectoryError, SourceNotFound):
        return None
    except (OSError, ReadError, ShardError) as error:
        _log.warning("%s; %s", error, _WITHOUT)
        return None


def sidecar_trouble(folder: bytes) -> str:
    """Why the sidecar in a folder cannot be used; empty if it can, or if there is none. Used by checks."""
    try:
        base = inside(folder)
        _load(base + NAME, _counter(base))
    except (FileNotFoundError, NotADirectoryError, SourceNotFound):
        return ""
    except (OSError, ReadError, ShardError) as error:
        return f"{error}; {_WITHOUT}"
    return ""


def _load(path: bytes, files: Callable[[], int]) -> ShardIndex:
    """The sidecar in a file, checked. If it is large, `files` says how many files there are, before memory is taken for it."""
    header = IndexHeader.read(LocalBlob(path))
    if header.kind != KIND or header.fields != (FIELD,) or not _COLUMNS.issubset(header.columns):
        raise CorruptIndex(f"{printable(path)}: is an index of another kind ({header.kind})")
    if header.length > _FREE_BYTES and header.length > _BYTES_PER_FILE * (count := files()):
        raise CorruptIndex(
            f"{printable(path)}: has {show_bytes(header.length)} of columns, too much for {counted(count, 'file')}; if these are "
            "some of a very large folder, make an index of their own folder"
        )
    index = header.load()
    if index.extra[MTIME].shape != (len(index),):
        raise CorruptIndex(f"{printable(path)}: contradicts itself")
    return index


def _counter(base: bytes) -> Callable[[], int]:
    """Counts the files below a folder."""
    return lambda: list_files(base, lambda below, names: [])[1]


def keep_sidecar(folder: bytes, index: ShardIndex) -> str:
    """Write a sidecar where readers find it: in the folder, or else in the user's cache; returns where."""
    base = inside(folder)
    return index.keep(base + NAME, _home_of(base))


def _matched(paths: Sequence[bytes], base: bytes, index: ShardIndex) -> SeekTable | None:
    """The table of these files, in their order; None unless the sidecar has some of them."""
    if FIELD not in (index.seeks or {}) or index.keys is None or index.crc is None or index.tail.blob is None:
        return None
    rows = _rows(paths, base, index)
    here = np.flatnonzero(rows >= 0)
    start, length, crc = places(index, FIELD)
    if len(here) == len(index) == len(rows) and bool((rows == np.arange(len(rows))).all()):
        table = SeekTable([index.tail.blob], start, length, crc, _ends(rows), (index.length[:, 0], index.crc[:, 0]))
        return table if table.count else None
    starts, lengths, sums = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.uint32)
    sizes, contents = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.uint32)
    at = rows[here]
    starts[here], lengths[here], sums[here] = start[at], length[at], crc[at]
    sizes[here], contents[here] = index.length[at, 0], index.crc[at, 0]
    table = SeekTable([index.tail.blob], starts, lengths, sums, _ends(rows), (sizes, contents))
    return table if table.count else None


def _rows(paths: Sequence[bytes], base: bytes, index: ShardIndex) -> Ints:
    """The record of each file; -1: it has none."""
    assert index.keys is not None
    known, skip = index.keys.all(), len(base)
    if len(paths) == len(known) and all(path[skip:] == key for path, key in zip(paths, known)):
        # The whole folder, in the order both are in. (Paths that do not begin with the folder are as good as unequal.)
        return np.arange(len(known), dtype=np.int64)
    number = {key: row for row, key in enumerate(known)}
    below = (number.get(path[skip:], -1) if path.startswith(base) else -1 for path in paths)
    return np.fromiter(below, np.int64, len(paths))


def _ends(rows: Ints) -> Ints:
    return np.array([len(rows)], np.int64)


def _home_of(base: bytes) -> Path:
    return index_home(printable(base))


def _owners(folder: bytes) -> frozenset[int]:
    """Whose sidecars are believed. In a folder that anybody may write to, anybody could leave one, and it could lie."""
    try:
        owner = os.stat(folder).st_uid
    except OSError:
        owner = 0
    return frozenset((0, os.geteuid(), owner))
