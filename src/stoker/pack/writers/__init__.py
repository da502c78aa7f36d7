"""Writers of shards, and what they share: names of shards, files that appear whole, keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...registry import Registry

#: what writes samples, by the name of the format
WRITERS: Registry[Callable[..., Any]] = Registry(
    "format",
    {
        "tar": ("stoker.pack.writers.tar_writer", "write_tar", ""),
        "tfrecord": ("stoker.pack.writers.tfrecord_writer", "write_tfrecord", ""),
        "lmdb": ("stoker.pack.writers.lmdb_writer", "write_lmdb", ""),
    },
)
