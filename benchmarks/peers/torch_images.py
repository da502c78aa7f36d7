"""A torch DataLoader over image files, with workers: Pillow, or simplejpeg and OpenCV."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data import paths_of
from measure import SEED, Take, endless, pull
from peers.crops import SIDE, random_crop

Decode = Callable[[str], "NDArray[np.uint8]"]
#: passes over the files in one epoch of the DataLoader: many, so that the pause between its epochs does not count against it
PASSES = 1000


@contextmanager
def torch_pillow(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """Pillow, as torchvision decodes by default."""
    yield pull(endless(image_loader(folder, batch, workers, with_pillow, PASSES)), batch)


@contextmanager
def torch_opencv(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """simplejpeg (libjpeg-turbo with its fast settings) and OpenCV: the fastest wheels there are."""
    yield pull(endless(image_loader(folder, batch, workers, with_opencv, PASSES)), batch)


def image_loader(folder: Path, batch: int, workers: int, decode: Decode, passes: int = 1) -> Any:
    """Shuffled batches, uint8, height x width x channels, by workers that stay."""
    import torch
    from torch.utils.data import DataLoader

    dataset = Images(paths_of(folder), decode, passes)
    generator = torch.Generator().manual_seed(SEED)
    return DataLoader(
        dataset, batch, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True, generator=generator
    )


class Images:
    """A map-style data set of augmented images."""

    def __init__(self, paths: list[str], decode: Decode, passes: int) -> None:
        self._paths, self._decode, self._passes = paths, decode, passes

    def __len__(self) -> int:
        return len(self._paths) * self._passes

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.from_numpy(self._decode(self._paths[index % len(self._paths)]))


def with_pillow(path: str) -> NDArray[np.uint8]:
    """Decode all, resize the crop (bilinear, antialiased), flip."""
    from PIL import Image

    with Image.open(path) as opened:
        image = opened.convert("RGB")
    box = random_crop(*image.size)
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)


def with_opencv(path: str) -> NDArray[np.uint8]:
    """Read, decode all, crop, resize, flip."""
    return pixels_with_opencv(Path(path).read_bytes())


def pixels_with_opencv(data: bytes) -> NDArray[np.uint8]:
    """Decode all, crop, resize (bilinear, without antialiasing), flip."""
    import cv2
    import simplejpeg

    cv2.setNumThreads(0)  # the workers are the parallelism
    pixels = simplejpeg.decode_jpeg(data, colorspace="RGB", fastdct=True, fastupsample=True)
    left, top, right, bottom = random_crop(pixels.shape[1], pixels.shape[0])
    pixels = cv2.resize(pixels[top:bottom, left:right], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    return cv2.flip(pixels, 1) if random.random() < 0.5 else pixels
