"""Distributions of what is drawn, with fixed seeds: angles, factors, places, rates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker.image import (
    Affine,
    CenterCrop,
    ColorJitter,
    CropBox,
    Cutout,
    GaussianBlur,
    HorizontalFlip,
    Invert,
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
    VerticalFlip,
)
from stoker.image.draws import Drawn, in_words
from stoker.image.lower import lower, steps_of
from stoker.kernel import describe, native

from .numpy_twin import draws_at

COUNT = 4000


def draws(op: Operation, size: tuple[int, int] = (40, 60)) -> list[Drawn | None]:
    """What the last kernel operation of `op` draws at 4000 places."""
    return [made[-1] for made in draws_at(lower([op], seed=11, streams=[3]), size, 1, range(COUNT))]


def said(ops: list[Operation], size: tuple[int, int] = (32, 32), box: tuple[float, ...] | None = None) -> list[Drawn]:
    """What was drawn for one image of `size`."""
    program, boxes = lower(ops), None if box is None else np.array([box], np.float32)
    height, width = (np.array([side], np.int32) for side in size)
    [numbers] = describe.draws(program, width, height, boxes, np.zeros(1, np.uint32), np.zeros(1, np.int64)).tolist()
    return in_words(steps_of(ops), numbers, program.choices)


def are_uniform(values: list[float] | np.ndarray, low: float, high: float) -> bool:
    """Kolmogorov's test at one in a million; a fixed seed passes or fails for good."""
    ordered = np.sort(np.asarray(values, float))
    assert ordered[0] >= low and ordered[-1] <= high
    share = (ordered - low) / (high - low)
    steps = np.arange(1, len(ordered) + 1) / len(ordered)
    return bool(max(np.abs(steps - share).max(), np.abs(steps - 1 / len(ordered) - share).max()) < 2.7 / len(ordered) ** 0.5)


def are_equally_likely(values: list[int], count: int) -> bool:
    """Each of 0 .. count-1 about as often as the others, within 5 standard deviations."""
    counts, expected = Counter(values), len(values) / count
    return counts.keys() <= set(range(count)) and all(abs(counts[v] - expected) < 5 * expected**0.5 for v in range(count))


def column(made: list[Drawn | None], name: str) -> list:
    return [each[name] for each in made if each is not None]


def test_angles_are_uniform() -> None:
    assert are_uniform(column(draws(Rotate(10)), "degrees"), -10, 10)
    assert are_uniform([-angle for angle in column(draws(Rotate((5, 30))), "degrees")], 5, 30)


def test_the_parts_of_an_affine_map_are_uniform_and_independent() -> None:
    made = draws(Affine((-20, 40), (0.25, 0.5), (0.5, 2), (-10, 10, 5, 15)), size=(4000, 2000))
    assert are_uniform(column(made, "degrees"), -20, 40) and are_uniform(column(made, "scale"), 0.5, 2)
    x, y = zip(*column(made, "translate"))
    assert are_uniform(x, -500, 500) and are_uniform(y, -2000, 2000)
    across, down = zip(*column(made, "shear"))
    assert are_uniform(across, -10, 10) and are_uniform(down, 5, 15)
    parts = np.corrcoef([column(made, "degrees"), x, y, column(made, "scale"), across, down])
    assert np.abs(parts - np.eye(6)).max() < 5 / COUNT**0.5


def test_factors_are_uniform_and_so_is_their_order() -> None:
    made = draws(ColorJitter(0.4, 0.3, (0.2, 3), 0.1))
    assert are_uniform(column(made, "brightness"), 0.6, 1.4) and are_uniform(column(made, "contrast"), 0.7, 1.3)
    assert are_uniform(column(made, "saturation"), 0.2, 3) and are_uniform(column(made, "hue"), -0.1, 0.1)
    orders = Counter(map(tuple, column(made, "order")))
    assert len(orders) == 24 and all(abs(count - COUNT / 24) < 5 * (COUNT / 24) ** 0.5 for count in orders.values())


def test_sigma_and_sharpness_are_uniform() -> None:
    assert are_uniform(column(draws(GaussianBlur(5, (0.1, 2))), "sigma"), 0.1, 2)
    assert are_uniform(column(draws(Sharpness((0, 3), p=1)), "factor"), 0, 3)


def test_every_place_of_a_crop_is_equally_likely() -> None:
    made = draws(RandomCrop((32, 56)))
    assert are_equally_likely(column(made, "top"), 9) and are_equally_likely(column(made, "left"), 5)
    assert set(column(draws(RandomCrop((40, 60))), "top")) == {0}
    assert draws(RandomCrop(41))[0] == {}, "it does not fit"


@pytest.mark.parametrize("op", [HorizontalFlip(0.3), VerticalFlip(0.3)], ids=str)
def test_flips_come_as_often_as_asked(op: Operation) -> None:
    assert np.mean(column(draws(op), "flipped")) == pytest.approx(0.3, abs=4 * (0.21 / COUNT) ** 0.5)


OFTEN = [
    Solarize(9, 0.3), Posterize(3, 0.3), Invert(0.3), Sharpness(2, 0.3), RandomErasing(0.3), Cutout(3, p=0.3), Rotate(9, p=0.3),
    Affine(9, p=0.3), ColorJitter(0.4, p=0.3), GaussianBlur(3, p=0.3),
]  # fmt: skip


