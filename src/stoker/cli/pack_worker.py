"""A worker of `stoker pack --on ray`: writes one shard after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..engine.task_notes import note
from ..pack.jobs.convert import Conversion, ShardOutcome
from ..storage.atomic import remove_unfinished


@dataclass(frozen=True, slots=True)
class ShardPacker:
    """Writes shards of a conversion: the work of workers whose tasks are numbers of shards."""

    conversion: Conversion
    skip_bad: bool

    def clean_up(self) -> None:
        remove_unfinished()

    def __call__(self, number: int, scratch: Any = None) -> ShardOutcome:
        done = done_bytes = 0

        def moved(samples: int, nbytes: int) -> None:
            nonlocal done, done_bytes
            done, done_bytes = done + samples, done_bytes + nbytes
            note(done, done_bytes, b"%d" % number)

        return self.conversion.write(number, moved=moved, skip_bad=self.skip_bad)
