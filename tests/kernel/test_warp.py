"""Rotations and affine warps: as torchvision defines them, as Pillow computes them, and the same whatever the instruction set."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.native import Augment, Op, Program, Status

from ..support import Simd
from .images import center_crop, difference, hflip, jpeg, picture, pixel_rows, random_resized_crop, resize, run

AFFINE, VFLIP, POLICY = 20, 7, 40
SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, ROTATE = range(1, 6)
SIZES = [(1, 1), (1, 9), (9, 1), (2, 3), (7, 7), (17, 16), (33, 31), (120, 90)]


def affine(
    degrees: Any = 0, move: Any = (0, 0), scale: Any = 1, shear: Any = (0, 0), fill: int = 0, p: float = 1.0, stream: int = 3
) -> Op:
    """One warp; a number stands for a range of nothing else."""
    ranges = [(value, value) if np.isscalar(value) else value for value in (degrees, scale, *shear)]
    turn, size, sx, sy = ranges
    return Op(AFFINE, stream, (*turn, *move, *size, *sx, *sy, fill, p))  # type: ignore[arg-type]


def augment(kind: int, magnitude: float, fill: int = 0, relative: int = 0, mirrored: int = 0) -> Program:
    """A policy that always does one thing."""
    choice = (Augment(kind, mirrored, relative, fill, 1.0, magnitude), Augment(0, 0, 0, 0, 0.0, 0.0))
    return Program(ops=(Op(POLICY, 4, (0, 1, 1)),), choices=(choice,))  # type: ignore[arg-type]


def warp(program: Program, images: NDArray[np.uint8], first: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.void]]:
    """Decoded images (n, height, width, channels) through a program that keeps their size."""
    out = np.full_like(images, 77)
    positions = np.arange(first, first + len(images), dtype=np.int64)
    with native.Decoder() as decoder:
        rows = pixel_rows(decoder, program, images, None, np.zeros(len(images), np.uint32), positions, out)
    assert not rows["status"].any(), rows["message"]
    return out, rows


def warp_one(ops: Any, image: NDArray[np.uint8], position: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """One image, and the matrix its row tells."""
    program = ops if isinstance(ops, Program) else Program(ops=ops, seed=5, channels=image.shape[2])
    out, rows = warp(program, image[None], position)
    return out[0], rows["matrix"][0]


def torchvision_matrix(
    width: int, height: int, degrees: float, move: tuple[float, float], scale: float, shear: tuple[float, float]
) -> NDArray[np.float64]:
    """Where pixels go, put together from its parts: move, centre, turn, shear, scale, centre back."""
    turn, sx, sy = (math.radians(value) for value in (degrees, *shear))
    centre = np.array([[1, 0, width / 2], [0, 1, height / 2], [0, 0, 1]])
    there = np.array([[1, 0, move[0]], [0, 1, move[1]], [0, 0, 1]])
    rotation = np.array([[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0], [0, 0, 1]])
    shear_x = np.array([[1, -math.tan(sx), 0], [0, 1, 0], [0, 0, 1]])
    shear_y = np.array([[1, 0, 0], [-math.tan(sy), 1, 0], [0, 0, 1]])
    whole = there @ centre @ rotation @ shear_y @ shear_x @ np.diag([scale, scale, 1]) @ np.linalg.inv(centre)
    return whole[:2]  # type: ignore[no-any-return]


def reference(image: NDArray[np.uint8], matrix: NDArray[np.float64], fill: float) -> NDArray[np.float64]:
    """Bilinear, pixel centres at half integers, in a plane that is `fill` everywhere outside the image."""
    height, width, channels = image.shape
    back = np.linalg.inv(np.vstack([matrix.reshape(2, 3), [0, 0, 1]]))
    y, x = np.mgrid[:height, :width] + 0.5
    sx, sy = back[0, 0] * x + back[0, 1] * y + back[0, 2] - 0.5, back[1, 0] * x + back[1, 1] * y + back[1, 2] - 0.5
    x0, y0 = np.floor(sx).astype(int), np.floor(sy).astype(int)
    out = np.zeros((height, width, channels))
    for dy in (0, 1):
        for dx in (0, 1):
            column, row = x0 + dx, y0 + dy
            inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
            pixels = image[row.clip(0, height - 1), column.clip(0, width - 1)]
            weight = np.abs(1 - dx - (sx - x0)) * np.abs(1 - dy - (sy - y0))
            out += weight[..., None] * np.where(inside[..., None], pixels, fill)
    return out


def inside(matrix: NDArray[np.float64], width: int, height: int) -> NDArray[np.bool_]:
    """Output pixels all of whose neighbours are pixels of the image."""
    back = np.linalg.inv(np.vstack([matrix.reshape(2, 3), [0, 0, 1]]))
    y, x = np.mgrid[:height, :width] + 0.5
    sx, sy = back[0, 0] * x + back[0, 1] * y + back[0, 2], back[1, 0] * x + back[1, 1] * y + back[1, 2]
    found = (sx > 0.5) & (sx < width - 0.5) & (sy > 0.5) & (sy < height - 0.5)
    return found  # type: ignore[no-any-return]


# ---- pixels ------------------------------------------------------------------------------------------------------------------

WARPS = {
    "turned": affine(17),
    "turned back": affine(-63.5, fill=200),
    "turned about": affine(171),
    "moved": affine(move=(0.3, 0.2), fill=17),
    "shrunk": affine(scale=0.6, fill=128),
    "enlarged": affine(scale=1.7),
    "sheared": affine(shear=(21, 0), fill=90),
    "sheared both ways": affine(shear=(-12, 30), fill=255),
    "all at once": affine((-40, 40), (0.2, 0.3), (0.7, 1.4), ((-15, 15), (-10, 10)), fill=111),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", WARPS)
def test_pixels_are_those_of_the_reference(name: str, size: tuple[int, int], channels: int) -> None:
    image = np.ascontiguousarray(picture(*size, seed=3)[..., :channels])
    for position in range(3):
        out, matrix = warp_one((WARPS[name],), image, position)
        expected = reference(image, matrix, WARPS[name].params[10])
        assert np.abs(out - expected).max() <= 0.52  # half a level for rounding, the rest for 14 bits of weights


@pytest.mark.parametrize("degrees", [3.0, -10.0, 30.0, 75.0, -120.0])
@pytest.mark.parametrize("size", [(120, 90), (31, 64)])
def test_inside_a_rotation_is_pillows(degrees: float, size: tuple[int, int]) -> None:
    # Pillow turns against the clock. On the border it does not blend: there is the fill, or the edge pixel repeated.
    image = picture(*size)
    out, matrix = warp_one((affine(degrees, fill=40),), image)
    expected = Image.fromarray(image).rotate(-degrees, Image.Resampling.BILINEAR, fillcolor=(40,) * 3)
    kept = inside(matrix, *size)
    assert kept.mean() > 0.3 and difference(out, expected)[kept].max() <= 1


@pytest.mark.parametrize("shear", [(20.0, 0.0), (0.0, -25.0), (10.0, 15.0)])
@pytest.mark.parametrize("scale", [0.7, 1.0, 1.6])
def test_inside_an_affine_warp_is_pillows(shear: tuple[float, float], scale: float) -> None:
    image = picture(90, 70)
    out, matrix = warp_one((affine(12, scale=scale, shear=shear),), image)
    back = np.linalg.inv(np.vstack([matrix.reshape(2, 3), [0, 0, 1]]))[:2].ravel()
    expected = Image.fromarray(image).transform((90, 70), Image.Transform.AFFINE, tuple(back), Image.Resampling.BILINEAR)
    kept = inside(matrix, 90, 70)
    assert kept.mean() > 0.3 and difference(out, expected)[kept].max() <= 1


def test_a_constant_image_in_its_own_fill_stays_constant() -> None:
    image = np.full((41, 53, 3), 201, np.uint8)
    out, _ = warp_one((affine((-180, 180), (0.2, 0.2), (0.5, 2), ((-30, 30), (-30, 30)), fill=201),), image)
    assert (out == 201).all()


def test_the_border_blends_with_the_fill() -> None:
    image = np.full((20, 20, 3), 200, np.uint8)
    m = Program(ops=(affine(scale=0.875, fill=40),))  # the edge of the image comes to lie in a pixel's middle: 20 -> 17.5
    out, _ = warp_one(m, image)
    assert (out[10, 2:18] == 200).all() and out[10, 0, 0] == 40
    assert 40 < out[10, 1, 0] < 200 and 40 < out[10, 18, 0] < 200


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("side", [1, 8, 13])
def test_quarter_turns_move_pixels_and_change_none(turns: int, side: int) -> None:
    image = picture(side, side)
    out, _ = warp_one((affine(90 * turns),), image)
    assert np.array_equal(out, np.rot90(image, -turns))


def test_half_a_turn_of_an_oblong_image_changes_no_pixel() -> None:
    image = picture(37, 20)
    assert np.array_equal(warp_one((affine(180),), image)[0], image[::-1, ::-1])


def test_no_turn_at_all_changes_nothing() -> None:
    image = picture(37, 20)
    out, matrix = warp_one((affine(0, fill=9),), image)
    assert np.array_equal(out, image) and matrix.tolist() == [1, 0, 0, 0, 1, 0]


def test_an_image_shrunk_to_nothing_leaves_the_fill() -> None:
    image = picture(30, 20)
    for scale in (1e-3, 1e-9, 1e-300):
        out, matrix = warp_one((affine(30, scale=scale, fill=33),), image)
        assert difference(out, np.full_like(out, 33)).mean() < 1 and np.isfinite(matrix).all()


def test_extreme_shears_and_scales_are_defined() -> None:
    image = picture(30, 20)
    for op in (affine(45, scale=1e9), affine(shear=(89.9999999, 0)), affine(shear=(-89.99, 89.99)), affine(1e9)):
        out, _ = warp_one((op,), image)
        assert out.shape == image.shape


@pytest.mark.parametrize("channels", [1, 3])
def test_all_levels_give_the_same_bytes(channels: int, simd: Simd) -> None:
    top = simd(1000)
    anything = affine((-180, 180), (0.5, 0.5), (0.3, 3), ((-40, 40), (-40, 40)), fill=99)
    along_rows = affine(shear=((-40, 40), 0), fill=99)  # rows keep their weights
    programs = [Program(ops=(one,), channels=channels, seed=9) for one in (anything, along_rows)]
    for width, height in [*SIZES, (8, 8), (9, 10), (15, 64), (64, 15), (223, 97)]:
        images = np.stack([picture(width, height, seed)[..., :channels] for seed in range(12)])
        for program in programs:
            simd(0)
            plain, _ = warp(program, images)
            for level in range(1, top + 1):
                assert simd(level) == level
                assert np.array_equal(warp(program, images)[0], plain)


# ---- matrices ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WARPS)
def test_the_matrix_is_torchvisions(name: str) -> None:
    p = WARPS[name].params
    for position in range(4):
        _, matrix = warp_one((WARPS[name],), picture(57, 40), position)
        u = native.uniforms(5, np.zeros(1, np.uint32), np.array([position]), 3, 6)[0]
        draw = [low + (high - low) * u for low, high, u in ((p[0], p[1], u[0]), (p[4], p[5], u[3]))]
        move = (round(p[2] * 57 * (2 * u[1] - 1)), round(p[3] * 40 * (2 * u[2] - 1)))
        shear = (p[6] + (p[7] - p[6]) * u[4], p[8] + (p[9] - p[8]) * u[5])
        expected = torchvision_matrix(57, 40, draw[0], move, draw[1], shear)
        assert np.allclose(matrix.reshape(2, 3), expected, atol=1e-9)


def test_the_matrix_leads_from_the_source_through_crop_flip_and_warp() -> None:
    # A bright spot is found where the matrix says it goes.
    image = np.zeros((90, 120, 3), np.uint8)
    image[40:44, 57:61] = 255
    program = Program(ops=(center_crop(80, 100), hflip(1.0), affine((-30, 30), (0.1, 0.1)), hflip(1.0, 7), affine(9)), seed=2)
    out = np.zeros((6, 80, 100, 3), np.uint8)
    with native.Decoder() as decoder:
        images = np.repeat(image[None], 6, 0)
        rows = pixel_rows(decoder, program, images, None, np.zeros(6, np.uint32), np.arange(6), out)
    for pixels, matrix in zip(out[..., 0].astype(float), rows["matrix"].reshape(-1, 2, 3)):
        y, x = (np.mgrid[:80, :100] + 0.5) * pixels / pixels.sum()
        assert np.allclose(matrix @ [59, 42, 1], [x.sum(), y.sum()], atol=0.1)


def test_a_resize_behind_a_warp_is_in_the_matrix_too() -> None:
    image = np.zeros((60, 60, 3), np.uint8)
    image[18:24, 33:39] = 255
    out = np.zeros((1, 30, 90, 3), np.uint8)
    with native.Decoder() as decoder:
        rows = pixel_rows(
            decoder,
            Program(ops=(affine(25), resize(30, 90))),
            image[None],
            None,
            np.zeros(1, np.uint32),
            np.zeros(1, np.int64),
            out,
        )
    pixels = out[0, ..., 0].astype(float)
    y, x = (np.mgrid[:30, :90] + 0.5) * pixels / pixels.sum()
    assert np.allclose(rows["matrix"][0].reshape(2, 3) @ [36, 21, 1], [x.sum(), y.sum()], atol=0.2)


# ---- one resampling ----------------------------------------------------------------------------------------------------------


def test_warps_and_flips_in_a_row_are_one_resampling() -> None:
    image = picture(61, 47)
    ops = (affine(20, fill=50), hflip(1.0, 4), affine(-20, fill=50, stream=5), affine(5, scale=1.2, fill=50, stream=6))
    out, matrix = warp_one(ops, image)
    assert np.abs(out - reference(image, matrix, 50)).max() <= 0.52
    there_and_back, _ = warp_one((affine(20), affine(-20, stream=5)), image)
    assert np.array_equal(there_and_back, image)  # done one after the other, corners would be gone and edges soft


def test_an_upright_flip_joins_a_warp() -> None:
    image = picture(61, 47)
    vertical = Op(VFLIP, 8, (1.0,))  # type: ignore[arg-type]
    out, matrix = warp_one((affine(20, fill=50), vertical), image)
    assert np.array_equal(out, warp_one((affine(20, fill=50),), image)[0][::-1])
    assert np.allclose(matrix[3:], [0, 0, 47] - warp_one((affine(20),), image)[1][3:])


def test_a_warp_with_another_fill_is_a_resampling_of_its_own() -> None:
    image = np.full((40, 40, 3), 120, np.uint8)
    out, _ = warp_one((affine(30, fill=255), affine(30, fill=0, stream=5)), image)
    once, _ = warp_one((affine(30, fill=255),), image)
    assert np.array_equal(out, warp_one((affine(30, fill=0),), once)[0])


def test_a_flip_behind_a_warp_that_does_not_happen_still_does() -> None:
    image = picture(33, 20)
    out, matrix = warp_one((affine(30, p=0.0), hflip(1.0)), image)
    assert np.array_equal(out, image[:, ::-1]) and matrix.tolist() == [-1, 0, 33, 0, 1, 0]


def test_a_crop_behind_a_warp_crops_what_the_warp_left() -> None:
    image = picture(50, 40)
    warped, _ = warp_one((affine(15, fill=3), hflip(1.0)), image)
    out = np.zeros((1, 20, 30, 3), np.uint8)
    with native.Decoder() as decoder:
        program = Program(ops=(affine(15, fill=3), hflip(1.0), center_crop(20, 30)), seed=5)
        pixel_rows(decoder, program, image[None], None, np.zeros(1, np.uint32), np.zeros(1, np.int64), out)
    assert np.array_equal(out[0], warped[10:30, 10:40])


def test_encoded_images_are_warped_as_decoded_ones_are() -> None:
    data = jpeg(100, 80)
    crop = random_resized_crop(48, 64)
    plain, before = run(Program(ops=(crop,), seed=5), [data] * 4, 48, 64)
    out, rows = run(Program(ops=(crop, affine((-30, 30), fill=70)), seed=5), [data] * 4, 48, 64)
    expected, after = warp(Program(ops=(affine((-30, 30), fill=70),), seed=5), plain)
    assert np.array_equal(out, expected)
    for first, second, both in zip(before["matrix"], after["matrix"], rows["matrix"]):
        square = [np.vstack([m.reshape(2, 3), [0, 0, 1]]) for m in (first, second)]
        assert np.allclose((square[1] @ square[0])[:2].ravel(), both)


# ---- what is drawn -----------------------------------------------------------------------------------------------------------


def drawn(op: Op, count: int = 4000, side: int = 8) -> NDArray[np.float64]:
    return warp(Program(ops=(op,), seed=11), np.zeros((count, side, side, 3), np.uint8))[1]["matrix"].reshape(-1, 2, 3)  # type: ignore[no-any-return]


def evenly(values: NDArray[np.float64], low: float, high: float) -> bool:
    """Whether values are spread evenly: Kolmogorov and Smirnov's distance, at one in ten thousand."""
    ordered = np.sort((values - low) / (high - low))
    ranks = np.arange(1, len(values) + 1) / len(values)
    return bool(np.abs(ordered - ranks).max() < 2.23 / math.sqrt(len(values)))


