"""What the operations mean: torchvision's definitions, written out again here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.native import Op, OpKind, Program, Status

from .images import center_crop, crop_box, hflip, plan_one, random_resized_crop, resize, resize_short

SIZES = [(500, 375), (375, 500), (100, 100), (1, 900), (900, 1), (227, 223)]


@pytest.mark.parametrize("width, height", SIZES)
def test_resize_short_keeps_the_aspect_as_torchvision_rounds_it(width: int, height: int) -> None:
    size = 64
    row = plan_one(Program(ops=(resize_short(size),)), width, height)
    short, long = min(width, height), max(width, height)
    expected = (size, int(size * long / short))
    assert (row["out_width"], row["out_height"]) == (expected if width <= height else expected[::-1])
    assert row["view"].tolist() == [0, 0, width, height]


@pytest.mark.parametrize("width, height", SIZES)
@pytest.mark.parametrize("crop", [(224, 224), (100, 101), (3, 5)])
def test_center_crop_lies_where_torchvision_puts_it(width: int, height: int, crop: tuple[int, int]) -> None:
    ch, cw = crop
    row = plan_one(Program(ops=(center_crop(ch, cw),)), width, height)
    assert (row["out_height"], row["out_width"]) == crop
    pad_left, pad_top = max(0, (cw - width) // 2), max(0, (ch - height) // 2)
    left = 0 if cw > width else round((width - cw) / 2)
    top = 0 if ch > height else round((height - ch) / 2)
    assert row["dest"].tolist() == [pad_left, pad_top, pad_left + min(cw, width), pad_top + min(ch, height)]
    assert row["view"].tolist() == [left, top, left + min(cw, width), top + min(ch, height)]


def torchvision_rectangle(width: int, height: int, u: np.ndarray) -> tuple[int, int, int, int]:
    """RandomResizedCrop.get_params with its random numbers given: (left, top, width, height)."""
    low, high = math.log(3 / 4), math.log(4 / 3)
    for t in range(10):
        area = width * height * (0.08 + (1.0 - 0.08) * u[4 * t])
        aspect = math.exp(low + (high - low) * u[4 * t + 1])
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return math.floor(u[4 * t + 3] * (width - w + 1)), math.floor(u[4 * t + 2] * (height - h + 1)), w, h
    ratio, w, h = width / height, width, height
    if ratio < 3 / 4:
        h = round(w / (3 / 4))
    elif ratio > 4 / 3:
        w = round(h * (4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


@pytest.mark.parametrize("width, height", [*SIZES, (2, 2), (1, 1), (3, 4000)])
def test_random_resized_crop_follows_torchvision(width: int, height: int) -> None:
    program = Program(ops=(random_resized_crop(224, 160, stream=6),), seed=41)
    draws = native.uniforms(41, np.zeros(40, np.uint32), np.arange(40), 6, 40)
    for position in range(40):
        row = plan_one(program, width, height, position=position)
        left, top, w, h = torchvision_rectangle(width, height, draws[position])
        assert row["view"].tolist() == [left, top, left + w, top + h] == row["clip"].tolist()
        assert (row["out_width"], row["out_height"]) == (160, 224)


def test_a_flip_follows_its_own_draw() -> None:
    program = Program(ops=(hflip(0.3, stream=8),), seed=5)
    draws = native.uniforms(5, np.zeros(200, np.uint32), np.arange(200), 8, 1)[:, 0]
    flips = [bool(plan_one(program, 10, 10, position=i)["flip"]) for i in range(200)]
    assert flips == (draws < 0.3).tolist()


def test_two_flips_cancel_and_a_flip_mirrors_the_crops_around_it() -> None:
    assert plan_one(Program(ops=(hflip(1.0), hflip(1.0))), 10, 10)["flip"] == 0
    # 11 wide, crop 4: left = round(3.5) = 4 of the mirrored image, so 11 - 4 - 4 = 3 of the source
    before = plan_one(Program(ops=(hflip(1.0), center_crop(10, 4))), 11, 10)
    assert before["view"].tolist() == [3, 0, 7, 10]
    padded = plan_one(Program(ops=(center_crop(10, 14), hflip(1.0))), 11, 10)  # 1 left and 2 right, then mirrored
    assert padded["dest"].tolist() == [2, 0, 13, 10]


def test_a_crop_after_a_resize_sees_around_itself_and_a_resize_after_a_crop_does_not() -> None:
    row = plan_one(Program(ops=(resize(100, 100), center_crop(50, 50))), 200, 200)
    assert row["view"].tolist() == [50, 50, 150, 150] and row["clip"].tolist() == [0, 0, 200, 200]
    row = plan_one(Program(ops=(center_crop(100, 100), resize(50, 50))), 200, 200)
    assert row["view"].tolist() == row["clip"].tolist() == [50, 50, 150, 150]


def test_resizes_compose_into_one() -> None:
    row = plan_one(Program(ops=(resize(256, 256), center_crop(224, 224), resize(112, 112))), 512, 512)
    assert row["view"].tolist() == [32, 32, 480, 480] == row["clip"].tolist()
    assert row["dest"].tolist() == [0, 0, 112, 112]


def test_a_box_is_rounded_outwards_and_clipped_to_the_image() -> None:
    program = Program(ops=(crop_box(),))
    row = plan_one(program, 100, 80, box=(10.2, 20.7, 30.1, 40.0))
    assert row["view"].tolist() == [20, 10, 40, 31]
    assert plan_one(program, 100, 80, box=(-5, -5, 500, 500))["view"].tolist() == [0, 0, 100, 80]
    relative = plan_one(Program(ops=(crop_box(relative=True),)), 100, 80, box=(0.25, 0.5, 0.5, 1.0))
    assert relative["view"].tolist() == [50, 20, 100, 40]


@pytest.mark.parametrize(
    "box",
    [(10, 10, 10, 20), (20, 10, 10, 20), (200, 0, 300, 10), (0, -9, 5, 0), (math.nan, 0, 5, 5), (0, 0, math.inf, 5)],
)
def test_a_box_without_a_pixel_is_an_error_that_names_it(box: tuple[float, ...]) -> None:
    row = plan_one(Program(ops=(crop_box(),)), 100, 80, box=box)
    assert row["status"] == Status.GEOMETRY
    assert b"box" in row["message"] and b"100x80" in row["message"]


def test_a_padded_image_cannot_be_resized_afterwards() -> None:
    row = plan_one(Program(ops=(center_crop(50, 50), resize(20, 20))), 30, 60)
    assert row["status"] == Status.GEOMETRY and b"padded" in row["message"]


@pytest.mark.parametrize(
    "op",
    [
        Op(OpKind.RESIZE, 0, (0, 5)),
        Op(OpKind.RESIZE, 0, (5.5, 5)),
        Op(OpKind.RESIZE_SHORT, 0, (math.nan,)),
        Op(OpKind.HFLIP, 0, (1.5,)),
        Op(OpKind.RANDOM_RESIZED_CROP, 0, (224, 224, 1.0, 0.5, 0.7, 1.4)),
        Op(OpKind.RANDOM_RESIZED_CROP, 0, (224, 224, 0.1, 1.0, 0.0, 1.4)),
        Op(OpKind.CROP_BOX, 0, ()),  # and no boxes
    ],
)
def test_operations_that_make_no_sense_are_refused(op: Op) -> None:
    with pytest.raises(KernelError):
        plan_one(Program(ops=(op,)), 10, 10)


def test_a_program_is_a_value() -> None:
    import pickle

    program = Program(ops=(resize(5, 6), hflip()), seed=2**64 - 1, as_float=True, scale=(1, 2, 3))
    again = pickle.loads(pickle.dumps(program))  # noqa: S301
    assert again == program and hash(again) == hash(program)
    assert plan_one(again, 50, 60) == plan_one(program, 50, 60)
    assert Program(ops=(resize(5, 7),)) != Program(ops=(resize(5, 6),))
