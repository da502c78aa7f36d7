"""The permutation and the random numbers: pure functions, equal to their NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import KernelError
from stoker.kernel import native
from stoker.kernel import twins as reference

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000, 1023, 1024, 1025, 50_000]


@pytest.mark.parametrize("n", SIZES)
def test_a_permutation_visits_every_position_once(n: int) -> None:
    assert np.array_equal(np.sort(native.permute(n, 7, np.arange(n))), np.arange(n))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_any_size_and_key_give_a_permutation_equal_to_its_twin(n: int, key: int) -> None:
    out = native.permute(n, key, np.arange(n))
    assert np.array_equal(np.sort(out), np.arange(n))
    assert np.array_equal(out, reference.permute(n, key, np.arange(n)))


@pytest.mark.parametrize("n", [1_281_167, 2**33 + 5, 2**40])
def test_large_permutations_equal_their_twin(n: int) -> None:
    positions = np.random.default_rng(0).integers(0, n, 500)
    assert np.array_equal(native.permute(n, 99, positions), reference.permute(n, 99, positions))


def test_a_part_of_a_permutation_is_that_part_of_the_whole() -> None:
    whole = native.permute(1000, 3, np.arange(1000))
    assert np.array_equal(native.permute(1000, 3, np.arange(300, 417)), whole[300:417])


def test_different_keys_give_different_orders_without_fixed_habits() -> None:
    orders = np.stack([native.permute(100, key, np.arange(100)) for key in range(400)])
    means = orders.mean(axis=0)  # of a uniform 0..99: 49.5, with a deviation of 1.44 over 400 keys
    assert np.abs(means - 49.5).max() < 1.44 * 5
    assert len(np.unique(orders, axis=0)) == 400


@pytest.mark.parametrize("n, position", [(5, 5), (5, -1), (0, 0), (2**40 + 1, 0)])
def test_positions_and_sizes_out_of_range_are_refused(n: int, position: int) -> None:
    with pytest.raises(KernelError, match="stk_permute"):
        native.permute(n, 1, np.array([position]))


def test_philox_gives_the_known_answers() -> None:
    counter = np.array([[0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]], np.uint32)
    words = reference.philox(counter, (0xA4093822, 0x299F31D0))
    assert words.tolist() == [[0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    position=st.integers(0, 2**62),
    stream=st.integers(0, 2**24 - 1),
    draws=st.integers(0, 45),
)
def test_uniforms_equal_their_twin(seed: int, epoch: int, position: int, stream: int, draws: int) -> None:
    epochs, positions = np.array([epoch, 0], np.uint32), np.array([position, 1], np.int64)
    out = native.uniforms(seed, epochs, positions, stream, draws)
    assert out.shape == (2, draws)
    assert np.array_equal(out, reference.uniforms(seed, epochs, positions, stream, draws))


def test_uniforms_look_uniform_and_are_never_0_or_1() -> None:
    out = native.uniforms(1, np.zeros(20_000, np.uint32), np.arange(20_000), 5, 4)
    assert out.min() > 0 and out.max() < 1
    assert np.abs(out.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(np.corrcoef(out.T) - np.eye(4)).max() < 0.04


def test_every_coordinate_of_a_draw_matters() -> None:
    def draw(seed: int = 1, epoch: int = 2, position: int = 3, stream: int = 4) -> float:
        return float(native.uniforms(seed, np.array([epoch], np.uint32), np.array([position]), stream, 1)[0, 0])

    values = {draw(), draw(seed=9), draw(epoch=9), draw(position=9), draw(stream=9), draw(seed=1 + 2**32)}
    assert len(values) == 6


def test_draws_out_of_range_are_refused() -> None:
    with pytest.raises(KernelError):
        native.uniforms(1, np.zeros(1, np.uint32), np.zeros(1, np.int64), 2**24, 1)
    with pytest.raises(KernelError, match="epochs"):
        native.uniforms(1, np.zeros(2, np.uint32), np.zeros(1, np.int64), 0, 1)
