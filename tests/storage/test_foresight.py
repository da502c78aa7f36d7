"""What will be needed, in which order."""

from __future__ import annotations

import random
from dataclasses import dataclass

from stoker.storage.foresight import Foresight


@dataclass(frozen=True)
class Thing:
    name: str


def test_needs_pass_one_by_one() -> None:
    foresight = Foresight(map(Thing, "abca"))
    assert [foresight.next_need(name) for name in "abcd"] == [0, 1, 2, None]
    foresight.advance(1)
    assert [foresight.next_need(name) for name in "abc"] == [3, 1, 2]
    foresight.advance(99)
    assert [foresight.next_need(name) for name in "abc"] == [None] * 3
    assert foresight.position == foresight.ahead == 4


def test_what_is_not_needed_goes_first_then_what_is_needed_last_and_what_is_needed_sooner_stays() -> None:
    foresight = Foresight(map(Thing, "abcd"))
    ranks = {name: foresight.rank(name, stamp, before=1) for stamp, name in enumerate("yaxbcd")}
    assert ranks.pop("a") is None
    assert sorted(ranks, key=lambda name: ranks[name] or ()) == ["y", "x", "d", "c", "b"]


def test_the_next_need_is_what_a_search_finds() -> None:
    rng = random.Random(0)
    names = rng.choices("abcdefgh", k=200)
    foresight = Foresight(map(Thing, names))
    position = 0
    while position < 200:
        for name in "abcdefgh":
            assert foresight.next_need(name) == (names.index(name, position) if name in names[position:] else None)
        step = rng.randrange(1, 9)
        foresight.advance(step)
        position += step
