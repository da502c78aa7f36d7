"""Erasing: Cutout and RandomErasing, each with its random numbers given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.native import Op, Program

from .images import hflip, jpeg, plan_one, resize, run
from .test_crops import move, pad, random_crop

ERASE, STREAM, SEED = 30, 5, 9
Rectangle = tuple[int, int, int, int]  # top, left, bottom, right


def erase(
    size: tuple[int, int] = (0, 0),
    area: tuple[float, float] = (0.02, 0.33),
    aspect: tuple[float, float] = (0.3, 3.3),
    colour: tuple[float, ...] = (0, 0, 0),
    noise: bool = False,
    p: float = 1.0,
) -> Op:
    return Op(ERASE, STREAM, (*area, *aspect, *size, *colour, noise, 0, p))  # type: ignore[arg-type]


def draws(position: int, count: int = 40) -> NDArray[np.float64]:
    return native.uniforms(SEED, np.zeros(1, np.uint32), np.array([position]), STREAM, count)[0]


def cutout(position: int, height: int, width: int, size: tuple[int, int]) -> Rectangle:
    u = draws(position)
    top, left = int(u[0] * height) - size[0] // 2, int(u[1] * width) - size[1] // 2
    return max(0, top), max(0, left), min(height, top + size[0]), min(width, left + size[1])


def random_erasing(
    position: int, height: int, width: int, area: tuple[float, float], aspect: tuple[float, float]
) -> Rectangle | None:
    """torchvision's RandomErasing.get_params."""
    for u in draws(position).reshape(10, 4):
        wanted = height * width * (area[0] + (area[1] - area[0]) * u[0])
        ratio = math.exp(math.log(aspect[0]) + (math.log(aspect[1]) - math.log(aspect[0])) * u[1])
        h, w = round(math.sqrt(wanted * ratio)), round(math.sqrt(wanted / ratio))
        if h < height and w < width:
            top, left = int(u[2] * (height - h + 1)), int(u[3] * (width - w + 1))
            return top, left, top + h, left + w
    return None


