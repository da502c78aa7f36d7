"""Dealing rows to ranks, by enumeration: equal steps, nothing twice, nothing lost unless it was said so."""

from __future__ import annotations

from itertools import product

import pytest

from stoker.errors import ConfigError
from stoker.plan.deal import REMAINDERS, Deal, check_remainder

CASES = list(product(range(1, 5), range(1, 6), REMAINDERS, (True, False)))


def dealt(n: int, size: int, rank: int, world: int, remainder: str, drop_last: bool) -> tuple[list[list[int]], list[list[bool]]]:
    """All batches of a rank, and which of their rows are real."""
    deal = Deal(size, rank, world, remainder, drop_last)
    shares = [deal.share(step, 0, n) for step in range(deal.steps(n))]
    return [share.rows().tolist() for share in shares], [
        [row < share.count - share.padded for row in range(share.count)] for share in shares
    ]


@pytest.mark.parametrize(("world", "size", "remainder", "drop_last"), CASES)
def test_ranks_take_equal_steps_and_share_the_rows_as_promised(world: int, size: int, remainder: str, drop_last: bool) -> None:
    for n in range(41):
        runs = [dealt(n, size, rank, world, remainder, drop_last) for rank in range(world)]
        steps = {len(batches) for batches, _ in runs}
        assert len(steps) == 1, "every rank takes the same number of steps"

        real = [
            row for batches, masks in runs for batch, mask in zip(batches, masks) for row, is_real in zip(batch, mask) if is_real
        ]
        full = n // (size * world) * size * world
        if remainder == "drop" and drop_last:
            assert sorted(real) == list(range(full)), "whole global batches"
        else:
            assert sorted(real) == list(range(n)), "nothing is lost and nothing comes twice"

        for batches, masks in runs:
            assert all(0 <= row < n for batch in batches for row in batch), "padding repeats rows there are"
            assert all(batch for batch in batches), "no batch is empty"
            if remainder == "pad":
                assert all(len(batch) == size for batch in batches)
            if remainder == "drop" and drop_last:
                assert all(all(mask) and len(batch) == size for batch, mask in zip(batches, masks))


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_the_sequence_of_global_batches_does_not_depend_on_the_world(remainder: str) -> None:
    n, rows = 48, 12  # 12 rows a global batch, shared by 1, 2, 3, 4 or 6 ranks

    def global_batches(world: int) -> list[list[int]]:
        ranks = [dealt(n, rows // world, rank, world, remainder, True)[0] for rank in range(world)]
        return [[row for rank in ranks for row in rank[step]] for step in range(n // rows)]

    assert all(global_batches(world) == global_batches(1) for world in (2, 3, 4, 6))


def test_ranks_share_a_kept_remainder_as_evenly_as_can_be() -> None:
    counts = [sum(map(len, dealt(11, 4, rank, 2, "keep", True)[0])) for rank in range(2)]
    assert counts == [6, 5]


def test_a_rank_without_a_row_gets_one_that_is_marked() -> None:
    batches, masks = dealt(1, 4, 2, 3, "keep", True)
    assert batches == [[0]]
    assert masks == [[False]]


def test_many_steps_at_once_are_the_steps_one_by_one() -> None:
    for world, size, steps, start in product(range(1, 4), range(1, 4), range(1, 5), (0, 7)):
        for rank in range(world):
            deal = Deal(size, rank, world)
            each = [row for step in range(steps) for row in deal.share(step, start, 10**6).rows().tolist()]
            assert deal.rows(start, steps).tolist() == each


def test_an_unknown_remainder_is_refused_with_the_choice() -> None:
    with pytest.raises(ConfigError, match="drop, pad, keep"):
        check_remainder("wrap")
