"""What does augmentation cost?

``training``: JPEG files in the page cache -> RandomResizedCrop(224), flip, ColorJitter(0.4, 0.4, 0.4, 0.1), RandAugment(2, 9),
normalised to float32, channels first, in batches of 128, on all cores, in turn with torchvision's transforms in a torch
DataLoader, on Pillow images and on tensors. ``operations``: microseconds that each operation takes for an image of 224 x 224, on
one core, compared with torchvision's on a Pillow image; the time of doing nothing with an image is subtracted on both sides.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import data
import stoker
from measure import SEED, BenchmarkParser, Entry, Take, available, compare, median, note, pull, ratio, report, usable_cores
from ours import AHEAD_BYTES, SIDE
from peers.torchvision_images import JITTER, MEAN, STD, single, torchvision_pillow, torchvision_tensors
from stoker import image
from stoker.image.lower import lower
from stoker.kernel import native
from stoker.kernel.render import ImageInput, render

RECIPE = (
    image.RandomResizedCrop(SIDE),
    image.HorizontalFlip(),
    image.ColorJitter(*JITTER),
    image.RandAugment(2, 9),
    image.Normalize(MEAN, STD),
)
PEERS = {"torch-pillow": torchvision_pillow, "torch-tensors": torchvision_tensors}
#: how many times as fast as the DataLoader with Pillow
ASKED = 3.0
OPERATIONS: dict[str, tuple[image.Operation, ...]] = {
    "nothing": (),
    "RandomResizedCrop": (image.RandomResizedCrop(SIDE),),
    "RandomCrop, padded": (image.RandomCrop(SIDE, pad=8),),
    "HorizontalFlip": (image.HorizontalFlip(1),),
    "VerticalFlip": (image.VerticalFlip(1),),
    "Rotate": (image.Rotate(10),),
    "Affine": (image.Affine(10, (0.1, 0.1), (0.9, 1.1), 5),),
    "ColorJitter, brightness": (image.ColorJitter(brightness=0.4),),
    "ColorJitter, contrast": (image.ColorJitter(contrast=0.4),),
    "ColorJitter, saturation": (image.ColorJitter(saturation=0.4),),
    "ColorJitter, hue": (image.ColorJitter(hue=0.1),),
    "ColorJitter": (image.ColorJitter(*JITTER),),
    "Grayscale": (image.Grayscale(1),),
    "GaussianBlur": (image.GaussianBlur(9, (0.1, 2)),),
    "Solarize": (image.Solarize(128, 1),),
    "Posterize": (image.Posterize(4, 1),),
    "Equalize": (image.Equalize(1),),
    "AutoContrast": (image.AutoContrast(1),),
    "Sharpness": (image.Sharpness(1.5, 1),),
    "Invert": (image.Invert(1),),
    "Cutout": (image.Cutout(64),),
    "RandomErasing": (image.RandomErasing(1),),
    "RandAugment": (image.RandAugment(2, 9),),
    "TrivialAugment": (image.TrivialAugment(),),
    "AutoAugment": (image.AutoAugment(),),
    "Normalize, channels first": (image.Normalize(MEAN, STD),),
}


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=usable_cores(), help="threads, or a peer's workers (all usable cores)")
    parser.amount("--batch", 128, 16, "images in a batch")
    parser.peers(PEERS)
    return parser.parse_args()


# ---- training --------------------------------------------------------------------------------------------------------


@contextmanager
def stoker_augmented(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """The loader."""
    pipeline = stoker.files(folder, labels=None).shuffle(seed=SEED).repeat().image("image", *RECIPE, layout="chw")
    with pipeline.batch(batch).loader(threads=threads) as loader:
        yield pull(iter(loader), batch)


def training(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    arguments = (folder, options.batch, options.threads)
    batches = 2 if options.quick else 4 * options.threads
    ahead = 3 + max(options.threads // 6, AHEAD_BYTES // (options.batch * SIDE * SIDE * 3 * 4))
    entries = [Entry("stoker", stoker_augmented, arguments, batches, ahead)]
    for name in options.peers:
        entries.append(Entry(name, PEERS[name], arguments, batches, 2 * options.threads + 2, ("torch", "torchvision", "PIL")))
    result = compare(entries, options.rounds)
    reached = {}
    if "torch-pillow" in result.rates:
        got = ratio(result.rates["stoker"], result.rates["torch-pillow"])
        reached["stoker over torch-pillow"] = (got, ASKED, got >= ASKED)
    return {
        "images_per_s": result.medians(),
        "stoker_over": result.ratios("stoker"),
        "targets": reached,
        "runs": result.rates,
        "peak_pss_mb": result.peaks_mb(),
        "missing": result.missing,
    }


# ---- operations ------------------------------------------------------------------------------------------------------


def operations(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Microseconds an image, ours and torchvision's; both in turn, a round of all images each."""
    pixels = _crops(folder, 8 if options.quick else 64)
    peers = bool(options.peers) and available("torchvision, one by one", ("torch", "torchvision", "PIL"))
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in OPERATIONS}
    with native.Decoder() as decoder:
        for epoch in range(options.rounds):
            for name, ops in OPERATIONS.items():
                times[name][0].append(_timed(_ours(ops, decoder, pixels, epoch), len(pixels)))
                if peers and (theirs := _theirs(name, pixels)) is not None:
                    times[name][1].append(_timed(theirs, len(pixels)))
    nothing = times.pop("nothing")
    told = {}
    for name, taken in times.items():
        ours, theirs = (_beyond(each, none) if each else None for each, none in zip(taken, nothing))
        told[name] = {"stoker_us": ours, "torchvision_us": theirs}
        note(f"{name:28} {ours:8.1f} us" + ("" if theirs is None else f" {theirs:8.1f} us"))
    return told


def _beyond(times: list[float], nothing: list[float]) -> float:
    return 1e6 * median(a - b for a, b in zip(times, nothing, strict=True))


def _timed(run: Callable[[], Any], images: int) -> float:
    run()  # the first time memory is taken
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / images


def _ours(ops: tuple[image.Operation, ...], decoder: native.Decoder, pixels: NDArray[np.uint8], epoch: int) -> Callable[[], Any]:
    floats = any(isinstance(op, image.Normalize) for op in ops)
    layout, out_type = ("chw", "float32") if floats else ("hwc", "uint8")
    program = lower(ops, seed=SEED, layout=layout, out=out_type)
    out = np.empty((len(pixels), *program.shape(SIDE, SIDE)), program.dtype)
    positions, images = np.arange(len(pixels), dtype=np.int64), ImageInput(native.Images(pixels))
    return lambda: render(decoder, program, images.tell(), epoch, positions, out)


def _theirs(name: str, pixels: NDArray[np.uint8]) -> Callable[[], Any] | None:
    run = single(name)
    return None if run is None else lambda: [run(each) for each in pixels]


def _crops(folder: Path, count: int) -> NDArray[np.uint8]:
    pipeline = stoker.files(folder, labels=None).image("image", image.Resize((SIDE, SIDE))).batch(1)
    with pipeline.repeat().loader(executor="inline") as loader:
        return np.concatenate([batch["image"] for batch, _ in zip(loader, range(count))])


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    paths = data.paths_of(folder)
    trained = training(options, folder)
    report(
        "imagenet_augment",
        options,
        images=len(paths),
        threads=options.threads,
        training=trained,
        operations=operations(options, folder),
    )


if __name__ == "__main__":
    main()
