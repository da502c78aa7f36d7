"""The reference implementation against Pillow, colorsys and the definitions: what the kernel is held to is itself right."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from stoker.errors import BoxError
from stoker.image import (
    CenterCrop,
    CropBox,
    Cutout,
    Grayscale,
    HorizontalFlip,
    Invert,
    Normalize,
    Pad,
    RandomCrop,
    RandomErasing,
    Resize,
    Rotate,
    ToFloat,
    VerticalFlip,
)
from stoker.kernel.native import Augment, AugmentKind, Border

from ..kernel.images import difference, picture
from . import numpy_twin as reference

PICTURES = {
    "photo": picture(61, 47),
    "noise": np.random.default_rng(0).integers(0, 256, (33, 40, 3), dtype=np.uint8),
    "flat": np.full((9, 11, 3), 77, np.uint8),
    "dark": picture(30, 30) // 4 + 20,
    "two": np.array([[[0, 10, 200], [255, 10, 100]]], np.uint8),
    "one": np.array([[[1, 2, 3]]], np.uint8),
}
pictures = pytest.mark.parametrize("name", PICTURES)


def pil(name: str) -> Image.Image:
    return Image.fromarray(PICTURES[name])


@pictures
@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 1.9, 3.7])
@pytest.mark.parametrize(
    "ours, theirs",
    [
        (reference.brightness, ImageEnhance.Brightness),
        (reference.contrast, ImageEnhance.Contrast),
        (reference.saturation, ImageEnhance.Color),
        (reference.sharpness, ImageEnhance.Sharpness),
    ],
    ids=lambda value: value.__name__,
)
def test_enhancements_are_pillows(name: str, ours: Callable, theirs: Callable, factor: float) -> None:
    assert np.array_equal(ours(PICTURES[name], factor), theirs(pil(name)).enhance(factor))


@pictures
@pytest.mark.parametrize(
    "ours, theirs",
    [
        (reference.equalize, ImageOps.equalize),
        (reference.auto_contrast, ImageOps.autocontrast),
        (lambda image: reference.apply([Invert(1)], image), ImageOps.invert),
        (lambda image: reference.apply([Grayscale(1)], image), lambda image: image.convert("L").convert("RGB")),
        (lambda image: reference.apply([], image, color="gray")[:, :, 0], lambda image: image.convert("L")),
        (lambda image: reference.solarize(image, 100), lambda image: ImageOps.solarize(image, 100)),
        (lambda image: reference.posterize(image, 3), lambda image: ImageOps.posterize(image, 3)),
        (lambda image: reference.apply([HorizontalFlip(1)], image), ImageOps.mirror),
        (lambda image: reference.apply([VerticalFlip(1)], image), ImageOps.flip),
        (lambda image: reference.apply([Pad((1, 2, 3, 4), fill=(5, 6, 7))], image),
         lambda image: ImageOps.expand(image, (1, 2, 3, 4), (5, 6, 7))),
    ],
    ids=["equalize", "autocontrast", "invert", "grayscale", "luminance", "solarize", "posterize", "mirror", "flip", "pad"],
)  # fmt: skip
def test_tables_and_moves_are_pillows(name: str, ours: Callable, theirs: Callable) -> None:
    assert np.array_equal(ours(PICTURES[name]), theirs(pil(name)))


@pytest.mark.parametrize("turns", [-0.5, -0.21, 0.0, 0.1, 0.37, 0.5])
def test_hues_are_turned_as_colorsys_does(turns: float) -> None:
    pixels = PICTURES["noise"][:8]
    turned = reference.hue(pixels, turns)
    for before, after in zip(pixels.reshape(-1, 3), turned.reshape(-1, 3)):
        h, s, v = colorsys.rgb_to_hsv(*before.tolist())
        assert difference(after, np.rint(colorsys.hsv_to_rgb((h + turns) % 1, s, v))).max() <= 1


@pytest.mark.parametrize("size", [(20, 30), (100, 90), (47, 61), (1, 1)])
def test_resizing_is_pillows_within_a_level(size: tuple[int, int]) -> None:
    expected = pil("photo").resize(size[::-1], Image.Resampling.BILINEAR)
    assert difference(reference.apply([Resize(size)], PICTURES["photo"]), expected).max() <= 1


@pytest.mark.parametrize("angle", [10.0, -33.0, 90.0, 180.0])
def test_rotation_is_pillows_away_from_the_border(angle: float) -> None:
    """Pillow takes the fill where a pixel's centre lies outside; here, as in torchvision, the border blends with it."""
    square = picture(64, 64) // 2 + 60
    ours = reference.apply([Rotate((angle, angle))], square)
    theirs = np.asarray(Image.fromarray(square).rotate(angle, Image.Resampling.BILINEAR))
    y, x = np.mgrid[:64, :64] - 31.5
    inside = np.hypot(x, y) < 30
    assert difference(ours, theirs)[inside].max() <= 1


def test_quarter_turns_move_whole_pixels() -> None:
    square = picture(32, 32)
    for quarters in range(4):
        assert np.array_equal(reference.apply([Rotate((90 * quarters,) * 2)], square), np.rot90(square, quarters))


