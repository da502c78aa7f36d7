"""The pictures: the user's folder, or one made here that is about as hard to decode as photographs of ImageNet."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measure import note

#: how many, and how many with --quick
COUNT, QUICK_COUNT = 400, 48
#: (width, height) in turn; about 500 x 400 on average, as ImageNet's are
SIZES = ((500, 375), (500, 400), (375, 500), (500, 333), (500, 500), (640, 427))
QUALITY = 94
#: the strength of the noise, in grey levels; it sets the size of the files: 110 KB on average
NOISE = 13.0
EXTENSIONS = {".jpeg", ".jpg"}
MADE = Path(__file__).resolve().parent.parent / ".data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option that says which pictures to use."""
    parser.add_argument("--images", type=Path, metavar="DIR", help="a folder of JPEG files (default: one is generated)")


def images_of(options: argparse.Namespace) -> Path:
    """The folder to read, now in the page cache: the one given, or one generated on first use and kept in ``.data``."""
    count = QUICK_COUNT if options.quick else COUNT
    folder = MADE / f"benchmark-{count}" if options.images is None else Path(options.images).resolve()
    if options.images is None and not folder.exists():
        note(f"generating {count} pictures in {folder}")
        generate(folder, count)
    warm(paths_of(folder))
    return folder


def paths_of(folder: Path) -> list[str]:
    """The JPEG files below a folder, in the order in which `stoker.files` numbers them."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS)
    return sorted(map(str, found), key=os.fsencode)


def warm(paths: list[str]) -> int:
    """Read every file once, so that the page cache holds them; returns their bytes."""
    return sum(len(Path(path).read_bytes()) for path in paths)


def records(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Records of 1 KB and their labels, in memory."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 1024), np.uint8), rng.integers(0, 1000, count)


def small_images(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images of 32 x 32 pixels and their labels, in memory."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 32, 32, 3), np.uint8), rng.integers(0, 10, count)


def generate(folder: Path, count: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> None:
    """Write `count` JPEG files. They appear all at once, so that a run that was broken off leaves no half folder."""
    from PIL import Image

    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for number in range(count):
            width, height = sizes[number % len(sizes)]
            Image.fromarray(picture(width, height, number)).save(unfinished / f"{number:05}.jpg", quality=QUALITY)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished)
        raise


def picture(width: int, height: int, seed: int) -> NDArray[np.uint8]:
    """Gradients, discs with sharp edges, and noise: more of it in some pictures and places, as in photographs."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, width, dtype=np.float32)
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    strength = NOISE * rng.uniform(0.3, 1.7) * (0.4 + 1.2 * x)
    light = strength * rng.standard_normal((height, width), np.float32)
    for cx, cy, radius, step in rng.uniform((0, 0, 0.02, -60), (1, 1, 0.2, 60), (8, 4)):
        light[(x - cx) ** 2 + (y - cy) ** 2 < radius**2] += step
    slopes = rng.uniform(-180, 180, (3, 2))
    channels = [light + (128 + a * (x - 0.5) + b * (y - 0.5)) for a, b in slopes]
    return np.clip(np.stack(channels, axis=-1), 0, 255).astype(np.uint8)
