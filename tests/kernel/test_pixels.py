"""Pixels: as Pillow would have them, and the same whatever the instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.native import Op, Program, Status

from ..support import Simd
from . import twins as reference
from .images import (
    KINDS,
    center_crop,
    crop_box,
    decoded,
    difference,
    hflip,
    jpeg,
    opened,
    picture,
    pixel_rows,
    plan_one,
    random_resized_crop,
    resize,
    resize_short,
    run,
    span_rows,
)


def pixels_once(decoder: native.Decoder, program: Program, pixels: np.ndarray, out: np.ndarray) -> None:
    rows = pixel_rows(decoder, program, pixels[None], None, np.zeros(1, np.uint32), np.zeros(1, np.int64), out[None])
    assert rows["status"][0] == Status.OK


def through_pillow(data: bytes, row: np.void, mode: str = "RGB") -> np.ndarray:
    size = (int(row["out_width"]), int(row["out_height"]))
    image = opened(data, mode).resize(size, Image.Resampling.BILINEAR, box=tuple(row["view"].tolist()))
    return np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if row["flip"] else image)


@decoded()
@pytest.mark.parametrize("size", [(320, 240), (239, 321), (61, 47)])
@pytest.mark.parametrize(("contrast", "most"), [(0.4, 2), (1.0, 24)])
def test_exact_pixels_are_pillows_within_few_levels(kind: str, size: tuple[int, int], contrast: float, most: int) -> None:
    # Colours are converted after resizing: where Pillow clips colours beyond range before it, more than rounding is left.
    data = jpeg(*size, kind=kind, contrast=contrast)
    program = Program(ops=(random_resized_crop(64, 48), hflip()), seed=1, exact=True)
    out, rows = run(program, [data] * 12, 64, 48)
    for pixels, row in zip(out, rows):
        assert row["status"] == Status.OK and row["shrink"] == 1
        crop = tuple(row["clip"].tolist())
        expected = opened(data).crop(crop).resize((48, 64), Image.Resampling.BILINEAR)
        if row["flip"]:
            expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        assert difference(pixels, expected).max() <= most
        assert difference(pixels, expected).mean() < 0.5


@decoded()
def test_fast_pixels_are_close_to_pillows(kind: str) -> None:
    data = [jpeg(640, 480, kind=kind, seed=i) for i in range(4)]
    program = Program(ops=(random_resized_crop(96, 96), hflip()), seed=2)
    out, rows = run(program, data, 96, 96)
    assert set(rows["shrink"].tolist()) - {1}, "no image was shrunk: the test tests nothing"
    for source, pixels, row in zip(data, out, rows):
        crop = tuple(row["clip"].tolist())
        expected = np.asarray(opened(source).crop(crop).resize((96, 96), Image.Resampling.BILINEAR))
        assert difference(pixels, expected[:, ::-1] if row["flip"] else expected).mean() < 4.5  # of hard edges


def test_resize_then_crop_equals_pillows_resize_then_crop() -> None:
    data = jpeg(300, 200, contrast=0.4)
    out, _ = run(Program(ops=(resize_short(128), center_crop(112, 112)), exact=True), [data], 112, 112)
    whole = opened(data).resize((192, 128), Image.Resampling.BILINEAR)
    assert difference(out[0], whole.crop((40, 8, 152, 120))).max() <= 2


@decoded()
@pytest.mark.parametrize("exact", [False, True])
def test_a_crop_alone_keeps_every_pixel_as_it_is(kind: str, exact: bool) -> None:
    data = jpeg(203, 131, kind=kind)
    program = Program(ops=(crop_box(),), exact=exact)
    with native.Decoder() as decoder:
        whole = decoder.decode(program, data)
    for box in [(0, 0, 131, 203), (17, 33, 101, 58), (130, 202, 131, 203), (5, 0, 6, 203), (64, 64, 80, 80)]:
        top, left, bottom, right = box
        out, rows = run(program, [data], bottom - top, right - left, boxes=[box])
        assert rows["status"][0] == Status.OK
        assert np.array_equal(out[0], whole[top:bottom, left:right])


@decoded()
def test_a_whole_exact_decode_is_pillows(kind: str) -> None:
    data = jpeg(203, 131, kind=kind)
    with native.Decoder() as decoder:
        assert difference(decoder.decode(Program(exact=True), data), opened(data)).max() <= 1
        gray = decoder.decode(Program(exact=True, channels=1), data)
    assert gray.shape == (131, 203, 1) and difference(gray, opened(data, "L")).mean() < 1


def test_a_crop_larger_than_the_image_is_padded_with_zeros() -> None:
    data = jpeg(30, 20, kind="444")
    out, rows = run(Program(ops=(center_crop(50, 41),), exact=True), [data], 50, 41)
    assert rows["dest"][0].tolist() == [5, 15, 35, 35]
    assert difference(out[0, 15:35, 5:35], opened(data)).max() <= 1
    out[0, 15:35, 5:35] = 0
    assert not out.any()


@pytest.mark.parametrize("size", [(1, 70), (70, 1), (1, 1), (2, 3), (17, 16)])
@decoded("420", "gray", "progressive")
def test_slim_images_work(size: tuple[int, int], kind: str) -> None:
    data = jpeg(*size, kind=kind, contrast=0.4)
    for exact in (False, True):
        out, rows = run(Program(ops=(resize(20, 20),), exact=exact), [data], 20, 20)
        assert rows["status"][0] == Status.OK
        tolerance = 2 if exact else 60
        assert difference(out[0], opened(data).resize((20, 20), Image.Resampling.BILINEAR)).max() <= tolerance


def test_layouts_and_types_hold_the_same_pixels() -> None:
    data = [jpeg(100, 80, seed=i) for i in range(3)]
    ops = (random_resized_crop(33, 45), hflip())
    scale, bias = (0.017, 0.018, 0.0171), (-2.1, -2.0, -1.8)
    plain, _ = run(Program(ops=ops), data, 33, 45)
    planar, _ = run(Program(ops=ops, planar=True), data, 33, 45)
    assert planar.shape == (3, 3, 33, 45) and np.array_equal(planar.transpose(0, 2, 3, 1), plain)
    expected = plain.astype(np.float32) * np.float32(scale) + np.float32(bias)
    for is_planar in (False, True):
        floats, _ = run(Program(ops=ops, as_float=True, planar=is_planar, scale=scale, bias=bias), data, 33, 45)
        assert floats.dtype == np.float32
        assert np.array_equal(floats.transpose(0, 2, 3, 1) if is_planar else floats, expected)


def test_padding_of_floats_is_a_normalised_zero() -> None:
    program = Program(ops=(center_crop(30, 30),), as_float=True, planar=True, scale=(2, 3, 4), bias=(0.5, 0.25, -1))
    out, _ = run(program, [jpeg(20, 20)], 30, 30)
    assert out[0, :, 0, 0].tolist() == [0.5, 0.25, -1] == out[0, :, 29, 29].tolist()


def test_gray_output_is_the_luminance() -> None:
    data = jpeg(100, 80)
    out, _ = run(Program(ops=(resize(40, 50),), channels=1, exact=True), [data], 40, 50)
    assert out.shape == (1, 40, 50, 1)
    assert difference(out[0], opened(data, "L").resize((50, 40), Image.Resampling.BILINEAR)).max() <= 2


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("as_float", [False, True])
@pytest.mark.parametrize("planar", [False, True])
def test_every_instruction_set_gives_the_same_bytes(channels: int, as_float: bool, planar: bool, simd: Simd) -> None:
    data = [jpeg(400 + 13 * i, 300, seed=i) for i in range(4)]
    for ops in [(random_resized_crop(51, 67), hflip()), (resize(9, 200),), (resize(150, 10),), (resize(7, 7),)]:
        height, width = (51, 67) if len(ops) == 2 else (int(ops[0].params[0]), int(ops[0].params[1]))
        program = Program(ops=ops, channels=channels, as_float=as_float, planar=planar, scale=(0.1, 0.2, 0.3), bias=(1, 2, 3))
        assert simd(0) == 0
        slow, _ = run(program, data, height, width)
        for level in range(1, simd(1000) + 1):
            simd(level)
            fast, _ = run(program, data, height, width)
            assert np.array_equal(slow, fast)


@pytest.mark.parametrize(
    "size, ops",
    [
        ((60, 50), (resize(25, 31),)),
        ((60, 50), (resize(90, 100), center_crop(40, 40))),
        ((61, 53), (random_resized_crop(20, 30), hflip(1.0))),
        ((301, 5), (resize(3, 7),)),
        ((5, 301), (hflip(1.0), resize(299, 4))),
    ],
)
def test_the_resampler_equals_its_numpy_twin(size: tuple[int, int], ops: tuple[Op, ...]) -> None:
    width, height = size
    program, source = Program(ops=ops, seed=9), picture(width, height)
    row = plan_one(program, width, height)
    out = np.zeros(program.shape(int(row["out_height"]), int(row["out_width"])), np.uint8)
    with native.Decoder() as decoder:
        pixels_once(decoder, program, source, out)
    view, clip = tuple(row["view"].tolist()), tuple(row["clip"].tolist())
    assert np.array_equal(out, reference.resize(source, view, clip, out.shape[:2], flip=bool(row["flip"])))


def test_a_constant_image_stays_constant_at_any_scale() -> None:
    with native.Decoder() as decoder:
        for level in (1, 128, 255):
            for size in [(1, 1), (3, 700), (40, 60), (59, 61)]:
                program = Program(ops=(resize(*size),))
                out = np.zeros(program.shape(*size), np.uint8)
                pixels_once(decoder, program, np.full((900, 60, 3), level, np.uint8), out)
                assert (out == level).all()


def test_pixels_of_other_sources_are_treated_like_decoded_ones() -> None:
    source = picture(120, 90)
    ops = (random_resized_crop(32, 32), hflip(1.0))
    with native.Decoder() as decoder:

        def through(pixels: np.ndarray, channels: int) -> np.ndarray:
            program = Program(ops=ops, seed=3, channels=channels)
            out = np.zeros(program.shape(32, 32), np.uint8)
            pixels_once(decoder, program, pixels, out)
            return out

        colour = through(source, 3)
        with_alpha = np.concatenate([source, np.full((90, 120, 1), 99, np.uint8)], axis=2)
        assert np.array_equal(through(with_alpha, 3), colour)
        gray = np.ascontiguousarray(source[..., 0])
        assert np.array_equal(through(gray, 3), np.repeat(through(gray, 1), 3, axis=2))
        wide = np.zeros((90, 200, 3), np.uint8)
        wide[:, 40:160] = source
        assert np.array_equal(through(wide[:, 40:160], 3), colour)
        luminance = np.asarray(Image.fromarray(source).convert("L"))
        assert np.array_equal(through(source, 1), through(luminance, 1))


def test_images_do_not_depend_on_their_neighbours_in_a_call() -> None:
    data = [jpeg(100 + i, 90, kind=kind, seed=i) for i, kind in enumerate(KINDS)]
    program = Program(ops=(random_resized_crop(40, 40), hflip()), seed=8)
    together, _ = run(program, data, 40, 40)
    for i, image in enumerate(data):
        alone, _ = run(program, [image], 40, 40, first=i)
        assert np.array_equal(alone[0], together[i])


def test_output_rows_may_lie_apart() -> None:
    data = jpeg(50, 50)
    big = np.full((2, 3, 20, 20, 3), 7, np.uint8)
    zeros = np.zeros(2, np.int64)
    with native.Decoder() as decoder:
        span_rows(
            decoder, Program(ops=(resize(20, 20),)), np.frombuffer(data, np.uint8), zeros, zeros + len(data), None,
            np.zeros(2, np.uint32), zeros, big[:, 1],
        )  # fmt: skip
    assert (big[:, 0] == 7).all() and (big[:, 2] == 7).all()
    assert np.array_equal(big[0, 1], big[1, 1]) and big[0, 1].std() > 10


def test_wrong_outputs_are_refused_before_anything_is_written() -> None:
    data, zeros = np.frombuffer(jpeg(50, 50), np.uint8), np.zeros(1, np.int64)
    program = Program(ops=(resize(20, 20),))
    with native.Decoder() as decoder:

        def call(out: np.ndarray, length: int = data.size) -> np.ndarray:
            return span_rows(decoder, program, data, zeros, zeros + length, None, np.zeros(1, np.uint32), zeros, out)

        for out in (
            np.zeros((1, 20, 20, 3), np.float32),
            np.zeros((0, 20, 20, 3), np.uint8),
            np.zeros((1, 20, 20, 4), np.uint8),
            np.zeros((1, 20, 40, 3), np.uint8)[:, :, ::2],
        ):
            with pytest.raises(KernelError, match="out"):
                call(out)
        with pytest.raises(KernelError, match="refused"):
            call(np.zeros((1, 20, 20, 3), np.uint8), length=data.size + 1)
        rows = call(np.zeros((1, 21, 20, 3), np.uint8))
        assert rows["status"][0] == Status.ARGUMENT and b"20x20" in rows["message"][0]


def test_a_closed_decoder_says_so() -> None:
    decoder = native.Decoder()
    decoder.close()
    decoder.close()
    with pytest.raises(KernelError, match="closed"):
        decoder.decode(Program(), jpeg(8, 8))
