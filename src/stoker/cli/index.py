"""`stoker index`: the index of every shard, made once for all readers; with `--jpeg`, seek indices of the pictures too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from ..engine.each import Crews
from ..errors import ConfigError, CorruptIndex, StokerError
from ..kernel.native import SEEK_STEP
from ..pack.jobs.planning import Moved
from ..pack.jobs.seeking import add_seeks, index_folder, step_of
from ..sizes import counted, show_bytes
from ..source.paths import absolute
from ..source.shards.indexing import build_index, find_index, keep_index
from ..source.shards.shard_index import SUFFIX, IndexHeader, ShardIndex
from ..source.shards.sidecar import NAME, keep_sidecar, own_sidecar
from ..source.streams.tar_stream import is_compressed
from ..storage.blob import Blob
from ..storage.local import LocalBlob
from ..storage.open import open_blob
from .guard import message, status_of
from .progress import Progress, ShowProgress
from .screen import AsJson, Jobs, amount, flag, print_json, tell
from .sources import ShardNames, local_bytes, shard_list

#: places of indexes named in the text
_NAMED = 5


def index(
    shards: ShardNames,
    jpeg: Annotated[
        bool, flag("Add seek indices of all JPEGs, for faster crops; also accepts folders of images.", "--jpeg")
    ] = False,
    step: Annotated[
        int | None,
        amount(
            "With --jpeg: an entry every N blocks (MCUs) of a row. Smaller values help crops a little and GPU decoding a lot.",
            most=65535,
            default="16, or that of the existing index",
        ),
    ] = None,
    force: Annotated[bool, flag("Replace existing indexes, even of shards that have changed.", "--force")] = False,
    jobs: Jobs = None,
    progress: ShowProgress = None,
    json: AsJson = False,
) -> None:
    """Make the index of every shard once, before training.

    An index holds the position, name and checksum of each record, so that a shard can be read in any order. It is written next to
    the shard (`x.tar.stk`) or, if that is not possible, as for URLs, into your cache folder. An index that matches its shard is
    kept. A bad shard is reported, the others are indexed, and the exit status is 1. TFRecords are also checked.

    With `--jpeg` every picture is also read, and a seek index is added: about one percent of its bytes, which lets the decoder
    start close to a crop instead of at the first pixel. The pictures and their pixels do not change. Existing indexes are
    extended. For a folder of images it is written into the folder, as `.seek.stk`; a second run reads only changed files.
    `--step 4` makes finer ones, of about three percent; existing ones with another step are made again.

    Example: `stoker index --jpeg 'shards/train-{000000..000147}.tar'`
    """
    begun = time.monotonic()
    if step is not None and not jpeg:
        raise ConfigError("--step needs --jpeg; add it")
    listed = shard_list(shards, folders=jpeg)
    total = local_bytes([shard for shard, _ in listed])
    if total is not None and jpeg:
        total *= 2  # once for what lies where, once for the pictures
    with Progress("indexing", total, progress, unit="bytes") as shown, shown.crews(jobs, len(listed)) as crews:
        made = list(crews.over(_Maker(force, jpeg, step, shown, crews).make, listed))
        rate = shown.rate()
    errors = [result.error for result in made if result.error is not None]
    if json:
        print_json({"shards": [result.facts() for result in made], "seconds": time.monotonic() - begun})
    else:
        _tell(made, rate, "folder" if all(kind == "images" for _, kind in listed) else "shard")
    for error in errors:
        typer.echo(message(error), err=True)
    if errors:
        raise typer.Exit(min(map(status_of, errors)))


@dataclass(frozen=True, slots=True)
class IndexOutcome:
    """What became of a shard."""

    shard: str
    what: (
        str  # "made", "sealed" (it was there, and is now for all), "added" (it was there, without seek indices), "kept" or "bad"
    )
    place: str = ""
    samples: int = 0
    bytes: int = 0
    seeks: tuple[int, int] | None = None  # pictures with a seek index, and the bytes of these; None: none were made
    error: StokerError | None = None

    def facts(self) -> dict[str, Any]:
        told: dict[str, Any] = {"shard": self.shard, "index": self.what, "place": self.place, "samples": self.samples}
        if self.seeks is not None:
            told |= {"seek_indices": self.seeks[0], "seek_bytes": self.seeks[1]}
        return told | ({"bytes": self.bytes} if self.error is None else {"problem": str(self.error)})


class _Maker:
    """Makes one index after the other, in any thread."""

    def __init__(self, force: bool, jpeg: bool, step: int | None, shown: Progress, crews: Crews) -> None:
        self._force, self._jpeg, self._step, self._shown, self._each = force, jpeg, step, shown, crews.each
        self._moved = shown.counting(crews)

    def make(self, shard_and_kind: tuple[str, str]) -> IndexOutcome:
        shard, kind = shard_and_kind
        if kind == "images":
            return self._folder(shard)
        blob = open_blob(shard)
        if isinstance(blob, LocalBlob):
            blob = _CountedFile(blob.path, self._moved)
        try:
            return self._made(blob, kind)
        except StokerError as error:
            return IndexOutcome(blob.url, "bad", error=error)
        finally:
            blob.close()

    def _made(self, blob: Blob, kind: str) -> IndexOutcome:
        if is_compressed(blob.name):
            raise CorruptIndex(
                f"{blob.url}: a compressed shard is read in sequence and has no index; decompress it, or convert it with "
                "`stoker pack`",
                shard=blob.url,
            )
        # An index that contradicts its shard raises here: only who says --force means to replace it.
        there = None if self._force else find_index(blob, kind)
        jpeg = self._jpeg or (self._force and _had_seeks(blob))
        wanting = jpeg and (there is None or there.seeks is None or self._differs(there))
        if there is not None:
            self._shown.had(there.size if wanting or not self._jpeg else 2 * there.size)
        if there is not None and there.sealed and not wanting:
            return IndexOutcome(blob.url, "kept", "", len(there), there.size, _counted_seeks(there))
        fresh = build_index(blob, kind, sealed=True) if there is None else replace(there, sealed=True)
        if there is None and not isinstance(blob, LocalBlob):
            self._shown.add(0, fresh.size)
        if wanting:
            fresh = add_seeks(blob, fresh, self._each, self._moved, self._step or SEEK_STEP)
        place = keep_index(blob, fresh)
        what = "made" if there is None else "added" if there.sealed else "sealed"
        return IndexOutcome(blob.url, what, place, len(fresh), fresh.size, _counted_seeks(fresh))

    def _differs(self, there: ShardIndex) -> bool:
        """Whether its seek indices have another step than was asked for."""
        return self._step is not None and step_of(there) not in (0, self._step)

    def _folder(self, name: str) -> IndexOutcome:
        """The sidecar of a folder of images."""
        folder = absolute(os.fsencode(name))
        try:
            old = None if self._force else own_sidecar(folder)
            old = None if old is not None and self._differs(old) else old
            made = index_folder(folder, old, self._each, self._moved, self._step or step_of(old) or SEEK_STEP)
            size = int(made.index.length.sum())
            if old is not None and made.kept == len(made.index) == len(old):
                return IndexOutcome(name, "kept", "", len(old), size, _counted_seeks(old))
            place = keep_sidecar(folder, made.index)
            place = _in_folder(name) if place.endswith(NAME.decode()) else place
        except StokerError as error:
            return IndexOutcome(name, "bad", error=error)
        return IndexOutcome(name, "made" if old is None else "added", place, len(made.index), size, _counted_seeks(made.index))


def _in_folder(name: str) -> str:
    return f"{name.rstrip('/')}/{NAME.decode()}"


def _counted_seeks(index: ShardIndex) -> tuple[int, int] | None:
    """Pictures that have a seek index, and the bytes of all of them; None: nobody has made any."""
    if index.seeks is None:
        return None
    return sum(int((column.length > 0).sum()) for column in index.seeks.values()), index.tail.length


def _had_seeks(blob: Blob) -> bool:
    """Whether the index that is to be replaced has seek indices: then the new one gets them too."""
    try:
        return IndexHeader.read(blob.sibling(SUFFIX)).seeks is not None
    except StokerError:
        return False


class _CountedFile(LocalBlob):
    """A file whose reading is counted, and ends when all is to stop."""

    def __init__(self, path: bytes, moved: Moved) -> None:
        super().__init__(path)
        self._moved = moved

    def stream(self, offset: int = 0, piece: int = 1 << 20) -> Iterator[memoryview]:
        for view in super().stream(offset, piece):
            yield view
            self._moved(0, len(view))


def _tell(made: list[IndexOutcome], rate: str, thing: str) -> None:
    counts = {what: sum(result.what == what for result in made) for what in _WORDS}
    told = [f"{counts[what]:,} {word}" for what, word in _WORDS.items() if counts[what]]
    read = sum(result.bytes for result in made if result.what == "made")
    samples = sum(result.samples for result in made)
    tell(f"{counted(len(made), thing)}: {', '.join(told)}; {counted(samples, 'sample')}", style="bold")
    if any(result.seeks is not None for result in made):
        pictures, size = (sum(result.seeks[at] for result in made if result.seeks is not None) for at in (0, 1))
        tell(f"  jpeg     seek indices of {counted(pictures, 'picture')}, {show_bytes(size)}")
    if read:
        tell(f"  speed    {show_bytes(read)} read, {rate}")
    elsewhere = [result for result in made if result.place not in ("", result.shard + SUFFIX, _in_folder(result.shard))]
    for result in elsewhere[:_NAMED]:
        tell(f"  note     {result.shard}: its index is kept as {result.place}")
    if len(elsewhere) > _NAMED:
        tell(f"           and {len(elsewhere) - _NAMED:,} more like it")


_WORDS = {
    "made": "indexed", "sealed": "already indexed, now for all readers",
    "added": "already indexed, seek indices added", "kept": "already indexed", "bad": "bad",
}  # fmt: skip
