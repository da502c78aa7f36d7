"""How many images a second reach the training loop?

JPEG files in the page cache -> RandomResizedCrop(224) -> horizontal flip -> uint8 batches of 256, on all cores, in turn with what
others would use, and with Stoker's kernel alone, called from plain threads: the difference is what the engine costs. With
``--from tar`` Stoker also reads the same pictures from tar shards, packed for the time being, in the same run.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import data
from measure import Entry, compare, make_parser, note, ratio, report, usable_cores
from ours import kernel_alone, lead, pack, stoker_images, stoker_tar
from peers.dali import dali_images
from peers.tensorflow_data import tf_images
from peers.torch_images import torch_opencv, torch_pillow

PEERS = {
    "torch-pillow": (torch_pillow, ("torch", "PIL")),
    "torch-opencv": (torch_opencv, ("torch", "simplejpeg", "cv2")),
    "tf-data": (tf_images, ("tensorflow",)),
    "dali": (dali_images, ("nvidia.dali",)),
}


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--threads", type=int, help="threads, or a peer's workers (default: all usable cores)")
    parser.add_argument("--batch", type=int, help="images in a batch (256)")
    parser.add_argument("--batches", type=int, help="batches in a round (10, and a multiple of the threads)")
    parser.add_argument("--from", dest="source", choices=("files", "tar"), default="files", help="tar: from shards too (files)")
    parser.add_argument("--peers", default=",".join(PEERS), help="which to run, or 'none' (default: all that are installed)")
    options = parser.parse_args()
    options.threads = options.threads or usable_cores()
    options.batch = options.batch or (32 if options.quick else 256)
    options.batches = options.batches or _multiple(2 if options.quick else 10, options.threads)
    options.rounds = min(options.rounds, 2) if options.quick else options.rounds
    return options


def _multiple(least: int, threads: int) -> int:
    """A DataLoader's batches come in bursts of one a worker: a round ends where a burst does."""
    return -(-least // threads) * threads


def entries(options: argparse.Namespace, folder: Path, shards: str | None) -> list[Entry]:
    arguments = (folder, options.batch, options.threads)
    chosen = [Entry("stoker", stoker_images, arguments, options.batches, lead(options.batch))]
    if shards is not None:
        chosen.append(Entry("stoker-tar", stoker_tar, (shards, *arguments[1:]), options.batches, lead(options.batch)))
    chosen.append(Entry("kernel", kernel_alone, arguments, options.batches))
    for name in options.peers.split(",") if options.peers != "none" else []:
        make, needs = PEERS[name]
        ready = 2 * options.threads if name.startswith("torch") else 4
        chosen.append(Entry(name, make, arguments, options.batches, ready, needs))
    return chosen


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    size = data.warm(paths)
    note(f"{len(paths)} files of {size / len(paths) / 1000:.0f} KB, {options.threads} threads")
    with tempfile.TemporaryDirectory() as packed:
        shards = pack(folder, Path(packed)) if options.source == "tar" else None
        result = compare(entries(options, folder, shards), options.rounds)
    over_files = {"tar_over_files": ratio(result.rates["stoker-tar"], result.rates["stoker"])} if shards else {}
    report(
        "imagenet_train",
        options,
        images=len(paths),
        image_kb=size / len(paths) / 1000,
        threads=options.threads,
        images_a_round=options.batch * options.batches,
        images_per_s=result.medians(),
        stoker_over=result.ratios("stoker"),
        **over_files,
        runs=result.rates,
        peak_pss_mb=result.peaks_mb(),
    )


if __name__ == "__main__":
    main()
