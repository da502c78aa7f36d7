"""The kernel against torchvision's v2 transforms: pixels of each operation, through a pipeline, within a stated tolerance.

Tolerances are in levels of 255. Where torchvision's tensors and its Pillow images differ, operations here follow Pillow; both are
compared with, and tell how far apart they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import stoker
from stoker.image import (
    Affine,
    AutoAugment,
    AutoContrast,
    CenterCrop,
    ColorJitter,
    CutMix,
    Cutout,
    Equalize,
    GaussianBlur,
    Grayscale,
    HorizontalFlip,
    Invert,
    MixUp,
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
from stoker.image.autoaugment import POLICIES
from stoker.image.batch_mixing import draw
from stoker.image.draws import Drawn, Place, drawn, policy
from stoker.image.lower import lower
from stoker.kernel.native import Augment, AugmentKind

from ..kernel.images import difference, picture
from .vision import BILINEAR, as_array, as_tensor, functional, torch, v2

Pixels = NDArray[np.uint8]
PICTURES: dict[str, Pixels] = {
    "photo": picture(61, 47),
    "noise": np.random.default_rng(0).integers(0, 256, (33, 40, 3), np.uint8),
    "dark": picture(64, 64) // 4 + 20,
    "few colours": (np.random.default_rng(1).integers(0, 3, (20, 31, 3)) * 50 + 60).astype(np.uint8),
    "flat": np.full((9, 11, 3), 77, np.uint8),
}


def made(pixels: Pixels, *ops: Operation, color: str = "rgb") -> NDArray[Any]:
    """What a pipeline makes of one image, or of several of one size."""
    images = pixels if pixels.ndim == 4 else pixels[None]
    stage = stoker.arrays(image=images).image("image", *ops, color=color)
    with stage.batch(len(images)).loader(executor="inline") as loader:
        out = np.array(next(iter(loader))["image"])
    return out if pixels.ndim == 4 else out[0]


def theirs(pixels: Pixels, function: Callable[[Any], Any], pillow: bool) -> NDArray[Any]:
    """What torchvision makes of it, as a tensor or as an image of Pillow's."""
    return as_array(function(Image.fromarray(pixels) if pillow else as_tensor(pixels)))


class Case:
    """An operation, torchvision's function, and how far it may be from tensors and from Pillow's images (None: not compared)."""

    def __init__(self, op: Operation, function: Callable[[Any], Any], tensor: int | None = 0, pillow: int | None = 0) -> None:
        self.op, self.function, self.levels = op, function, {False: tensor, True: pillow}


def _resize(size: int | list[int]) -> Callable[[Any], Any]:
    return lambda image: functional.resize(image, size, BILINEAR, antialias=True)


def _pad(mode: str, fill: Any = 0) -> Callable[[Any], Any]:
    return lambda image: functional.pad(image, [1, 2, 3, 4], fill=fill, padding_mode=mode)


def _center(*size: int) -> Case:
    return Case(CenterCrop(size), lambda image: functional.center_crop(image, list(size)))  # type: ignore[arg-type]


def _adjusted(name: str, factor: float, tensor: int, pillow: int) -> Case:
    adjust = getattr(functional, f"adjust_{name}")
    return Case(ColorJitter(**{name: (factor, factor)}), lambda image: adjust(image, factor), tensor, pillow)


