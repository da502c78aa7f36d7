"""How many images per second reach the training loop?

JPEG files in the page cache -> RandomResizedCrop(224) -> horizontal flip -> uint8 batches of 256, on all cores, in turn with
other loaders, and with Stoker's kernel alone, called from plain threads: the difference is the cost of the engine. With
``--from tar`` Stoker also reads the same pictures from tar shards, packed for this run: without and with a seek index of every
JPEG.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import data
from measure import BenchmarkParser, Comparison, Entry, Take, compare, note, ratio, report, usable_cores
from ours import kernel_alone, lead, pack, pack_indexed, stoker_images, stoker_tar
from peers.dali import dali_images
from peers.ffcv_images import ffcv_images
from peers.grain_images import grain_images
from peers.litdata_images import litdata_images
from peers.ray_data_images import ray_data_images
from peers.spdl_images import spdl_images
from peers.streaming_images import streaming_images
from peers.tensorflow_data import tf_images
from peers.tensorpack_images import tensorpack_images
from peers.torch_images import torch_opencv, torch_pillow


class Peer(NamedTuple):
    """How a peer is made (of folder, batch, threads and what stands in `more`), and what it holds ready."""

    make: Callable[..., AbstractContextManager[Take]]
    needs: tuple[str, ...]
    more: tuple[Any, ...] = ()
    #: batches that each thread or worker may hold, where it makes batches of its own
    held: int = 0

    def lead(self, threads: int) -> int:
        """Batches that it may hold ready, and one."""
        return self.held * threads + 2 if self.held else 4


PEERS = {
    "torch-pillow": Peer(torch_pillow, ("torch", "PIL"), held=2),
    "torch-opencv": Peer(torch_opencv, ("torch", "simplejpeg", "cv2"), held=2),
    "tf-data": Peer(tf_images, ("tensorflow",)),
    "dali": Peer(dali_images, ("nvidia.dali",)),
    "spdl": Peer(spdl_images, ("spdl.io",), held=2),
    "grain": Peer(grain_images, ("grain", "simplejpeg", "cv2"), held=6),
    "mosaicml-streaming": Peer(streaming_images, ("streaming", "simplejpeg", "cv2"), held=2),
    "litdata": Peer(litdata_images, ("litdata", "simplejpeg", "cv2"), held=2),
    "ray-data": Peer(ray_data_images, ("ray.data", "simplejpeg", "cv2"), held=6),
    "tensorpack": Peer(tensorpack_images, ("tensorpack", "simplejpeg", "cv2")),
    "ffcv-jpg": Peer(ffcv_images, ("ffcv", "simplejpeg"), more=("jpg",)),
    "ffcv-raw": Peer(ffcv_images, ("ffcv", "simplejpeg"), more=("raw",)),
}
#: decodes nothing: pixels are stored as they are, in six times the space
STORED = "ffcv-raw"
#: how many times as fast as the best peer that decodes Stoker is to be
ASKED = {"stoker": 2.5, "stoker-tar-indexed": 3.2}


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=usable_cores(), help="threads, or a peer's workers (all usable cores)")
    parser.amount("--batch", 256, 32, "images in a batch")
    parser.add_argument("--batches", type=int, help="batches in a round (10, and a multiple of the threads)")
    parser.add_argument("--from", dest="source", choices=("files", "tar"), default="files", help="tar: from shards too (files)")
    parser.peers(PEERS)
    options = parser.parse_args()
    options.batches = options.batches or _multiple(2 if options.quick else 10, options.threads)
    return options


def _multiple(least: int, threads: int) -> int:
    """A DataLoader's batches come in bursts of one a worker: a round ends where a burst does."""
    return -(-least // threads) * threads


def entries(options: argparse.Namespace, folder: Path, shards: dict[str, str]) -> list[Entry]:
    arguments = (folder, options.batch, options.threads)
    ahead = lead(options.batch, options.threads)
    chosen = [Entry("stoker", stoker_images, arguments, options.batches, ahead)]
    for name, packed in shards.items():
        chosen.append(Entry(name, stoker_tar, (packed, *arguments[1:]), options.batches, ahead))
    chosen.append(Entry("kernel", kernel_alone, arguments, options.batches))
    for name in options.peers:
        peer = PEERS[name]
        ready = peer.lead(options.threads)
        chosen.append(Entry(name, peer.make, (*arguments, *peer.more), options.batches, ready, peer.needs))
    return chosen


def pack_both(folder: Path, to: Path) -> dict[str, str]:
    """Shards without and with seek indices, by the contestant that reads them."""
    shards = {"stoker-tar": pack(folder, to / "plain"), "stoker-tar-indexed": pack_indexed(folder, to / "indexed")}
    return {name: packed for name, packed in shards.items() if packed is not None}


def targets(result: Comparison) -> dict[str, Any]:
    """The best peer that decodes, and for what was asked for and could be measured: (got, asked, met)."""
    found: dict[str, tuple[float, float, bool]] = {}
    best = result.best(name for name in PEERS if name != STORED)
    for name, least in ASKED.items():
        if best is not None and name in result.rates:
            got = ratio(result.rates[name], result.rates[best])
            found[f"{name} over the best peer"] = (got, least, got >= least)
    indexed = "stoker-tar-indexed"
    if indexed in result.rates and STORED in result.rates:
        got = ratio(result.rates[indexed], result.rates[STORED])
        found[f"{indexed} over {STORED}"] = (got, 1.0, got > 1)
    return {"best_peer": best, "targets": found}


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    size = data.warm(paths)
    note(f"{len(paths)} files of {size / len(paths) / 1000:.0f} KB, {options.threads} threads")
    with tempfile.TemporaryDirectory() as packed:
        shards = pack_both(folder, Path(packed)) if options.source == "tar" else {}
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
        **{f"{name}_over": result.ratios(name) for name in shards},
        **over_files,
        **targets(result),
        missing=result.missing,
        runs=result.rates,
        peak_pss_mb=result.peaks_mb(),
    )


if __name__ == "__main__":
    main()
