"""The demo's data set: photographs of nothing, four shapes on noisy grounds, the same in every run."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: shape -> the colour it tends to have (0 to 1 around the colour circle); tends only, so that colour alone is not enough
HUES = {"circle": 0.00, "square": 0.25, "star": 0.50, "triangle": 0.75}
_HUE_SPREAD = 0.07


def make_shapes(folder: Path, count: int, seed: int, moved: Callable[[int], None] = lambda done: None) -> None:
    """Write `count` JPEGs, 96 to 160 pixels a side, into a folder for each class; `moved` hears how many are done."""
    names = sorted(HUES)
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        name = names[number % len(names)]
        image = _draw(name, np.random.default_rng([seed, number]))
        image.save(folder / name / f"{name}_{number:04d}.jpg", quality=88)
        moved(number + 1)


def _draw(name: str, rng: np.random.Generator) -> Any:
    from PIL import Image, ImageDraw

    width, height = (int(side) for side in rng.integers(96, 161, 2))
    image = Image.fromarray(_ground(width, height, rng))
    radius = min(width, height) * rng.uniform(0.24, 0.38)
    center = (width * rng.uniform(0.4, 0.6), height * rng.uniform(0.4, 0.6))
    corners = list(_outline(name, center, radius, rng.uniform(0, 2 * math.pi)))
    ImageDraw.Draw(image).polygon(corners, fill=_color(rng.normal(HUES[name], _HUE_SPREAD), rng))
    noise = rng.integers(-28, 29, (height, width, 3), np.int8)
    return Image.fromarray(np.clip(np.asarray(image, np.int16) + noise, 0, 255).astype(np.uint8))


def _ground(width: int, height: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A gradient between two colours, in any direction."""
    first, second = (np.array(_color(rng.uniform(), rng), np.float32) * 0.6 for _ in range(2))
    angle = rng.uniform(0, 2 * math.pi)
    across, down = np.linspace(-0.35, 0.35, width, dtype=np.float32), np.linspace(-0.35, 0.35, height, dtype=np.float32)
    share = 0.5 + across[None, :] * math.cos(angle) + down[:, None] * math.sin(angle)
    planes = [a * share + b * (1 - share) for a, b in zip(first, second)]  # by channel: three times faster than by pixel
    return np.stack(planes, axis=-1).astype(np.uint8)


def _color(hue: float, rng: np.random.Generator) -> tuple[int, int, int]:
    parts = colorsys.hsv_to_rgb(hue % 1, rng.uniform(0.55, 0.95), rng.uniform(0.6, 1.0))
    return (int(parts[0] * 255), int(parts[1] * 255), int(parts[2] * 255))


def _outline(name: str, center: tuple[float, float], radius: float, turn: float) -> Iterator[tuple[float, float]]:
    corners = {"circle": 36, "square": 4, "star": 10, "triangle": 3}[name]
    for corner in range(corners):
        reach = radius * (0.42 if name == "star" and corner % 2 else 1)
        angle = turn + 2 * math.pi * corner / corners
        yield center[0] + reach * math.cos(angle), center[1] + reach * math.sin(angle)
