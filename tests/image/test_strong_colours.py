"""JPEGs of strong colours against Pillow's: `docs/reference/image.md` says how far they may be apart, and this measures it.

A JPEG is resized as it is stored, luminance and chroma; Pillow makes red, green and blue of it first, and cuts what lies outside
0 to 255 before it resizes. Nothing shows the difference better than pure colours side by side.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFile

import stoker
from stoker.image import Resize

WIDTH, HEIGHT = 300, 240
#: (height, width) to resize to: twice, other shapes, half, nearly half, a fifth
SIZES = [(480, 600), (224, 224), (121, 151), (120, 150), (60, 60), (30, 40)]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "image.md"


def squares(side: int) -> NDArray[np.uint8]:
    """Squares of this many pixels, each of one of the eight pure colours."""
    colours = np.random.default_rng(side).integers(0, 2, (HEIGHT // side + 1, WIDTH // side + 1, 3), np.uint8) * 255
    return colours.repeat(side, 0).repeat(side, 1)[:HEIGHT, :WIDTH]


def hues() -> NDArray[np.uint8]:
    """Every hue at its strongest, one passing into the other."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    around = 2 * np.pi * (4 * x / WIDTH + y / HEIGHT)
    waves = np.stack([np.cos(around + turn * 2 * np.pi / 3) for turn in range(3)], axis=-1)
    return np.clip(127.5 + 255 * waves, 0, 255).astype(np.uint8)


PICTURES = {
    "gradual changes of hue": hues(),
    "squares of 16 pixels": squares(16),
    "squares of 8 pixels": squares(8),
    "squares of 4 pixels": squares(4),
    "single pixels": squares(1),
}


def jpegs(pixels: NDArray[np.uint8], **save: Any) -> list[bytes]:
    """As 4:4:4, 4:2:2 and 4:2:0, of middling and of high quality."""
    made = []
    for subsampling in (0, 1, 2):
        for quality in (75, 95):
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, "JPEG", subsampling=subsampling, quality=quality, **save)
            made.append(out.getvalue())
    return made


def pillows(data: bytes, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR) if size else image)


def apart(stored: list[bytes], size: tuple[int, int] | None, fast: bool) -> list[NDArray[np.int16]]:
    """The differences of each image, in levels."""
    pipeline = stoker.stream(lambda: [{"image": data} for data in stored])
    made = pipeline.image("image", *([Resize(size)] if size else []), fast=fast)
    return [np.abs(sample["image"].astype(np.int16) - pillows(data, size)) for sample, data in zip(made, stored)]


def documented() -> dict[str, tuple[float, float]]:
    """What the page says: the mean differences with `fast=False` and `fast=True` by kind of picture."""
    rows = re.findall(r"^\| ([a-z][^|]*) \| ([0-9.]+) \| ([0-9.]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: (float(exact), float(fast)) for name, exact, fast in rows}


@pytest.mark.parametrize("name", PICTURES)
def test_strong_colours_differ_by_no_more_than_the_page_says_and_not_by_much_less(name: str) -> None:
    stored = jpegs(PICTURES[name])
    for fast, promised in zip((False, True), documented()[name]):
        worst = max(float(image.mean()) for size in SIZES for image in apart(stored, size, fast))
        assert promised / 1.5 <= worst <= promised, f"fast={fast}: {worst:.2f}"


@pytest.mark.parametrize("fast", [False, True])
def test_what_is_not_resized_is_pillows_within_a_level_however_strong_its_colours(fast: bool) -> None:
    for pixels in PICTURES.values():
        assert max(int(image.max()) for image in apart(jpegs(pixels), None, fast)) <= 1


def test_progressive_jpegs_are_pillows_within_a_level_resized_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 1 << 20)  # Pillow's guess is too small for a progressive JPEG of noise
    for pixels in PICTURES.values():
        stored = jpegs(pixels, progressive=True)
        assert max(int(image.max()) for size in (None, *SIZES) for image in apart(stored, size, fast=False)) <= 1
