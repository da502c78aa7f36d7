"""torchvision's transforms in `image(...)`: the error says what to write, and that works as it is."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import stoker
import stoker.image
from stoker.errors import ConfigError

from .vision import torch, v1, v2

PIPELINE = stoker.arrays(image=np.zeros((4, 40, 40, 3), np.uint8))

TRANSFORMS = [
    v2.CenterCrop(8), v2.ColorJitter(0.4, 0, (0.5, 1.5)), v2.ColorJitter(hue=0.1), v2.GaussianBlur(3, 1.0), v2.Grayscale(),
    v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.2, 0.2]), v2.Pad(2), v2.Pad((1, 2, 3, 4), padding_mode="reflect"), v2.RandAugment(2, 5),
    v2.RandomAdjustSharpness(2, 0.3), v2.RandomAffine(10), v2.RandomAffine(10, (0.1, 0.2), (0.5, 2), 5), v2.RandomAutocontrast(),
    v2.RandomCrop(32, padding=4), v2.RandomEqualize(), v2.RandomErasing(0.3), v2.RandomGrayscale(0.2),
    v2.RandomHorizontalFlip(0.3), v2.RandomInvert(), v2.RandomPosterize(3), v2.RandomResizedCrop(24), v2.RandomRotation(20),
    v2.RandomSolarize(128),
    v2.RandomVerticalFlip(), v2.Resize(16), v2.Resize((16, 24)), v2.ToDtype(torch.float32, scale=True), v2.ToImage(),
    v2.TrivialAugmentWide(), v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10), v2.Grayscale(3), v2.Pad(2, fill=255), v1.Resize([16]),
    v2.RandomErasing(value="random"), v1.RandomErasing(value="random"), v2.RandomRotation(20, fill=7), v1.RandomAffine(3, fill=7),
    v1.Compose([v1.ToTensor(), v1.RandomErasing()]), v1.Compose([v1.ToTensor(), v1.Resize(32)]),
    v1.Compose([v1.ToTensor(), v1.ColorJitter(0.3)]),
    v1.Compose([v1.ToTensor(), v1.Normalize(torch.tensor([0.5]), [0.5]), v1.RandomErasing()]),
    v2.Compose([
        v2.ToImage(), v2.ToDtype(torch.uint8, scale=True), v2.Resize(24), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.2, 0.2]),
    ]),
    v2.Compose([
        v2.RandomResizedCrop(24), v2.Compose([v2.RandomHorizontalFlip()]), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.2, 0.2]),
    ]),
]  # fmt: skip


def refused(op: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        PIPELINE.image("image", op)
    return str(caught.value)


@pytest.mark.parametrize("op", TRANSFORMS, ids=lambda op: type(op).__name__)
def test_what_the_error_says_to_write_works(op: Any) -> None:
    found = re.search(r"it is torchvision's; from stoker.image, use (image\(.*\))", re.sub(r" \([^()]*\)$", "", refused(op)))
    assert found, refused(op)
    written = eval(f"pipeline.{found[1]}", {**vars(stoker.image), "pipeline": PIPELINE})  # noqa: S307  a text of ours
    assert written.sample(0)["image"].shape


def test_all_of_a_list_is_written_as_one_call() -> None:
    assert refused(TRANSFORMS[-1]).endswith(
        "use image('image', RandomResizedCrop((24, 24), (0.08, 1.0), (0.75, 1.3333333333333333)), HorizontalFlip(0.5), "
        "Normalize((0.4, 0.5, 0.6), (0.2, 0.2, 0.2)), layout='chw')"
    )


@pytest.mark.parametrize(
    ("op", "written"),
    [
        (v2.RandomCrop(32, padding=4), "RandomCrop((32, 32), pad=(4, 4, 4, 4), pad_mode='constant')"),
        (v2.RandomCrop(32, padding=(1, 2)), "RandomCrop((32, 32), pad=(1, 2, 1, 2), pad_mode='constant')"),
        (v1.RandomCrop(32, 4, padding_mode="reflect"), "RandomCrop((32, 32), pad=4, pad_mode='reflect')"),
        (v2.Grayscale(3), "Grayscale()"),
        (v2.Pad(2, fill=255), "Pad(2, 'constant', fill=255)"),
        (v2.AutoAugment(v2.AutoAugmentPolicy.SVHN), "AutoAugment('svhn')"),
        (v2.RandAugment(2, 5, 11), "RandAugment(2, 5, 11)"),
        (v2.RandomRotation(20, fill=7), "Rotate((-20.0, 20.0), fill=7)"),
        (v1.RandomErasing(value="random"), "RandomErasing(0.5, (0.02, 0.33), (0.3, 3.3), 'random')"),
        (v2.Normalize([0.491399689874, 0.5, 0.6], [0.2] * 3), "Normalize((0.491399689874, 0.5, 0.6), (0.2, 0.2, 0.2))"),
    ],
    ids=lambda op: "" if isinstance(op, str) else type(op).__name__,
)
def test_what_is_written_does_the_same(op: Any, written: str) -> None:
    assert f"use image('image', {written})" in refused(op)


@pytest.mark.parametrize(
    ("op", "lost"),
    [
        (v2.Resize(16, interpolation=v2.InterpolationMode.BICUBIC), "Resize(interpolation='bicubic')"),
        (v1.Resize(16, max_size=20), "Resize(max_size=20)"),
        (v2.RandomErasing(value=0.3), "RandomErasing(value=0.3)"),
        (v2.RandomRotation(20, expand=True), "RandomRotation(expand=True)"),
        (v2.GaussianBlur((3, 5)), "GaussianBlur(kernel_size=(3, 5))"),
        (v2.RandomCrop(32, pad_if_needed=True), "RandomCrop(pad_if_needed=True)"),
        (v2.Pad(2, padding_mode="symmetric"), "Pad(padding_mode='symmetric')"),
        (v2.ToDtype(torch.float32), "ToDtype(scale=False)"),
    ],
    ids=lambda op: "" if isinstance(op, str) else type(op).__name__,
)
def test_a_parameter_that_would_be_lost_is_named(op: Any, lost: str) -> None:
    assert f"{lost} has no counterpart here: use .decode('image', format='pil')" in refused(op)


@pytest.mark.parametrize("op", [v2.RandomPerspective(), v2.Compose([v2.Resize(8), v2.RandomPerspective()])])
def test_a_transform_without_a_counterpart_runs_as_a_function(op: Any) -> None:
    told = "RandomPerspective has no counterpart here: use .decode('image', format='pil') and .map(image=transform)"
    assert told in refused(op)


def test_a_class_and_a_transform_of_batches_are_known_too() -> None:
    assert "use image('image', HorizontalFlip(p))" in refused(v2.RandomHorizontalFlip)
    assert "use .blend(MixUp(alpha, classes=...)) after batch()" in refused(v2.MixUp(num_classes=3))
