"""Crops, padding and flips: NumPy's and torchvision's definitions, on pixels in memory and out of JPEGs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.native import Op, Program, Status

from .images import center_crop, crop_box, decoded, hflip, jpeg, picture, pixel_rows, plan_one, resize, run

VFLIP, PAD, RANDOM_CROP, INVERT = 7, 8, 9, 29
CONSTANT, REFLECT, EDGE = 0, 1, 2
MODES = {CONSTANT: "constant", REFLECT: "reflect", EDGE: "edge"}


def vflip(probability: float = 0.5, stream: int = 3) -> Op:
    return Op(VFLIP, stream, (probability,))  # type: ignore[arg-type]


def pad(left: int, top: int, right: int, bottom: int, border: int = REFLECT, colour: tuple[int, ...] = (0, 0, 0)) -> Op:
    return Op(PAD, 0, (left, top, right, bottom, border, *colour))  # type: ignore[arg-type]


def random_crop(height: int, width: int, stream: int = 4) -> Op:
    return Op(RANDOM_CROP, stream, (height, width))  # type: ignore[arg-type]


def nothing_much() -> Op:
    """An effect that does nothing (its probability is 0): what stands behind it runs on finished pixels."""
    return Op(INVERT, 0, (0,) * 12)  # type: ignore[arg-type]


def move(
    program: Program, pixels: NDArray[np.uint8], *, first: int = 0, box: Any = None
) -> tuple[NDArray[Any], NDArray[np.void]]:
    """Images (n, h, w[, c]) as positions `first`, ...; the size of the output is that which the plan tells."""
    count, height, width = pixels.shape[:3]
    row = plan_one(program, width, height, position=first, box=box)
    assert row["status"] == Status.OK, row["message"]
    out = np.full((count, *program.shape(int(row["out_height"]), int(row["out_width"]))), 77, program.dtype)
    boxes = None if box is None else np.tile(np.asarray(box, np.float32), (count, 1))
    with native.Decoder() as decoder:
        rows = pixel_rows(decoder, program, pixels, boxes, np.zeros(count, np.uint32), np.arange(first, first + count), out)
    assert not rows["status"].any(), rows["message"]
    return out, rows


def reflected(size: int, before: int, after: int) -> list[int]:
    """Where NumPy's reflect finds its pixels, however far it goes."""
    period = max(1, 2 * (size - 1))
    return [size - 1 - abs(size - 1 - i % period) for i in range(-before, size + after)]


