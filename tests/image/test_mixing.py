"""MixUp and CutMix as values: checked parameters, and draws with the distribution they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stoker.errors import ConfigError
from stoker.image import CutMix, MixUp
from stoker.image.batch_mixing import beta, draw
from stoker.kernel import native

SIZE = (24, 40)


def draws(op: Any, count: int = 4000, seed: int = 5) -> list[Any]:
    return [draw([op], seed, 0, position * 32, 0, SIZE) for position in range(count)]


@pytest.mark.parametrize("kind", [MixUp, CutMix])
@pytest.mark.parametrize(
    "given",
    [
        *({"alpha": value} for value in (0, -1, math.nan, math.inf, "1", True)),
        *({"classes": value} for value in (0, -3, 1.5, None, True, 1 << 30)),
        *({"p": value} for value in (-0.1, 1.1, math.nan, None)),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused_by_name(kind: Any, given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=f"{kind.__name__}.*{name}="):
        kind(**{"classes": 10, **given})


def test_classes_must_be_said() -> None:
    with pytest.raises(ConfigError, match="number of classes"):
        MixUp(0.2)


def test_operations_are_values() -> None:
    assert MixUp(classes=10) == MixUp(0.2, classes=np.int64(10), p=1) != MixUp(classes=11)
    assert repr(MixUp(1, classes=5)) == "MixUp(alpha=1.0, classes=5, p=1.0)"


@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.4, 0.8, 1.0, 1.0001, 2.0, 8.0, 300.0])
def test_shares_are_from_the_beta_distribution(alpha: float) -> None:
    """Kolmogorov-Smirnov against NumPy's own sampler: both of 20,000, so that 0.02 is a distance of one in a thousand."""
    count = 20_000
    uniforms = native.uniforms(7, np.zeros(count, np.uint32), np.arange(count), 3, 128)
    ours = np.sort([beta(alpha, row) for row in uniforms])
    theirs = np.sort(np.random.default_rng(1).beta(alpha, alpha, count))
    grid = np.concatenate([ours, theirs])
    distance = np.abs(np.searchsorted(ours, grid, "right") - np.searchsorted(theirs, grid, "right")).max() / count
    assert ours[0] >= 0 and ours[-1] <= 1
    assert distance < 0.02


def test_a_share_that_no_try_gives_is_one_half() -> None:
    assert beta(1.0, np.full(8, 0.9)) == 0.5
    assert 0 <= beta(1e-300, np.array([1e-9, 1 - 1e-9])) <= 1
    assert 0 <= beta(1e6, np.array([1e-9, 1e-9])) <= 1


def test_boxes_are_torchvisions() -> None:
    """Half sides int(sqrt(1 - share) / 2 * side), a centre anywhere, cut off at the border; the share is the area that stays."""
    for _, (share, box) in draws(CutMix(classes=2)):
        top, left, bottom, right = box
        assert 0 <= top <= bottom <= SIZE[0] and 0 <= left <= right <= SIZE[1]
        assert share == 1 - (bottom - top) * (right - left) / (SIZE[0] * SIZE[1])


def test_boxes_have_the_distribution_of_torchvisions() -> None:
    rng = np.random.default_rng(3)
    height, width = SIZE
    expected = []
    for _ in range(4000):
        half = 0.5 * math.sqrt(1 - rng.beta(1, 1))
        x, y, half_width, half_height = rng.integers(width), rng.integers(height), int(half * width), int(half * height)
        left, right = max(0, x - half_width), min(width, x + half_width)
        top, bottom = max(0, y - half_height), min(height, y + half_height)
        expected.append((top, left, bottom, right))
    ours = np.array([mixture.box for _, mixture in draws(CutMix(classes=2))])
    assert np.abs(ours.mean(0) - np.mean(expected, axis=0)).max() < 0.6
    assert np.abs(ours.std(0) - np.std(expected, axis=0)).max() < 0.6


def test_probability_and_choice_hold_on_average() -> None:
    assert sum(drawn is None for drawn in draws(MixUp(classes=2, p=0.3))) == pytest.approx(2800, abs=120)
    both = [MixUp(classes=2), CutMix(classes=2)]
    chosen = [draw(both, 5, 0, position, 0, SIZE) for position in range(4000)]
    assert sum(isinstance(drawn[0], MixUp) for drawn in chosen if drawn) == pytest.approx(2000, abs=130)
    assert all(drawn is None for drawn in draws(MixUp(classes=2, p=0), 50))


def test_draws_depend_on_seed_epoch_place_and_stream_alone() -> None:
    op = MixUp(1.0, classes=2)
    here = draw([op], 5, 1, 64, 256, SIZE)
    assert draw([op], 5, 1, 64, 256, (9, 9)) == here
    for other in [(6, 1, 64, 256), (5, 2, 64, 256), (5, 1, 65, 256), (5, 1, 64, 512)]:
        assert draw([op], *other, SIZE) != here
    assert draw([op], -3, 1 << 31, 1 << 50, 256, SIZE) == draw([op], -3, 1 << 31, 1 << 50, 256, SIZE)


def test_one_pixel_images_have_boxes_too() -> None:
    for position in range(100):
        drawn = draw([CutMix(classes=2)], 0, 0, position, 0, (1, 1))
        assert drawn is not None and drawn[1] == (1.0, (0, 0, 0, 0))
