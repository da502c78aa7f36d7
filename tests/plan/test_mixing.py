"""Mixing: exact proportions at every place, each sample in its turn."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError
from stoker.plan.mix_pattern import MAX_PATTERN, drawn, mixed_rows, pattern_of


def numbers(first: int, count: int) -> Pipeline:
    return stoker.arrays(x=np.arange(first, first + count))


def ids(pipeline: Pipeline) -> list[int]:
    return [int(sample["x"]) for sample in pipeline]


# ---- the pattern -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([1], [1]),
        ([5.5], [1]),
        ([1, 1], [1, 1]),
        ([0.7, 0.3], [7, 3]),
        ([0.1] * 10, [1] * 10),
        ([1 / 3, 2 / 3], [1, 2]),
        ([0.333333333, 0.666666667], [1, 2]),
        ([1e-5, 2e-5], [1, 2]),
        ([1e300, 2e300], [1, 2]),
        ([np.float64(0.25), 0.75], [1, 3]),
        ([1e6, 3e6], [1, 3]),
    ],
)
def test_every_member_is_in_the_pattern_as_often_as_its_weight_says(weights: list[float], counts: list[int]) -> None:
    pattern = pattern_of(weights)
    assert [pattern.count(member) for member in range(len(weights))] == counts


def test_every_prefix_keeps_the_proportions_to_within_one_sample() -> None:
    rng = random.Random(4)
    cases = [[1, 1], [7, 3], [999, 1], [100, 20, 2, 2, 2, 5, 2, 100, 100, 1]]
    cases += [[rng.choice([1, 2, 3, 7, 50, 100]) for _ in range(rng.randint(2, 14))] for _ in range(60)]
    for weights in cases:
        members = np.asarray(pattern_of(weights))
        had = np.cumsum(members[:, None] == np.arange(len(weights)), axis=0)
        due = np.arange(1, len(members) + 1)[:, None] * np.asarray(weights)  # times the sum of the weights
        assert np.abs(had * sum(weights) - due).max() < sum(weights), weights


def test_weights_that_need_too_long_a_pattern_are_rounded_and_all_stay_in() -> None:
    weights = [0.1415927, 0.2718282, 0.5865791]
    pattern = pattern_of(weights)
    assert len(pattern) == MAX_PATTERN
    assert all(abs(pattern.count(member) / MAX_PATTERN - weight) < 1 / MAX_PATTERN for member, weight in enumerate(weights))
    assert len(pattern_of([1281167, 50000, 3303])) <= MAX_PATTERN


@pytest.mark.parametrize(
    "weights",
    [
        [0, 1], [-1, 1], [float("nan"), 1], [float("inf"), 1], ["1", 1], [None, 1], [True, 1],
        [1e-9, 1], [1, 1281167],  # would have to be rounded to nothing, or to much more than asked for
    ],
)  # fmt: skip
def test_weights_that_make_no_sense_are_refused(weights: list[Any]) -> None:
    with pytest.raises(ConfigError, match="mix"):
        pattern_of(weights)


# ---- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[1], [0.7, 0.3], [1, 2, 3, 4], [97, 2, 1]])
def test_each_member_is_drawn_in_its_own_order_without_a_gap(weights: list[float]) -> None:
    pattern = pattern_of(weights)
    members, within = drawn(pattern, np.arange(1000))
    expected: Counter[int] = Counter()
    for place, (member, number) in enumerate(zip(members.tolist(), within.tolist())):
        assert member == pattern[place % len(pattern)]
        assert number == expected[member]
        expected[member] += 1


def test_any_position_can_be_asked_for_alone() -> None:
    pattern = pattern_of([0.6, 0.3, 0.1])
    members, within = drawn(pattern, np.arange(500))
    rng = np.random.default_rng(0)
    some = rng.integers(0, 500, 60)
    assert [part.tolist() for part in drawn(pattern, some)] == [members[some].tolist(), within[some].tolist()]
    far = np.array([10**15 + 3])
    assert drawn(pattern, far)[1][0] <= far[0]


def test_the_length_is_where_the_first_or_the_last_member_ends() -> None:
    rng = random.Random(1)
    for _ in range(80):
        weights = [rng.randint(1, 9) for _ in range(rng.randint(1, 5))]
        lengths = [rng.randint(1, 40) for _ in weights]
        pattern = pattern_of(weights)
        members, within = (part.tolist() for part in drawn(pattern, np.arange(4000)))
        first = next(at for at, (member, number) in enumerate(zip(members, within)) if number == lengths[member])
        last = max(at for at, (member, number) in enumerate(zip(members, within)) if number == lengths[member] - 1)
        assert mixed_rows(pattern, lengths, "first") == first
        assert mixed_rows(pattern, lengths, "all") == last + 1


def test_a_member_without_end_leaves_the_length_to_the_others() -> None:
    pattern = pattern_of([1, 1])
    assert mixed_rows(pattern, [5, None], "first") == 10
    assert mixed_rows(pattern, [None, None], "first") is None
    assert mixed_rows(pattern, [5, None], "all") is None


# ---- stoker.mix ------------------------------------------------------------------------------------------------------


def test_proportions_are_exact_and_every_sample_comes_at_most_once() -> None:
    mixed = stoker.mix([numbers(0, 70), numbers(1000, 300)], weights=[0.7, 0.3])
    got = ids(mixed)
    assert len(got) == len(mixed) == 100
    assert [x for x in got if x < 1000] == list(range(70))
    assert [x for x in got if x >= 1000] == list(range(1000, 1030))


def test_without_weights_members_take_turns() -> None:
    assert ids(stoker.mix([numbers(0, 3), numbers(10, 3), numbers(20, 3)])) == [0, 10, 20, 1, 11, 21, 2, 12, 22]


def test_until_all_shows_every_sample_and_repeats_the_shorter_ones() -> None:
    got = ids(stoker.mix([numbers(0, 10), numbers(100, 3)], until="all"))
    assert [x for x in got if x < 100] == list(range(10))
    assert {x for x in got if x >= 100} == {100, 101, 102}
    assert Counter(x for x in got if x >= 100).most_common(1)[0][1] <= 4
    assert got[-1] == 9 or got[-2] == 9


def test_members_shuffle_by_themselves_and_anew_every_epoch_and_every_pass() -> None:
    mixed = stoker.mix([numbers(0, 8).shuffle(seed=1), numbers(100, 64).shuffle(seed=2)], until="all")
    epochs = [ids(mixed) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for got in epochs:
        small = [x for x in got if x < 100]
        passes = [small[at : at + 8] for at in range(0, len(small) - 7, 8)]
        assert all(sorted(one) == list(range(8)) for one in passes)
        assert len({tuple(one) for one in passes}) > 1
        assert sorted(x for x in got if x >= 100) == list(range(100, 164))


def test_take_skip_and_repeat_of_a_member_are_its_own() -> None:
    one = numbers(0, 10).skip(2).take(3)
    other = numbers(100, 2).repeat(2)
    assert ids(stoker.mix([one, other])) == [2, 100, 3, 101, 4, 100]
    endless = numbers(100, 2).repeat()
    assert ids(stoker.mix([numbers(0, 4), endless])) == [0, 100, 1, 101, 2, 100, 3, 101]


def test_a_mix_may_be_mixed_again() -> None:
    inner = stoker.mix([numbers(0, 6), numbers(10, 6)])
    outer = stoker.mix([inner, numbers(100, 12)])
    got = ids(outer)
    assert [x for x in got if x < 100] == ids(stoker.mix([numbers(0, 6), numbers(10, 6)]))
    assert [x for x in got if x >= 100] == list(range(100, 112))
    deeper = stoker.mix([outer.shuffle(seed=3), numbers(1000, 24)])
    assert sorted(ids(deeper)) == sorted([*range(6), *range(10, 16), *range(100, 112), *range(1000, 1024)])


def test_verbs_behind_a_mix_work_on_the_whole() -> None:
    mixed = stoker.mix([numbers(0, 20), numbers(100, 20)])
    assert ids(mixed.take(5)) == [0, 100, 1, 101, 2]
    assert sorted(ids(mixed.shuffle(seed=1))) == sorted([*range(20), *range(100, 120)])
    assert len(ids(mixed.repeat(2))) == 80
    assert next(iter(mixed.batch(4)))["x"].tolist() == [0, 100, 1, 101]


def test_ranks_share_one_global_mix() -> None:
    mixed = stoker.mix([numbers(0, 30).shuffle(seed=1), numbers(100, 90)], weights=[1, 3])
    whole = ids(mixed)
    ranks = [[batch["x"].tolist() for batch in mixed.shard(rank, 3).batch(4)] for rank in range(3)]
    assert [x for step in zip(*ranks) for part in step for x in part] == whole[: len(whole) // 12 * 12]


def test_only_common_fields_stay_and_renamed_ones_meet() -> None:
    one = stoker.arrays(image=np.arange(4), label=np.arange(4), only=np.zeros(4))
    other = stoker.arrays(picture=np.arange(10, 14), label=np.arange(4))
    mixed = stoker.mix([one, other.rename(image="picture")])
    assert [(int(s["image"]), int(s["label"])) for s in mixed] == [
        (0, 0),
        (10, 0),
        (1, 1),
        (11, 1),
        (2, 2),
        (12, 2),
        (3, 3),
        (13, 3),
    ]
    assert set(mixed.sample(0)) == {"image", "label"}
    swapped = other.rename(label="picture", image="label")
    assert [int(s["image"]) for s in stoker.mix([one, swapped])] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(stoker.mix([one.select("label"), other]).sample(0)) == {"label"}
    assert set(stoker.mix([one.drop("image"), other]).sample(0)) == {"label"}


def odd(sample: dict[str, Any]) -> bool:
    return bool(sample["x"] % 2)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: stoker.mix([]), "list of pipelines"),
        (lambda: stoker.mix([numbers(0, 3), [1]]), "list of pipelines"),  # type: ignore[list-item]
        (lambda: stoker.mix([numbers(0, 3)], weights=[1, 2]), "1 pipelines and 2 weights"),
        (lambda: stoker.mix([numbers(0, 3), numbers(0, 3)], until="never"), "until='never'"),
        (lambda: stoker.mix([numbers(0, 3), numbers(0, 3).take(0)]), "no sample left"),
        (lambda: stoker.mix([numbers(0, 3), numbers(0, 3).skip(3)]), "no sample left"),
        (lambda: stoker.mix([numbers(0, 3), numbers(0, 3).filter(odd)]), r"filter\(\) comes before mix"),
        (lambda: stoker.mix([numbers(0, 3), numbers(0, 3).batch(2)]), r"batch\(\) comes before mix"),
        (lambda: stoker.mix([numbers(0, 3), stoker.stream(list)]), "not streams"),
        (lambda: stoker.mix([numbers(0, 3), stoker.arrays(y=np.arange(3))]), "rename"),
        (lambda: stoker.mix([numbers(0, 3).rename(y="z"), numbers(0, 3)]), "z"),
        (lambda: stoker.mix([numbers(0, 3), numbers(0, 3)], weights=[1, 0]), "above 0"),
    ],
)
def test_what_cannot_be_mixed_is_told(make: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()


def test_the_plan_says_the_proportions_and_weights_change_the_fingerprint() -> None:
    def mixed(*weights: float) -> Pipeline:
        return stoker.mix([numbers(0, 10).shuffle(seed=1), numbers(100, 10)], weights)

    assert "mix(3 of 4 shuffle(seed=1), 1 of 4)" in repr(mixed(3, 1))
    assert mixed(3, 1).fingerprint() == mixed(0.75, 0.25).fingerprint() != mixed(1, 1).fingerprint()
