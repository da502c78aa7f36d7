"""When samples are needed again, and what fits until then; held to plain loops."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stoker.plan.next_use import NextUse, soonest
from stoker.plan.nodes import OrderNode, Repeat, Shuffle, Skip, Take
from stoker.plan.order import Order


@pytest.mark.parametrize(
    "verbs",
    [
        (),
        (Shuffle(1),),
        (Shuffle(1), Take(5)),
        (Shuffle(2), Repeat(3)),
        (Skip(2), Repeat(2), Shuffle(4)),
        (Shuffle(1), Repeat(None)),
    ],
)
def test_the_next_need_of_a_sample_is_where_the_order_has_it_next(verbs: tuple[OrderNode, ...]) -> None:
    order = Order(verbs, 7)
    start = 0 if order.length is not None else 4
    uses = NextUse(order, 3, start)
    if order.length is None:
        coming = order.resolve(np.arange(start, start + 14), 3).tolist()
    else:
        coming = [int(index) for epoch in (3, 4) for index in order.resolve(np.arange(order.length), epoch)]
    assert uses.never == len(coming)
    for at in range(uses.never // 2):
        assert uses.covers(3, start + at)
        wanted = [coming.index(sample, at) if sample in coming[at:] else uses.never for sample in range(7)]
        assert uses.first(start + at).tolist() == wanted
        again = coming.index(coming[at], at + 1) if coming[at] in coming[at + 1 :] else uses.never
        assert uses.after(np.array([start + at])).tolist() == [again]
    kept = np.array([coming[0], coming[1]])
    new, needs = uses.without(start, start + 4, kept)
    assert new.tolist() == [sample for sample in coming[:4] if sample not in kept]
    assert len(needs) == len(new)


def test_what_fits_is_what_is_needed_soonest() -> None:
    rng = random.Random(5)
    for _ in range(200):
        count, never = rng.randint(1, 12), 30
        needs = np.array([rng.choice((rng.randrange(never), never)) for _ in range(count)])
        sizes, room = np.array([rng.randint(1, 9) for _ in range(count)]), rng.randint(0, 60)
        limit = soonest(needs, sizes, room, never)
        assert sizes[needs < limit].sum() <= room
        assert limit > never or sizes[needs <= limit].sum() > room  # and not one more
