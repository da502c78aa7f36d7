"""Keys and generators: randomness is a function of place."""

from __future__ import annotations

from itertools import product

import numpy as np

from stoker.plan.seeds import SampleRandom, key_of


def test_a_key_depends_on_every_number_and_on_their_order() -> None:
    keys = [key_of(*numbers) for length in range(4) for numbers in product(range(5), repeat=length)]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 1 << 64 for key in keys)


def test_negative_and_huge_numbers_make_keys_too() -> None:
    assert key_of(-1) == key_of(2**64 - 1)
    assert key_of(2**70) == key_of(0)


def test_a_generator_is_the_same_whenever_its_place_is_asked_for() -> None:
    random = SampleRandom(seed=7, stream=3)
    first = random.at(2, 11).integers(1 << 62, size=5).tolist()
    random.at(2, 12).random(3)
    random.at(2, 13).integers(10, dtype=np.uint32)  # leaves half a word behind
    assert random.at(2, 11).integers(1 << 62, size=5).tolist() == first
    assert SampleRandom(seed=7, stream=3).at(2, 11).integers(1 << 62, size=5).tolist() == first


def test_no_two_places_draw_the_same_numbers() -> None:
    draws = {
        SampleRandom(seed, stream).at(epoch, position).integers(1 << 62)
        for seed, stream, epoch, position in product((0, 1, -1), (0, 1, 256), (0, 1, 2), (0, 1, 1 << 40, (1 << 40) + 1))
    }
    assert len(draws) == 3 * 3 * 3 * 4


def test_numbers_of_neighbours_do_not_overlap() -> None:
    random = SampleRandom(0, 0)
    streams = [set(random.at(0, position).integers(1 << 62, size=2000).tolist()) for position in range(5)]
    assert len(set.union(*streams)) == 5 * 2000
