"""`stoker index`: the index of every shard, made once for all readers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from ..errors import CorruptIndex, StokerError
from ..pack.convert import Stopped
from ..source.index import SUFFIX
from ..source.indexing import build_index, find_index, keep_index
from ..source.shards import is_remote
from ..source.tarstream import is_compressed
from ..storage.blob import Blob
from ..storage.local import LocalBlob
from ..storage.open import open_blob
from ..units import counted, show_bytes
from .guard import DATA, message
from .pool import Jobs, Pool
from .progress import Progress, ShowProgress
from .screen import AsJson, print_json, tell
from .sources import ShardNames, shard_list

#: places of indexes named in the text
_NAMED = 5


def index(
    shards: ShardNames,
    force: Annotated[
        bool,
        typer.Option("--force", help="Make them anew, also where one is there; also for shards that were replaced on purpose."),
    ] = False,
    jobs: Jobs = None,
    progress: ShowProgress = None,
    json: AsJson = False,
) -> None:
    """Make the index of every shard, so that nobody has to when training begins.

    An index says where each record lies, what it is called, and the checksum of its bytes; with it a shard is read at random. It
    is written beside the shard (`x.tar.stk`), or where that cannot be, as for URLs, into your cache folder. One that fits its
    shard is kept. A bad shard is named, the others go on, and the exit status is 1. TFRecords are checked on the way.

    Example: `stoker index 'shards/train-{000000..000147}.tar'`
    """
    begun = time.monotonic()
    listed = shard_list(shards)
    with Pool(jobs, len(listed)) as pool, Progress("indexing", local_bytes(listed), progress, unit="bytes") as shown:
        maker = _Maker(force, shown, pool)
        made = sorted(pool.over(maker.make, list(enumerate(listed)), shown.draw), key=lambda result: result.number)
        rate = shown.rate()
    bad = [result for result in made if result.error is not None]
    if json:
        print_json({"shards": [result.facts() for result in made], "seconds": time.monotonic() - begun})
    else:
        _tell(made, rate)
    for result in bad:
        assert result.error is not None
        typer.echo(message(result.error), err=True)
    if bad:
        raise typer.Exit(DATA)


def local_bytes(shards: Sequence[tuple[str, str]]) -> int | None:
    """What there is to read; None where that could be known only by asking far away."""
    if any(is_remote(shard) for shard, _ in shards):
        return None
    return sum(os.stat(shard).st_size for shard, _ in shards)  # noqa: PTH116  names may be any bytes


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a shard."""

    number: int
    shard: str
    what: str  # "made", "sealed" (it was there, and is now for all), "kept" or "bad"
    place: str = ""
    samples: int = 0
    bytes: int = 0
    error: StokerError | None = None

    def facts(self) -> dict[str, Any]:
        told: dict[str, Any] = {"shard": self.shard, "index": self.what, "place": self.place, "samples": self.samples}
        return told | ({"bytes": self.bytes} if self.error is None else {"problem": str(self.error)})


class _Maker:
    """Makes one index after the other, in any thread."""

    def __init__(self, force: bool, shown: Progress, pool: Pool) -> None:
        self._force, self._shown, self._pool = force, shown, pool

    def make(self, numbered: tuple[int, tuple[str, str]]) -> Made:
        number, (shard, kind) = numbered
        blob = open_blob(shard)
        if isinstance(blob, LocalBlob):
            blob = _Watched(blob.path, self._shown, self._pool)
        try:
            return self._made(number, blob, kind)
        except StokerError as error:
            return Made(number, blob.url, "bad", error=error)
        finally:
            blob.close()

    def _made(self, number: int, blob: Blob, kind: str) -> Made:
        if is_compressed(blob.name):
            raise CorruptIndex(
                f"{blob.url}: a packed shard is read in sequence, and has no index; unpack it first", shard=blob.url
            )
        # An index that contradicts its shard raises here: only who says --force means to replace it.
        there = None if self._force else find_index(blob, kind)
        if there is not None:
            self._shown.had(there.size)
        if there is not None and there.sealed:
            return Made(number, blob.url, "kept", "", len(there), there.size)
        fresh = build_index(blob, kind, sealed=True) if there is None else replace(there, sealed=True)
        if there is None and not isinstance(blob, LocalBlob):
            self._shown.add(0, fresh.size)
        place = keep_index(blob, fresh)
        return Made(number, blob.url, "made" if there is None else "sealed", place, len(fresh), fresh.size)


class _Watched(LocalBlob):
    """A file whose reading is counted, and ends when all is to stop."""

    def __init__(self, path: bytes, shown: Progress, pool: Pool) -> None:
        super().__init__(path)
        self._shown, self._pool = shown, pool

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview]:
        for view in super().stream(offset, piece):
            if self._pool.stopping():
                raise Stopped
            yield view
            self._shown.add(0, len(view))


def _tell(made: list[Made], rate: str) -> None:
    counts = {what: sum(result.what == what for result in made) for what in ("made", "sealed", "kept", "bad")}
    told = [f"{counts[what]:,} {word}" for what, word in _WORDS.items() if counts[what]]
    read = sum(result.bytes for result in made if result.what == "made")
    samples = sum(result.samples for result in made)
    tell(f"{counted(len(made), 'shard')}: {', '.join(told)}; {counted(samples, 'sample')}", style="bold")
    if read:
        tell(f"  speed    {show_bytes(read)} read, {rate}")
    elsewhere = [result for result in made if result.place not in ("", result.shard + SUFFIX)]
    for result in elsewhere[:_NAMED]:
        tell(f"  note     {result.shard}: its index is kept as {result.place}")
    if len(elsewhere) > _NAMED:
        tell(f"           and {len(elsewhere) - _NAMED:,} more like it")
    for result in made:
        if result.what in ("made", "sealed") and not result.place:
            tell(f"  note     {result.shard}: its index could be written nowhere")


_WORDS = {"made": "indexed", "sealed": "had one, now for all readers", "kept": "had one that fits", "bad": "bad"}