def padded(pixels: NDArray[Any], left: int, top: int, right: int, bottom: int, border: int, colour: Any) -> NDArray[Any]:
    if border == REFLECT:
        return pixels[reflected(pixels.shape[0], top, bottom)][:, reflected(pixels.shape[1], left, right)]
    if border == EDGE:
        return np.pad(pixels, ((top, bottom), (left, right), (0, 0)), "edge")
    out = np.empty((pixels.shape[0] + top + bottom, pixels.shape[1] + left + right, pixels.shape[2]), pixels.dtype)
    out[:] = np.asarray(colour)[: pixels.shape[2]]
    out[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return out


def reference(ops: tuple[Op, ...], pixels: NDArray[Any], seed: int, position: int) -> NDArray[Any]:
    """Step by step, every step by itself."""
    for op in ops:
        u = native.uniforms(seed, np.zeros(1, np.uint32), np.array([position]), op.stream, 2)[0]
        height, width = pixels.shape[:2]
        if op.kind == PAD:
            left, top, right, bottom, border, *colour = (int(p) for p in op.params)
            pixels = padded(pixels, left, top, right, bottom, border, colour)
        elif op.kind == RANDOM_CROP:
            h, w = (int(p) for p in op.params)
            top, left = math.floor(u[0] * (height - h + 1)), math.floor(u[1] * (width - w + 1))
            pixels = pixels[top : top + h, left : left + w]
        elif op.kind == center_crop(1, 1).kind:
            h, w = (int(p) for p in op.params)
            around = [max(0, (w - width) // 2), max(0, (h - height) // 2)]
            rest = [max(0, w - width) - around[0], max(0, h - height) - around[1]]
            pixels = padded(pixels, *around, *rest, CONSTANT, (0, 0, 0))
            top, left = round((pixels.shape[0] - h) / 2), round((pixels.shape[1] - w) / 2)
            pixels = pixels[top : top + h, left : left + w]
        elif op.kind == hflip().kind:
            pixels = pixels[:, ::-1] if u[0] < op.params[0] else pixels
        elif op.kind == VFLIP:
            pixels = pixels[::-1] if u[0] < op.params[0] else pixels
    return pixels


CIFAR = (pad(4, 4, 4, 4), random_crop(32, 32), hflip())
PROGRAMS = {
    "cifar": CIFAR,
    "edges": (pad(1, 2, 3, 4, EDGE), hflip(), vflip(), random_crop(30, 31)),
    "colour": (pad(5, 0, 0, 7, CONSTANT, (9, 200, 31)), random_crop(9, 11), vflip(1.0)),
    "far reflections": (random_crop(5, 4), pad(20, 31, 19, 17)),
    "three pads": (pad(2, 3, 4, 5, CONSTANT, (1, 2, 3)), hflip(), pad(3, 2, 7, 6), vflip(), pad(9, 1, 2, 3, CONSTANT, (4, 5, 6))),
    "nothing of the image": (pad(60, 60, 60, 60, CONSTANT, (7, 8, 9)), random_crop(3, 3)),
    "corner of two borders": (pad(3, 0, 0, 0, CONSTANT, (1, 1, 1)), pad(0, 4, 0, 0, CONSTANT, (2, 2, 2)), pad(5, 5, 5, 5)),
    "centre of a larger one": (center_crop(40, 41), pad(3, 3, 3, 3, EDGE), hflip(1.0)),
    "flips alone": (hflip(), vflip(), hflip(stream=9)),
    "nothing": (),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("channels", [1, 3])
def test_steps_joined_give_what_they_give_one_by_one(level: int, name: str, channels: int) -> None:
    ops, count = PROGRAMS[name], 24
    pixels = np.random.default_rng(1).integers(0, 256, (count, 33, 32, channels), np.uint8)
    out, _ = move(Program(ops=ops, seed=3, channels=channels), pixels, first=100)
    for i in range(count):
        assert np.array_equal(out[i], reference(ops, pixels[i], 3, 100 + i)), i


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_effect_in_front_changes_nothing(name: str) -> None:
    ops = PROGRAMS[name]
    pixels = np.random.default_rng(2).integers(0, 256, (8, 32, 33, 3), np.uint8)
    plain, plain_rows = move(Program(ops=ops, seed=3), pixels)
    behind, rows = move(Program(ops=(nothing_much(), *ops), seed=3), pixels)
    assert np.array_equal(plain, behind)
    assert np.array_equal(plain_rows["matrix"], rows["matrix"])


@pytest.mark.parametrize("side", [1, 2, 5, 6, 7, 11, 16, 33, 180])
@pytest.mark.parametrize("channels", [1, 3])
def test_mirrored_rows_of_any_length(level: int, side: int, channels: int) -> None:
    pixels = np.random.default_rng(side).integers(0, 256, (2, 3, side, channels), np.uint8)
    out, _ = move(Program(ops=(hflip(1.0), vflip(1.0)), channels=channels), pixels)
    assert np.array_equal(out, pixels[:, ::-1, ::-1])


@pytest.mark.parametrize("border", MODES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (9, 1), (2, 2)])
def test_the_smallest_images_have_borders_too(border: int, shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (1, *shape, 3), np.uint8)
    out, _ = move(Program(ops=(pad(3, 2, 4, 5, border, (8, 9, 10)),)), pixels)
    assert np.array_equal(out[0], padded(pixels[0], 3, 2, 4, 5, border, (8, 9, 10)))


@pytest.mark.parametrize("border", MODES)
def test_borders_are_numpys(border: int) -> None:
    pixels = np.random.default_rng(6).integers(0, 256, (1, 9, 12, 3), np.uint8)
    out, _ = move(Program(ops=(pad(8, 7, 6, 5, border),)), pixels)
    assert np.array_equal(out[0], np.pad(pixels[0], ((7, 5), (8, 6), (0, 0)), MODES[border]))  # type: ignore[call-overload]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("given", [0, 1, 3, 4])
def test_gray_rgb_and_rgba_become_what_is_asked_for(channels: int, given: int) -> None:
    shape = (4, 20, 21, given) if given else (4, 20, 21)
    pixels = np.random.default_rng(7).integers(0, 256, shape, np.uint8)
    ops = (pad(2, 2, 2, 2), random_crop(20, 21), hflip())
    out, _ = move(Program(ops=ops, channels=channels), pixels)
    whole = pixels if given else pixels[..., None]
    if channels == 3:
        rgb = whole[..., :3] if given > 1 else np.repeat(whole, 3, -1)
    elif given > 1:
        rgb = ((whole[..., :3] @ np.array([19595, 38470, 7471]) + 32768) >> 16).astype(np.uint8)[..., None]
    else:
        rgb = whole
    for i in range(4):
        assert np.array_equal(out[i], reference(ops, rgb[i], 0, i))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(32, 32), (5, 7), (300, 41)])
def test_layouts_and_types_hold_the_same_pixels(level: int, channels: int, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(8).integers(0, 256, (5, *size, channels), np.uint8)
    ops = (pad(2, 3, 3, 2), random_crop(*size), hflip(), vflip())
    scale, bias = (0.017, 0.018, 0.0171)[:channels], (-2.1, -2.0, -1.8)[:channels]
    plain, _ = move(Program(ops=ops, channels=channels), pixels)
    expected = plain.astype(np.float32) * np.float32(scale) + np.float32(bias)
    planar, _ = move(Program(ops=ops, channels=channels, planar=True), pixels)
    assert np.array_equal(planar.transpose(0, 2, 3, 1), plain)
    for is_planar in (False, True):
        program = Program(ops=ops, channels=channels, as_float=True, planar=is_planar, scale=scale, bias=bias)
        floats, _ = move(program, pixels)
        assert np.array_equal(floats.transpose(0, 2, 3, 1) if is_planar else floats, expected)


@decoded("444", "420", "gray", "progressive")
def test_a_jpeg_is_padded_and_cropped_as_its_pixels_are(kind: str) -> None:
    data = [jpeg(32, 33, kind=kind, seed=i) for i in range(12)]
    program = Program(ops=(pad(4, 4, 4, 4), random_crop(33, 32), hflip(), vflip()), seed=6)
    out, rows = run(program, data, 33, 32)
    with native.Decoder() as decoder:
        for i in range(12):
            assert rows["status"][i] == Status.OK
            assert np.array_equal(out[i], reference(program.ops, decoder.decode(program, data[i]), 6, i))


@decoded("444", "420", "gray", "progressive")
@pytest.mark.parametrize("planar", [False, True])
def test_a_jpeg_is_turned_upside_down_while_it_is_resized(level: int, kind: str, planar: bool) -> None:
    data = [jpeg(130, 90, kind=kind)]
    upright, _ = run(Program(ops=(resize(40, 51),), planar=planar), data, 40, 51)
    turned, rows = run(Program(ops=(resize(40, 51), vflip(1.0)), planar=planar), data, 40, 51)
    assert rows["flip"][0] == 2
    assert np.array_equal(turned, upright[:, :, ::-1] if planar else upright[:, ::-1])
    around, _ = run(Program(ops=(center_crop(100, 20), vflip(1.0)), planar=planar), data, 100, 20)
    upright, _ = run(Program(ops=(center_crop(100, 20),), planar=planar), data, 100, 20)
    assert np.array_equal(around, upright[:, :, ::-1] if planar else upright[:, ::-1])


def test_pixels_are_turned_upside_down_while_they_are_resized() -> None:
    pixels = picture(61, 47)[None]
    upright, _ = move(Program(ops=(resize(21, 30),)), pixels)
    turned, _ = move(Program(ops=(resize(21, 30), vflip(1.0))), pixels)
    assert np.array_equal(turned, upright[:, ::-1])


def test_a_padded_image_is_resized_as_if_it_had_come_so() -> None:
    pixels = picture(61, 47)[None]
    border = pad(7, 5, 3, 9, EDGE)
    first, _ = move(Program(ops=(border,)), pixels)
    expected, _ = move(Program(ops=(resize(40, 50),)), first)
    out, _ = move(Program(ops=(border, resize(40, 50))), pixels)
    assert np.array_equal(out, expected)
    behind, _ = move(Program(ops=(nothing_much(), hflip(0.0), border, resize(40, 50))), pixels)
    assert np.array_equal(behind, expected)


def test_a_box_is_cut_out_of_what_stands_there_then() -> None:
    pixels = picture(30, 20)[None]
    box = (3, 4, 13, 19)
    out, _ = move(Program(ops=(pad(5, 5, 5, 5), crop_box())), pixels, box=box)
    assert np.array_equal(out[0], padded(pixels[0], 5, 5, 5, 5, REFLECT, ())[3:13, 4:19])
    out, _ = move(Program(ops=(nothing_much(), crop_box())), pixels, box=box)
    assert np.array_equal(out[0], pixels[0, 3:13, 4:19])


@pytest.mark.parametrize("front", [(), (nothing_much(),)])
def test_the_matrix_tells_where_pixels_went(front: tuple[Op, ...]) -> None:
    height, width = 24, 31
    rng = np.random.default_rng(11)
    pixels = rng.permutation(height * width * 40)[: height * width].reshape(height, width)
    marks = np.stack([pixels % 256, pixels // 256, np.full_like(pixels, 255)], -1).astype(np.uint8)
    ops = (*front, vflip(), pad(6, 5, 4, 3, CONSTANT, (0, 0, 0)), hflip(), random_crop(20, 25), vflip(stream=8))
    out, rows = move(Program(ops=ops, seed=2), np.repeat(marks[None], 30, 0))
    seen = 0
    for image, row in zip(out, rows):
        m = row["matrix"].reshape(2, 3)
        for y, x in rng.integers(0, (height, width), (20, 2)).tolist():
            at_x, at_y = (m @ (x + 0.5, y + 0.5, 1) - 0.5).round().astype(int).tolist()
            if 0 <= at_x < 25 and 0 <= at_y < 20:
                assert image[at_y, at_x].tolist() == marks[y, x].tolist()
                seen += 1
    assert seen > 200


def test_the_matrix_of_a_flipped_resize_has_a_negative_scale() -> None:
    row = plan_one(Program(ops=(resize(50, 40), vflip(1.0))), 80, 100)
    assert row["matrix"].tolist() == [0.5, 0, 0, 0, -0.5, 50]


def test_a_random_crop_lies_where_torchvision_puts_it() -> None:
    program = Program(ops=(random_crop(5, 9, stream=12),), seed=4)
    draws = native.uniforms(4, np.zeros(300, np.uint32), np.arange(300), 12, 2)
    tops, lefts = set(), set()
    for position in range(300):
        row = plan_one(program, 12, 8, position=position)
        left, top = int(row["view"][0]), int(row["view"][1])
        assert top == math.floor(draws[position, 0] * 4) and left == math.floor(draws[position, 1] * 4)
        tops.add(top)
        lefts.add(left)
    assert tops == lefts == {0, 1, 2, 3}


def test_an_image_smaller_than_the_random_crop_is_an_error_that_says_so() -> None:
    program = Program(ops=(random_crop(10, 10),))
    row = plan_one(program, 12, 8)
    assert row["status"] == Status.GEOMETRY and b"10x10" in row["message"] and b"12x8" in row["message"]
    out = np.zeros((1, 10, 10, 3), np.uint8)
    with native.Decoder() as decoder:
        for ops in ((random_crop(10, 10),), (nothing_much(), random_crop(10, 10)), (pad(0, 0, 1, 1), random_crop(10, 10))):
            program = Program(ops=ops)
            rows = pixel_rows(
                decoder, program, np.zeros((1, 8, 12, 3), np.uint8), None, np.zeros(1, np.uint32), np.zeros(1, np.int64), out
            )
            assert rows["status"][0] == Status.GEOMETRY and b"does not fit" in rows["message"][0]
    _, rows = run(program, [jpeg(12, 8)], 10, 10)
    assert rows["status"][0] == Status.GEOMETRY


def test_padding_beyond_the_largest_image_is_an_error() -> None:
    row = plan_one(Program(ops=(pad(40_000, 0, 40_000, 0),)), 10, 10)
    assert row["status"] == Status.GEOMETRY and b"80010x10" in row["message"]


@pytest.mark.parametrize(
    "op",
    [
        pad(-1, 0, 0, 0),
        Op(PAD, 0, (1, 1, 1, 0.5, 0)),  # type: ignore[arg-type]
        pad(0, 0, 0, 0, 3),
        pad(1, 1, 1, 1, CONSTANT, (0, 256, 0)),
        random_crop(0, 3),
        Op(RANDOM_CROP, 0, (math.nan, 3)),  # type: ignore[arg-type]
        vflip(-0.1),
    ],
)
def test_operations_that_make_no_sense_are_refused(op: Op) -> None:
    with pytest.raises(KernelError):
        plan_one(Program(ops=(op,)), 10, 10)


def test_images_are_read_from_rows_that_are_apart() -> None:
    whole = np.random.default_rng(3).integers(0, 256, (4, 20, 50, 3), np.uint8)
    part = whole[::2, 3:17, :30]
    out, _ = move(Program(ops=(pad(2, 2, 2, 2), hflip(1.0))), part)
    assert np.array_equal(out[1], padded(part[1], 2, 2, 2, 2, REFLECT, ())[:, ::-1])