FACTORS = (0.0, 0.3, 0.7, 1.0, 1.2, 1.9, 3.0)
CASES: dict[str, Case] = {
    "resize down": Case(Resize((20, 30)), _resize([20, 30]), 1, 1),
    "resize up": Case(Resize((100, 90)), _resize([100, 90]), 1, 1),
    "resize to a sliver": Case(Resize((5, 200)), _resize([5, 200]), 1, 1),
    "resize the shorter side": Case(Resize(30), _resize([30]), 1, 1),
    "resize to a pixel": Case(Resize((1, 1)), _resize([1, 1]), None, 1),  # tensors: an assertion fails inside torch
    **{f"centre {h} x {w}": _center(h, w) for h, w in ((20, 30), (9, 11), (8, 8), (100, 90), (20, 90), (90, 21))},
    "pad constant": Case(Pad((1, 2, 3, 4), fill=7), _pad("constant", 7)),
    "pad colour": Case(Pad((1, 2, 3, 4), fill=(7, 8, 9)), _pad("constant", [7, 8, 9]), pillow=None),
    "pad edge": Case(Pad((1, 2, 3, 4), "edge"), _pad("edge")),
    "pad reflect": Case(Pad((1, 2, 3, 4), "reflect"), _pad("reflect")),
    "flip": Case(HorizontalFlip(1), functional.horizontal_flip),
    "upside down": Case(VerticalFlip(1), functional.vertical_flip),
    # Tensors cut the luminance to a whole level, Pillow rounds it. What lies beyond the luminance grows with the factor.
    **{f"brightness {f}": _adjusted("brightness", f, 0, 0) for f in FACTORS},
    **{f"contrast {f}": _adjusted("contrast", f, max(1, math.ceil(f - 1)), 0) for f in FACTORS},
    **{f"saturation {f}": _adjusted("saturation", f, max(1, math.ceil(f - 1)), 1) for f in FACTORS},
    # Pillow's hue has 256 steps: the tensors' is the definition.
    **{f"hue {t}": _adjusted("hue", t, 1, 16) for t in (-0.5, -0.1, 0.0, 0.05, 0.25, 0.4)},
    "grayscale": Case(Grayscale(1), lambda image: functional.rgb_to_grayscale(image, 3), 1, 0),
    **{
        f"blur {side}, {sigma}": Case(
            GaussianBlur(side, sigma), lambda image, k=side, s=sigma: functional.gaussian_blur(image, [k, k], [s, s]), 1, 1
        )
        for side, sigma in ((1, 1.0), (3, 0.1), (3, 0.5), (5, 1.1), (7, 2.0), (11, 5.0))
    },
    **{f"solarize {t}": Case(Solarize(t, 1), lambda image, t=t: functional.solarize(image, t)) for t in (0, 77, 127.5, 255)},
    **{f"posterize {b}": Case(Posterize(b, 1), lambda image, b=b: functional.posterize(image, b)) for b in range(1, 9)},
    "equalize": Case(Equalize(1), functional.equalize),
    "autocontrast": Case(AutoContrast(1), functional.autocontrast, 1, 0),
    "invert": Case(Invert(1), functional.invert),
    **{
        f"sharpness {f}": Case(Sharpness(f, 1), lambda image, f=f: functional.adjust_sharpness(image, f), 1, 1)
        for f in (0.0, 0.5, 1.0, 1.8, 3.0)
    },
}


@pytest.mark.parametrize("pillow", [False, True], ids=["tensor", "pillow"])
@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_torchvisions_within_its_tolerance(name: str, pillow: bool) -> None:
    case = CASES[name]
    levels = case.levels[pillow]
    for title, pixels in PICTURES.items():
        if levels is not None:
            off = difference(made(pixels, case.op), theirs(pixels, case.function, pillow))
            assert off.max() <= levels, f"{title}: {off.max()} levels, {off.mean():.3f} on average"


GRAY = [name for name in CASES if not name.startswith(("saturation", "hue", "grayscale", "pad colour"))]


@pytest.mark.parametrize("name", GRAY)
def test_gray_images_are_torchvisions_too(name: str) -> None:
    case = CASES[name]
    for pixels in PICTURES.values():
        one = pixels[:, :, 1:2].copy()
        if case.levels[False] is None:
            continue
        off = difference(made(one, case.op, color="gray"), as_array(case.function(as_tensor(one))))
        assert off.max() <= case.levels[False]


@pytest.mark.parametrize("name, most", [("resize down", 0.25), ("resize up", 0.25), ("blur 5, 1.1", 0.01), ("hue 0.25", 0.2)])
def test_a_level_of_difference_is_rounding_and_rare(name: str, most: float) -> None:
    for pixels in PICTURES.values():
        off = difference(made(pixels, CASES[name].op), theirs(pixels, CASES[name].function, False))
        assert off.mean() <= most


def test_the_recipe_of_evaluation_is_torchvisions() -> None:
    """One resampling here, two steps there."""
    for title in ("photo", "dark"):
        for size, cut in ((30, 24), (60, 48), (20, 33)):
            expected = functional.center_crop(_resize([size])(Image.fromarray(PICTURES[title])), [cut, cut])
            assert difference(made(PICTURES[title], Resize(size), CenterCrop(cut)), as_array(expected)).max() <= 1


# ---- warps -------------------------------------------------------------------------------------------------------------------


def warped(pixels: Pixels, fill: float, function: Callable[[Any], Any]) -> NDArray[Any]:
    """torchvision's warp with a fill that blends.

    Its own, given a fill, weighs border pixels twice and darkens them. So the image is lowered by the fill, warped with zeros
    around it, and raised again: what the fill is meant to do.
    """
    return np.rint(as_array(function(as_tensor(pixels.astype(np.float32) - np.float32(fill)))) + fill)


