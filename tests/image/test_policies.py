"""Policies against torchvision's definitions, written out again here."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from stoker.image import AutoAugment, RandAugment, TrivialAugment
from stoker.image.autoaugment import POLICIES
from stoker.image.lower import lower
from stoker.kernel.native import AugmentKind as K

from .numpy_twin import draws_at

SIGNED = {K.SHEAR_X, K.SHEAR_Y, K.TRANSLATE_X, K.TRANSLATE_Y, K.ROTATE, K.BRIGHTNESS, K.COLOR, K.CONTRAST, K.SHARPNESS}
FACTORS = (K.BRIGHTNESS, K.COLOR, K.CONTRAST, K.SHARPNESS)
FOURTEEN = set(K) - {K.INVERT}


def space(bins: int, shear: float, move: float, turn: float, factor: float, bits: float) -> dict[int, np.ndarray]:
    """Magnitudes by effect, as torchvision makes them."""
    made = {
        K.SHEAR_X: np.linspace(0, shear, bins),
        K.TRANSLATE_X: np.linspace(0, move, bins),
        K.ROTATE: np.linspace(0, turn, bins),
        K.POSTERIZE: (8 - np.arange(bins) / ((bins - 1) / bits)).round(),
        K.SOLARIZE: 255 * np.linspace(1, 0, bins),
        **{kind: np.linspace(0, factor, bins) for kind in FACTORS},
        **{kind: np.zeros(bins) for kind in (K.IDENTITY, K.AUTO_CONTRAST, K.EQUALIZE, K.INVERT)},
    }
    return {**made, K.SHEAR_Y: made[K.SHEAR_X], K.TRANSLATE_Y: made[K.TRANSLATE_X]}


@pytest.mark.parametrize("bins, magnitude", [(31, 9), (31, 0), (31, 30), (11, 7), (2, 1)])
def test_rand_augment_has_fourteen_effects_of_torchvisions_strength(bins: int, magnitude: int) -> None:
    made = RandAugment(2, magnitude, bins).choices()
    expected = space(bins, 0.3, 150 / 331, 30, 0.9, 4)
    assert {first.kind for first, _ in made} == FOURTEEN and len(made) == 14
    for first, second in made:
        assert second.kind == K.IDENTITY and first.probability == 1
        assert first.mirrored == (first.kind in SIGNED)
        assert first.relative == (first.kind in (K.TRANSLATE_X, K.TRANSLATE_Y))
        assert first.magnitude == pytest.approx(expected[first.kind][magnitude])


def test_trivial_augment_has_every_effect_in_every_strength() -> None:
    made = TrivialAugment().choices()
    expected = space(31, 0.99, 32, 135, 0.99, 6)
    assert len(made) == 14 * 31 and Counter(first.kind for first, _ in made) == dict.fromkeys(FOURTEEN, 31)
    for kind in FOURTEEN:
        told = [first.magnitude for first, _ in made if first.kind == kind]
        whole = kind in (K.TRANSLATE_X, K.TRANSLATE_Y)
        assert told == pytest.approx(np.trunc(expected[kind]) if whole else expected[kind])
    assert not any(first.relative for first, _ in made)


@pytest.mark.parametrize(
    "name, first, last, effects",
    [
        ("imagenet", ((K.POSTERIZE, 0.4, 8), (K.ROTATE, 0.6, 9)), ((K.EQUALIZE, 0.8, 0), (K.EQUALIZE, 0.6, 0)), 10),
        ("cifar10", ((K.INVERT, 0.1, 0), (K.CONTRAST, 0.2, 6)), ((K.TRANSLATE_Y, 0.7, 9), (K.AUTO_CONTRAST, 0.9, 0)), 13),
        ("svhn", ((K.SHEAR_X, 0.9, 4), (K.INVERT, 0.2, 0)), ((K.SHEAR_X, 0.7, 2), (K.INVERT, 0.1, 0)), 10),
    ],
)
def test_auto_augment_has_twenty_five_pairs(name: str, first: tuple, last: tuple, effects: int) -> None:
    made = AutoAugment(name, fill=7).choices()
    expected = space(10, 0.3, 150 / 331, 30, 0.9, 4)
    assert len(made) == 25 and len({effect.kind for pair in made for effect in pair}) == effects
    for pair, wanted in ((made[0], first), (made[-1], last)):
        for effect, (kind, probability, bin) in zip(pair, wanted):
            assert (effect.kind, effect.probability, effect.fill) == (kind, probability, 7)
            assert effect.magnitude == pytest.approx(expected[kind][bin])
    for effect in (effect for pair in made for effect in pair):
        assert effect.mirrored == (effect.kind in SIGNED) and round(effect.probability * 10) / 10 == effect.probability
        assert np.isclose(expected[effect.kind], effect.magnitude).any()


def test_a_policy_of_ones_own_is_a_list_as_torchvision_writes_it() -> None:
    own = AutoAugment([[("Posterize", 0.4, 8), ("Rotate", 0.6, 9)], (("AutoContrast", 1, None),)], fill=3)
    assert own == AutoAugment(((("posterize", 0.4, 8), ("ROTATE", 0.6, 9)), (("auto-contrast", 1.0, 7),)), fill=3)
    pair, single = own.choices()
    assert pair == AutoAugment("imagenet", fill=3).choices()[0]
    assert single[0].kind == K.AUTO_CONTRAST and single[1].kind == K.IDENTITY
    names = {kind: kind.name.lower() for kind in K}
    lines = tuple(tuple((names[kind], chance, bin) for kind, chance, bin in pair) for pair in POLICIES["svhn"])
    assert AutoAugment(lines).choices() == AutoAugment("svhn").choices()


def test_sums_of_the_tables_are_those_of_the_published_ones() -> None:
    """A slip in one of 300 numbers would show here."""
    sums = {}
    for name, pairs in POLICIES.items():
        steps = [step for pair in pairs for step in pair]
        sums[name] = (round(sum(chance for _, chance, _ in steps), 1), sum(bin for _, _, bin in steps))
    assert sums == {"imagenet": (31.0, 159), "cifar10": (26.5, 187), "svhn": (32.9, 143)}


def test_effects_and_signs_are_equally_likely() -> None:
    program = lower([RandAugment(n=2)], seed=3)
    drawn = [made["effects"] for [made] in draws_at(program, (8, 8), 0, range(4000))]
    counts = Counter(effect.kind for effects in drawn for effect in effects)
    expected, spread = 8000 / 14, (8000 / 14 * 13 / 14) ** 0.5
    assert counts.keys() == FOURTEEN - {K.IDENTITY}, "what changes nothing is left out"
    assert all(abs(count - expected) < 4 * spread for count in counts.values())
    signs = [np.sign(effect.magnitude) for effects in drawn for effect in effects if effect.kind in SIGNED]
    assert abs(np.mean(signs)) < 4 / len(signs) ** 0.5


def test_an_effect_happens_with_its_own_probability() -> None:
    program = lower([AutoAugment("svhn")], seed=5)
    happened = sum(len(made["effects"]) for [made] in draws_at(program, (8, 8), 0, range(4000)))
    expected = sum(effect.probability for pair in program.choices for effect in pair) / 25
    assert happened / 4000 == pytest.approx(expected, abs=0.04)