@pytest.mark.parametrize(
    "kind, matrix", [(AugmentKind.SHEAR_X, (1, 0.3, 0, 0, 1, 0)), (AugmentKind.SHEAR_Y, (1, 0, 0, 0.3, 1, 0))]
)
def test_shears_go_the_way_of_the_published_policies(kind: AugmentKind, matrix: tuple[float, ...]) -> None:
    square = picture(64, 64) // 2 + 60
    ours = reference.augment(square, Augment(kind, magnitude=0.3))
    theirs = np.asarray(Image.fromarray(square).transform((64, 64), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR))
    assert difference(ours, theirs)[2:40, 2:40].max() <= 1


def test_translations_are_cut_to_whole_pixels_and_go_right_and_down() -> None:
    square = picture(20, 20)
    right = reference.augment(square, Augment(AugmentKind.TRANSLATE_X, relative=True, magnitude=0.19, fill=5))
    assert np.array_equal(right[:, 3:], square[:, :-3]) and (right[:, :3] == 5).all()
    up = reference.augment(square, Augment(AugmentKind.TRANSLATE_Y, magnitude=-2.9))
    assert np.array_equal(up[:-2], square[2:]) and not up[-2:].any()


def test_a_blur_is_a_gaussian_and_keeps_the_mean() -> None:
    dot = np.zeros((15, 15, 1), np.uint8)
    dot[7, 7] = 255
    weights = np.exp(-0.5 * (np.arange(-3, 4) / 1.5) ** 2)
    expected = 255 * np.outer(weights, weights) / weights.sum() ** 2
    assert difference(reference.gaussian_blur(dot, 7, 1.5)[4:11, 4:11, 0], np.rint(expected)).max() == 0
    assert (reference.gaussian_blur(PICTURES["flat"], 9, 3) == 77).all()
    assert np.array_equal(reference.gaussian_blur(PICTURES["one"], 5, 1), PICTURES["one"])


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_borders_are_mirrored_or_repeated(mode: str) -> None:
    row = np.array([[1, 2, 3]], np.uint8)
    expected = {"reflect": [3, 2, 1, 2, 3, 2, 1], "edge": [1, 1, 1, 2, 3, 3, 3]}[mode]
    made = reference.pad(row[:, :, None], 2, 0, 2, 0, Border[mode.upper()])
    assert made[0, :, 0].tolist() == expected


def test_crops_cut_what_they_say() -> None:
    pixels = PICTURES["photo"]
    assert np.array_equal(reference.apply([CenterCrop((20, 30))], pixels), pixels[14:34, 16:46])
    assert np.array_equal(reference.apply([CropBox()], pixels, box=(1.5, 2, 9.2, 99)), pixels[1:10, 2:])
    assert np.array_equal(reference.apply([CropBox(relative=True)], pixels, box=(0, 0, 0.5, 0.5)), pixels[:24, :31])
    padded = np.pad(pixels, ((4, 4), (4, 4), (0, 0)), "reflect")
    found = reference.apply([RandomCrop(30, 4)], pixels, seed=3)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (30, 30, 3))[:, :, 0]
    assert (windows == found).all(axis=(2, 3, 4)).any()
    for box in [None, (5, 5, 5, 9), (0, 0, float("nan"), 1), (900, 0, 999, 9)]:
        with pytest.raises(BoxError):
            reference.apply([CropBox()], pixels, box=box)
    with pytest.raises(BoxError, match="does not fit"):
        reference.apply([RandomCrop(99)], pixels)


def test_a_rectangle_is_erased_and_nothing_else() -> None:
    pixels = PICTURES["photo"].clip(1, 254)
    cut = reference.apply([Cutout(8, fill=(255, 0, 255))], pixels, seed=1)
    changed = (cut != pixels).any(axis=2)
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    assert changed.sum() == len(rows) * len(columns) <= 64 and (cut[changed] == (255, 0, 255)).all()


def test_noise_has_all_values_about_equally_often() -> None:
    made = reference.apply([RandomErasing(1, scale=(0.8, 0.8), ratio=(1, 1), value="random")], np.zeros((200, 200, 3), np.uint8))
    counts = np.bincount(made[made.any(axis=2)].ravel(), minlength=256)
    assert abs(counts - counts.mean()).max() < 6 * counts.mean() ** 0.5


def test_floats_are_made_last() -> None:
    pixels = PICTURES["noise"]
    floats = reference.apply([ToFloat()], pixels)
    assert floats.dtype == np.float32 and np.allclose(floats, pixels / 255)
    normal = reference.apply([Normalize((0.1, 0.2, 0.3), (1, 2, 4))], pixels)
    assert np.allclose(normal, (pixels / 255 - (0.1, 0.2, 0.3)) / (1, 2, 4), atol=1e-6)


def test_the_place_of_a_sample_decides() -> None:
    ops, pixels = [RandomCrop(9), Rotate(30)], PICTURES["photo"]
    same = reference.apply(ops, pixels, 1, 2, 3)
    assert np.array_equal(same, reference.apply(ops, pixels, 1, 2, 3))
    for other in [(0, 2, 3), (1, 0, 3), (1, 2, 4)]:
        assert not np.array_equal(same, reference.apply(ops, pixels, *other))
    assert not np.array_equal(same, reference.apply(ops, pixels, 1, 2, 3, streams=[7, 8]))