WARPS: dict[str, dict[str, Any]] = {
    "turned": {"angle": 20.0},
    "turned back": {"angle": -133.0},
    "quarter": {"angle": 90.0},
    "half": {"angle": 180.0},
    "larger": {"scale": 1.3},
    "smaller": {"scale": 0.6},
    "sheared along x": {"shear": [12.0, 0.0]},
    "sheared along y": {"shear": [0.0, -9.0]},
    "all": {"angle": -15.0, "scale": 0.8, "shear": [10.0, -7.0]},
}


@pytest.mark.parametrize("fill", [0, 60, 255])
@pytest.mark.parametrize("name", WARPS)
def test_an_affine_map_is_torchvisions_within_a_level_border_and_all(name: str, fill: int) -> None:
    how = {"angle": 0.0, "scale": 1.0, "shear": [0.0, 0.0], **WARPS[name]}
    (x, y), angle, scale = how["shear"], how["angle"], how["scale"]
    op = Affine((angle, angle), scale=(scale, scale), shear=(x, x, y, y), fill=fill)
    for pixels in PICTURES.values():
        expected = warped(pixels, fill, lambda image: functional.affine(image, translate=[0, 0], interpolation=BILINEAR, **how))
        off = difference(made(pixels, op), expected)
        assert off.max() <= 1 and off.mean() < (0.02 if angle % 90 else 0.2), "quarter turns have halves to round"


@pytest.mark.parametrize("angle", [10.0, -33.0, 45.5, 90.0, 180.0, 270.0])
def test_a_rotation_is_torchvisions_within_a_level_border_and_all(angle: float) -> None:
    for pixels in PICTURES.values():
        expected = warped(pixels, 60, lambda image: functional.rotate(image, angle, BILINEAR))
        off = difference(made(pixels, Rotate((angle, angle), fill=60)), expected)
        assert off.max() <= 1 and off.mean() < (0.02 if angle % 90 else 0.2)
        plain = theirs(pixels, lambda image: functional.rotate(image, angle, BILINEAR), False)
        assert difference(made(pixels, Rotate((angle, angle))), plain).max() <= 1, "without a fill its own bytes"


def test_torchvisions_fill_darkens_the_border_and_ours_does_not() -> None:
    """Why `warped` is there: on a flat image of the colour of the fill a rotation changes nothing."""
    flat = np.full((31, 31, 3), 100, np.uint8)
    assert (made(flat, Rotate((20, 20), fill=100)) == 100).all()
    assert theirs(flat, lambda image: functional.rotate(image, 20, BILINEAR, fill=100.0), False).min() < 90


# ---- what is random, with our draws ------------------------------------------------------------------------------------------

COUNT = 12


def places(op: Operation, pixels: Pixels) -> list[tuple[NDArray[Any], Drawn | None]]:
    """What a pipeline made of the same image at some places, and what was drawn for each."""
    out = made(np.repeat(pixels[None], COUNT, 0), op)
    last = lower([op], seed=0, stream=0).ops[-1]
    before = op.padding if isinstance(op, RandomCrop) else (0, 0, 0, 0)
    size = (pixels.shape[0] + before[1] + before[3], pixels.shape[1] + before[0] + before[2])
    return [(image, drawn(Place(0, 0, at), last, size)) for at, image in enumerate(out)]


def test_a_random_resized_crop_is_torchvisions_of_the_same_rectangle() -> None:
    for image, at in places(RandomResizedCrop((24, 30)), PICTURES["photo"]):
        assert at is not None
        expected = functional.resized_crop(
            as_tensor(PICTURES["photo"]), **at, size=[24, 30], interpolation=BILINEAR, antialias=True
        )
        assert difference(image, as_array(expected)).max() <= 1


@pytest.mark.parametrize("mode", ["reflect", "edge", "constant"])
def test_a_random_crop_is_torchvisions_at_the_same_place(mode: str) -> None:
    for image, at in places(RandomCrop((30, 40), (3, 5, 1, 0), mode), PICTURES["photo"]):
        assert at is not None
        padded = functional.pad(as_tensor(PICTURES["photo"]), [3, 5, 1, 0], padding_mode=mode)
        assert np.array_equal(image, as_array(functional.crop(padded, at["top"], at["left"], 30, 40)))


