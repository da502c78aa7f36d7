"""Colour effects: Pillow's where Pillow has them, the same at every SIMD level, and the same joined as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel.native import Augment, Op, Program, Status

from .images import difference, picture, pixel_rows

Pixels = NDArray[np.uint8]

# Operations and policies' effects, as stoker.h numbers them.
JITTER, GRAYSCALE, BLUR, SOLARIZE, POSTERIZE, EQUALIZE, AUTO_CONTRAST, SHARPNESS, INVERT = range(21, 30)
POLICY = 40
AUG_BRIGHTNESS, AUG_COLOR, AUG_CONTRAST, AUG_SHARPNESS, AUG_POSTERIZE, AUG_SOLARIZE, AUG_AUTO_CONTRAST = range(6, 13)
AUG_EQUALIZE, AUG_INVERT = 13, 14

#: each test ends at the fastest level, whichever it chose
pytestmark = pytest.mark.usefixtures("simd")

SIZES = [(1, 1), (1, 9), (7, 1), (2, 2), (3, 3), (5, 4), (31, 7), (32, 3), (33, 21), (65, 40), (224, 37)]


def op(kind: int, *params: float, probability: float = 1.0, stream: int = 3) -> Op:
    return Op(kind, stream, (*params, *[0.0] * (11 - len(params)), probability))  # type: ignore[arg-type]


def jitter(brightness: float = 1.0, contrast: float = 1.0, saturation: float = 1.0, hue: float = 0.0) -> Op:
    return op(JITTER, brightness, brightness, contrast, contrast, saturation, saturation, hue, hue)


def apply(pixels: Pixels, *ops: Op, level: int = -1, epoch: int = 0, position: int = 0, choices: Any = ()) -> Pixels:
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    program = Program(ops=ops, channels=channels, seed=5, choices=choices)
    out = np.zeros((1, *program.shape(*pixels.shape[:2])), np.uint8)
    native.simd(level)
    with native.Decoder() as decoder:
        rows = pixel_rows(decoder, program, pixels[None], None, np.array([epoch], np.uint32), np.array([position]), out)
    assert rows["status"][0] == Status.OK, rows["message"][0]
    return out[0].reshape(pixels.shape)


def augment(pixels: Pixels, kind: int, magnitude: float = 0.0) -> Pixels:
    choice = (Augment(kind, magnitude=magnitude), Augment(0))
    return apply(pixels, Op(POLICY, 3, (0, 1, 1)), choices=(choice,))  # type: ignore[arg-type]


def pictures(gray: bool = False) -> list[Pixels]:
    """Noise, photographs of a sort, few colours, one colour, at all sizes."""
    found: list[Pixels] = []
    for i, (width, height) in enumerate(SIZES):
        rng = np.random.default_rng(i)
        found.append(rng.integers(0, 256, (height, width, 3), np.uint8))
        found.append(picture(width, height, i))
        found.append((rng.integers(0, 3, (height, width, 3)) * 50 + 60).astype(np.uint8))
        found.append(np.full((height, width, 3), rng.integers(0, 256, 3), np.uint8))
    return [p[..., 0].copy() for p in found] if gray else found


def pillow(pixels: Pixels, function: Callable[[Image.Image], Image.Image]) -> Pixels:
    return np.asarray(function(Image.fromarray(pixels)))


def levels() -> range:
    """All this machine has, whichever is the fastest."""
    top = native.simd(1000)
    native.simd(-1)
    return range(top + 1)


both = pytest.mark.parametrize("gray", [False, True], ids=["rgb", "gray"])

# ---- as Pillow --------------------------------------------------------------------------------------------------------------

SAME: dict[str, tuple[Op, Callable[[Image.Image], Image.Image]]] = {
    "solarize-128": (op(SOLARIZE, 128), lambda i: ImageOps.solarize(i, 128)),
    "solarize-0": (op(SOLARIZE, 0), lambda i: ImageOps.solarize(i, 0)),
    "solarize-77.5": (op(SOLARIZE, 77.5), lambda i: ImageOps.solarize(i, 77.5)),
    "solarize-256": (op(SOLARIZE, 256), lambda i: ImageOps.solarize(i, 256)),
    **{f"posterize-{n}": (op(POSTERIZE, n), lambda i, n=n: ImageOps.posterize(i, n)) for n in range(1, 9)},  # type: ignore[misc]
    "equalize": (op(EQUALIZE), ImageOps.equalize),
    "autocontrast": (op(AUTO_CONTRAST), ImageOps.autocontrast),
    "invert": (op(INVERT), ImageOps.invert),
    "grayscale": (op(GRAYSCALE), lambda i: i.convert("L").convert(i.mode)),
}
for factor in (0.0, 0.3, 0.7, 1.0, 1.25, 1.9, 5.0):
    SAME[f"brightness-{factor}"] = jitter(brightness=factor), lambda i, f=factor: ImageEnhance.Brightness(i).enhance(f)  # type: ignore[misc]
    SAME[f"contrast-{factor}"] = jitter(contrast=factor), lambda i, f=factor: ImageEnhance.Contrast(i).enhance(f)  # type: ignore[misc]


@both
@pytest.mark.parametrize("name", SAME)
def test_an_effect_is_pillows_to_the_last_bit(name: str, gray: bool) -> None:
    effect, function = SAME[name]
    for pixels in pictures(gray):
        np.testing.assert_array_equal(apply(pixels, effect), pillow(pixels, function), f"{pixels.shape}")


@both
@pytest.mark.parametrize("factor", [0.0, 0.1, 0.5, 0.9, 1.0, 1.1, 1.9, 3.7])
@pytest.mark.parametrize("name", ["saturation", "sharpness"])
def test_blends_are_within_one_level_of_pillows_and_mostly_the_same(name: str, factor: float, gray: bool) -> None:
    effect = jitter(saturation=factor) if name == "saturation" else op(SHARPNESS, factor, factor)
    function = ImageEnhance.Color if name == "saturation" else ImageEnhance.Sharpness
    for pixels in pictures(gray):
        off = difference(apply(pixels, effect), pillow(pixels, lambda i: function(i).enhance(factor)))
        assert off.max() <= 1 and (off.size < 3000 or off.mean() < 0.05)


def turned(pixels: Pixels, turns: float) -> NDArray[np.float64]:
    """The hue turned without rounding: by the six sides of the HSV cone."""
    rgb = pixels.astype(np.float64)
    top, low = rgb.max(-1), rgb.min(-1)
    chroma = top - low
    red, green, blue = np.moveaxis(rgb, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        side = np.select(
            [chroma == 0, top == red, top == green],
            [0, (green - blue) / chroma, 2 + (blue - red) / chroma],
            4 + (red - green) / chroma,
        )
    k = (np.array([5, 3, 1]) + (side + 6 * turns)[..., None]) % 6
    return top[..., None] - chroma[..., None] * np.clip(np.minimum(k, 4 - k), 0, 1)


@pytest.mark.parametrize("turns", [0.0, 0.02, -0.1, 0.25, 1 / 3, -1 / 3, 0.5, -0.5, 0.4999, 1.0])
def test_hue_is_within_a_level_of_the_exact_turn(turns: float) -> None:
    corners = np.array([0, 1, 2, 127, 128, 254, 255], np.uint8)
    grid = np.stack(np.meshgrid(corners, corners, corners), -1).reshape(7, 49, 3)
    for pixels in [*pictures(), grid]:
        off = np.abs(apply(pixels, jitter(hue=turns)) - turned(pixels, turns))
        assert off.max() <= 0.75
        if turns in (0.0, 1.0):
            assert off.max() < 1e-9


def test_hue_is_pillows_as_far_as_eight_bits_of_hue_allow() -> None:
    pixels, turns = picture(200, 150), 0.15
    hsv = np.array(Image.fromarray(pixels).convert("HSV"))
    hsv[..., 0] += np.uint8(turns * 255)
    expected = Image.frombytes("HSV", (200, 150), hsv.tobytes()).convert("RGB")
    off = difference(apply(pixels, jitter(hue=int(turns * 255) / 255)), expected)
    assert off.mean() < 1 and np.percentile(off, 99) <= 4


@both
def test_hue_and_saturation_leave_gray_pictures_alone(gray: bool) -> None:
    for pixels in pictures(gray=True):
        shown = pixels if gray else np.repeat(pixels[..., None], 3, -1)
        np.testing.assert_array_equal(apply(shown, jitter(saturation=1.7, hue=0.3)), shown)


def blurred(pixels: Pixels, side: int, sigma: float) -> NDArray[np.float64]:
    x = np.arange(side) - side // 2
    kernel = np.exp(-0.5 * (x / sigma) ** 2)
    kernel /= kernel.sum()
    out = pixels.astype(np.float64)
    for axis in (0, 1):
        n, reach = out.shape[axis], side // 2
        period = max(1, 2 * (n - 1))
        i = np.arange(-reach, n + reach) % period
        padded = np.take(out, np.where(i < n, i, period - i), axis)
        out = sum(w * np.take(padded, np.arange(t, t + n), axis) for t, w in enumerate(kernel))
    return out


@both
@pytest.mark.parametrize(("side", "sigma"), [(1, 1.0), (3, 0.1), (3, 0.5), (3, 9.0), (5, 1.1), (7, 2.0), (23, 5.0), (101, 30.0)])
def test_blur_is_the_gaussian_within_one_level(side: int, sigma: float, gray: bool) -> None:
    for pixels in pictures(gray):
        off = np.abs(apply(pixels, op(BLUR, side, sigma, sigma)) - blurred(pixels, side, sigma))
        assert off.max() <= 0.6, pixels.shape
        if (pixels == pixels[0, 0]).all():
            assert off.max() < 1e-6


# ---- policies ---------------------------------------------------------------------------------------------------------------

POLICIES: list[tuple[int, float, Op]] = [
    (AUG_BRIGHTNESS, 0.4, jitter(brightness=1.4)),
    (AUG_COLOR, -0.9, jitter(saturation=1 - 0.9)),
    (AUG_CONTRAST, 0.9, jitter(contrast=1.9)),
    (AUG_SHARPNESS, -0.5, op(SHARPNESS, 0.5, 0.5)),
    (AUG_POSTERIZE, 3, op(POSTERIZE, 3)),
    (AUG_SOLARIZE, 85, op(SOLARIZE, 85)),
    (AUG_AUTO_CONTRAST, 0, op(AUTO_CONTRAST)),
    (AUG_EQUALIZE, 0, op(EQUALIZE)),
    (AUG_INVERT, 0, op(INVERT)),
]


@both
@pytest.mark.parametrize(("kind", "magnitude", "effect"), POLICIES)
def test_a_policys_effect_is_the_operation_with_one_more_than_its_magnitude(
    kind: int, magnitude: float, effect: Op, gray: bool
) -> None:
    for pixels in pictures(gray):
        np.testing.assert_array_equal(augment(pixels, kind, magnitude), apply(pixels, effect))


def test_a_policy_may_ask_for_absurd_factors() -> None:
    for kind in (AUG_BRIGHTNESS, AUG_COLOR, AUG_CONTRAST, AUG_SHARPNESS, AUG_POSTERIZE, AUG_SOLARIZE):
        for magnitude in (-1e300, -40.0, 40.0, 1e300):
            shown = augment(picture(33, 21), kind, magnitude)
            native.simd(0)
            np.testing.assert_array_equal(shown, augment(picture(33, 21), kind, magnitude))


# ---- joined, at every level, at every place ---------------------------------------------------------------------------------

SINGLE = [
    jitter(brightness=1.3),
    jitter(contrast=0.6),
    jitter(saturation=1.6),
    jitter(hue=0.13),
    op(GRAYSCALE),
    op(BLUR, 5, 0.7, 0.7),
    op(SOLARIZE, 100),
    op(POSTERIZE, 4),
    op(EQUALIZE),
    op(AUTO_CONTRAST),
    op(SHARPNESS, 1.8, 1.8),
    op(INVERT),
]


@both
@pytest.mark.parametrize("seed", range(12))
def test_effects_in_a_row_give_what_they_give_one_by_one(seed: int, gray: bool) -> None:
    rng = np.random.default_rng(seed)
    for pixels in pictures(gray):
        ops = [SINGLE[i] for i in rng.integers(0, len(SINGLE), rng.integers(2, 16))]
        expected = pixels
        for one in ops:
            expected = apply(expected, one)
        for level in levels():
            np.testing.assert_array_equal(apply(pixels, *ops, level=level), expected, f"{pixels.shape} at level {level}")


@both
def test_every_effect_is_the_same_at_every_level(gray: bool) -> None:
    if len(levels()) == 1:
        pytest.skip("this machine has one level")
    factors = np.random.default_rng(1).uniform(0, 2.5, 12).tolist()
    effects = [*SINGLE, *(effect for effect, _ in SAME.values())]
    effects += [jitter(saturation=f) for f in factors] + [op(SHARPNESS, f, f) for f in factors]
    effects += [jitter(hue=f / 2.5 - 0.5) for f in factors] + [jitter(f, f, f, f / 5) for f in factors]
    effects += [op(BLUR, side, f, f) for side, f in zip((1, 3, 5, 7, 9, 11, 31, 255), factors)]
    for pixels in pictures(gray):
        for effect in effects:
            expected = apply(pixels, effect, level=0)
            for level in levels()[1:]:
                np.testing.assert_array_equal(apply(pixels, effect, level=level), expected, f"{effect} {pixels.shape} {level}")


COLOURS = [(kind, magnitude) for kind, magnitude, _ in POLICIES]


@both
@pytest.mark.parametrize("seed", range(6))
def test_policies_and_effects_in_a_row_give_what_they_give_one_by_one(seed: int, gray: bool) -> None:
    rng = np.random.default_rng(seed)
    for pixels in pictures(gray):
        chosen = [COLOURS[i] for i in rng.integers(0, len(COLOURS), 4)]
        effects = [Augment(kind, magnitude=magnitude) for kind, magnitude in chosen]
        choices = ((effects[0], effects[1]), (effects[2], effects[3]))
        before, after = (SINGLE[i] for i in rng.integers(0, len(SINGLE), 2))
        policies = [op(POLICY, 0, 1, 1), op(POLICY, 1, 1, 1, stream=4)]
        expected = apply(pixels, before)
        for kind, magnitude in chosen:
            expected = augment(expected, kind, magnitude)
        expected = apply(expected, after)
        for level in levels():
            shown = apply(pixels, before, *policies, after, level=level, choices=choices)
            np.testing.assert_array_equal(shown, expected, f"{pixels.shape} at level {level}")


def test_ramps_are_the_same_at_every_level_however_awkward_their_factor() -> None:
    """Vectors compute them in 16 bits where that gives every entry, else otherwise."""
    values = np.arange(256, dtype=np.uint8)
    for pixels in (values.reshape(16, 16), np.stack([values, values[::-1], values // 2 + 60], -1).reshape(8, 32, 3)):
        for factor in (*np.linspace(0, 2.2, 111), 0.73, 1.27, 1.3, 1 / 3, 1.9999, 1.0001):
            effects = [jitter(brightness=float(factor)), jitter(contrast=float(factor))]
            for effect in effects:
                expected = apply(pixels, effect, level=0)
                for level in levels()[1:]:
                    np.testing.assert_array_equal(apply(pixels, effect, level=level), expected, f"{factor} {level}")


@both
def test_a_stretch_is_the_same_at_every_level_whatever_the_extremes(gray: bool) -> None:
    for low, high in [(0, 255), (0, 254), (3, 250), (10, 240), (40, 200), (60, 190), (100, 140), (7, 8), (50, 50)]:
        pixels = np.random.default_rng(low).integers(low, high + 1, (9, 41, 3), np.uint8)
        pixels = pixels[..., 0].copy() if gray else pixels
        expected = pillow(pixels, ImageOps.autocontrast)
        for level in levels():
            np.testing.assert_array_equal(apply(pixels, op(AUTO_CONTRAST), level=level), expected, f"{low} {high} {level}")


RANDOM_JITTER = op(JITTER, 0.6, 1.4, 0.6, 1.4, 0.6, 1.4, -0.1, 0.1, 1)


def test_jitter_depends_on_epoch_and_position_and_nothing_else() -> None:
    pixels = picture(64, 48)
    shown = {(e, p): apply(pixels, RANDOM_JITTER, epoch=e, position=p).tobytes() for e in range(3) for p in range(5)}
    assert len(set(shown.values())) == len(shown)
    for (epoch, position), expected in reversed(shown.items()):
        for level in levels():
            assert apply(pixels, RANDOM_JITTER, epoch=epoch, position=position, level=level).tobytes() == expected


def test_jitter_takes_its_factors_from_block_0_and_its_order_from_block_1() -> None:
    pixels, orders = picture(40, 30), set()
    for position in range(60):
        u = native.uniforms(5, np.zeros(1, np.uint32), np.array([position]), 3, 8)[0]
        value = [0.6 + 0.8 * u[0], 0.6 + 0.8 * u[1], 0.6 + 0.8 * u[2], -0.1 + 0.2 * u[3]]
        single = [jitter(value[0]), jitter(contrast=value[1]), jitter(saturation=value[2]), jitter(hue=value[3])]
        order = [0, 1, 2, 3]
        for i in range(3):
            k = i + int(u[4 + i] * (4 - i))
            order[i], order[k] = order[k], order[i]
        orders.add(tuple(order))
        expected = pixels
        for i in order:
            expected = apply(expected, single[i])
        np.testing.assert_array_equal(apply(pixels, RANDOM_JITTER, position=position), expected)
    assert len(orders) > 18  # of 24


@pytest.mark.parametrize("kind", [BLUR, SHARPNESS])
def test_drawn_strengths_are_uniform_draws_of_block_0(kind: int) -> None:
    pixels = picture(30, 20)
    for position in range(8):
        value = 0.2 + 1.5 * native.uniforms(5, np.zeros(1, np.uint32), np.array([position]), 3, 1)[0, 0]
        params, exact = ((5.0, 0.2, 1.7), (5.0, value, value)) if kind == BLUR else ((0.2, 1.7), (value, value))
        np.testing.assert_array_equal(apply(pixels, op(kind, *params), position=position), apply(pixels, op(kind, *exact)))


def test_an_effect_happens_as_often_as_its_probability_says() -> None:
    pixels = picture(8, 8)
    happened = [not np.array_equal(apply(pixels, op(INVERT, probability=0.3), position=p), pixels) for p in range(400)]
    assert 90 <= sum(happened) <= 150
    assert np.array_equal(apply(pixels, op(INVERT, probability=0.0)), pixels)


@pytest.mark.parametrize(
    "wrong",
    [
        op(JITTER, 1.2, 0.8, 1, 1, 1, 1),
        op(JITTER, -0.1, 1, 1, 1, 1, 1),
        op(JITTER, 1, 1, 1, 1, 1, 1, -1.5, 0),
        op(BLUR, 4, 1, 1),
        op(BLUR, 257, 1, 1),
        op(BLUR, 3, 0, 1),
        op(POSTERIZE, 9),
        op(SHARPNESS, 2, 1),
        op(SHARPNESS, 1, float("nan")),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: Op) -> None:
    with pytest.raises(KernelError):
        apply(picture(8, 8), wrong)
