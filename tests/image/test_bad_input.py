"""Bad input: a clear error that names operation, parameter or sample and the remedy, or a result that is defined."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFilter

import stoker
from stoker.errors import BoxError, ConfigError, ImageTooLarge, SampleError, TruncatedImage, UnsupportedImage
from stoker.image import (
    Affine,
    AutoAugment,
    CenterCrop,
    ColorJitter,
    CropBox,
    CutMix,
    Cutout,
    GaussianBlur,
    HorizontalFlip,
    Invert,
    MixUp,
    Operation,
    Pad,
    Posterize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    Rotate,
    TrivialAugment,
)
from stoker.image.operation import RandomOperation

from ..kernel.images import difference
from ..support import image_bytes, jpeg_bytes
from . import numpy_twin as reference
from .test_operations import EXAMPLES

NAN, INF = math.nan, math.inf

# ---- parameters ----------------------------------------------------------------------------------------------------------------

OPERATIONS: list[Any] = [*EXAMPLES, MixUp(classes=3), CutMix(classes=3)]
PARAMETERS = [(op, field.name) for op in OPERATIONS for field in fields(op)]

#: what no parameter is
NEVER: list[Any] = [
    NAN, INF, -INF, np.float32("nan"), 10**400, -(10**400), 1e300, 1j, np.complex64(1), b"x", object(), int, {}, {1: 2}, [], (),
    (NAN, 1.0), (0.5, INF), (1j, 2), ("a", "b"), (None, None), [[1, 2], [3, 4]], (1, 2, 3, 4, 5), range(2),
    np.zeros((2, 2)), np.zeros(0), np.array(5), np.array([NAN, 1]), np.array("x"),
]  # fmt: skip

_SIZES = ([0, -3, 65536, 2.5, "8", True, (0, 5), (5, 65536), (1, 2, 3)], [1, 65535, (1, 65535), [3, 4], np.int64(7)])
_CHANCES = ([-1e-9, 1.0000001, "0.5", None, True], [0, 1, 0.5, np.float32(0.5)])
_LEVELS = ([-1, 256, 0.5, None, "black"], [0, 255, np.uint8(7)])
_COLOURS = ([*_LEVELS[0], (1, 2), (1, 2, 256), (1, 2, 0.5)], [*_LEVELS[1], (1, 2, 3), np.array([1, 2, 3])])
_FACTORS = ([-0.1, 99.5, (1, 101), (-0.1, 1), (2, 1)], [0, 99, (0, 100), (0.5, 0.5)])
_SIDES = ([-1, 65536, 1.5, (1, -1), (1, 2, 3), None], [0, 65535, (1, 2), (1, 2, 3, 4)])
_RATIOS = ([0, -1, (0, 1), (2, 1), (1, 1e6), None], [1, (0.5, 2)])
_ANGLES = ([-1, 361, (-361, 0), (5, -5), None], [0, 360, (-360, 360), (5, 5)])
#: for every parameter: what lies just outside, and what just inside
EDGES: dict[str, tuple[list[Any], list[Any]]] = {
    "RandomResizedCrop.size": _SIZES,
    "RandomResizedCrop.scale": ([0, (0, 1), (0.5, 1.01), (0.9, 0.1), -1, None], [1, (1e-6, 1), (0.5, 0.5)]),
    "RandomResizedCrop.ratio": _RATIOS,
    "Resize.size": _SIZES,
    "CenterCrop.size": _SIZES,
    "RandomCrop.size": _SIZES,
    "RandomCrop.pad": _SIDES,
    "RandomCrop.pad_mode": (["mirror", "", None, 1], ["reflect", "edge", "constant"]),
    "Pad.padding": _SIDES,
    "Pad.mode": (["mirror", "", None, 1], ["reflect", "edge", "constant"]),
    "Pad.fill": _COLOURS,
    "CropBox.field": (["", None, 1], ["box"]),
    "CropBox.relative": ([None, 1, "yes"], [True, False]),
    "HorizontalFlip.p": _CHANCES,
    "VerticalFlip.p": _CHANCES,
    "Rotate.degrees": _ANGLES,
    "Rotate.fill": _LEVELS,
    "Rotate.p": _CHANCES,
    "Affine.degrees": _ANGLES,
    "Affine.translate": ([0.5, (0.5, 1.1), (-0.1, 0), (0.1,)], [None, (0, 1)]),
    "Affine.scale": ([0, (0, 1), (2, 1), (1, 101)], [None, (0.01, 100), 2]),
    "Affine.shear": ([90, -5, (-90, 0), (5, -5), (1, 2, 3), (0, 0, 0, 90)], [None, 0, 89.9, (-5, 5), (0, 0, -89, 89)]),
    "Affine.fill": _LEVELS,
    "Affine.p": _CHANCES,
    "ColorJitter.brightness": _FACTORS,
    "ColorJitter.contrast": _FACTORS,
    "ColorJitter.saturation": _FACTORS,
    "ColorJitter.hue": ([-0.1, 0.51, (-0.51, 0), (0.2, 0.1), None], [0, 0.5, (-0.5, 0.5)]),
    "ColorJitter.p": _CHANCES,
    "Grayscale.p": _CHANCES,
    "GaussianBlur.kernel_size": ([0, 2, 257, -1, 3.0, (3, 3), None], [1, 3, 255]),
    "GaussianBlur.sigma": ([0, -1, (0, 1), (2, 1), 1001, None], [1e-3, 1000, (0.1, 0.1)]),
    "GaussianBlur.p": _CHANCES,
    "Solarize.threshold": ([-1, 256, None], [0, 255, 127.5]),
    "Solarize.p": _CHANCES,
    "Posterize.bits": ([-1, 9, 2.5, None], [0, 8]),
    "Posterize.p": _CHANCES,
    "Equalize.p": _CHANCES,
    "AutoContrast.p": _CHANCES,
    "Sharpness.factor": ([-0.1, 101, (2, 1), None], [0, 100, (0, 100)]),
    "Sharpness.p": _CHANCES,
    "Invert.p": _CHANCES,
    "Cutout.size": _SIZES,
    "Cutout.fill": _COLOURS,
    "Cutout.p": _CHANCES,
    "RandomErasing.p": _CHANCES,
    "RandomErasing.scale": ([-0.1, 1.1, (0.5, 0.1), None], [0, (0, 1)]),
    "RandomErasing.ratio": _RATIOS,
    "RandomErasing.value": ([*_COLOURS[0], "noise", ""], [*_COLOURS[1], "random"]),
    "RandAugment.n": ([-1, 65, 1.5, None], [0, 64]),
    "RandAugment.magnitude": ([-1, 31, 1.5, None], [0, 30]),
    "RandAugment.bins": ([1, 1001, 2.5, None], [10, 1000]),
    "RandAugment.fill": _LEVELS,
    "TrivialAugment.bins": ([1, 1001, 2.5, None], [2, 1000]),
    "TrivialAugment.fill": _LEVELS,
    "AutoAugment.policy": (["coco", "", None, 1], ["imagenet", "cifar10", "svhn", [[("Invert", 0, None)]]]),
    "AutoAugment.fill": _LEVELS,
    "Normalize.mean": ([11, -11, (123.7, 116.3, 103.5), (1, 2), None, "x"], [0, -10, (1, 2, 3), np.array([0.1, 0.2, 0.3])]),
    "Normalize.std": ([0, -1, 1e-7, 255, (58.4, 57.1, 57.4), (1, 0, 1), (1, 2), None], [1e-6, 10, (1, 2, 3)]),
    "MixUp.alpha": ([0, -1, 1e7, None, "1"], [1e-6, 1e6]),
    "MixUp.classes": ([0, -1, 1.5, 1 << 18, None], [1, 1 << 17]),
    "MixUp.p": _CHANCES,
    "CutMix.alpha": ([0, -1, 1e7, None, "1"], [1e-6, 1e6]),
    "CutMix.classes": ([0, -1, 1.5, 1 << 18, None], [1, 1 << 17]),
    "CutMix.p": _CHANCES,
}
EDGES |= {f"{type(op).__name__}.stream": (["", 0, True], [None, "view"]) for op in EXAMPLES if isinstance(op, RandomOperation)}
parameters = pytest.mark.parametrize("op, name", PARAMETERS, ids=[f"{type(op).__name__}.{name}" for op, name in PARAMETERS])


def with_one(op: Any, name: str, value: Any) -> Any:
    """The operation, but for one parameter."""
    return type(op)(**{**{field.name: getattr(op, field.name) for field in fields(op)}, name: value})


def refused(op: Any, name: str, value: Any) -> None:
    """The error names operation, parameter and value, and says what may stand there."""
    with pytest.raises(ConfigError) as caught:
        with_one(op, name, value)
    told = str(caught.value)
    assert told.startswith(type(op).__name__) and f"{name}={value!r}" in told, told
    assert any(word in told for word in ("number", "range", "one of", "pixels", "name", "True", "random", "above", " to ")), told


def test_every_parameter_of_every_operation_is_in_the_table() -> None:
    assert EDGES.keys() == {f"{type(op).__name__}.{name}" for op, name in PARAMETERS}


@parameters
def test_what_is_no_number_and_no_word_is_refused_everywhere(op: Any, name: str) -> None:
    for value in NEVER:
        refused(op, name, value)


@parameters
def test_what_lies_just_outside_is_refused_and_what_lies_just_inside_is_not(op: Any, name: str) -> None:
    outside, inside = EDGES[f"{type(op).__name__}.{name}"]
    for value in outside:
        refused(op, name, value)
    for value in inside:
        made = with_one(op, name, value)
        assert with_one(made, name, getattr(made, name)) == made and hash(made) == hash(with_one(op, name, value))


# ---- odd images ----------------------------------------------------------------------------------------------------------------

ODD = {
    "one pixel": (1, 1, 3),
    "a row": (1, 9, 3),
    "a column": (9, 1, 3),
    "two by two": (2, 2, 3),
    "gray": (5, 6),
    "gray, one pixel": (1, 1),
    "gray with a channel": (5, 6, 1),
    "RGBA": (5, 6, 4),
    "RGBA, one pixel": (1, 1, 4),
    "a long row": (1, 90, 3),
}
#: everything at its strongest, as far as it is defined for any image
STRONG: list[Operation] = [
    RandomResizedCrop(7), Resize(9), Resize((5, 6)), CenterCrop(5), RandomCrop(4, 4), RandomCrop(3, (1, 2, 3, 4), "edge"),
    RandomCrop(1), Pad((1, 2, 3, 4), fill=9), Pad(20, "reflect"), Pad(20, "edge"), Rotate(180), GaussianBlur(255, (50, 100)),
    Affine(180, (1, 1), (0.01, 100), (-89, 89, -89, 89), fill=9), ColorJitter(99, 99, 99), ColorJitter(hue=0.5), Posterize(0, 1),
    Cutout(9, 3), RandomErasing(1), RandomErasing(1, (0, 0)), RandomErasing(1, (1, 1), (1, 1)), RandomErasing(1, value="random"),
    RandAugment(8, 30),
]  # fmt: skip
#: a level of difference grows in the steps behind it
CHAINS = (ColorJitter, RandAugment, TrivialAugment, AutoAugment)


def run(pixels: NDArray[Any], *ops: Operation, color: str = "rgb", **fields: Any) -> Any:
    with (
        stoker.arrays(image=pixels, **fields)
        .image("image", *ops, color=color)
        .batch(len(pixels))
        .loader(executor="inline") as loader
    ):
        return next(iter(loader))["image"]


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("kind", ODD)
def test_odd_images_come_through_every_operation_as_the_reference_has_it(kind: str, color: str) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (6, *ODD[kind]), np.uint8)
    examples = [op for op in EXAMPLES if not isinstance(op, (RandomCrop, CropBox))]
    for op in [*examples, *STRONG]:
        made = run(pixels, op, color=color)
        for at in range(6):
            expected = reference.apply([op], pixels[at], 0, 0, at, color=color)
            assert made[at].shape == expected.shape and made[at].dtype == expected.dtype, op
            if not isinstance(op, CHAINS):
                off = difference(made[at], expected) if expected.dtype == np.uint8 else np.abs(made[at] - expected)
                assert off.max() <= (1 if expected.dtype == np.uint8 else 0), op


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_gray_and_rgba_are_the_rgb_they_stand_for(color: str) -> None:
    ops = (RandomResizedCrop(9), HorizontalFlip(), ColorJitter(0.4, 0.4, 0.4, 0.1), RandAugment(), Cutout(3))
    rgba = np.random.default_rng(3).integers(0, 256, (6, 12, 10, 4), np.uint8)
    assert np.array_equal(run(rgba, *ops, color=color), run(rgba[..., :3].copy(), *ops, color=color))
    gray = rgba[..., 0].copy()
    same = run(np.repeat(gray[..., None], 3, -1), *ops, color=color)
    assert np.array_equal(run(gray, *ops, color=color), same)
    assert np.array_equal(run(gray[..., None], *ops, color=color), same)


def test_an_image_smaller_than_the_crop_is_padded_by_the_centre_and_an_error_at_random(tmp_path: Path) -> None:
    small = np.full((2, 4, 6, 3), 9, np.uint8)
    made = run(small, CenterCrop((8, 5)))
    assert made.shape == (2, 8, 5, 3) and (made[:, 2:6] == 9).all() and not made[:, :2].any() and not made[:, 6:].any()
    with pytest.raises(
        BoxError, match=r"^sample '0': a random crop of 5x5 does not fit into a 6x4 image; pad or resize it before"
    ) as caught:
        run(small, RandomCrop(5))
    assert caught.value.key == "0" and "on_error('skip')" in str(caught.value)
    (tmp_path / "tiny.jpg").write_bytes(jpeg_bytes(6, 4))
    with pytest.raises(BoxError, match=r"tiny\.jpg.* a random crop of 5x5 does not fit into a 6x4"):
        list(stoker.files(tmp_path, labels=None).image("image", RandomCrop(5)))
    assert run(small, RandomCrop((4, 6))).shape == (2, 4, 6, 3), "one that just fits"


def test_an_image_shrunk_until_it_is_gone_is_all_fill() -> None:
    pixels = np.full((16, 31, 33, 3), 200, np.uint8)
    shrunk = Affine(180, (1, 1), (1e-6, 1e-3), (-30, 30, -30, 30), fill=7)
    expected = np.stack([reference.apply([shrunk], pixels[row], position=row) for row in range(16)])
    assert np.abs(run(pixels, shrunk).astype(int) - expected).max() <= 1
    gone = Affine(0, scale=(2e-4, 2e-4), fill=7)  # the centre is a pixel's, which would still hit it
    assert (run(pixels, gone) == 7).all() and (reference.apply([gone], pixels[0]) == 7).all()
    barely = Affine(0, scale=(3e-4, 3e-4), fill=7)
    assert (run(pixels, barely)[:, 15, 16] == 200).all() and (reference.apply([barely], pixels[0])[15, 16] == 200).all()


# ---- no images -----------------------------------------------------------------------------------------------------------------

PIXELS = np.zeros((4, 8, 8, 3), np.uint8)


@pytest.mark.parametrize("given", [np.float32, np.float64, np.int64, np.uint16, bool], ids=lambda kind: kind.__name__)
def test_arrays_of_other_types_are_refused_before_anything_runs(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"image\('image'\): the field holds .*\[8, 8, 3\]; use encoded bytes or uint8 pixels"):
        run(PIXELS.astype(given), Resize((4, 4)))


@pytest.mark.parametrize("shape", [(2, 5, 5, 3), ()], ids=str)
def test_arrays_of_too_few_or_too_many_dimensions_are_refused_before_anything_runs(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"use encoded bytes or uint8 pixels \(height, width\[, 1, 3 or 4\]\)"):
        run(np.zeros((4, *shape), np.uint8), Resize((4, 4)))


def test_channels_that_stand_first_are_refused_before_anything_runs() -> None:
    first = r"uint8\[3, 8, 8\]; use encoded .*; expected channels last \(height, width, channels\), got them first$"
    with pytest.raises(ConfigError, match=first):
        run(PIXELS.transpose(0, 3, 1, 2), Resize((4, 4)))
    with pytest.raises(ConfigError, match=first):
        len(stoker.arrays(image=PIXELS).image("image", layout="chw").image("image", Resize((4, 4))))
    with pytest.raises(ConfigError, match=r"uint8\[3, \?, \?\].* expected channels last"):
        len(stoker.arrays(image=PIXELS).decode("image", format="torch").image("image", Resize((4, 4))))
    with pytest.raises(
        ConfigError, match=r"uint8\[8, 8, 2\]; use encoded bytes or uint8 pixels \(height, width\[, 1, 3 or 4\]\)$"
    ):
        run(PIXELS[..., :2], Resize((4, 4)))


@pytest.mark.parametrize("name", ["fast", "orient", "relative_boxes"])
def test_words_are_no_flags(name: str) -> None:
    images = stoker.arrays(image=PIXELS, box=np.zeros((4, 4)))
    for value in ("no", None, 2):
        with pytest.raises(ConfigError, match=rf"image\({name}={value!r}\): choose True or False"):
            images.image("image", boxes="box", **{name: value})
    assert images.image("image", boxes="box", **{name: np.True_}).plan == images.image("image", boxes="box", **{name: True}).plan
    with pytest.raises(ConfigError, match=r"decode\(orient='exif'\): choose True or False"):
        images.decode("image", orient="exif")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"image\('image', boxes=3\): must be the name of the field that holds boxes, or several"
    ):
        images.image("image", boxes=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given, told",
    [
        (HorizontalFlip, r"that is its class: write HorizontalFlip\(\.\.\.\)$"),
        ([HorizontalFlip()], r"pass several separately: image\(field, \*ops\)$"),
        (MixUp(0.2, classes=3), r"it mixes batches: use \.blend\(MixUp\(\.\.\.\)\) after batch\(\)$"),
        (np.flip, r"use \.decode\('image'\) and \.map\(image=fn\) for a function$"),
        (224, r"pass operations, as in image\('image', RandomResizedCrop\(224\), HorizontalFlip\(\)\)$"),
    ],
    ids=["class", "list", "mixing", "function", "number"],
)
def test_what_is_no_operation_is_told_what_was_meant(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"not an operation of stoker.image; {told}"):
        stoker.arrays(image=PIXELS).image("image", given)


@pytest.mark.parametrize(
    "value, error, told",
    [
        (np.zeros((8, 8, 3), np.float32), UnsupportedImage, r"float32\[8, 8, 3\] is neither encoded bytes nor uint8 pixels"),
        (np.zeros((8, 8, 2), np.uint8), UnsupportedImage, r"uint8\[8, 8, 2\] is neither"),
        (np.zeros((8, 8, 5), np.uint8), UnsupportedImage, r"uint8\[8, 8, 5\] is neither"),
        (np.zeros((0, 8, 3), np.uint8), UnsupportedImage, r"shape \[0, 8, 3\] has no pixel"),
        (np.zeros((0, 0), np.uint8), UnsupportedImage, r"shape \[0, 0\] has no pixel"),
        ([1, 2, 3], UnsupportedImage, "is neither"),
        ("cat.jpg", UnsupportedImage, "is neither"),
        (b"", TruncatedImage, "no bytes"),
        (b"hello", UnsupportedImage, "it begins with b'hello' and is not a supported image"),
        (jpeg_bytes(9, 9)[:-30], TruncatedImage, "end"),
    ],
    ids=lambda value: "" if not isinstance(value, str) else value[:30],
)
def test_what_is_no_image_is_an_error_that_names_the_sample(value: Any, error: type[SampleError], told: str) -> None:
    stage = stoker.arrays(image=PIXELS).map(image=lambda image: value).image("image", Resize((4, 4)))
    with pytest.raises(error, match=f"^sample '0': .*{told}.*replace it, or skip it") as caught:
        list(stage)
    assert caught.value.key == "0"


def test_arrays_without_pixels_are_errors_too() -> None:
    with pytest.raises(UnsupportedImage, match=r"^sample '0': .*\[0, 5, 3\] has no pixel"):
        run(np.zeros((2, 0, 5, 3), np.uint8), Resize((4, 4)))


def test_any_memory_layout_and_any_library_s_images_will_do() -> None:
    torch = pytest.importorskip("torch")
    pixels = np.random.default_rng(1).integers(0, 256, (8, 10, 3), np.uint8)
    expected = run(pixels[None, ::-1, ::-2].copy(), Resize((4, 4)))[0]
    forms: list[Any] = [
        lambda at: pixels[::-1, ::-2],
        lambda at: np.asfortranarray(pixels[::-1, ::-2]),
        lambda at: Image.fromarray(np.ascontiguousarray(pixels[::-1, ::-2])),
        lambda at: torch.from_numpy(pixels[::-1, ::-2].copy()),
    ]
    for form in forms:
        (sample,) = stoker.arrays(image=np.arange(1)).map(image=form).image("image", Resize((4, 4)))
        assert np.array_equal(sample["image"], expected)


# ---- too large -----------------------------------------------------------------------------------------------------------------


TOO_LARGE = r"image\('image'\): .* more than max_pixels=100,000,000; make them smaller, or raise"


@pytest.mark.parametrize("op", [Resize((65535, 65535)), CenterCrop(65535), RandomResizedCrop(20_000), RandomCrop(65535)], ids=str)
def test_images_that_would_be_too_large_are_refused_at_once(op: Operation) -> None:
    with pytest.raises(ConfigError, match=TOO_LARGE):
        stoker.arrays(image=PIXELS).image("image", op)


@pytest.mark.parametrize("op", [Resize(65535), Pad(30_000), Pad(65_535)], ids=str)
def test_pixels_that_would_become_too_large_are_refused_before_anything_runs(op: Operation) -> None:
    with pytest.raises(ConfigError, match=TOO_LARGE):
        stoker.arrays(image=PIXELS).image("image", op).explain()


@pytest.mark.parametrize(
    "ops, error, told",
    [
        ([Resize(65535)], ImageTooLarge, "a 8x8 image would become 65535x65535 = 4294836225 pixels, more than the limit"),
        ([Pad(30_000)], ImageTooLarge, "would become 60008x60008"),
        ([Pad(30_000), Invert(1), CenterCrop(8)], ImageTooLarge, "would become 60008x60008"),
        ([Resize(30_000), Invert(1), CenterCrop(8)], ImageTooLarge, "would become 30000x30000"),
        ([Invert(1), Resize(30_000), Invert(1), CenterCrop(8)], ImageTooLarge, "would become 30000x30000"),
        ([Pad(65_535)], BoxError, "padding makes a 8x8 image 131078x131078, of 65535 a side at most"),
        ([RandomCrop(8, 65_535)], BoxError, "padding makes a 8x8 image 131078x131078"),
        ([Resize(500), Pad(1)], BoxError, "the longer side of a 300x2 image would become 75000, of 65535 at most"),
    ],
    ids=str,
)
def test_a_sample_that_would_become_too_large_is_an_error_of_it(ops: Any, error: type[SampleError], told: str) -> None:
    pixels = np.zeros((2, 2, 300, 3), np.uint8) if "300x2" in told else PIXELS
    stage = stoker.arrays(image=pixels).map(image=np.copy).image("image", *ops)  # a function: the size is not known in advance
    with pytest.raises(error, match=f"^sample '0': .*{told}.*skip it with"):
        list(stage)


def test_a_border_that_a_crop_cuts_away_costs_nothing() -> None:
    assert run(PIXELS, Pad(30_000, "reflect"), RandomCrop(8)).shape == (4, 8, 8, 3)
    assert run(PIXELS, Resize((10_000, 10_000)), CenterCrop(8)).shape == (4, 8, 8, 3)


def test_more_pixels_may_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="max_pixels=99"):
        stoker.arrays(image=PIXELS).image("image", Resize((10, 10)), max_pixels=99)
    (sample, *_) = stoker.arrays(image=PIXELS).image("image", Resize((10, 10)), max_pixels=100)
    assert sample["image"].shape == (10, 10, 3)


# ---- boxes ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "box, told",
    [
        ([100, 100, 200, 200], "holds no pixel of a 8x8 image"),
        ([-9, -9, -1, -1], "holds no pixel"),
        ([5, 5, 2, 2], r"ymin 5, xmin 5, ymax 2, xmax 2.* holds no pixel"),
        ([1, 1, 1, 4], "holds no pixel"),
        ([NAN, 0, 4, 4], "ymin nan.* holds no pixel"),
        ([0, 0, INF, 4], "ymax inf.* holds no pixel"),
        ([0, 0, 4], "not four numbers"),
        ([[0, 0, 4, 4], [0, 0, 5, 5]], "not four numbers"),
        ("nowhere", "not four numbers"),
        (None, "not four numbers|holds no pixel"),
    ],
    ids=str,
)
def test_a_crop_to_what_is_no_box_is_an_error_that_names_the_sample(box: Any, told: str) -> None:
    given = stoker.arrays(image=PIXELS, box=np.zeros((4, 4), np.float32)).map(box=lambda old: box)
    with pytest.raises(BoxError, match=f"(?s)^sample '0': the box .*({told}).*skip it with"):
        list(given.image("image", CropBox(), Resize((4, 4))))


@pytest.mark.parametrize(
    "box, becomes",
    [
        ([100, 100, 200, 200], [8, 8, 8, 8]),
        ([-9, -9, -1, -1], [0, 0, 0, 0]),
        ([6, 5, 2, 1], [2, 1, 6, 5]),
        ([-INF, -INF, INF, INF], [0, 0, 8, 8]),
        ([NAN, 0, 4, 4], [NAN] * 4),
        ([], []),
    ],
    ids=str,
)
def test_boxes_that_follow_have_defined_results(box: Any, becomes: Any) -> None:
    given = stoker.arrays(image=PIXELS, box=np.zeros((4, 4), np.float32)).map(box=lambda old: box)
    (first, *_) = given.image("image", CenterCrop(8), boxes="box")
    assert np.array_equal(np.ravel(first["box"]), becomes, equal_nan=True)


@pytest.mark.parametrize("box", [[1, 2, 3], "nowhere", [[1, 2], [3, 4]], None], ids=str)
def test_boxes_that_are_none_are_errors_that_name_the_sample(box: Any) -> None:
    given = stoker.arrays(image=PIXELS, box=np.zeros((4, 4), np.float32)).map(box=lambda old: box)
    with pytest.raises(BoxError, match=r"^sample '0': "):
        list(given.image("image", CenterCrop(8), boxes="box"))


# ---- floats to be mixed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [NAN, INF, -INF])
@pytest.mark.parametrize("op", [MixUp(1.0, classes=4), CutMix(1.0, classes=4)], ids=["MixUp", "CutMix"])
def test_odd_floats_stay_in_their_image_and_the_one_behind_it(op: Any, odd: float) -> None:
    images = np.random.default_rng(2).uniform(0, 1, (4, 6, 6, 3)).astype(np.float32)
    images[1, 2, 3, 0] = odd
    with stoker.arrays(image=images, label=np.arange(4)).batch(4).blend(op).loader(executor="inline") as loader:
        batch = next(iter(loader))
    strange = ~np.isfinite(np.asarray(batch["image"]))
    assert not strange[[0, 3]].any() and strange[1:3].sum() in (1, 2) and np.isfinite(batch["label"]).all()


# ---- other libraries' functions ------------------------------------------------------------------------------------------------


def photographs() -> stoker.Pipeline:
    files = [jpeg_bytes(40, 30), image_bytes(20, 30, mode="L", format="PNG"), image_bytes(30, 30, mode="RGBA", format="PNG")]
    return stoker.arrays(image=np.arange(3)).map(image=lambda at: files[at])


def test_pillows_functions_drop_in() -> None:
    stage = (
        photographs().decode("image", format="pil").map(image=lambda image: image.filter(ImageFilter.BoxBlur(2)).resize((16, 16)))
    )
    (batch,) = stage.map(image=np.asarray).batch(3)
    first = Image.fromarray(next(iter(photographs().decode("image")))["image"]).filter(ImageFilter.BoxBlur(2)).resize((16, 16))
    assert np.array_equal(batch["image"][0], np.asarray(first)) and np.asarray(batch["image"]).shape == (3, 16, 16, 3)


def test_opencvs_functions_drop_in() -> None:
    cv2 = pytest.importorskip("cv2")
    stage = photographs().decode("image").map(image=lambda image: cv2.resize(cv2.medianBlur(image, 3), (16, 16)))
    (batch,) = stage.image("image", CenterCrop(16), HorizontalFlip(1)).batch(3)
    first = cv2.resize(cv2.medianBlur(next(iter(photographs().decode("image")))["image"], 3), (16, 16))
    assert np.array_equal(batch["image"][0], first[:, ::-1])


def test_torchvisions_transforms_drop_in() -> None:
    from .vision import torch, v2

    steps = v2.Compose([v2.Resize((16, 16)), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)])
    (batch,) = photographs().decode("image", format="torch").map(image=steps).batch(3)
    first = steps(next(iter(photographs().decode("image", format="torch")))["image"])
    assert torch.equal(torch.as_tensor(batch["image"])[0], first) and tuple(batch["image"].shape) == (3, 3, 16, 16)