@pytest.mark.parametrize(
    "op", [RandomErasing(0.7, value=(9, 200, 31)), Cutout((9, 20), fill=(9, 200, 31))], ids=["random", "cutout"]
)
def test_an_erased_rectangle_is_torchvisions_at_the_same_place(op: Operation) -> None:
    colour = torch.tensor([9, 200, 31], dtype=torch.uint8)[:, None, None]
    seen = places(op, PICTURES["photo"])
    for image, at in seen:
        expected = as_tensor(PICTURES["photo"])
        if at is not None:
            expected = functional.erase(expected, at["top"], at["left"], at["height"], at["width"], colour)
        assert np.array_equal(image, as_array(expected))
    assert any(at is not None and at["height"] for _, at in seen)


def test_an_affine_map_is_torchvisions_with_the_same_numbers() -> None:
    op = Affine((-40, 30), (0.2, 0.3), (0.7, 1.4), (-10, 12, -5, 8), fill=60)
    for image, at in places(op, PICTURES["photo"]):
        assert at is not None
        how = {"angle": at["degrees"], "translate": at["translate"], "scale": at["scale"], "shear": at["shear"]}
        expected = warped(PICTURES["photo"], 60, lambda image: functional.affine(image, interpolation=BILINEAR, **how))
        assert difference(image, expected).max() <= 1


@pytest.mark.parametrize("hue, levels, mean", [(0, 3, 0.02), (0.1, 6, 0.5)])
def test_jitter_is_torchvisions_with_the_same_factors_in_the_same_order(hue: float, levels: int, mean: float) -> None:
    """A level of difference grows in the steps behind it. With hue tensors are compared with, whose luminance is cut off."""
    offs = []
    for image, at in places(ColorJitter(0.4, 0.4, 0.4, hue), PICTURES["photo"]):
        assert at is not None
        expected = as_tensor(PICTURES["photo"]) if hue else Image.fromarray(PICTURES["photo"])
        for name in at["order"] if hue else [name for name in at["order"] if name != "hue"]:
            expected = getattr(functional, f"adjust_{name}")(expected, at[name])
        offs.append(difference(image, as_array(expected)))
    assert np.max(offs) <= levels and np.mean(offs) < mean


# ---- floats ------------------------------------------------------------------------------------------------------------------


def test_floats_are_torchvisions_to_the_last_bits() -> None:
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    for pixels in PICTURES.values():
        floats = functional.to_dtype(as_tensor(pixels), torch.float32, scale=True)
        assert np.abs(made(pixels, ToFloat()) - as_array(floats)).max() <= 1e-7
        normal = functional.normalize(floats, mean, std)
        assert np.abs(made(pixels, Normalize(tuple(mean), tuple(std))) - as_array(normal)).max() <= 1e-6


# ---- policies ----------------------------------------------------------------------------------------------------------------

NAMES = {kind: "".join(part.capitalize() for part in kind.name.split("_")) for kind in AugmentKind}


def magnitudes(name: str, space: dict[str, Any], bins: int, size: tuple[int, int]) -> Any:
    return space[name][0](bins, *size)


@pytest.mark.parametrize("ours", POLICIES)
def test_the_tables_of_auto_augment_are_torchvisions(ours: str) -> None:
    policies = v2.AutoAugment(v2.AutoAugmentPolicy(ours))._policies
    told = [tuple((NAMES[kind], chance, bin) for kind, chance, bin in pair) for pair in POLICIES[ours]]
    assert told == [tuple((name, chance, bin or 0) for name, chance, bin in pair) for pair in policies]


@pytest.mark.parametrize("size", [(32, 32), (224, 331), (993, 641)])
@pytest.mark.parametrize(
    "bins, kind", [(31, v2.RandAugment), (10, v2.AutoAugment), (11, v2.RandAugment), (31, v2.TrivialAugmentWide)]
)
def test_magnitudes_are_torchvisions_in_every_bin(bins: int, kind: Any, size: tuple[int, int]) -> None:
    """Also where they are cut to whole pixels, bits and levels.

    torchvision computes in 32 bits, and there a whole number may come out just below itself: the move by 16 pixels of
    TrivialAugment is 15 on some machines.
    """
    wide = kind is v2.TrivialAugmentWide
    narrow = (choice for bin in range(bins) for choice in RandAugment(1, bin, bins).choices())
    by_kind: dict[str, list[Augment]] = {}
    for effect, _ in TrivialAugment(bins).choices() if wide else narrow:
        by_kind.setdefault(NAMES[AugmentKind(effect.kind)], []).append(effect)
    space = kind._AUGMENTATION_SPACE
    assert by_kind.keys() | {"Invert"} == space.keys() | {"Identity", "Invert"}
    for name, effects in by_kind.items():
        expected = None if name == "Identity" else magnitudes(name, space, bins, size)
        assert len(effects) == bins and all(effect.mirrored == bool(name in space and space[name][1]) for effect in effects)
        if expected is None:
            assert all(effect.magnitude == 0 for effect in effects)
        elif name.startswith("Translate"):
            side = size[name == "TranslateX"]
            moves = [math.trunc(e.magnitude * (side if e.relative else 1) * (1 + 1e-9)) for e in effects]
            assert moves == [int(float(m) + (1e-5 if wide else 0)) for m in expected]
        else:
            scale = 255 if name == "Solarize" else 1
            assert [e.magnitude for e in effects] == pytest.approx([scale * float(m) for m in expected], rel=1e-6, abs=1e-5)


