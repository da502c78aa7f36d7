"""Class names next to shards: a JSON list, in which label i is entry i, as `stoker pack` writes it and `stoker show` finds it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..source.files.plain_file import read_plain
from ..storage.atomic import AtomicFile

#: no list of classes is larger
_MAX_BYTES = 1 << 24


def classes_file(shard: str) -> Path:
    """Where the class names of a shard lie: ``train-000000.tar`` has ``train-classes.json``, ``000000.tar`` has ``classes.json``.

    >>> str(classes_file("a/train-000000.tar")), str(classes_file("a/000000.tar")), str(classes_file("a/birds.lmdb"))
    ('a/train-classes.json', 'a/classes.json', 'a/birds-classes.json')
    """
    path = Path(shard)
    stem = "" if path.name == "data.mdb" else re.sub(r"\d+$", "", path.name.split(".")[0])
    dash = "-" if stem and stem[-1] not in "-_" else ""
    return path.parent / f"{stem}{dash}classes.json"


def write_classes(classes: Sequence[str], shard: str, overwrite: bool) -> str | None:
    """Write the names, unless the file exists already; returns its path, or None if there are no names."""
    if not classes:
        return None
    path = classes_file(shard)
    data = json.dumps(list(classes), ensure_ascii=False, indent=1).encode("utf-8", "surrogateescape") + b"\n"
    if _content(path) != data:
        with AtomicFile(path, overwrite=overwrite) as file:
            file.write(data)
    return str(path)


def read_classes(shard: str) -> tuple[str, ...]:
    """The class names stored next to a shard; none if there is no such file, or it contains something else."""
    try:
        names = json.loads(_content(classes_file(shard)) or b"null")
    except (ValueError, RecursionError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _content(path: Path) -> bytes:
    try:
        return read_plain(os.fsencode(path), _MAX_BYTES)
    except (OSError, ValueError):
        return b""
