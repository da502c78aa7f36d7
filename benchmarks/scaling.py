"""How does the rate grow with the threads?

Stoker's loader and its kernel alone (plain threads, no engine) at 1, 2, 4, ... threads. Efficiency is the rate at n
threads over n times the rate at one. The kernel's own efficiency is the machine's share in it: clock speed, memory
bandwidth, cores that are two threads of one. With ``--from tar`` the loader also reads the same pictures from tar shards with a
seek index of every JPEG.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import data
from measure import BenchmarkParser, Comparison, Entry, Take, compare, note, ratio, report, usable_cores
from ours import kernel_alone, lead, pack_indexed, stoker_images, stoker_tar

#: how a contestant is made, and what it reads
Source = tuple[Callable[..., AbstractContextManager[Take]], Any]


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--threads", default="1,2,4,8,16", help="numbers of threads; those beyond the usable cores are left out")
    parser.amount("--batch", 256, 32, "images in a batch")
    parser.amount("--batches", 4, 1, "batches in a round, for each thread")
    parser.add_argument("--from", dest="source", choices=("files", "tar"), default="files", help="tar: from shards too (files)")
    return parser.parse_args()


def sources(folder: Path, shards: str | None = None) -> dict[str, Source]:
    """Who takes part."""
    found: dict[str, Source] = {"stoker": (stoker_images, folder), "kernel": (kernel_alone, folder)}
    return {**found, "stoker-tar-indexed": (stoker_tar, shards)} if shards else found


def entries(sources: dict[str, Source], counts: list[int], batch: int, batches: int) -> list[Entry]:
    """Rounds of about the same length: a share of batches for each thread."""
    return [
        Entry(f"{name} {count}", make, (source, batch, count), count * batches, 0 if name == "kernel" else lead(batch, count))
        for count in counts
        for name, (make, source) in sources.items()
    ]


def usable(wanted: str) -> list[int]:
    """Of these numbers of threads, those for which there are cores; in order."""
    cores = usable_cores()
    return sorted(count for count in map(int, wanted.split(",")) if count <= cores) or [cores]


def figures(result: Comparison, names: list[str], counts: list[int]) -> dict[str, Any]:
    """By contestant and number of threads: images/s, and efficiency."""
    medians = result.medians()
    least = counts[0]
    found: dict[str, Any] = {}
    for name in names:
        base = result.rates[f"{name} {least}"]
        found[name] = {
            count: {
                "images_per_s": medians[f"{name} {count}"],
                "efficiency": ratio(result.rates[f"{name} {count}"], base) * least / count,
            }
            for count in counts
        }
    found["stoker_over_kernel"] = {
        count: ratio(result.rates[f"stoker {count}"], result.rates[f"kernel {count}"]) for count in counts
    }
    return found


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    counts = usable(options.threads)
    note(f"{len(paths)} files, threads {counts} of {usable_cores()} cores")
    with tempfile.TemporaryDirectory() as packed:
        taking_part = sources(folder, pack_indexed(folder, Path(packed)) if options.source == "tar" else None)
        result = compare(entries(taking_part, counts, options.batch, options.batches), options.rounds)
    report("scaling", options, images=len(paths), **figures(result, list(taking_part), counts))


if __name__ == "__main__":
    main()
