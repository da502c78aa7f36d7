"""The kernel against the reference implementation: every operation, the same draws, on colour and gray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.image import (
    Affine,
    AutoAugment,
    AutoContrast,
    CenterCrop,
    ColorJitter,
    Cutout,
    Equalize,
    GaussianBlur,
    Grayscale,
    HorizontalFlip,
    Invert,
    Normalize,
    Operation,
    Pad,
    Posterize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    Rotate,
    Sharpness,
    Solarize,
    ToFloat,
    TrivialAugment,
    VerticalFlip,
)
from stoker.image.lower import lower
from stoker.kernel import native
from stoker.plan.field_effects import size_after

from ..kernel.images import difference, picture, pixel_rows
from ..support import Simd
from . import numpy_twin as reference

SEED, EPOCH, FIRST, STREAMS = 7, 3, 10, range(512, 600)
PIXELS = np.stack([picture(40, 38, seed) // (1 + seed % 3) + 30 * (seed % 3) for seed in range(24)]).astype(np.uint8)
CUT = CenterCrop((32, 36))

#: the same to the last bit
EXACT: dict[str, list[Operation]] = {
    "crop-reflect": [RandomCrop(32, 4)],
    "crop-edge": [RandomCrop(30, (3, 5), "edge"), HorizontalFlip()],
    "crop-constant": [RandomCrop(30, (3, 5, 1, 0), "constant"), VerticalFlip()],
    "pad-beyond-the-image": [Pad(50, "reflect"), CenterCrop(99)],
    "pad-colour": [Pad((1, 2, 3, 4), fill=9), CenterCrop(64)],
    "crop": [RandomCrop(20), VerticalFlip(), HorizontalFlip()],
    "resize-pad-crop": [Resize((20, 24)), RandomCrop(18, 2), HorizontalFlip()],
    "resized-crop": [RandomResizedCrop(24), VerticalFlip()],
    "cutout": [CUT, Cutout(8, 7)],
    "cutout-sometimes": [CUT, Cutout(8, 7, p=0.5)],
    "erasing": [CUT, RandomErasing(0.7, value=99)],
    "noise": [CUT, RandomErasing(0.7, value="random")],
    "quarter-turn": [CenterCrop(32), Rotate((90, 90))],
    "quarter-turn-sometimes": [CenterCrop(32), Rotate((90, 90), p=0.5)],
    "brightness": [CUT, ColorJitter(0.5)],
    "brightness-sometimes": [CUT, ColorJitter(0.5, p=0.5), Invert()],
    "contrast": [CUT, ColorJitter(contrast=0.5)],
    "grayscale": [CUT, Grayscale(0.5)],
    "solarize": [CUT, Solarize(100.5)],
    "posterize": [CUT, Posterize(3)],
    "equalize": [CUT, Equalize()],
    "auto-contrast": [CUT, AutoContrast()],
    "invert": [CUT, Invert()],
    "tables": [CUT, Invert(), Equalize(), Solarize(99), AutoContrast(), Posterize(4)],
}
#: within one level
CLOSE: dict[str, list[Operation]] = {
    "rotate": [CUT, Rotate(30, fill=77)],
    "rotate-flip": [CUT, Rotate(180), HorizontalFlip(), VerticalFlip()],
    "affine": [CUT, Affine(20, (0.1, 0.2), (0.5, 1.5), (-10, 10, -5, 5))],
    "warps-sometimes": [CUT, Affine(20, (0.1, 0.2), (0.5, 1.5), p=0.5), HorizontalFlip(), Rotate(30, p=0.5)],
    "warps": [CUT, Affine(20, (0.1, 0.2), (0.5, 1.5)), HorizontalFlip(), Rotate(30)],
    "saturation": [CUT, ColorJitter(saturation=0.5)],
    "hue": [CUT, ColorJitter(hue=0.5)],
    "blur": [CUT, GaussianBlur(5)],
    "blur-sometimes": [CUT, GaussianBlur(5, p=0.5)],
    "wide-blur": [CUT, GaussianBlur(23, (0.1, 9))],
    "sharpness": [CUT, Sharpness((0, 3), 1)],
}
#: a level of difference may grow in the steps behind it
CHAINS: dict[str, list[Operation]] = {
    "jitter": [CUT, ColorJitter(0.4, 0.4, 0.4, 0.1)],
    "rand-augment": [CUT, RandAugment()],
    "trivial-augment": [CUT, TrivialAugment()],
    "auto-augment": [CUT, AutoAugment("cifar10", fill=5)],
}


@pytest.fixture(params=[0, -1, 1000], ids=["scalar", "best", "widest"])
def level(request: pytest.FixtureRequest, simd: Simd) -> int:
    return simd(request.param)


def by_kernel(ops: list[Operation], color: str, out: str = "uint8") -> NDArray[Any]:
    program = lower(ops, seed=SEED, streams=STREAMS, color=color, out=out)
    height, width = size_after(ops, (38, 40))
    assert height is not None and width is not None
    made = np.zeros((len(PIXELS), *program.shape(height, width)), program.dtype)
    epochs, positions = np.full(len(PIXELS), EPOCH, np.uint32), np.arange(len(PIXELS)) + FIRST
    with native.Decoder() as decoder:
        rows = pixel_rows(decoder, program, PIXELS, None, epochs, positions, made)
    assert not rows["status"].any(), rows["message"][0]
    return made


def by_reference(ops: list[Operation], color: str) -> NDArray[Any]:
    places = range(FIRST, FIRST + len(PIXELS))
    return np.stack(
        [reference.apply(ops, image, SEED, EPOCH, at, streams=STREAMS, color=color) for at, image in zip(places, PIXELS)]
    )


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("name", EXACT)
def test_the_kernel_is_the_reference_to_the_last_bit(name: str, color: str, level: int) -> None:
    assert np.array_equal(by_kernel(EXACT[name], color), by_reference(EXACT[name], color))


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("name", CLOSE)
def test_the_kernel_is_the_reference_within_a_level(name: str, color: str, level: int) -> None:
    apart = difference(by_kernel(CLOSE[name], color), by_reference(CLOSE[name], color))
    assert apart.max() <= 1 and apart.mean() < 0.05


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_effects_stay_close_to_the_reference(name: str, color: str, level: int) -> None:
    apart = difference(by_kernel(CHAINS[name], color), by_reference(CHAINS[name], color))
    assert apart.mean() < 0.1 and np.quantile(apart, 0.999) <= 2


@pytest.mark.parametrize("last", [ToFloat(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))], ids=["float", "normalize"])
def test_floats_behind_effects_are_those_of_the_reference(last: Operation, level: int) -> None:
    ops = [RandomCrop(32, 4), HorizontalFlip(), Cutout(8), last]
    assert np.array_equal(by_kernel(ops, "rgb", "float32"), by_reference(ops, "rgb"))
