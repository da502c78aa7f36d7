"""The fault lab's data set, and what an epoch of it holds. Written and read with Python's tarfile: nothing here is Stoker's."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from pathlib import Path

from .naive_oracle import key_of, permutation

#: samples of each shard
PER_SHARD = 125


def payload_of(number: int) -> bytes:
    """The bytes of a sample: none, few or some thousands, and no two alike."""
    chance = random.Random(number)
    return chance.randbytes(chance.choice([0, 1, 17, 300, 4096, 9000]))


def write_shards(folder: Path, samples: int) -> None:
    """Shards of samples with a number (`cls`) and bytes (`bin`)."""
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, samples, PER_SHARD):
        with tarfile.open(folder / f"{first // PER_SHARD:04d}.tar", "w") as shard:
            for number in range(first, min(first + PER_SHARD, samples)):
                for extension, data in (("cls", str(number).encode()), ("bin", payload_of(number))):
                    member = tarfile.TarInfo(f"s{number:06d}.{extension}")
                    member.size = len(data)
                    shard.addfile(member, io.BytesIO(data))


def digest(data: bytes) -> str:
    """A short hash of a sample's bytes."""
    return hashlib.sha256(data).hexdigest()[:12]


def stored(folder: Path) -> list[tuple[int, str]]:
    """(number, hash of its bytes) of every sample, in the order they are stored in."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                key, _, extension = member.name.partition(".")
                file = shard.extractfile(member)
                assert file is not None
                found.setdefault(key, {})[extension] = file.read()
    return [(int(fields["cls"]), digest(fields["bin"])) for fields in found.values()]


def epoch_of(folder: Path, seed: int, epoch: int) -> list[tuple[int, str]]:
    """The same in the order of a shuffled epoch."""
    samples = stored(folder)
    return [samples[place] for place in permutation(len(samples), key_of(seed, epoch))]