def test_angles_are_spread_evenly() -> None:
    matrices = drawn(affine((-30, 50)))
    angles = np.degrees(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    assert evenly(angles, -30, 50) and not evenly(angles, -34, 50)


def test_scales_and_shears_are_spread_evenly() -> None:
    assert evenly(drawn(affine(scale=(0.5, 1.5)))[:, 0, 0], 0.5, 1.5)
    matrices = drawn(affine(shear=((-20, 10), 0)))
    assert evenly(np.degrees(np.arctan(-matrices[:, 0, 1])), -20, 10)
    matrices = drawn(affine(shear=(0, (5, 10))))
    assert evenly(np.degrees(np.arctan(-matrices[:, 1, 0])), 5, 10)


def test_translations_are_whole_pixels_up_to_the_share() -> None:
    matrices = drawn(affine(move=(0.25, 0.5)), side=40)
    for moves, most in ((matrices[:, 0, 2], 10), (matrices[:, 1, 2], 20)):
        assert np.abs(moves - np.round(moves)).max() < 1e-9
        counts = np.bincount(np.round(moves).astype(int) + most, minlength=2 * most + 1)
        expected = np.full(2 * most + 1, len(moves) / (2 * most))
        expected[[0, -1]] /= 2  # as torchvision: a number between -most and most, rounded
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert len(counts) == 2 * most + 1 and chi_square < 2 * most + 4 * math.sqrt(4 * most)


def test_a_warp_happens_as_often_as_its_probability_says() -> None:
    matrices = drawn(affine(20, p=0.3))
    share = (np.abs(matrices[:, 0, 1]) > 0).mean()
    assert abs(share - 0.3) < 4 * math.sqrt(0.3 * 0.7 / len(matrices))


def test_a_draw_depends_on_position_alone() -> None:
    program = Program(ops=(affine((-30, 30), (0.2, 0.2)),), seed=4)
    images = np.repeat(picture(20, 20)[None], 8, 0)
    together, _ = warp(program, images)
    for at in range(8):
        assert np.array_equal(warp(program, images[at : at + 1], at)[0][0], together[at])


# ---- policies ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "magnitude", "back"),
    [
        (SHEAR_X, 0.3, (1, 0.3, 0, 0, 1, 0)),
        (SHEAR_Y, -0.2, (1, 0, 0, -0.2, 1, 0)),
        (TRANSLATE_X, 7.9, (1, 0, -7, 0, 1, 0)),
        (TRANSLATE_Y, -5.5, (1, 0, 0, 0, 1, 5)),
    ],
)
def test_a_policys_shears_and_translations_are_torchvisions(kind: int, magnitude: float, back: tuple[float, ...]) -> None:
    image = picture(60, 44)
    out, matrix = warp_one(augment(kind, magnitude, fill=12), image)
    assert np.allclose(np.linalg.inv(np.vstack([matrix.reshape(2, 3), [0, 0, 1]]))[:2].ravel(), back)
    assert np.abs(out - reference(image, matrix, 12)).max() <= 0.52
    expected = Image.fromarray(image).transform((60, 44), Image.Transform.AFFINE, back, Image.Resampling.BILINEAR)
    assert difference(out, expected)[inside(matrix, 60, 44)].max() <= 1


