"""How a shard was made, as noted in its index, so that a program that would make it again can see that it exists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...errors import ReadError, ShardError, SourceNotFound
from ...source.shards.shard_index import SUFFIX, IndexHeader, ShardIndex
from ...storage.local import LocalBlob


def noted(path: str, entry: str) -> tuple[dict[str, Any], ShardIndex] | None:
    """What the index of a shard says under `entry` of `about`, and that index.

    None: it says nothing, there is no index, or the shard is not of the size it says. As writers with `about` make the index
    appear first, and the shard whole, a shard with a note is as it was made.
    """
    try:
        header = IndexHeader.read(LocalBlob(os.fsencode(path + SUFFIX)))
        if header.kind not in ("tar", "tfrecord") or header.size != Path(path).stat().st_size:
            return None
        index = header.load()
    except (OSError, ReadError, ShardError, SourceNotFound):
        return None
    note = index.about.get(entry)
    return (note, index) if isinstance(note, dict) else None
