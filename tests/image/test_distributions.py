"""What is drawn, against what torchvision's transforms draw: the same distributions, by statistical tests with fixed seeds.

That what `drawn` tells is what the kernel does is shown elsewhere, by pixels (`test_torchvision.py`, `test_kernel.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from stoker.image import (
    Affine,
    AutoAugment,
    ColorJitter,
    CutMix,
    GaussianBlur,
    HorizontalFlip,
    Invert,
    MixUp,
    Operation,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Rotate,
    TrivialAugment,
)
from stoker.image.batch_mixing import draw
from stoker.image.draws import Drawn, Place, drawn, padded, policy
from stoker.image.lower import lower
from stoker.kernel.native import AugmentKind, OpKind

from .likeness import disparity, distance
from .vision import torch, v2

COUNT = 3000
Size = tuple[int, int]
#: numbers that were drawn, by name
Numbers = dict[str, list[float]]


def ours(op: Any, size: Size) -> list[Drawn]:
    """What is drawn for images of this size, at as many places; nothing where it does not happen."""
    *before, last = lower([op], seed=23, stream=0).ops
    inner = padded(before[0], size) if before and before[0].kind == OpKind.PAD else size
    return [drawn(Place(23, 0, at), last, inner) or {} for at in range(COUNT)]


def theirs(transform: Any, size: Size) -> list[dict[str, Any]]:
    """What torchvision's transform draws."""
    torch.manual_seed(23)
    image = [torch.zeros((3, *size), dtype=torch.uint8)]
    return [transform.make_params(image) for _ in range(COUNT)]


# ---- what is compared of them -------------------------------------------------------------------------------------------------


def rectangle(top: float, left: float, height: float, width: float, size: Size) -> tuple[float, ...]:
    """Area, aspect, and where in the room there is."""
    area, aspect = height * width / (size[0] * size[1]), math.log(width / height) if height and width else 0.0
    return area, aspect, top / max(1, size[0] - height), left / max(1, size[1] - width)


def columns(rows: list[tuple[float, ...]], *names: str) -> Numbers:
    return {name: list(column) for name, column in zip(names, zip(*rows))}


def crops(made: list[dict[str, Any]], size: Size) -> Numbers:
    rows = [rectangle(m["top"], m["left"], m["height"], m["width"], size) for m in made]
    return columns(rows, "area", "aspect", "top", "left")


def erased(made: list[dict[str, Any]], size: Size) -> Numbers:
    """torchvision says (i, j, h, w), and v None where nothing is erased."""
    none = {"top": 0, "left": 0, "height": 0, "width": 0}
    named = [m if "top" in m else {"top": m["i"], "left": m["j"], "height": m["h"], "width": m["w"]} for m in made]
    return crops([none if m.get("v", 0) is None else n for m, n in zip(made, named)], size)


def places(made: list[dict[str, Any]], size: Size) -> Numbers:
    return columns([(m["top"], m["left"]) for m in made], "top", "left")


def affine(made: list[dict[str, Any]], size: Size) -> Numbers:
    rows = [(m.get("degrees", m.get("angle")), *m["translate"], m["scale"], *m["shear"]) for m in made]
    return columns(rows, "angle", "x", "y", "scale", "shear x", "shear y")  # type: ignore[arg-type]


def jitter(made: list[dict[str, Any]], size: Size) -> Numbers:
    names = ("brightness", "contrast", "saturation", "hue")
    return {name: [m.get(name, m.get(f"{name}_factor")) for m in made] for name in names}  # type: ignore[misc]


def angle(made: list[dict[str, Any]], size: Size) -> Numbers:
    """The kernel turns clockwise, rotations are told the other way round."""
    return {"angle": [m["angle"] if "angle" in m else -m["degrees"] for m in made]}


def sigma(made: list[dict[str, Any]], size: Size) -> Numbers:
    return {"sigma": [float(np.ravel(m["sigma"])[0]) for m in made]}


class Case(NamedTuple):
    """An operation and torchvision's, for images of a size; and some that are a little off, with the names of what shows it."""

    op: Operation
    transform: Any
    size: Size
    measured: Callable[[list[dict[str, Any]], Size], Numbers]
    wrong: tuple[tuple[Operation, str], ...]