def test_a_policy_turns_against_the_clock() -> None:
    image = picture(41, 41)
    out, matrix = warp_one(augment(ROTATE, 90), image)
    assert np.array_equal(out, np.rot90(image))
    out, matrix = warp_one(augment(ROTATE, 14, fill=60), image)
    expected = Image.fromarray(image).rotate(14, Image.Resampling.BILINEAR)
    assert difference(out, expected)[inside(matrix, 41, 41)].max() <= 1


def test_a_relative_translation_is_a_share_of_the_side() -> None:
    image = picture(60, 44)
    out, _ = warp_one(augment(TRANSLATE_X, 0.25, relative=1, fill=8), image)
    assert np.array_equal(out[:, 15:], image[:, :45]) and (out[:, :15] == 8).all()
    out, _ = warp_one(augment(TRANSLATE_Y, -0.25, relative=1, fill=8), image)
    assert np.array_equal(out[:33], image[11:]) and (out[33:] == 8).all()


def test_a_mirrored_magnitude_goes_both_ways() -> None:
    program = augment(TRANSLATE_X, 3, mirrored=1)
    moves = warp(program, np.zeros((500, 6, 6, 3), np.uint8))[1]["matrix"][:, 2]
    assert set(moves.tolist()) == {-3.0, 3.0} and abs((moves > 0).mean() - 0.5) < 0.1


# ---- mistakes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    [
        affine((10, -10)),
        affine(move=(-0.1, 0)),
        affine(move=(0, 1.5)),
        affine(scale=0),
        affine(scale=(2, 1)),
        affine(shear=(90, 0)),
        affine(shear=(0, (5, -5))),
        affine(fill=256),
        affine(fill=-1),
        affine(p=1.5),
        affine(math.nan),
        affine(math.inf),
    ],
)
def test_parameters_out_of_range_are_refused(op: Op) -> None:
    with native.Decoder() as decoder, pytest.raises(KernelError):
        pixel_rows(
            decoder, Program(ops=(op,)), picture(8, 8)[None], None, np.zeros(1, np.uint32), np.zeros(1, np.int64),
            np.zeros((1, 8, 8, 3), np.uint8),
        )  # fmt: skip


def test_a_warp_that_finds_the_wrong_size_is_told() -> None:
    with native.Decoder() as decoder:
        rows = pixel_rows(
            decoder, Program(ops=(affine(4),)), picture(8, 8)[None], None, np.zeros(1, np.uint32), np.zeros(1, np.int64),
            np.zeros((1, 9, 8, 3), np.uint8),
        )  # fmt: skip
    assert rows["status"][0] == Status.ARGUMENT
