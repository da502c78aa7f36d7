"""How many small images per second reach the training loop, augmented?

50,000 images of 32 x 32 pixels, as in CIFAR-10: reflect-pad by 4, random crop of 32, flip, a square of 8 x 8 erased (Cutout),
normalised to float32, in shuffled batches of 512; from arrays in memory, and from TFRecord files in the page cache. All cores.
``recipe``: compared with FFCV, with augmentation vectorised by hand in NumPy in a torch DataLoader, and with tf.data, vectorised,
with AUTOTUNE. ``rotated``: with a rotation by up to 10 degrees after the flip, which FFCV does not have.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cifar_tfrecord
import stoker
from data import small_images
from measure import SEED, BenchmarkParser, Comparison, Entry, Take, compare, note, pull, ratio, report, usable_cores
from ours import AHEAD_BYTES
from peers.small_images import DEGREES, FILL, HOLE, MEAN, PAD, SIDE, STD, ffcv_small, tf_small, torch_numpy
from stoker import image

#: each with whether images are rotated
TABLES = {"recipe": False, "rotated": True}
#: the operations it takes
NEEDS = {"recipe": ("RandomCrop", "Cutout"), "rotated": ("RandomCrop", "Cutout", "Rotate")}
PEERS = ("ffcv", "torch", "tf-data")
#: how much faster than the best of each peer Stoker is to be
TARGETS = {"recipe": {"ffcv": 2.0, "torch": 4.0, "tf-data": 5.0}, "rotated": {"tf-data": 4.0}}


@contextmanager
def stoker_small(count: int, batch: int, folder: Path | None, rotated: bool) -> Iterator[Take]:
    """The loader as it comes: arrays, or, given a folder, the TFRecord files there."""
    if folder is None:
        images, labels = small_images(count)
        pipeline = stoker.arrays(image=images, label=labels)
    else:
        pixels = stoker.Feature(bytes, (SIDE, SIDE, 3), dtype="uint8")
        pipeline = stoker.tfrecord(str(folder / "*.tfrecord"), features={"image": pixels, "label": int})
    pipeline = pipeline.shuffle(seed=SEED).repeat().image("image", *operations(rotated), out="float32")
    with pipeline.batch(batch).loader() as loader:
        yield pull(iter(loader), batch)


def operations(rotated: bool) -> list[Any]:
    """The recipe."""
    mean, std = (tuple(level / 255 for level in levels) for levels in (MEAN, STD))
    turn = [image.Rotate(DEGREES)] if rotated else []
    crop = image.RandomCrop(SIDE, pad=PAD, pad_mode="reflect")
    return [crop, image.HorizontalFlip(), *turn, image.Cutout(HOLE, fill=FILL), image.Normalize(mean, std)]


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    parser.amount("--records", 50_000, 2_000, "images")
    parser.amount("--batch", 512, 64, "images in a batch")
    parser.amount("--seconds", 1.0, 0.02, "of a round of one contestant")
    parser.add_argument("--tables", default=",".join(TABLES), help="which comparisons (default: all)")
    parser.peers(PEERS)
    return parser.parse_args()


def entries(table: str, folder: Path, options: argparse.Namespace) -> list[Entry]:
    rotated, cores = TABLES[table], usable_cores()
    count, batch, seconds = options.records, options.batch, options.seconds
    lead = 20 if options.quick else 4 + AHEAD_BYTES // (batch * SIDE * SIDE * 3 * 4)

    def entry(name: str, make: Any, arguments: tuple[Any, ...], held: int, *needs: str) -> Entry:
        return Entry(name, make, (count, batch, *arguments), 8, held, needs, seconds)

    peers = {
        "ffcv": [] if rotated else [entry("ffcv", ffcv_small, (cores,), 5, "ffcv")],
        "torch": [
            entry(f"torch-{workers}-workers", torch_numpy, (workers, rotated), 1 + 2 * workers, "torch") for workers in (0, cores)
        ],
        "tf-data": [
            entry("tf-data-arrays", tf_small, (None, rotated), 12, "tensorflow"),
            entry("tf-data-tfrecord", tf_small, (folder, rotated), 12, "tensorflow"),
        ],
    }
    ours = [
        entry("stoker-arrays", stoker_small, (None, rotated), lead),
        entry("stoker-tfrecord", stoker_small, (folder, rotated), lead),
    ]
    return [*ours, *(e for name in options.peers for e in peers[name])]


def figures(table: str, result: Comparison) -> dict[str, Any]:
    """Rates, and how much faster Stoker is than the best of each peer: from arrays, and file for file."""
    over: dict[str, dict[str, float]] = {}
    for ours in ("stoker-arrays", "stoker-tfrecord"):
        best = {peer: result.best(name for name in result.rates if name.startswith(peer)) for peer in PEERS}
        over[ours] = {peer: ratio(result.rates[ours], result.rates[name]) for peer, name in best.items() if name is not None}
    reached = {
        peer: over["stoker-arrays"][peer] >= wanted for peer, wanted in TARGETS[table].items() if peer in over["stoker-arrays"]
    }
    return {
        "images_per_s": result.medians(),
        "stoker_over_best": over,
        "targets": TARGETS[table],
        "reached": reached,
        "runs": result.rates,
        "peak_pss_mb": result.peaks_mb(),
        "missing": result.missing,
    }


def main() -> None:
    options = parse()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cifar_tfrecord.write(folder, options.records)
        for table in options.tables.split(","):
            note(f"-- {table}")
            if missing := [name for name in NEEDS[table] if not hasattr(image, name)]:
                note(f"left out: this Stoker has no {' and no '.join(missing)}")
                found[table] = None
                continue
            found[table] = figures(table, compare(entries(table, folder, options), options.rounds))
    report("cifar_train", options, records=options.records, batch=options.batch, threads=usable_cores(), **found)


if __name__ == "__main__":
    main()
