"""Does anything grow, and does a batch that was handed out ever change?

Many iterations over tiny samples: resident memory, threads and descriptors are looked at a hundred times. Then many batches are
kept while the loader goes on, and their checksums are taken again at the end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import data
import stoker
from measure import SEED, BenchmarkParser, endless, note, report
from order import resident
from stoker.image import HorizontalFlip, RandomResizedCrop

LOOKS = 100
#: what is judged: the last looks of a phase, when everything has found its size
STEADY = 0.6


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=1)
    parser.amount("--iterations", 200_000, 2_000, "batches of records")
    parser.amount("--image-iterations", 2_000, 100, "batches of images")
    parser.amount("--keep", 1_000, 100, "batches that are kept and checked")
    return parser.parse_args()


def tiny_records() -> stoker.Pipeline:
    """Batches of 16 records of 64 bytes; 1,000 of them an epoch."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (16_000, 64), np.uint8)
    return stoker.arrays(x=x, y=np.arange(len(x))).shuffle(seed=SEED).batch(16)


def tiny_images(folder: Path) -> stoker.Pipeline:
    """Batches of 8 images of 32 x 32 pixels; 20 of them an epoch."""
    data.generate(folder, 160, ((32, 32),))
    files = stoker.files(folder, labels=None)
    return files.shuffle(seed=SEED).image("image", RandomResizedCrop(24), HorizontalFlip()).batch(8)


def look() -> tuple[int, int, int]:
    """Resident bytes, threads, descriptors."""
    return resident(), _count("/proc/self/task"), _count("/proc/self/fd")


def _count(folder: str) -> int:
    return len(os.listdir(folder))  # noqa: PTH208 - the names alone


def watch(pipeline: stoker.Pipeline, iterations: int) -> dict[str, Any]:
    """Iterate, and look every hundredth of the way."""
    every = max(1, iterations // LOOKS)
    looks = []
    start = time.perf_counter()
    with pipeline.loader() as loader:
        batches = endless(loader)
        for number in range(1, iterations + 1):
            next(batches)
            if number % every == 0:
                looks.append(look())
    return judge(np.array(looks), every, time.perf_counter() - start)


def judge(looks: Any, every: int, seconds: float) -> dict[str, Any]:
    """How memory went over the steady part, and the range of the counts."""
    memory, threads, descriptors = looks[-max(2, int(len(looks) * STEADY)) :].T
    slope = np.polyfit(np.arange(len(memory)) * every, memory, 1)[0]
    return {
        "iterations": every * len(looks),
        "seconds": seconds,
        "resident_mb": float(memory[-1]) / 1e6,
        "growth_bytes_per_100k": round(float(slope) * 100_000),
        "resident_range_bytes": int(np.ptp(memory)),
        "threads": [int(threads.min()), int(threads.max())],
        "descriptors": [int(descriptors.min()), int(descriptors.max())],
    }


def keep(pipeline: stoker.Pipeline, count: int) -> dict[str, int]:
    """Keep batches while the loader makes as many more; how many of them changed?"""
    with pipeline.loader() as loader:
        batches = endless(loader)
        kept = [(batch, checksum(batch)) for batch in _some(batches, count)]
        for _ in _some(batches, count):
            pass
        return {"kept": count, "changed": sum(checksum(batch) != before for batch, before in kept)}


def _some(batches: Iterator[Any], count: int) -> Iterator[Any]:
    return (next(batches) for _ in range(count))


def checksum(batch: Any) -> int:
    """One number for all columns."""
    total = 0
    for column in batch.values():
        total = zlib.crc32(column.tobytes(), total)
    return total


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        images = tiny_images(Path(folder) / "images")
        phases = {}
        for name, pipeline, count in (
            ("records", tiny_records(), options.iterations),
            ("images", images, options.image_iterations),
        ):
            phases[name] = watch(pipeline, count)
            note(f"{name}: {phases[name]}")
        kept = {"records": keep(tiny_records(), options.keep), "images": keep(images, options.keep)}
    report("soak", options, **phases, batches_kept=kept)


if __name__ == "__main__":
    main()