#: how far an effect may be from torchvision's on Pillow's images (colours), or tensors (warps); translations move whole pixels
LEVELS = {"Color": 1, "Sharpness": 1, "ShearX": 1, "ShearY": 1, "Rotate": 1}


def applied(pixels: Pixels, effects: Sequence[Augment]) -> NDArray[Any]:
    """torchvision's, one after the other, with the drawn signs."""
    bare = v2.RandAugment()
    for effect in effects:
        name, m = NAMES[AugmentKind(effect.kind)], effect.magnitude
        warp = effect.kind <= AugmentKind.ROTATE
        if effect.relative:
            m *= pixels.shape[effect.kind == AugmentKind.TRANSLATE_X] * (1 + 1e-9)
        image = as_tensor(pixels) if warp else Image.fromarray(pixels)
        share = m / 255 if name == "Solarize" else m
        pixels = as_array(bare._apply_image_or_video_transform(image, name, share, BILINEAR, {type(image): None}))
    return pixels


@pytest.mark.parametrize(
    "op",
    [
        *(RandAugment(1, magnitude) for magnitude in (0, 5, 9, 20, 30)),
        TrivialAugment(),
        AutoAugment("cifar10"),
        AutoAugment("svhn"),
    ],
    ids=lambda op: f"{type(op).__name__}-{getattr(op, 'magnitude', '')}{getattr(op, 'policy', '')}",
)
@pytest.mark.parametrize("title", ["photo", "dark"])
def test_every_effect_of_a_policy_is_torchvisions_at_its_magnitude(op: Any, title: str) -> None:
    pixels, count = PICTURES[title], 150
    program = lower([op], seed=0, stream=0)
    seen = set()
    for at, image in enumerate(made(np.repeat(pixels[None], count, 0), op)):
        effects = policy(Place(0, 0, at), program.ops[0], program.choices)
        if len(effects) > 1:  # pairs, where a level may grow, have their parts tested by themselves
            continue
        off = difference(image, applied(pixels, effects))
        names = [NAMES[AugmentKind(effect.kind)] for effect in effects]
        assert off.max() <= max((LEVELS.get(name, 0) for name in names), default=0), (effects, off.max())
        seen.update(names)
    assert len(seen) >= (13 if not isinstance(op, AutoAugment) else 5)


# ---- batches -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("op", [MixUp(1.0, classes=10), CutMix(1.0, classes=10)], ids=["MixUp", "CutMix"])
def test_batches_are_mixed_as_torchvision_does_with_the_same_share_and_box(op: Any, dtype: Any) -> None:
    images = np.stack([picture(20, 16, seed) for seed in range(8)])
    images = images if dtype == np.uint8 else (images / 255).astype(np.float32)
    labels = np.arange(8) % 10
    chosen = draw([op], 0, 0, 0, 0, (16, 20))
    with stoker.arrays(image=images, label=labels).batch(8).blend(op).loader(executor="inline") as loader:
        batch, told = next(iter(loader)), loader.explain(0)
    assert chosen is not None, told
    mixture = chosen[1]

    class Fixed(getattr(v2, type(op).__name__)):  # type: ignore[misc]
        def make_params(self, flat_inputs: Any) -> dict[str, Any]:
            if mixture.box is None:
                return {"lam": mixture.share}
            top, left, bottom, right = mixture.box
            return {"box": (left, top, right, bottom), "lam_adjusted": mixture.share}

    tensors = torch.from_numpy(images.astype(np.float32).transpose(0, 3, 1, 2))
    expected, soft = Fixed(num_classes=10)(tensors, torch.from_numpy(labels))
    off = np.abs(np.asarray(batch["image"], np.float64) - expected.numpy().transpose(0, 2, 3, 1)).max()
    assert off <= (0 if mixture.box else 0.504 if dtype == np.uint8 else 1e-6)
    assert np.abs(np.asarray(batch["label"]) - soft.numpy()).max() <= 1e-6
