"""Which sample goes into which shard: settled in advance, from known sizes or from the disk's."""
# names are any bytes, which pathlib takes only as text
# ruff: noqa: PTH116

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ...kernel import native
from ...kernel.file_reads import MAX_FILE_BYTES
from ...source.chunk import Ints
from ...source.files.labelled_files import LabelledFiles
from ...source.shards.record_source import RecordSource
from ...source.source import Source, digest
from ...storage.fetch import Each

T = TypeVar("T")
#: called with samples and bytes as they pass through; raises when all is given up
Moved = Callable[[int, int], None]

#: samples prepared or checked together: at most this many bytes and this many
CHUNK_BYTES, CHUNK_SAMPLES = 1 << 22, 512
#: names asked of the disk at once
_NAMES = 4096


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a conversion, besides where it reads and writes. Equal options give equal shards.

    `max_bytes` and `max_samples` limit a shard; None: no limit. `seed` is the shuffle's; None: the source's order. `fields` is
    what a user wrote (see `choose_fields`), `by_content` names each picture by its own format, `keys` puts keys into TFRecords.
    `seek` puts seek indices of the JPEGs into the shards' indexes; the shards are the same with and without.
    """

    format: str = "tar"
    max_bytes: int | None = 10**9
    max_samples: int | None = None
    seed: int | None = None
    resize_max: int | None = None
    quality: int = 90
    fields: str | None = None
    by_content: bool = False
    keys: bool = True
    seek: bool = True

    def identity(self) -> str:
        """All that matters for a sample's bytes; the limits show in what they led to."""
        pillow = f"{self.resize_max} {self.quality} {_pillow_version()}" if self.resize_max else ""
        return repr((self.format, self.seed, pillow, self.fields, self.by_content, self.keys))


def unheard(samples: int, nbytes: int) -> None:
    """A progress callback that does nothing."""


def split(sizes: Ints, most: int | None, count: int | None) -> Ints:
    """Where shards begin, and the end: as many samples in each as fit, but one at least.

    >>> split(np.array([4, 4, 4, 9, 1]), 8, None).tolist(), split(np.ones(5, np.int64), None, 2).tolist()
    ([0, 2, 3, 4, 5], [0, 2, 4, 5])
    """
    bounds, ends = [0], np.cumsum(sizes)
    while (at := bounds[-1]) < len(sizes):
        before = int(ends[at - 1]) if at else 0
        stop = len(sizes) if most is None else int(np.searchsorted(ends, before + most, side="right"))
        bounds.append(max(at + 1, stop if count is None else min(stop, at + count)))
    return np.array(bounds, np.int64)


def gathered(samples: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Samples that come in sequence, in chunks of some megabytes."""
    chunk: list[T] = []
    held = 0
    for sample in samples:
        chunk.append(sample)
        held += size(sample)
        if held >= CHUNK_BYTES or len(chunk) >= CHUNK_SAMPLES:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def shuffled(count: int, seed: int) -> Ints:
    """All numbers below `count` in an order that depends on the seed alone."""
    key = int.from_bytes(hashlib.blake2b(b"pack %d" % seed, digest_size=8).digest(), "little")
    return native.permute(count, key, np.arange(count, dtype=np.int64))


def stored_sizes(source: Source, each: Each = map) -> tuple[Ints, str]:
    """The stored size of each sample in bytes, and a text that changes when a file does; no contents are read."""
    if isinstance(source, LabelledFiles):
        blocks = [range(at, min(at + _NAMES, len(source))) for at in range(0, len(source), _NAMES)]
        told = np.concatenate(list(each(lambda block: _asked(source, block), blocks)))
        return np.ascontiguousarray(told[:, 0]), digest("files", told.tobytes())
    if isinstance(source, RecordSource):
        return np.maximum(field_lengths(source), 0).sum(axis=1, dtype=np.int64), ""
    return np.full(len(source), sum(spec.nbytes for spec in source.fields.values()), np.int64), ""


def field_lengths(source: RecordSource) -> Ints:
    """The length of every stored field of every record; -1: there is none."""
    lengths = np.full((len(source), len(source.stored)), -1, np.int64)
    first = 0
    for index in source.indexes:
        if len(index):
            lengths[first : first + len(index), [source.stored.index(name) for name in index.fields]] = index.length
        first += len(index)
    return lengths


def _asked(source: LabelledFiles, block: range) -> Ints:
    """Size and time of change of some samples' files; nothing of one that is not there or too large: reading it will say so."""
    told = np.zeros((len(block), 2), np.int64)
    for row, index in enumerate(block):
        for path in source.paths_of(index):
            with contextlib.suppress(OSError):
                about = os.stat(path)
                told[row] += about.st_size if about.st_size <= MAX_FILE_BYTES else 0, about.st_mtime_ns
    return told


def _pillow_version() -> str:
    import PIL

    return str(PIL.__version__)
