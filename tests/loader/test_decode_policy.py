"""Where pictures are decoded, decided from numbers alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stoker.engine.auto_policy import Load
from stoker.loader.decode_policy import SHARES, DecodePolicy

CORES = 4


def load(rate: float, *, waits: float = 0.5, busy: float = 1.0, seconds: float = 0.5) -> Load:
    """So many samples per second, while the loop waits for a share of its time, and a share of the cores is busy."""
    cpu = busy * CORES * seconds
    return Load(seconds, waits * seconds, int(rate * seconds), cpu, cpu, 0.0, cpu)


def seen(policy: DecodePolicy, rate: Callable[[float], Load], loads: int) -> list[float]:
    """The shares that are chosen, one after the other, while loads depend on the share."""
    shares = []
    for _ in range(loads):
        if (share := policy.see(rate(policy.share))) is not None:
            assert share == policy.share
            shares.append(share)
    return shares


def test_cores_that_are_the_limit_make_it_try_the_device_and_keep_it_where_the_rate_rose() -> None:
    policy = DecodePolicy(CORES)
    assert seen(policy, lambda share: load(4000 if share else 1000, busy=0.7 if share else 1.0), 40) == [1.0]
    assert policy.reason == "on the GPU, because the cores are the limit; 4,000 samples/s instead of 1,000"


def test_a_device_that_gains_nothing_is_left_again_and_not_tried_for_a_while() -> None:
    policy = DecodePolicy(CORES)
    shares = seen(policy, lambda share: load(1000), 60)
    assert shares == [share for tried in SHARES for share in (tried, 0.0)]
    assert policy.share == 0.0
    assert policy.reason.startswith(
        "on the CPU until its cores are the limit; 25% on the GPU gave 1,000 samples/s instead of 1,000"
    )
    assert seen(policy, lambda share: load(1000), 20) == [], "30 seconds later"
    assert seen(policy, lambda share: load(1000), 60)[:1] == [1.0], "a minute later"


def test_a_loop_that_has_what_it_needs_changes_nothing() -> None:
    assert seen(DecodePolicy(CORES), lambda share: load(1000, waits=0.02), 50) == []


def test_cores_that_are_not_the_limit_change_nothing() -> None:
    assert seen(DecodePolicy(CORES), lambda share: load(1000, busy=0.5), 50) == []


def test_one_load_is_not_enough() -> None:
    policy = DecodePolicy(CORES)
    loads = [load(1000), load(1000, waits=0.0)] * 20
    assert [policy.see(each) for each in loads] == [None] * 40


def test_idle_cores_beside_a_device_that_does_not_keep_up_get_a_share() -> None:
    rates = {0.0: 1000, 1.0: 2000, 0.75: 2600, 0.5: 2400, 0.25: 1500}
    policy = DecodePolicy(CORES)
    shares = seen(policy, lambda share: load(rates[share], busy={0.0: 1.0, 1.0: 0.3, 0.75: 0.7}.get(share, 0.9)), 60)
    assert shares[:2] == [1.0, 0.75] and policy.share == 0.75
    assert "75% on the GPU, because cores were idle next to the GPU; 2,600 samples/s instead of 2,000" in policy.reason


def test_a_loop_that_no_longer_waits_keeps_what_is_on_trial() -> None:
    policy = DecodePolicy(CORES)
    shares = seen(policy, lambda share: load(1000 if not share else 1010, waits=0.5 if not share else 0.0), 30)
    assert shares == [1.0]


def test_a_device_that_cannot_be_used_is_never_tried_again() -> None:
    policy = DecodePolicy(CORES)
    policy.refused("there is no memory")
    assert seen(policy, lambda share: load(1000), 2000) == []
    assert policy.reason == "on the CPU, because there is no memory"


@pytest.mark.parametrize("nothing", [load(0), Load(0.0, 0.0, 10, 0.0, 0.0, 0.0, 0.0)])
def test_a_load_in_which_nothing_happened_says_nothing(nothing: Load) -> None:
    policy = DecodePolicy(CORES)
    assert seen(policy, lambda share: nothing, 10) == []


def test_idle_cores_take_over_from_a_device_that_has_a_model_to_train() -> None:
    rates = {0.0: 8000, 1.0: 16500, 0.75: 17000, 0.5: 16400, 0.25: 12000}
    busy = {0.0: 1.0, 1.0: 0.3, 0.75: 0.5, 0.5: 0.9}
    policy = DecodePolicy(CORES)
    shares = seen(policy, lambda share: load(rates[share], waits=0.5 if share == 0 else 0.02, busy=busy[share]), 80)
    assert shares == [1.0, 0.75, 0.5, 0.75], "half is tried once, and was slower"
    assert "75% on the GPU, because cores were idle, and the GPU has a model to train" in policy.reason


def test_where_taking_over_makes_the_loop_wait_it_is_taken_back() -> None:
    policy = DecodePolicy(CORES)
    waits = {0.0: 0.5, 1.0: 0.0, 0.75: 0.3}
    shares = seen(
        policy, lambda share: load(1000 if share == 0 else 2000, waits=waits[share], busy=1.0 if share == 0 else 0.2), 40
    )
    assert shares == [1.0, 0.75, 1.0]
