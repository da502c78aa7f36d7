"""torchvision's transforms (v2) in a torch DataLoader, on Pillow images or on tensors; and one by one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data import paths_of
from measure import SEED, Take, endless, pull
from peers.crops import SIDE
from peers.torch_images import PASSES

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: brightness, contrast, saturation, hue
JITTER = (0.4, 0.4, 0.4, 0.1)


@functools.cache
def transforms() -> Any:
    """torchvision.transforms.v2, also where its native library does not fit the torch that is installed.

    It declares its operators for detection when it is imported, and that library is to have defined them; transforms need none.
    """
    import torch

    try:
        from torchvision.transforms import v2
    except RuntimeError:
        _forget("torchvision")
        operators = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(operators)  # it takes its definitions along when it goes
        from torchvision.transforms import v2
    return v2


_kept: list[Any] = []


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@contextmanager
def torchvision_pillow(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """Every transform on a Pillow image, as most training scripts have it."""
    yield pull(endless(_loader(folder, batch, workers, tensors=False)), batch)


@contextmanager
def torchvision_tensors(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """Decoded by Pillow, then every transform on a tensor of uint8."""
    yield pull(endless(_loader(folder, batch, workers, tensors=True)), batch)


def _loader(folder: Path, batch: int, workers: int, tensors: bool) -> Any:
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)  # the workers are the parallelism
    dataset = Augmented(paths_of(folder), recipe(tensors))
    generator = torch.Generator().manual_seed(SEED)
    return DataLoader(
        dataset, batch, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True, generator=generator,
        multiprocessing_context="fork",
    )  # fmt: skip


def recipe(tensors: bool) -> Any:
    """RandomResizedCrop, flip, ColorJitter, RandAugment(2, 9), normalised."""
    import torch

    v2 = transforms()
    bilinear = v2.InterpolationMode.BILINEAR
    before, behind = ([v2.PILToTensor()], []) if tensors else ([], [v2.PILToTensor()])
    return v2.Compose(
        [
            *before,
            v2.RandomResizedCrop(SIDE),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(*JITTER),
            v2.RandAugment(2, 9, interpolation=bilinear),
            *behind,
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )


class Augmented:
    """A map-style data set of augmented photographs."""

    def __init__(self, paths: list[str], transform: Callable[[Any], Any]) -> None:
        self._paths, self._transform = paths, transform

    def __len__(self) -> int:
        return len(self._paths) * PASSES

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self._paths[index % len(self._paths)]) as opened:
            return self._transform(opened.convert("RGB"))


# ---- one by one ------------------------------------------------------------------------------------------------------


def single(name: str) -> Callable[[NDArray[np.uint8]], Any] | None:
    """One operation on the pixels of an image, which are made a Pillow image first; None: there is no such transform."""
    import torch
    from PIL import Image

    torch.set_num_threads(1)
    v2 = transforms()
    bilinear = v2.InterpolationMode.BILINEAR
    made: dict[str, Callable[[], Any]] = {
        "nothing": v2.Identity,
        "RandomResizedCrop": lambda: v2.RandomResizedCrop(SIDE),
        "RandomCrop, padded": lambda: v2.RandomCrop(SIDE, padding=8, padding_mode="reflect"),
        "HorizontalFlip": lambda: v2.RandomHorizontalFlip(1),
        "VerticalFlip": lambda: v2.RandomVerticalFlip(1),
        "Rotate": lambda: v2.RandomRotation(10, bilinear),
        "Affine": lambda: v2.RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5, bilinear),
        "ColorJitter, brightness": lambda: v2.ColorJitter(brightness=0.4),
        "ColorJitter, contrast": lambda: v2.ColorJitter(contrast=0.4),
        "ColorJitter, saturation": lambda: v2.ColorJitter(saturation=0.4),
        "ColorJitter, hue": lambda: v2.ColorJitter(hue=0.1),
        "ColorJitter": lambda: v2.ColorJitter(*JITTER),
        "Grayscale": lambda: v2.RandomGrayscale(1),
        "GaussianBlur": lambda: v2.GaussianBlur(9, (0.1, 2)),
        "Solarize": lambda: v2.RandomSolarize(128, 1),
        "Posterize": lambda: v2.RandomPosterize(4, 1),
        "Equalize": lambda: v2.RandomEqualize(1),
        "AutoContrast": lambda: v2.RandomAutocontrast(1),
        "Sharpness": lambda: v2.RandomAdjustSharpness(1.5, 1),
        "Invert": lambda: v2.RandomInvert(1),
        "RandAugment": lambda: v2.RandAugment(2, 9, interpolation=bilinear),
        "TrivialAugment": lambda: v2.TrivialAugmentWide(interpolation=bilinear),
        "AutoAugment": lambda: v2.AutoAugment(interpolation=bilinear),
    }
    if name not in made:
        return None
    transform = made[name]()
    return lambda pixels: transform(Image.fromarray(pixels))
