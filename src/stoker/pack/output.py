"""A shard whose index says how it was made, so that whoever makes it again can see that it is there."""
# pathlib takes no bytes, so
# ruff: noqa: PTH108, PTH116, PTH120

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Any

from ..errors import CorruptIndex
from ..kernel.library import Bytes
from ..source.index import SUFFIX, ShardIndex
from .atomic import AtomicFile, sync_folder
from .target import MakeIndex, _is_index

#: the entry of an index's `about`
NOTE = "pack"


class NotedFile:
    """Where a shard's bytes go. Its index, with a note in it, appears first, then the shard.

    So a shard that is there has its index. Killed in between, there is an index without a shard, which the next try replaces.
    `note` may be added to until `close`.
    """

    def __init__(self, path: str, note: dict[str, Any], overwrite: bool) -> None:
        self._file = AtomicFile(path, overwrite=overwrite)
        self._beside = self._file.path + SUFFIX.encode()
        self.told, self._note, self._overwrite = self._file.told, note, overwrite
        try:
            _is_index(self._beside)
        except BaseException:
            self._file.abandon()
            raise

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def write(self, data: Bytes) -> None:
        self._file.write(data)

    def close(self, make_index: MakeIndex) -> None:
        """Make index and shard appear, or neither."""
        about = self._file.finish()
        index = make_index(about.st_size, about.st_mtime_ns)
        with contextlib.ExitStack() as undo:
            undo.callback(self._file.abandon)
            beside = AtomicFile(self._beside, overwrite=True, clean=False)
            undo.callback(beside.abandon)
            beside.write(replace(index, about={**index.about, NOTE: self._note}).to_bytes())
            if self._overwrite:  # first: the new index must never lie beside the old shard
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._file.path)
                sync_folder(os.path.dirname(self._file.path))
            beside.publish()
            self._file.publish()

    def abandon(self) -> None:
        self._file.abandon()


def noted(path: str) -> tuple[dict[str, Any], ShardIndex] | None:
    """The note in the index of a shard that is there, of the size its index says, and that index; None: there is none."""
    try:
        with open(path + SUFFIX, "rb") as file:
            index = ShardIndex.from_bytes(file.read(), path + SUFFIX)
        size = os.stat(path).st_size
    except (OSError, CorruptIndex):
        return None
    note = index.about.get(NOTE)
    return (note, index) if isinstance(note, dict) and index.size == size else None
