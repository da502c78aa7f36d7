"""A tar's samples as they are stored: all fields as bytes; samples that lack some are not errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...source.shards.shard_index import ShardIndex
from ...source.shards.tar_source import TarSource
from ...storage.blob import Blob

#: marks a field that a sample does not have. Compared by identity: values read from a shard are always other objects.
_ABSENT = b"(no such field)"


def raw_tar(blobs: Sequence[Blob], indexes: Sequence[ShardIndex]) -> TarSource:
    """A source of bytes; what it gives is to be asked `is_absent`."""
    stored = dict.fromkeys(name for index in indexes if len(index) for name in index.fields)
    return TarSource(blobs, indexes, dict.fromkeys(stored, _ABSENT), decode=False)


def is_absent(value: Any) -> bool:
    """Whether a value of `raw_tar` marks a field that the sample does not have."""
    return value is _ABSENT
