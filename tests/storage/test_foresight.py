"""What will be needed, in which order."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.storage.foresight import Foresight


@dataclass(frozen=True)
class Thing:
    name: str


def test_the_next_need_of_a_thing_is_the_first() -> None:
    foresight = Foresight(map(Thing, "abca"))
    assert [foresight.next_need(name) for name in "abcd"] == [0, 1, 2, None]


def test_what_is_not_needed_goes_first_then_what_is_needed_last_and_what_is_needed_sooner_stays() -> None:
    foresight = Foresight(map(Thing, "abcd"))
    ranks = {name: foresight.rank(name, stamp, before=1) for stamp, name in enumerate("yaxbcd")}
    assert ranks.pop("a") is None
    assert sorted(ranks, key=lambda name: ranks[name] or ()) == ["y", "x", "d", "c", "b"]