def whiten(count: int, height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    return np.full((count, height, width, channels), 255, np.uint8)


@pytest.mark.parametrize("size", [(8, 8), (5, 3), (1, 1), (100, 100), (64, 2)])
@pytest.mark.parametrize("channels", [1, 3])
def test_cutout_paints_a_square_about_a_pixel(level: int, size: tuple[int, int], channels: int) -> None:
    op = erase(size, colour=(3, 7, 11))
    out, _ = move(Program(ops=(op,), seed=SEED, channels=channels), whiten(60, 20, 31, channels), first=5)
    for i in range(60):
        top, left, bottom, right = cutout(5 + i, 20, 31, size)
        expected = whiten(1, 20, 31, channels)[0]
        expected[top:bottom, left:right] = (3, 7, 11)[:channels]
        assert bottom > top and right > left and np.array_equal(out[i], expected)


def test_the_centre_of_a_cutout_may_be_any_pixel() -> None:
    out, _ = move(Program(ops=(erase((1, 1)),), seed=SEED), whiten(3000, 6, 5))
    hits = (out[..., 0] == 0).sum(0)
    assert hits.sum() == 3000 and hits.min() > 60 and hits.max() < 145  # 100 each, give or take


@pytest.mark.parametrize("area, aspect", [((0.02, 0.33), (0.3, 3.3)), ((0.9, 1.0), (0.9, 1.1)), ((0.0, 0.001), (1.0, 1.0))])
@pytest.mark.parametrize("side", [(32, 32), (40, 9), (1, 1), (1, 30)])
def test_random_erasing_is_torchvisions(area: tuple[float, float], aspect: tuple[float, float], side: tuple[int, int]) -> None:
    out, _ = move(Program(ops=(erase(area=area, aspect=aspect),), seed=SEED), whiten(100, *side))
    for i in range(100):
        expected = whiten(1, *side)[0]
        if rectangle := random_erasing(i, *side, area, aspect):
            expected[rectangle[0] : rectangle[2], rectangle[1] : rectangle[3]] = 0
        assert np.array_equal(out[i], expected)


def test_an_area_that_never_fits_leaves_the_image_alone() -> None:
    out, _ = move(Program(ops=(erase(area=(1.0, 1.0), aspect=(1.0, 1.0)),), seed=SEED), whiten(5, 8, 8))
    assert (out == 255).all()


def philox(counter: list[int], key: list[int]) -> list[int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize("channels", [1, 3])
def test_noise_is_a_function_of_the_place(level: int, channels: int) -> None:
    op = erase((9, 7), noise=True)
    out, _ = move(Program(ops=(op,), seed=SEED, channels=channels), whiten(6, 20, 20, channels))
    for i in range(6):
        w = philox([i, 0, 0, 10], [SEED, STREAM])
        top, left, bottom, right = cutout(i, 20, 20, (9, 7))
        for y in range(top, bottom):
            row = b"".join(np.array(philox([g, y - top, w[2], w[3]], w[:2]), "<u4").tobytes() for g in range(2))
            expected = np.frombuffer(row, np.uint8)[: (right - left) * channels].reshape(-1, channels)
            assert np.array_equal(out[i, y, left:right], expected)


def test_noise_is_uniform_over_bytes() -> None:
    out, _ = move(Program(ops=(erase((200, 200), noise=True),), seed=SEED), whiten(4, 60, 60))
    values = out[out != 255]
    assert values.size > 10_000 and abs(values.mean() - 127) < 3 and abs(values.std() - 73.6) < 3


def test_erasing_happens_as_often_as_it_should() -> None:
    out, _ = move(Program(ops=(erase((2, 2), p=0.3),), seed=SEED), whiten(2000, 8, 8))
    hits = (out == 0).any((1, 2, 3)).sum()
    assert 530 < hits < 670
    never, _ = move(Program(ops=(erase((2, 2), p=0.0),), seed=SEED), whiten(50, 8, 8))
    assert (never == 255).all()


@pytest.mark.parametrize("planar", [False, True])
def test_the_recipe_of_small_images(level: int, planar: bool) -> None:
    """Pad, crop, flip, cut out, normalise: what comes of the steps one after the other."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)
    moves, op = (pad(4, 4, 4, 4), random_crop(32, 32), hflip()), erase((8, 8), colour=(125, 123, 114))
    scale, bias = (0.0158, 0.0161, 0.015), (-1.99, -1.98, -1.71)
    moved, _ = move(Program(ops=moves, seed=SEED), pixels)
    for i in range(40):
        top, left, bottom, right = cutout(i, 32, 32, (8, 8))
        moved[i, top:bottom, left:right] = (125, 123, 114)
    program = Program(ops=(*moves, op), seed=SEED, as_float=True, planar=planar, scale=scale, bias=bias)
    out, rows = move(program, pixels)
    expected = moved.astype(np.float32) * np.float32(scale) + np.float32(bias)
    assert np.array_equal(out.transpose(0, 2, 3, 1) if planar else out, expected)
    assert {tuple(m) for m in np.abs(rows["matrix"][:, [0, 4]]).tolist()} == {(1.0, 1.0)}


def test_a_jpeg_is_erased_behind_its_resize() -> None:
    data = [jpeg(60, 50, seed=i) for i in range(5)]
    plain, _ = run(Program(ops=(resize(24, 32),), seed=SEED), data, 24, 32)
    out, _ = run(Program(ops=(resize(24, 32), erase((6, 6))), seed=SEED), data, 24, 32)
    for i in range(5):
        top, left, bottom, right = cutout(i, 24, 32, (6, 6))
        plain[i, top:bottom, left:right] = 0
    assert np.array_equal(out, plain)


@pytest.mark.parametrize(
    "op",
    [
        erase((-1, 5)),
        erase((5, 0)),
        erase((5, 2.5)),  # type: ignore[arg-type]
        erase(area=(0.5, 0.2)),
        erase(area=(0.5, 1.5)),
        erase(aspect=(0.0, 1.0)),
        erase(colour=(0, 0, 256)),
        erase(colour=(0.5, 0, 0)),
        erase(p=1.5),
        erase(area=(math.nan, 1.0)),
    ],
)
def test_erasing_that_makes_no_sense_is_refused(op: Op) -> None:
    with pytest.raises(KernelError):
        plan_one(Program(ops=(op,)), 10, 10)