@pytest.mark.parametrize("op", OFTEN, ids=str)
def test_effects_happen_as_often_as_asked(op: Operation) -> None:
    happened = [made is not None for made in draws(op)]
    assert np.mean(happened) == pytest.approx(0.3, abs=4 * (0.21 / COUNT) ** 0.5)


def test_whether_and_how_much_are_independent() -> None:
    factors = column(draws(Sharpness((0, 1), 0.5)), "factor")
    assert are_uniform(factors, 0, 1)


def test_areas_and_aspects_of_erased_rectangles_follow_torchvision() -> None:
    made = draws(RandomErasing(1, scale=(0.05, 0.2), ratio=(0.5, 2)), size=(1000, 1000))
    height, width = np.array(column(made, "height")), np.array(column(made, "width"))
    assert are_uniform(height * width / 1e6, 0.0495, 0.2005)
    assert are_uniform(np.log(height / width), np.log(0.497), np.log(2.012))
    room = np.array(column(made, "top")) / (1000 - height)
    assert are_uniform(room, 0, 1)


def test_a_rectangle_that_never_fits_is_none() -> None:
    assert draws(RandomErasing(1, scale=(1, 1), ratio=(1, 1)), size=(8, 8))[0] == {"top": 0, "left": 0, "height": 0, "width": 0}


def test_the_centre_of_a_cutout_is_any_pixel() -> None:
    made = draws(Cutout(8), size=(20, 20))
    whole = [each for each in made if each is not None and each["height"] == 8]
    assert {each["height"] for each in made if each is not None} == {4, 5, 6, 7, 8}
    assert len(whole) / COUNT == pytest.approx(13 / 20, abs=4 * 0.5 / COUNT**0.5)
    assert are_equally_likely([each["top"] for each in whole], 13)


def test_crops_are_those_the_kernel_plans() -> None:
    program = lower([RandomResizedCrop(8)], seed=11, streams=[3])
    sizes = [(40, 60), (61, 39), (3, 400), (400, 3)]
    for height, width in sizes:
        for position in range(50):
            [[made]] = draws_at(program, (height, width), 1, [position])
            row = native.plan(
                program, np.array([width], np.int32), np.array([height], np.int32), None, np.array([1], np.uint32),
                np.array([position]),
            )[0]  # fmt: skip
            left, top = made["left"], made["top"]
            assert row["view"].tolist() == [left, top, left + made["width"], top + made["height"]]


# ---- what was drawn, in words ------------------------------------------------------------------------------------------


def test_what_was_drawn_is_told_in_the_users_terms() -> None:
    ops = [RandomCrop(32, 4), Rotate((5, 5)), Invert(0), Solarize(9, 1), Resize((8, 8)), RandAugment(1), Affine(0)]
    crop, turn, inverted, policy, warped = said(ops)  # of the others nothing was drawn
    assert crop["operation"] == "RandomCrop" and 0 <= crop["top"] <= 8
    assert turn == {"operation": "Rotate", "degrees": 5.0}
    assert inverted == {"operation": "Invert", "applied": False}
    assert all(effect.keys() <= {"effect", "magnitude"} for effect in policy["effects"])
    assert warped == {
        "operation": "Affine", "degrees": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0],
    }  # fmt: skip


def test_all_numbers_are_told_with_four_digits() -> None:
    [made] = said([Affine(30, (0.1, 0.1), (0.5, 2), (-9, 9, -9, 9))])
    for value in (made["degrees"], made["scale"], *made["shear"]):
        assert value == round(value, 4) != round(value, 2)


def test_a_crop_to_a_box_decides_about_the_draws_behind_it() -> None:
    ops = [CropBox(), RandomCrop(4), Cutout(3, p=0)]
    crop, cut = said(ops, box=(10, 20, 15, 24))
    assert crop["top"] in (0, 1) and crop["left"] == 0 and cut == {"operation": "Cutout", "applied": False}


def test_a_loader_tells_what_made_a_batch(image_folder: Path) -> None:
    ops = [RandomResizedCrop(16), HorizontalFlip(), Rotate(10), ColorJitter(0.4), Solarize(128, 0.5), Cutout(4)]
    with stoker.files(image_folder).shuffle(seed=4).image("image", *ops).batch(6).loader() as loader:
        rows = [row["image image"] for row in loader.explain(1, epoch=2)]
        assert loader.explain(1, epoch=2) == loader.explain(1, epoch=2)
    for row in rows:
        crop, flip, turn, *_, cut = row["drawn"]
        assert (crop["top"], crop["left"]) == (row["crop"]["top"], row["crop"]["left"])
        assert flip["flipped"] == row["flipped"] and not row["upside_down"]
        assert -10 <= turn["degrees"] <= 10 and 1 <= cut["height"] <= 4
    assert len({row["drawn"][2]["degrees"] for row in rows}) == 6


def test_flips_behind_padding_and_effects_are_counted_too() -> None:
    pixels = stoker.arrays(i=np.zeros((4, 8, 8, 3), np.uint8))
    ops = [Pad(1), HorizontalFlip(1), Rotate(5), VerticalFlip(1), HorizontalFlip(1), HorizontalFlip(1), CenterCrop(8)]
    with pixels.image("i", *ops).batch(2).loader() as loader:
        row = loader.explain(0)[0]["image i"]
    assert row["flipped"] and row["upside_down"]
