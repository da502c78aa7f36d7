"""How much do the pixels differ from Pillow's?

Pillow decodes the whole image, cuts out the same box, resizes it (bilinear, antialiased) and flips it; the difference is the mean
over an image's pixels and channels, in levels of 255. `fast` may shrink while it decodes; `exact` (``fast=False``) may not.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import data
from measure import SEED, BenchmarkParser, note, report
from ours import OPS, SIDE
from stoker.image.lower import lower
from stoker.kernel import native
from stoker.kernel.render import SpanInput, render


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=1)
    parser.epilog = "A round is another crop of each image."
    data.add_arguments(parser)
    return parser.parse_args()


def ours(program: native.Program, decoder: native.Decoder, encoded: bytes, epoch: int, position: int) -> tuple[Any, Any]:
    """Stoker's pixels of one image, and what it did to it."""
    out = np.empty((1, SIDE, SIDE, 3), np.uint8)
    spans = native.Spans(np.frombuffer(encoded, np.uint8), np.zeros(1, np.int64), np.array([len(encoded)]))
    return out[0], render(decoder, program, SpanInput().tell(spans), epoch, np.array([position]), out)[0]


def pillows(path: str, row: Any) -> NDArray[np.uint8]:
    """Pillow's pixels for the same box and flip."""
    from PIL import Image

    with Image.open(path) as opened:
        image = opened.convert("RGB").crop(tuple(round(edge) for edge in row["view"].tolist()))
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if row["flip"] else image)


def difference(ours: NDArray[np.uint8], theirs: NDArray[np.uint8]) -> float:
    """The mean absolute difference of two images."""
    return float(np.abs(ours.astype(np.int16) - theirs).mean())


def summary(differences: list[float], shrinks: list[int]) -> dict[str, float]:
    """Over all images: their differences, and how many were shrunk while they were decoded."""
    found = np.array(differences)
    worst, median = float(found.max()), float(np.median(found))
    shrunk = sum(shrink > 1 for shrink in shrinks) / len(shrinks)
    return {"mean": float(found.mean()), "median": median, "worst_image": worst, "shrunk_share": shrunk}


def main() -> None:
    options = parse()
    paths = data.paths_of(data.images_of(options))
    programs = {"fast": lower(OPS, seed=SEED), "exact": lower(OPS, seed=SEED, fast=False)}
    differences: dict[str, list[float]] = {name: [] for name in programs}
    shrinks: dict[str, list[int]] = {name: [] for name in programs}
    refused = 0
    with native.Decoder() as decoder:
        for epoch in range(options.rounds):
            for position, path in enumerate(paths):
                encoded = Path(path).read_bytes()
                for name, program in programs.items():
                    pixels, row = ours(program, decoder, encoded, epoch, position)
                    if row["status"]:
                        refused += 1
                        continue
                    differences[name].append(difference(pixels, pillows(path, row)))
                    shrinks[name].append(int(row["shrink"]))
            note(f"round {epoch + 1}/{options.rounds}")
    figures = {name: summary(differences[name], shrinks[name]) for name in programs}
    report("pixels", options, images=len(paths), not_for_the_kernel=refused, difference_of_255=figures)


if __name__ == "__main__":
    main()