PHOTO, SMALL = (375, 500), (32, 40)
CASES: dict[str, Case] = {
    "resized crop": Case(
        RandomResizedCrop(8), v2.RandomResizedCrop(8), PHOTO, crops,
        ((RandomResizedCrop(8, scale=(0.08, 0.75)), "area"), (RandomResizedCrop(8, scale=(0.15, 1)), "area"),
         (RandomResizedCrop(8, ratio=(0.7, 4 / 3)), "aspect")),
    ),
    "resized crop of a small image": Case(
        RandomResizedCrop(8, (0.3, 0.7), (0.5, 2)), v2.RandomResizedCrop(8, (0.3, 0.7), (0.5, 2)), SMALL, crops,
        ((RandomResizedCrop(8, (0.3, 0.75), (0.5, 2)), "area"), (RandomResizedCrop(8, (0.3, 0.7), (0.5, 2.2)), "aspect")),
    ),
    "resized crop of a strip, which hardly fits": Case(
        RandomResizedCrop(8), v2.RandomResizedCrop(8), (40, 200), crops, ((RandomResizedCrop(8, (0.12, 1)), "area"),),
    ),
    "resized crop of a line, which never fits": Case(
        RandomResizedCrop(8), v2.RandomResizedCrop(8), (400, 3), crops, ((RandomResizedCrop(8, ratio=(0.6, 4 / 3)), "area"),),
    ),
    "resized crop of a pixel": Case(RandomResizedCrop(8), v2.RandomResizedCrop(8), (1, 1), crops, ()),
    "crop": Case(
        RandomCrop(32, 4, "constant"), v2.RandomCrop(32, 4), SMALL, places,
        ((RandomCrop(32, 5, "constant"), "top"), (RandomCrop((32, 31), 4, "constant"), "left")),
    ),
    "crop that just fits": Case(RandomCrop((32, 40)), v2.RandomCrop((32, 40)), SMALL, places, ()),
    "erasing": Case(
        RandomErasing(1), v2.RandomErasing(1), PHOTO, erased,
        ((RandomErasing(1, (0.02, 0.36)), "area"), (RandomErasing(1, (0.05, 0.33)), "area"),
         (RandomErasing(1, ratio=(0.3, 4)), "aspect")),
    ),
    "erasing that seldom fits": Case(
        RandomErasing(1, (0.5, 1)), v2.RandomErasing(1, (0.5, 1)), (20, 60), erased, ((RandomErasing(1, (0.55, 1)), "area"),),
    ),
    "rotation": Case(Rotate((-10, 15)), v2.RandomRotation((-10, 15)), SMALL, angle, ((Rotate((-10, 17)), "angle"),)),
    "affine map": Case(
        Affine((-20, 40), (0.25, 0.5), (0.5, 2), (-10, 10, 5, 15)),
        v2.RandomAffine((-20, 40), (0.25, 0.5), (0.5, 2), (-10, 10, 5, 15)), PHOTO, affine,
        ((Affine((-20, 36), (0.29, 0.58), (0.5, 1.8), (-12, 12, 6, 15)), "angle, x, y, scale, shear x, shear y"),),
    ),
    "translations of a small image": Case(
        Affine(5, (0.1, 0.1)), v2.RandomAffine(5, (0.1, 0.1)), SMALL, affine, ((Affine(5, (0.13, 0.13)), "x, y"),),
    ),
    "shear along x": Case(
        Affine(0, shear=8), v2.RandomAffine(0, shear=8), SMALL, affine, ((Affine(0, shear=9), "shear x"),),
    ),
    "jitter": Case(
        ColorJitter(0.4, 0.3, (0.2, 3), 0.1), v2.ColorJitter(0.4, 0.3, (0.2, 3), 0.1), SMALL, jitter,
        ((ColorJitter(0.45, 0.34, (0.2, 2.7), 0.115), "brightness, contrast, saturation, hue"),),
    ),
    "jitter from nothing": Case(
        ColorJitter(1.5), v2.ColorJitter(1.5), SMALL, lambda made, size: {"brightness": jitter(made, size)["brightness"]},
        ((ColorJitter(1.7), "brightness"),),
    ),
    "blur": Case(GaussianBlur(5), v2.GaussianBlur(5), SMALL, sigma, ((GaussianBlur(5, (0.1, 1.8)), "sigma"),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_draws_are_distributed_as_torchvisions_and_a_little_off_is_noticed(name: str) -> None:
    case = CASES[name]
    expected = case.measured(theirs(case.transform, case.size), case.size)
    found = case.measured(ours(case.op, case.size), case.size)
    assert found.keys() == expected.keys()
    for what, values in found.items():
        assert distance(values, expected[what]) <= 1, what
    for op, names in case.wrong:
        wrong = case.measured(ours(op, case.size), case.size)
        for what in names.split(", "):
            assert distance(wrong[what], expected[what]) > 1, f"{op} passes for {case.op} in {what}"


def test_the_order_of_colours_is_torchvisions() -> None:
    names = ["brightness", "contrast", "saturation", "hue"]
    made = [tuple(m["order"]) for m in ours(ColorJitter(0.1, 0.1, 0.1, 0.1), SMALL)]
    expected = [tuple(names[i] for i in m["fn_idx"]) for m in theirs(v2.ColorJitter(0.1, 0.1, 0.1, 0.1), SMALL)]
    assert len(set(made)) == 24 and disparity(made, expected) <= 1
    lopsided = [tuple(names) if at % 20 == 0 else order for at, order in enumerate(made)]
    assert disparity(lopsided, expected) > 1, "one in twenty always in the same order"


def test_places_of_crops_are_as_often_as_torchvisions() -> None:
    made, expected = ours(RandomCrop(32, 4), (32, 32)), theirs(v2.RandomCrop(32, 4), (32, 32))
    both = [[(m["top"], m["left"]) for m in some] for some in (made, expected)]
    assert len(set(both[0])) == 81 and disparity(*both) <= 1
    lopsided = [(top, left) if at % 8 else (top, 0) for at, (top, left) in enumerate(both[0])]
    assert disparity(lopsided, both[1]) > 1


@pytest.mark.parametrize(
    "kind, transform",
    [
        (HorizontalFlip, v2.RandomHorizontalFlip),
        (Invert, v2.RandomInvert),
        (RandomErasing, v2.RandomErasing),
    ],
    ids=["HorizontalFlip", "Invert", "RandomErasing"],
)
def test_what_may_happen_happens_as_often_as_in_torchvision(kind: Any, transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    peer, happened = transform(0.3), []
    monkeypatch.setattr(peer, "transform", lambda image, params: happened.append(1) or image)
    torch.manual_seed(5)
    image = torch.zeros((3, 2, 2), dtype=torch.uint8)
    for _ in range(COUNT):
        peer(image)

    def rate(p: float) -> list[bool]:
        op = lower([kind(p)], seed=23, stream=0).ops[0]
        made = [drawn(Place(23, 0, at), op, (64, 64)) for at in range(COUNT)]
        return [m is not None and m.get("flipped", True) for m in made]

    expected = [True] * len(happened) + [False] * (COUNT - len(happened))
    assert disparity(rate(0.3), expected) <= 1
    assert disparity(rate(0.37), expected) > 1


# ---- policies ----------------------------------------------------------------------------------------------------------------


def effects_of(op: Any) -> list[tuple[Any, ...]]:
    """The effects chosen at each place, with their strengths."""
    program = lower([op], seed=23, stream=0)
    chosen = [policy(Place(23, 0, at), program.ops[0], program.choices) for at in range(COUNT)]
    return [tuple((AugmentKind(e.kind).name.replace("_", ""), round(e.magnitude, 3)) for e in some) for some in chosen]


def effects_of_torchvision(transform: Any) -> list[tuple[Any, ...]]:
    """What it would apply, in the units of ours: translations relative to the side of a hundred where they are so."""
    seen: list[tuple[Any, ...]] = []

    def note(image: Any, name: str, magnitude: float, **_: Any) -> Any:
        relative = not isinstance(transform, v2.TrivialAugmentWide)
        if name.startswith("Translate"):
            magnitude = magnitude / 100 if relative else float(int(magnitude + math.copysign(1e-5, magnitude)))
        if name != "Identity":
            seen.append((name.upper(), round(255 * magnitude if name == "Solarize" else magnitude, 3)))
        return image

    transform._apply_image_or_video_transform = note
    torch.manual_seed(23)
    image, made = torch.zeros((3, 100, 100), dtype=torch.uint8), []
    for _ in range(COUNT):
        seen.clear()
        transform(image)
        made.append(tuple(seen))
    return made


@pytest.mark.parametrize(
    "op, transform, wrong",
    [
        (RandAugment(1), v2.RandAugment(1), RandAugment(1, 10)),
        (RandAugment(3, 17), v2.RandAugment(3, 17), RandAugment(3, 18)),
        (TrivialAugment(), v2.TrivialAugmentWide(), TrivialAugment(33)),
        (AutoAugment(), v2.AutoAugment(), AutoAugment("svhn")),
        (AutoAugment("cifar10"), v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10), AutoAugment()),
        (AutoAugment("svhn"), v2.AutoAugment(v2.AutoAugmentPolicy.SVHN), AutoAugment("cifar10")),
    ],
    ids=["RandAugment", "RandAugment(3, 17)", "TrivialAugment", "imagenet", "cifar10", "svhn"],
)
def test_policies_choose_effects_signs_and_strengths_as_often_as_torchvision(op: Any, transform: Any, wrong: Any) -> None:
    """Single effects with sign and strength; and what is chosen together."""
    made, expected, other = effects_of(op), effects_of_torchvision(transform), effects_of(wrong)

    def singles(rows: list[tuple[Any, ...]]) -> list[Any]:
        return [effect for row in rows for effect in row]

    def names(rows: list[tuple[Any, ...]]) -> list[Any]:
        return [tuple(name for name, _ in row) for row in rows]

    assert disparity(singles(made), singles(expected)) <= 1
    assert disparity(names(made), names(expected)) <= 1
    assert disparity(singles(other), singles(expected)) > 1


# ---- batches -----------------------------------------------------------------------------------------------------------------


def mixed(op: Any) -> Numbers:
    made = [draw([op], 23, 0, at, 0, SMALL) for at in range(COUNT)]
    return columns([(m[1].share, *(m[1].box or ())) for m in made if m is not None], "share", "top", "left", "bottom", "right")


def mixed_by_torchvision(transform: Any) -> Numbers:
    rows = []
    for made in theirs(transform, SMALL):
        left, top, right, bottom = made.get("box", (0, 0, 0, 0))
        rows.append((made["lam"],) if "lam" in made else (made["lam_adjusted"], top, left, bottom, right))
    return columns(rows, "share", "top", "left", "bottom", "right")


@pytest.mark.parametrize("alpha, nearly", [(0.2, 0.3), (1.0, 1.4)])
@pytest.mark.parametrize("kind", [MixUp, CutMix], ids=["MixUp", "CutMix"])
def test_shares_and_boxes_of_mixed_batches_are_torchvisions(kind: Any, alpha: float, nearly: float) -> None:
    expected = mixed_by_torchvision(getattr(v2, kind.__name__)(alpha=alpha, num_classes=10))
    found, wrong = mixed(kind(alpha, classes=10)), mixed(kind(nearly, classes=10))
    assert found.keys() == expected.keys() and len(found) == (1 if kind is MixUp else 5)
    for what, values in found.items():
        assert distance(values, expected[what]) <= 1, what
    assert kind is CutMix or distance(wrong["share"], expected["share"]) > 1


def test_a_box_that_is_a_little_off_is_noticed() -> None:
    expected = mixed_by_torchvision(v2.CutMix(num_classes=10))
    assert distance([1 - 0.85 * (1 - share) for share in expected["share"]], expected["share"]) > 1
    assert distance([top + 2 for top in expected["top"]], expected["top"]) > 1
