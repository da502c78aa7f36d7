"""What does `cache()` bring if decoding is the limit, and what does filling it cost?

Photographs are decoded and resized, stored at that point, and then cropped and flipped at random. Each way of storing them runs
in turn with no cache: all of them in memory, in a folder, and half of them in memory. The first epoch, which fills the cache, is
compared separately: a loader that stores everything for one epoch, over one that stores nothing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data
import stoker
from measure import SEED, BenchmarkParser, Entry, Take, compare, endless, median, note, ratio, report, usable_cores
from ours import SIDE, lead
from stoker.image import CenterCrop, HorizontalFlip, RandomCrop, Resize

STORED = 256
#: bytes of a sample in the cache, and a little more
SAMPLE = STORED * STORED * 3 + 8192


def pipeline(folder: Path, where: str, samples: int, batch: int) -> stoker.Pipeline:
    """Files -> 256 x 256 pixels -> perhaps a cache -> a random crop and flip -> batches."""
    files = stoker.files(folder, labels=None).shuffle(seed=SEED).image("image", Resize(STORED), CenterCrop(STORED))
    if where:
        files = files.cache(where, bytes=samples * SAMPLE)
    return files.image("image", RandomCrop(SIDE), HorizontalFlip()).batch(batch)


@contextmanager
def fed(folder: Path, where: str, samples: int, batch: int, threads: int) -> Iterator[Take]:
    """Batches, the first epoch of which is over."""
    with pipeline(folder, where, samples, batch).loader(threads=threads) as loader:
        for _ in loader:
            pass
        batches = endless(loader)

        def take(count: int) -> int:
            return sum(len(next(batches)[0]) for _ in range(count))

        yield take


def first_epoch(folder: Path, where: str, samples: int, batch: int, threads: int) -> float:
    """Images/s of the first epoch of a loader, from its second batch on."""
    with pipeline(folder, where, samples, batch).loader(threads=threads) as loader:
        batches = iter(loader)
        next(batches)
        begun, rows = time.perf_counter(), sum(len(images) for (images,) in batches)
        return rows / (time.perf_counter() - begun)


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.amount("--batch", 32, 4, "images in a batch")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of each loader (as many as cores)")
    parser.amount("--seconds", 3.0, 0.05, "of a round")
    return parser.parse_args()


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    kept = Path(tempfile.mkdtemp(prefix="stoker-cache-"))
    try:
        found = measured(options, folder, len(paths), kept)
    finally:
        shutil.rmtree(kept)
    report("cache", options, samples=len(paths), sample_bytes=SAMPLE, **found)


def measured(options: argparse.Namespace, folder: Path, samples: int, kept: Path) -> dict[str, Any]:
    ways = {
        "none": ("", samples),
        "memory": ("memory", samples),
        "folder": (str(kept), samples),
        "half": ("memory", samples // 2),
    }
    ready = 2 if options.quick else lead(options.batch, options.threads)
    entries = [
        Entry(name, fed, (folder, *way, options.batch, options.threads), 1, ready, seconds=options.seconds)
        for name, way in ways.items()
    ]
    result = compare(entries, options.rounds)
    firsts: dict[str, list[float]] = {"none": [], "memory": []}
    for number in range(options.rounds):
        for name in list(firsts)[:: -1 if number % 2 else 1]:
            firsts[name].append(first_epoch(folder, *ways[name], options.batch, options.threads))
            note(f"first epoch {number + 1}/{options.rounds}  {name:24} {firsts[name][-1]:12,.0f}/s")
    return {
        "images_per_s": result.medians(),
        "over_none": {name: ratio(rates, result.rates["none"]) for name, rates in result.rates.items() if name != "none"},
        "first_epoch_images_per_s": {name: median(rates) for name, rates in firsts.items()},
        "first_epoch_over_none": ratio(firsts["memory"], firsts["none"]),
    }


if __name__ == "__main__":
    main()
