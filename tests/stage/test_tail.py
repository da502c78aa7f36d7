"""Counting verbs over samples that come as they come: equal to the indexed ones wherever both can be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.plan.nodes import Shuffle, Skip, Take
from stoker.plan.order import Order
from stoker.source.chunk import Chunk
from stoker.source.sample_names import ListedNames
from stoker.stage.tail import Tails

from ..loader.runs import numbers, samples


def chunk_of(first: int, count: int) -> Chunk:
    positions = np.arange(first, first + count, dtype=np.int64)
    keys = list(map(str, positions.tolist()))
    names = ListedNames(keys, keys, positions.tolist())
    return Chunk({"x": positions.copy()}, positions, np.arange(count), positions, 0, names)


def pushed(tails: Tails, n: int, cuts: list[int]) -> list[int]:
    """What comes out when `n` rows go in, in chunks of the given sizes, again and again."""
    out, first, turn = [], 0, 0
    while first < n and not tails.full:
        count = min(cuts[turn % len(cuts)], n - first)
        out += tails.push(chunk_of(first, count))
        first, turn = first + count, turn + 1
    out += tails.end()
    return [int(value) for chunk in out for value in chunk.columns["x"]]


VERBS = st.lists(
    st.one_of(
        st.builds(Take, st.integers(0, 60)),
        st.builds(Skip, st.integers(0, 30)),
        st.builds(Shuffle, st.integers(0, 5), st.integers(1, 30)),
    ),
    max_size=4,
)
CUTS = st.lists(st.integers(1, 20), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(verbs=VERBS, n=st.integers(1, 80), epoch=st.integers(0, 3), cuts=CUTS)
def test_streamed_verbs_do_what_indexed_ones_do_however_rows_arrive(
    verbs: list[Take | Skip | Shuffle], n: int, epoch: int, cuts: list[int]
) -> None:
    order = Order(tuple(verbs), n)
    assert order.length is not None
    assert pushed(Tails(verbs, epoch), n, cuts) == order.resolve(np.arange(order.length), epoch).tolist()


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 8, 9, 50, 1000])
@pytest.mark.parametrize("n", [1, 2, 10, 57])
def test_the_window_shuffle_of_a_stream_is_the_one_of_an_indexed_source(n: int, window: int) -> None:
    for verb, epoch in product((Shuffle(7, window), Shuffle(7, window, reshuffle=False)), range(3)):
        assert pushed(Tails([verb], epoch), n, [3, 1]) == Order((verb,), n).resolve(np.arange(n), epoch).tolist()


def test_the_same_through_whole_pipelines() -> None:
    indexed = numbers().shuffle(seed=8, window=14).skip(3).take(50).batch(5)
    streamed = stoker.stream(samples).shuffle(seed=8, window=14).skip(3).take(50).batch(5)
    filtered = numbers().filter(lambda sample: True).shuffle(seed=8, window=14).skip(3).take(50).batch(5)
    with indexed.loader() as a, streamed.loader() as b, filtered.loader() as c:
        for _ in range(3):
            expected = [batch["x"].tolist() for batch in a]
            assert [batch["x"].tolist() for batch in b] == expected
            assert [batch["x"].tolist() for batch in c] == expected


@pytest.mark.parametrize("take", [1, 7, 20, 59])
def test_what_a_shuffle_behind_a_take_holds_back_is_not_lost(take: int) -> None:
    indexed = numbers().take(take).shuffle(seed=8, window=14).batch(1)
    streamed = stoker.stream(samples).take(take).shuffle(seed=8, window=14).batch(1)
    assert [int(batch["x"][0]) for batch in streamed] == [int(batch["x"][0]) for batch in indexed]


def test_keys_move_with_their_rows() -> None:
    for batch in numbers().filter(lambda sample: True).shuffle(seed=8, window=14).batch(5):
        assert batch.sample_keys == [str(x) for x in batch["x"]]


def test_a_take_that_is_full_needs_no_more() -> None:
    tails = Tails([Skip(2), Take(3)], 0)
    assert not tails.full
    tails.push(chunk_of(0, 5))
    assert tails.full
    assert Tails([Take(0)], 0).full


def test_a_stream_is_read_no_further_than_a_take_needs() -> None:
    pulled: list[int] = []

    def endless() -> object:
        number = 0
        while True:
            pulled.append(number)
            yield {"x": number}
            number += 1

    assert sum(batch.rows for batch in stoker.stream(endless).take(20).batch(4)) == 20  # type: ignore[arg-type]
    assert len(pulled) < 1000
