"""Operations as values: equal when they mean the same, and refused at once where a parameter makes no sense."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from stoker import image
from stoker.errors import ConfigError
from stoker.image import (
    Affine,
    AutoAugment,
    AutoContrast,
    CenterCrop,
    ColorJitter,
    CropBox,
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
from stoker.plan.field_effects import size_after
from stoker.plan.nodes import describe

EXAMPLES: list[Operation] = [
    Affine(10, (0.1, 0.2), (0.5, 2), 5, fill=9), AutoAugment("svhn"),
    AutoAugment(((("ShearX", 0.5, 3), ("Invert", 1, None)),)), AutoContrast(), CenterCrop(5), ColorJitter(0.4, 0.3, 0.2),
    CropBox(), Cutout(8), Equalize(), GaussianBlur(5), Grayscale(0.1), HorizontalFlip(), Invert(), Normalize(0.5, 0.25), Pad(4),
    Posterize(4), RandAugment(), RandomCrop(32, 4), RandomErasing(), RandomResizedCrop(7), Resize(9), Rotate(15), Sharpness(2),
    Solarize(128), ToFloat(), TrivialAugment(), VerticalFlip(),
]  # fmt: skip


def test_there_is_an_example_of_every_operation() -> None:
    known = [getattr(image, name) for name in image.__all__]
    assert {type(op) for op in EXAMPLES} == {kind for kind in known if issubclass(kind, Operation)} - {Operation}


@pytest.mark.parametrize("op", EXAMPLES, ids=lambda op: type(op).__name__)
def test_an_operation_is_a_value(op: Operation) -> None:
    again = pickle.loads(pickle.dumps(op))  # noqa: S301
    assert again == op and hash(again) == hash(op) and repr(again) == repr(op)
    assert type(op)(**{name: getattr(op, name) for name in op.__dataclass_fields__}) == op, "its normal form is its own"
    assert describe(op) == describe(again)
    for name in op.__dataclass_fields__:
        with pytest.raises(AttributeError):
            setattr(op, name, 3)


@pytest.mark.parametrize(
    "one, other",
    [
        (Rotate(10), Rotate((-10, 10))),
        (Rotate(10), Rotate([-10.0, np.float32(10)])),  # type: ignore[arg-type]
        (ColorJitter(0.4), ColorJitter(brightness=(0.6, 1.4))),
        (ColorJitter(3), ColorJitter((0, 4))),
        (ColorJitter(hue=0.1), ColorJitter(hue=(-0.1, 0.1))),
        (ColorJitter(0, 0, 0, 0), ColorJitter()),
        (Pad(3), Pad((3, 3))),
        (Pad((1, 2)), Pad((1, 2, 1, 2))),
        (RandomCrop(8, 4), RandomCrop((8, 8), (4, 4, 4, 4))),
        (Affine(0, None, None, None), Affine((0, 0))),
        (Affine(0, shear=5), Affine(0, shear=(-5, 5))),
        (GaussianBlur(3, 1), GaussianBlur(3, (1, 1))),
        (Sharpness(2), Sharpness((2, 2))),
        (Cutout(8), Cutout((8, 8), fill=(0, 0, 0))),
        (Cutout(np.int64(8)), Cutout(8)),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_ways_of_writing_the_same_are_the_same(one: Operation, other: Operation) -> None:
    assert one == other and repr(one) == repr(other)


def test_defaults_are_torchvisions() -> None:
    assert RandomResizedCrop(1).scale == (0.08, 1) and RandomResizedCrop(1).ratio == (3 / 4, 4 / 3)
    assert HorizontalFlip().p == VerticalFlip().p == Solarize(0).p == Posterize(1).p == 0.5
    assert Equalize().p == AutoContrast().p == Invert().p == Sharpness(1).p == RandomErasing().p == 0.5
    assert RandomErasing().scale == (0.02, 0.33) and RandomErasing().ratio == (0.3, 3.3) and RandomErasing().value == 0
    assert GaussianBlur(3).sigma == (0.1, 2.0) and GaussianBlur(3).p == Grayscale().p == ColorJitter().p == 1
    assert RandAugment() == RandAugment(n=2, magnitude=9, bins=31) and TrivialAugment().bins == 31
    assert AutoAugment().policy == "imagenet" and Pad(1).mode == "constant"


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda: RandomResizedCrop(0), "RandomResizedCrop: size=0 .*1 to 65,535"),
        (lambda: RandomResizedCrop(5, scale=(0, 1)), r"scale=\(0, 1\) .*above 0, at most 1"),
        (lambda: RandomResizedCrop(5, ratio=(2, 1)), "ratio"),
        (lambda: Resize(2.5), "Resize: size=2.5"),  # type: ignore[arg-type]
        (lambda: Resize((1, 2, 3)), "Resize: size"),  # type: ignore[arg-type]
        (lambda: CenterCrop("12"), "CenterCrop: size='12'"),  # type: ignore[arg-type]
        (lambda: CenterCrop(True), "CenterCrop: size=True"),
        (lambda: RandomCrop(4, -1), "RandomCrop: pad=-1 .*from 0"),
        (lambda: RandomCrop(4, (1, 2, 3)), "one, two or four"),
        (lambda: RandomCrop(4, 1, "mirror"), "RandomCrop: pad_mode='mirror' .*'constant', 'reflect', 'edge'"),
        (lambda: Pad(1.5), "Pad: padding=1.5"),  # type: ignore[arg-type]
        (lambda: Pad(1, fill=256), "Pad: fill=256 .*0 to 255"),
        (lambda: Pad(1, fill=(0, 0)), "Pad: fill"),  # type: ignore[arg-type]
        (lambda: Pad(1, fill=0.5), "Pad: fill=0.5"),  # type: ignore[arg-type]
        (lambda: HorizontalFlip(1.1), "HorizontalFlip: p=1.1 .*probability"),
        (lambda: VerticalFlip(float("nan")), "VerticalFlip: p=nan"),
        (lambda: Rotate(-5), "Rotate: degrees=-5"),
        (lambda: Rotate((10, -10)), "Rotate: degrees"),
        (lambda: Rotate(5, fill=-1), "Rotate: fill=-1"),
        (lambda: Affine(5, (0.1, 1.5)), r"Affine: translate=\(0.1, 1.5\) .*0 to 1"),
        (lambda: Affine(5, scale=(0, 1)), "Affine: scale"),
        (lambda: Affine(5, shear=90), "Affine: shear=90 .*-90 and 90"),
        (lambda: Affine(5, shear=(1, 2, 3)), "Affine: shear"),
        (lambda: ColorJitter(-0.1), "ColorJitter: brightness=-0.1"),
        (lambda: ColorJitter(contrast=(2, 1)), "ColorJitter: contrast"),
        (lambda: ColorJitter(saturation=float("inf")), "ColorJitter: saturation=inf"),
        (lambda: ColorJitter(hue=0.6), "ColorJitter: hue=0.6 .*0.5"),
        (lambda: ColorJitter(hue=(-0.6, 0)), "ColorJitter: hue"),
        (lambda: Grayscale(2), "Grayscale: p=2"),
        (lambda: GaussianBlur(4), "GaussianBlur: kernel_size=4 .*odd"),
        (lambda: GaussianBlur(3, 0), "GaussianBlur: sigma=0 .*above 0"),
        (lambda: Solarize(256), "Solarize: threshold=256 .*0 to 255"),
        (lambda: Posterize(9), "Posterize: bits=9 .*0 to 8"),
        (lambda: Posterize(2.5), "Posterize: bits=2.5"),  # type: ignore[arg-type]
        (lambda: Sharpness(-1), "Sharpness: factor=-1"),
        (lambda: Cutout(0), "Cutout: size=0"),
        (lambda: Cutout(3, p=2), "Cutout: p=2 .*probability"),
        (lambda: Rotate(3, p=-1), "Rotate: p=-1 .*probability"),
        (lambda: Affine(3, p=2), "Affine: p=2 .*probability"),
        (lambda: ColorJitter(p=2), "ColorJitter: p=2 .*probability"),
        (lambda: GaussianBlur(3, p=2), "GaussianBlur: p=2 .*probability"),
        (lambda: RandomErasing(value="noise"), "RandomErasing: value='noise' .*'random'"),
        (lambda: RandomErasing(scale=(0.5, 2)), "RandomErasing: scale"),
        (lambda: RandAugment(-1), "RandAugment: n=-1"),
        (lambda: RandAugment(2, 31), "RandAugment: magnitude=31 .*0 to 30"),
        (lambda: RandAugment(bins=1), "RandAugment: bins=1"),
        (lambda: TrivialAugment(1), "TrivialAugment: bins=1"),
        (lambda: AutoAugment("coco"), "AutoAugment: policy='coco' .*'imagenet', 'cifar10', 'svhn'"),
        (lambda: AutoAugment([]), r"AutoAugment: policy=\[\] .*'svhn', or a list of 1 to"),
        (lambda: AutoAugment([[]]), r"policy=\[\[\]\] must be a policy, and \[\] is not one effect or two"),
        (lambda: AutoAugment(((("Twirl", 0.5, 3),),)), r"\('Twirl', 0.5, 3\) is not an effect .*shear_x"),
        (lambda: AutoAugment(((("Rotate", 1.5, 3),),)), "probability from 0 to 1"),
        (lambda: AutoAugment(((("Rotate", 0.5, 10),),)), "bin from 0 to 9"),
        (lambda: AutoAugment(((("Rotate", 0.5, None),),)), "bin from 0 to 9"),
        (lambda: AutoAugment(((("Rotate", 0.5),),)), "bin from 0 to 9"),  # type: ignore[arg-type]
        (lambda: AutoAugment((("Rotate", 0.5, 3),)), "one effect or two"),  # type: ignore[arg-type]
        (lambda: Normalize("x", 1), "Normalize: mean='x'"),  # type: ignore[arg-type]
        (lambda: Normalize((1, 2), 1), "Normalize: mean"),
        (lambda: Normalize(0, 0), "Normalize: std=0 .*pixels are divided by it"),
    ],
)  # fmt: skip
def test_an_error_names_operation_parameter_value_and_what_is_allowed(make: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()


@pytest.mark.parametrize(
    "ops, size, behind",
    [
        ([RandomCrop((3, 4), 2)], (None, None), (3, 4)),
        ([Pad((1, 2, 3, 4))], (10, 20), (16, 24)),
        ([Pad(1)], (None, 20), (None, 22)),
        ([VerticalFlip(), Rotate(5), Affine(5), ColorJitter(), RandAugment(), Cutout(3), ToFloat()], (7, 8), (7, 8)),
        ([CropBox(), Pad(3)], (7, 8), (None, None)),
        ([CropBox(), Pad(3), Resize((5, 6))], (7, 8), (5, 6)),
        ([Resize(5)], (10, 20), (5, 10)),
    ],
    ids=str,
)
def test_the_size_behind_operations_is_known_beforehand(ops: list[Operation], size: Any, behind: Any) -> None:
    assert size_after(ops, size) == behind
