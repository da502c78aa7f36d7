"""The order of samples: which source index stands where, by arithmetic alone."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ConfigError
from stoker.plan.nodes import Member, Mix, Repeat, Shuffle, Skip, Take
from stoker.plan.order import MAX_LENGTH, Order, window_shuffle

LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 127, 128, 129, 255, 256, 257, 999, 1000, 1024, 4097]))


def indices(order: Order, epoch: int = 0) -> list[int]:
    assert order.length is not None
    return order.resolve(np.arange(order.length, dtype=np.int64), epoch).tolist()


@settings(max_examples=200, deadline=None)
@given(n=LENGTHS, seed=st.integers(-(2**63), 2**64), epoch=st.integers(0, 2**32 - 1), window=st.none() | st.integers(1, 1200))
def test_a_shuffled_epoch_holds_every_sample_once(n: int, seed: int, epoch: int, window: int | None) -> None:
    assert sorted(indices(Order((Shuffle(seed, window),), n), epoch)) == list(range(n))


@settings(max_examples=100, deadline=None)
@given(n=LENGTHS, window=st.integers(1, 300), seed=st.integers(0, 99), epoch=st.integers(0, 9))
def test_a_window_shuffle_moves_no_sample_as_far_as_the_window(n: int, window: int, seed: int, epoch: int) -> None:
    order = np.array(indices(Order((Shuffle(seed, window),), n), epoch))
    assert np.abs(order - np.arange(n)).max() < window


@pytest.mark.parametrize("window", [8, 16, 100])
def test_a_window_shuffle_moves_samples_over_the_borders_of_its_blocks(window: int) -> None:
    n, block = 4000, window // 2
    order = np.array(indices(Order((Shuffle(1, window),), n)))
    assert np.mean(order != np.arange(n)) > 0.5
    assert np.any(order // block != np.arange(n) // block)


@pytest.mark.parametrize("window", [None, 10])
def test_every_epoch_and_every_seed_has_an_order_of_its_own(window: int | None) -> None:
    orders = [tuple(indices(Order((Shuffle(seed, window),), 100), epoch)) for seed in range(6) for epoch in range(6)]
    assert len(set(orders)) == 36


def test_an_epoch_in_which_nothing_is_said_is_the_stored_order() -> None:
    assert indices(Order((), 7), epoch=5) == list(range(7))


@pytest.mark.parametrize("window", [None, 64])
def test_positions_can_be_asked_for_alone_and_in_any_order(window: int | None) -> None:
    order = Order((Shuffle(3, window), Repeat(3)), 500)
    whole = np.array(indices(order, 2))
    some = np.random.default_rng(0).permutation(1500)[:400]
    assert order.resolve(some, 2).tolist() == whole[some].tolist()
    assert [int(order.resolve(np.array([at]), 2)[0]) for at in some[:50]] == whole[some[:50]].tolist()


def test_every_pass_of_a_repeat_is_shuffled_anew() -> None:
    passes = np.array(indices(Order((Shuffle(0), Repeat(4)), 50))).reshape(4, 50)
    assert len({tuple(one) for one in passes.tolist()}) == 4
    assert all(sorted(one) == list(range(50)) for one in passes.tolist())


def test_passes_of_nested_repeats_are_all_different() -> None:
    passes = np.array(indices(Order((Shuffle(0), Repeat(3), Repeat(3)), 50))).reshape(9, 50)
    assert len({tuple(one) for one in passes.tolist()}) == 9


@pytest.mark.parametrize("window", [None, 2, 20])
def test_without_reshuffling_every_epoch_and_every_pass_has_the_order_of_the_first_epoch(window: int | None) -> None:
    first = indices(Order((Shuffle(3, window),), 50))
    kept = Shuffle(3, window, reshuffle=False)
    assert [indices(Order((kept,), 50), epoch) for epoch in (0, 1, 7)] == [first] * 3
    assert indices(Order((kept, Repeat(3)), 50), 1) == first * 3
    member = Mix((Member((kept,), 0, 50),), (0,), "first")
    assert indices(Order((member, Repeat(2)), 50), 4) == first * 2


def test_a_part_of_the_data_drawn_once_can_be_shuffled_again_in_every_epoch() -> None:
    part = Order((Shuffle(1, reshuffle=False), Take(20), Shuffle(2)), 50)
    rest = Order((Shuffle(1, reshuffle=False), Skip(20)), 50)
    first, second = indices(part, 0), indices(part, 1)
    assert first != second and sorted(first) == sorted(second)
    assert sorted(first + indices(rest, 5)) == list(range(50))


def test_a_shuffle_behind_a_repeat_mixes_the_passes() -> None:
    mixed = indices(Order((Repeat(3), Shuffle(0)), 20))
    assert sorted(mixed) == sorted(list(range(20)) * 3)
    assert sorted(mixed[:20]) != list(range(20))


# ---- against lists ---------------------------------------------------------------------------------------------------------

VERBS = st.lists(
    st.one_of(
        st.builds(Take, st.integers(0, 40)),
        st.builds(Skip, st.integers(0, 25)),
        st.builds(Repeat, st.integers(1, 3)),
        st.builds(Shuffle, st.integers(0, 5), st.none()),
        st.builds(Shuffle, st.integers(0, 5), st.integers(1, 9)),
    ),
    max_size=5,
)


def as_list(verbs: list[Any], n: int, epoch: int) -> list[int]:
    """What the verbs mean, done to a real list. A shuffle is the one thing taken from `Order`, alone and over plain numbers."""
    if not verbs:
        return list(range(n))
    *before, last = verbs
    if isinstance(last, Repeat):
        passes = [as_list(before, n, pass_epoch(epoch, number)) for number in range(last.count or 0)]
        return [index for one in passes for index in one]
    values = as_list(before, n, epoch)
    if isinstance(last, Take):
        return values[: last.count]
    if isinstance(last, Skip):
        return values[last.count :]
    return [values[at] for at in indices(Order((last,), len(values)), epoch)] if values else []


def pass_epoch(epoch: int, number: int) -> int:
    """The epoch by which a pass of a repeat is shuffled, seen from outside: the one that gives the same order."""
    from stoker.plan.seeds import key_of

    return key_of(epoch, number)


@settings(max_examples=300, deadline=None)
@given(verbs=VERBS, n=st.integers(1, 30), epoch=st.integers(0, 3))
def test_take_skip_repeat_and_shuffle_mean_what_they_mean_for_lists(verbs: list[Any], n: int, epoch: int) -> None:
    order, expected = Order(tuple(verbs), n), as_list(verbs, n, epoch)
    assert order.length == len(expected)
    assert indices(order, epoch) == expected


# ---- sizes ---------------------------------------------------------------------------------------------------------------------


def test_a_billion_samples_take_no_memory_worth_naming() -> None:
    order = Order((Shuffle(7),), 10**9)
    positions = np.arange(10**8, 10**8 + 1000, dtype=np.int64)
    tracemalloc.start()
    try:
        found = order.resolve(positions, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert len(set(found.tolist())) == 1000
    assert found.min() >= 0 and found.max() < 10**9


def test_the_longest_order_works_and_a_longer_one_is_refused() -> None:
    order = Order((Shuffle(7),), MAX_LENGTH)
    last = order.resolve(np.array([0, MAX_LENGTH - 1]), 0)
    assert all(0 <= index < MAX_LENGTH for index in last.tolist())
    with pytest.raises(ConfigError, match="1,099,511,627,777"):
        Order((), MAX_LENGTH + 1)
    with pytest.raises(ConfigError, match="put shuffle before repeat"):
        Order((Repeat(1 << 30), Shuffle(0)), 1 << 30)


def test_an_endless_repeat_goes_on_and_cannot_be_shuffled() -> None:
    order = Order((Take(3), Repeat(None), Repeat(2)), 5)
    assert order.length is None
    assert order.resolve(np.arange(7), 0).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert Order((Repeat(None), Take(4)), 3).length == 4
    assert Order((Skip(3), Repeat(None), Take(4)), 3).length == 0, "no samples, however often, stay none"
    with pytest.raises(ConfigError, match="endless"):
        Order((Repeat(None), Shuffle(0)), 5)


def test_a_window_over_everything_is_still_a_permutation() -> None:
    assert sorted(window_shuffle(np.arange(10), 10, 1000, 0, 0).tolist()) == list(range(10))


@pytest.mark.parametrize("window", [2, 3])
def test_the_smallest_windows_shuffle_too(window: int) -> None:
    positions = np.arange(60)
    shuffled = window_shuffle(positions, 60, window, seed=1, epoch=0)
    assert sorted(shuffled.tolist()) == positions.tolist()
    assert shuffled.tolist() != positions.tolist()
    assert np.abs(shuffled - positions).max() < window
