"""Every flipped byte and every cut of small shards: the very samples, or an error of Stoker's. Never fewer, never a crash.

The loops run in processes of their own, so that a crash fails the test and does not end the run. `python -m
tests.system.test_records_damage NAME FOLDER` runs one of them by hand.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import CorruptIndex, CorruptShard, SampleError, ShardError, StokerError
from stoker.kernel.records import walk_lmdb
from stoker.source.shards import indexing
from stoker.source.shards.indexing import build_index, index_of, keep_index
from stoker.source.shards.lmdb_source import LmdbSource
from stoker.source.shards.shard_index import ShardIndex
from stoker.source.shards.tar_source import TarSource
from stoker.source.shards.tfrecord_source import TfrecordSource
from stoker.source.source import Source
from stoker.storage.local import LocalBlob
from stoker.storage.scratch import Scratch

from ..loader.runs import run_python
from ..source.making import END, example, sample_tar, tfrecord

TAR = sample_tar([("a", {"jpg": bytes(range(40)), "cls": b"1"}), ("b", {"cls": b"22", "jpg": b"\xff" * 30})])
RECORDS = [example({"x": 1, "image": b"abc"}), example({"x": -2, "image": b""}), b""]
TFRECORD = tfrecord(RECORDS)
SAMPLES = [{"__key__": f"k{n}", "image": bytes([n]) * 30, "label": n, "box": np.arange(2.0)} for n in range(3)]

Case = tuple[str, bytes]
Result = list[dict[str, Any]]


def flips(data: bytes, *masks: int) -> Iterator[Case]:
    """Every byte with some of its bits turned."""
    for at in range(len(data)):
        for mask in masks or (1 << at % 8,):
            yield f"flip {at}", data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def cuts(data: bytes) -> Iterator[Case]:
    for length in range(len(data)):
        yield f"cut {length}", data[:length]


def mutations(data: bytes, count: int) -> Iterator[Case]:
    """Holes of zeros, blocks that moved, bytes lost and bytes added, at random places."""
    rng = random.Random(7)
    for number in range(count):
        bad = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at, length = rng.randrange(len(bad) or 1), rng.choice([1, 2, 8, 512, 4096])
            if rng.random() < 0.5:
                at = at // 512 * 512
            how = rng.randrange(5)
            if how == 0:
                bad[at : at + length] = bytes(min(length, len(bad) - at))
            elif how == 1:
                del bad[at : at + length]
            elif how == 2:
                bad[at:at] = rng.choice([bytes(length), rng.randbytes(length), data[at : at + length]])
            elif how == 3:
                other = rng.randrange(len(bad) or 1) // 512 * 512
                bad[at : at + 512], bad[other : other + 512] = bad[other : other + 512], bad[at : at + 512]
            else:
                bad[at : at + 8] = rng.choice([b"\xff" * 8, (1 << 63).to_bytes(8, "little"), b"77777777"])
        if bad != data:
            yield f"mutation {number}", bytes(bad)


def samples_of(source: Source) -> Result:
    """All samples, with their keys; the error of the first bad one is raised."""
    scratch = Scratch()
    rows = source.read(np.arange(len(source)), tuple(source.fields), {}, scratch)
    for error in rows.errors.values():
        assert isinstance(error, (SampleError, ShardError)), error
        raise error
    found: Result = []
    for row in range(len(source)):
        values = {name: column[row] for name, column in rows.columns.items()}
        found.append(
            {name: part.tolist() if isinstance(part, (np.ndarray, np.generic)) else part for name, part in values.items()}
        )
        found[-1]["__key__"] = source.key(row)
    return found


def examine(
    cases: Iterator[Case], path: Path, read: Callable[[Path], Result], right: Callable[[str], list[Result]]
) -> Counter[str]:
    """How many cases were right and how many told; anything else ends the process."""
    seen: Counter[str] = Counter()
    with path.open("r+b", buffering=0) as file:
        for name, data in cases:
            os.pwrite(file.fileno(), data, 0)  # in place: making a file anew costs more than all that follows
            if os.fstat(file.fileno()).st_size != len(data):
                os.ftruncate(file.fileno(), len(data))
            try:
                found = read(path)
            except StokerError as error:
                assert "data" in str(error), (name, error)  # the file is named so
                seen["told"] += 1
                continue
            assert found in right(name), (name, found)
            seen["right"] += 1
    return seen


# ---- the loops -------------------------------------------------------------------------------------------------------


def tar_with_index(folder: Path) -> Counter[str]:
    path = folder / "data.tar"
    path.write_bytes(TAR)
    blob = LocalBlob(os.fsencode(path))
    keep_index(blob, build_index(blob, "tar", sealed=True))
    index = index_of(blob, "tar")

    def read(path: Path) -> Result:
        return samples_of(TarSource([LocalBlob(os.fsencode(path))], [index]))

    def opened(path: Path) -> Result:
        blob = LocalBlob(os.fsencode(path))
        return samples_of(TarSource([blob], [index_of(blob, "tar")]))

    good = read(path)
    assert len(good) == 2 and opened(path) == good
    seen = examine(flips(TAR), path, read, lambda _: [good])
    seen += examine(cuts(TAR), path, opened, lambda _: [])
    return seen + examine(mutations(TAR, 500), path, opened, lambda _: [good])


def tar_without_index(folder: Path) -> Counter[str]:
    """Headers are checked as they are read. What a file holds cannot be, but then it is that one byte which differs."""
    path = folder / "data.tar"
    path.write_bytes(TAR)
    index = build_index(LocalBlob(os.fsencode(path)), "tar")
    inside = {
        at
        for start, length in zip(index.start.ravel().tolist(), index.length.ravel().tolist())
        for at in range(start, start + length)
    }

    def read(path: Path) -> Result:
        blob = LocalBlob(os.fsencode(path))
        return samples_of(TarSource([blob], [build_index(blob, "tar")], decode=False))

    good = read(path)

    def right(name: str) -> list[Result]:
        kind, at = name.split()
        if kind == "flip" and int(at) in inside:
            bad = bytearray(TAR)
            bad[int(at)] ^= 1 << int(at) % 8
            starts, lengths = index.start.tolist(), index.length.tolist()
            fields = list(enumerate(index.fields))
            return [
                [
                    {name: bytes(bad[s[f] : s[f] + n[f]]) for f, name in fields} | {"__key__": sample["__key__"]}
                    for s, n, sample in zip(starts, lengths, good)
                ]
            ]
        return [good]

    seen = examine(flips(TAR), path, read, right)
    for block in range(0, len(TAR) - len(END), 1024):
        header = list(flips(TAR[block : block + 512], 0xFF))
        seen += examine(((name, TAR[:block] + data + TAR[block + 512 :]) for name, data in header), path, read, lambda _: [good])
    return seen + examine(cuts(TAR), path, read, lambda _: [])


def tfrecord_with_index(folder: Path) -> Counter[str]:
    path = folder / "data.tfrecord"
    path.write_bytes(TFRECORD)
    blob = LocalBlob(os.fsencode(path))
    keep_index(blob, build_index(blob, "tfrecord", sealed=True))

    def read(path: Path) -> Result:
        blob = LocalBlob(os.fsencode(path))
        return samples_of(TfrecordSource([blob], [index_of(blob, "tfrecord")], "raw"))

    good = read(path)
    assert [sample["record"] for sample in good] == RECORDS
    # The length of a record stands in the index, so its own bytes are not looked at any more.
    seen = examine(flips(TFRECORD, 0x01, 0x80, 0xFF), path, read, lambda _: [good])
    seen += examine(cuts(TFRECORD), path, read, lambda _: [])
    return seen + examine(mutations(TFRECORD, 500), path, read, lambda _: [good])


def tfrecord_without_index(folder: Path) -> Counter[str]:
    path = folder / "data.tfrecord"
    ends = {len(tfrecord(RECORDS[:count])): count for count in range(len(RECORDS) + 1)}

    def read(path: Path) -> Result:
        blob = LocalBlob(os.fsencode(path))
        return samples_of(TfrecordSource([blob], [build_index(blob, "tfrecord")], "raw"))

    path.write_bytes(TFRECORD)
    good = read(path)

    def right(name: str) -> list[Result]:
        # A file cut between two records is a whole file: only an index, or who wrote it, knows better.
        return [good[: ends[int(name.split()[1])]]] if int(name.split()[1]) in ends else []

    return examine(flips(TFRECORD, *(1 << bit for bit in range(8)), 0xFF), path, read, lambda _: []) + examine(
        cuts(TFRECORD), path, read, right
    )


def lmdb_of_ours(folder: Path) -> Counter[str]:
    path = folder / "data.lmdb"
    stoker.write_lmdb(path, SAMPLES)
    data = path.read_bytes()

    good = samples_of(LmdbSource(path))
    assert [sample["label"] for sample in good] == [0, 1, 2]
    table = entries_of(path)

    def read(path: Path) -> Result:
        # Most of a small database is unused. Where its entries are what they were, there is nothing more to read.
        try:
            same = entries_of(path) == table
        except CorruptShard:
            same = False
        return good if same else samples_of(LmdbSource(path))

    seen = examine(flips(data), path, read, lambda _: [good])
    seen += examine(cuts(data), path, read, lambda _: [good])
    return seen + examine(mutations(data, 1000), path, read, lambda _: [good])


def entries_of(path: Path) -> list[Any]:
    """Keys, places and bytes of all entries."""
    with path.open("rb", buffering=0) as file:
        table = walk_lmdb(file.fileno(), os.fstat(file.fileno()).st_size)
        values = [os.pread(file.fileno(), length, start) for start, length in zip(table.starts.tolist(), table.lengths.tolist())]
    return [table.key_data.tobytes(), *(part.tolist() for part in table[1:]), values]


def index_beside(folder: Path) -> Counter[str]:
    path = folder / "data.tar"
    path.write_bytes(TAR)
    blob = LocalBlob(os.fsencode(path))
    index = build_index(blob, "tar", sealed=True)
    keep_index(blob, index)
    data = index.to_bytes()

    def read(path: Path) -> Result:
        return samples_of(TarSource([blob], [index_of(blob, "tar")]))

    beside = Path(f"{path}.stk")
    good = read(path)
    seen = examine(flips(data, 0x01, 0x80), beside, read, lambda _: [])
    seen += examine(cuts(data), beside, read, lambda _: [])
    return seen + examine(mutations(data, 300), beside, read, lambda _: [good])


def index_that_lies(folder: Path) -> Counter[str]:
    """An index whose checksums are right, made to mislead: every number in it changed in turn."""
    path = folder / "data.tar"
    path.write_bytes(TAR)
    blob = LocalBlob(os.fsencode(path))
    index = build_index(blob, "tar", sealed=True)
    good = samples_of(TarSource([blob], [index]))
    seen: Counter[str] = Counter()
    for name in ("start", "length", "crc"):
        for at in range(index.start.size):
            for change in (1, -1, 511, -512, 2**31, 2**62, -(2**63), 10**9):
                columns = {part: getattr(index, part).copy() for part in ("start", "length", "crc")}
                place = columns[name].reshape(-1)
                changed = int(place[at]) + change
                place[at] = changed % 2**32 if name == "crc" else max(-(2**63), min(2**63 - 1, changed))
                lying = replace(index, **columns)
                try:
                    found = samples_of(TarSource([blob], [ShardIndex.from_bytes(lying.to_bytes(), "data.tar.stk")]))
                except (CorruptIndex, SampleError, ShardError):
                    seen["told"] += 1
                    continue
                assert found == good, (name, at, change)
                seen["right"] += 1
    return seen


LOOPS: dict[str, Callable[[Path], Counter[str]]] = {
    "tar with index": tar_with_index,
    "tar without index": tar_without_index,
    "tfrecord with index": tfrecord_with_index,
    "tfrecord without index": tfrecord_without_index,
    "lmdb of ours": lmdb_of_ours,
    "index": index_beside,
    "index that lies": index_that_lies,
}


@pytest.mark.parametrize("name", LOOPS)
def test_damage_is_told_or_does_no_harm(name: str, tmp_path: Path) -> None:
    done = run_python(
        "import faulthandler; faulthandler.enable(); from tests.system.test_records_damage import main; main()",
        name,
        str(tmp_path),
        timeout_s=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert seen["told"] > 50, seen
    if name in ("tfrecord without index", "index"):
        assert seen.get("right", 0) == (2 if name == "tfrecord without index" else 0), "nothing is damaged unnoticed"


def main() -> None:
    indexing.PIECE = 1 << 14  # the shards are small, and a buffer is cleared for each
    print(json.dumps(LOOPS[sys.argv[1]](Path(sys.argv[2]))))


if __name__ == "__main__":
    main()
