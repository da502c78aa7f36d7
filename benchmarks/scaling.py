"""How does the rate grow with the threads?

Stoker's loader and its kernel alone (plain threads, no engine) at 1, 2, 4, ... threads. Efficiency is the rate at n
threads over n times the rate at one. The kernel's own efficiency is the machine's share in it: clock speed, memory
bandwidth, cores that are two threads of one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import data
from measure import Comparison, Entry, compare, make_parser, note, ratio, report, usable_cores
from ours import kernel_alone, lead, stoker_images

MAKES = {"stoker": stoker_images, "kernel": kernel_alone}


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--threads", default="1,2,4,8,16", help="numbers of threads; those beyond the usable cores are left out")
    parser.add_argument("--batch", type=int, help="images in a batch (256)")
    parser.add_argument("--batches", type=int, help="batches in a round, for each thread (4)")
    options = parser.parse_args()
    options.batch = options.batch or (32 if options.quick else 256)
    options.batches = options.batches or (1 if options.quick else 4)
    options.rounds = min(options.rounds, 2) if options.quick else options.rounds
    return options


def entries(options: argparse.Namespace, folder: Path, counts: list[int]) -> list[Entry]:
    """Rounds of about the same length: a share of batches for each thread."""
    ready = {"stoker": lead(options.batch), "kernel": 0}
    return [
        Entry(f"{name} {count}", make, (folder, options.batch, count), count * options.batches, ready[name])
        for count in counts
        for name, make in MAKES.items()
    ]


def figures(result: Comparison, counts: list[int]) -> dict[str, Any]:
    """By contestant and number of threads: images/s, and efficiency."""
    medians = result.medians()
    least = counts[0]
    found: dict[str, Any] = {}
    for name in MAKES:
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
    data.warm(paths)
    cores = usable_cores()
    counts = sorted(count for count in map(int, options.threads.split(",")) if count <= cores) or [cores]
    note(f"{len(paths)} files, threads {counts} of {cores} cores")
    result = compare(entries(options, folder, counts), options.rounds)
    report("scaling", options, images=len(paths), **figures(result, counts))


if __name__ == "__main__":
    main()
