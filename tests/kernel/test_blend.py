"""Images mixed in place: as the definition says, the same at every SIMD level, and never outside their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.blend_rows import blend, paste

SHAPES = [(2, 1), (2, 31), (3, 32), (5, 7, 9, 3), (17, 3, 16, 16), (4, 224, 5)]


def images(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    rng = np.random.default_rng(len(shape))
    return rng.integers(0, 256, shape, dtype=np.uint8) if dtype == np.uint8 else rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.1, 1 / 3, 0.5, 0.999, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bytes_are_mixed_with_the_image_before_and_rounded_half_up(shape: tuple[int, ...], share: float, level: int) -> None:
    before = images(shape, np.uint8)
    mixed = before.copy()
    blend(mixed, share)
    a, b = before.astype(np.int64), np.roll(before, 1, axis=0).astype(np.int64)
    np.testing.assert_array_equal(mixed, b + (((a - b) * int(share * 32768 + 0.5) + 16384) >> 15))
    assert np.abs(mixed - (share * a + (1 - share) * b)).max() <= 0.504  # rounding, and a weight of 15 bits


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_floats_are_mixed_as_torchvision_does(shape: tuple[int, ...], share: float, level: int) -> None:
    before = images(shape, np.float32)
    mixed = before.copy()
    blend(mixed, share)
    weight = np.float32(share)
    np.testing.assert_array_equal(mixed, before * weight + np.roll(before, 1, axis=0) * (np.float32(1) - weight))


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_box_comes_from_the_image_before(dtype: Any, planar: bool) -> None:
    shape = (6, 3, 9, 11) if planar else (6, 9, 11, 3)
    for box in [(0, 0, 9, 11), (2, 3, 5, 11), (8, 10, 9, 11), (4, 4, 4, 9), (0, 5, 9, 5)]:
        pasted = images(shape, dtype)
        expected = pasted.copy()
        inside = (..., slice(box[0], box[2]), slice(box[1], box[3]), *(() if planar else (slice(None),)))
        expected[inside] = np.roll(pasted, 1, axis=0)[inside]
        paste(pasted, box, planar)
        np.testing.assert_array_equal(pasted, expected)


def test_gray_images_need_no_channels() -> None:
    pasted = images((3, 4, 5), np.uint8)
    expected = np.roll(pasted, 1, axis=0)
    paste(pasted, (0, 0, 4, 5), planar=False)
    np.testing.assert_array_equal(pasted, expected)


@pytest.mark.parametrize("rows", [0, 1])
def test_an_image_alone_stays_as_it_is(rows: int) -> None:
    alone = images((rows, 4, 5, 3), np.float32)
    expected = alone.copy()
    blend(alone, 0.3)
    paste(alone, (0, 0, 2, 2), planar=False)
    np.testing.assert_array_equal(alone, expected)


def test_what_does_not_fit_is_refused() -> None:
    good = images((3, 4, 5, 3), np.uint8)
    for bad in (good[:, ::2], good.astype(np.float64), np.broadcast_to(good[:1], good.shape)):
        with pytest.raises(KernelError):
            blend(bad, 0.5)
    with pytest.raises(KernelError, match="share"):
        blend(good, 1.5)
    for box in [(0, 0, 5, 5), (-1, 0, 2, 2), (3, 0, 2, 2), (0, 0, 2, 6)]:
        with pytest.raises(KernelError, match="not within"):
            paste(good, box, planar=False)
