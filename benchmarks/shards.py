"""The records: byte strings, the shards of each format that hold them, and the hands that take them."""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

import data
import stoker
from measure import SEED, Take

#: of the samples of photographs' size, where no photographs are given
LARGE = 110_000
SMALL = 1024
#: files that a data set is split into
SHARDS = 8
FORMATS = ("tar", "tfrecord", "lmdb")

_first = itemgetter(0)


@dataclass(frozen=True, slots=True)
class Payloads:
    """`count` byte strings: photographs, again and again; or bytes of one size, all different."""

    count: int
    photographs: tuple[bytes, ...] = ()
    size: int = 0

    def __iter__(self) -> Iterator[bytes]:
        if self.photographs:
            return (self.photographs[number % len(self.photographs)] for number in range(self.count))
        pool = random.Random(SEED).randbytes(self.size + self.count)
        return (pool[number : number + self.size] for number in range(self.count))

    def samples(self) -> Iterator[dict[str, Any]]:
        """Each with a key and one field, which is the most favourable case for readers that go member by member."""
        return ({"__key__": f"{number:08}", "jpg": payload} for number, payload in enumerate(self))


def large(options: argparse.Namespace, megabytes: float) -> Payloads:
    """The photographs given by ``--images``, repeated; without any, made bytes of their size."""
    if options.images is None:
        return Payloads(max(1, int(megabytes * 1e6 / LARGE)), size=LARGE)
    photographs = tuple(Path(path).read_bytes() for path in data.paths_of(Path(options.images)))
    mean = sum(map(len, photographs)) / len(photographs)
    return Payloads(max(1, int(megabytes * 1e6 / mean)), photographs)


def small(megabytes: float) -> Payloads:
    """Made bytes of 1 KB."""
    return Payloads(max(1, int(megabytes * 1e6 / SMALL)), size=SMALL)


def write(payloads: Payloads, folder: Path, formats: Sequence[str]) -> int:
    """Write shards of each format, and the checksums of what is in them; returns the bytes of all payloads together.

    The LMDB is written by py-lmdb, bytes as they are, so that both readers read the same file; beside it lies one that Stoker
    wrote, whose records have checksums.
    """
    sums, total = [], 0
    for payload in payloads:
        sums.append(zlib.crc32(payload))
        total += len(payload)
    np.save(folder / "sums.npy", np.unique(np.array(sums, np.uint32)))
    each = -(-payloads.count // SHARDS)
    if "tar" in formats:
        stoker.write_tar(folder / "{}.tar", payloads.samples(), max_samples=each)
    if "tfrecord" in formats:
        stoker.write_tfrecord(folder / "{}.tfrecord", payloads, max_samples=each)
    if "lmdb" in formats:
        _write_plain_lmdb(folder / "plain.lmdb", payloads, total)
        stoker.write_lmdb(folder / "own.lmdb", payloads.samples())
    return total


def _write_plain_lmdb(path: Path, payloads: Payloads, total: int) -> None:
    import lmdb

    room = 2 * total + 16384 * payloads.count + (64 << 20)
    with (
        lmdb.open(str(path), map_size=room, subdir=False, lock=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number, payload in enumerate(payloads):
            transaction.put(b"%08d" % number, payload, append=True)


def warm(folder: Path) -> None:
    """Read every file once, so that the page cache holds it."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass


def names(folder: Path, ending: str) -> list[str]:
    """The shards with that ending, in order."""
    return [str(path) for path in sorted(folder.glob(f"*.{ending}"))]


# ---- the consumer ------------------------------------------------------------------------------------------------------------


def touch(values: Sequence[Any]) -> int:
    """Ask every byte string for its length and its first byte, the same for all contestants; returns how many there are."""
    sum(map(len, values))
    sum(map(_first, values))
    return len(values)


def consume(batches: Iterator[Any], hand: Callable[[Any], Any], folder: Path, use: Callable[[Any], int] = touch) -> Take:
    """Take batches, have `hand` make of each what the consumer gets, and `use` it.

    As in any ``for batch in loader``, a batch and what was made of it live until the next ones are there. (Dropped earlier, the
    end of the heap would be free every time, given back to the system, and faulted in again, page by page.) The very first
    batch is not used but checked: every string must be one of those that were written, whole.
    """
    known: set[int] | None = set(np.load(folder / "sums.npy").tolist())
    batch: Any = None
    values: Any = None

    def take(count: int) -> int:
        nonlocal known, batch, values
        if known is not None:
            check(hand(next(batches)), known)
            known = None
        rows = 0
        for _ in range(count):
            batch = next(batches)
            values = hand(batch)
            rows += use(values)
        return rows

    return take


def check(values: Any, known: set[int]) -> None:
    """Raise unless these are strings that were written."""
    strings = values.numpy().tolist() if hasattr(values, "numpy") else values
    if not all(zlib.crc32(string) in known for string in strings):
        raise RuntimeError("a batch holds bytes that nobody wrote")


def use_examples(images: Any, labels: Any) -> int:
    """The consumer of Examples: touches every image and label; returns how many there are."""
    if isinstance(images, np.ndarray):
        if images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8:
            raise RuntimeError(f"images came as {images.dtype} of {images.shape}")
        images[:, 0, 0, 0].sum()
    else:
        touch(images)
    labels.sum()
    return len(images)
