"""The speed test: rounds, and what is counted in them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError
from stoker.observe import Stats, speed
from stoker.observe.measured_speed import Speed, joined

PIPELINE = stoker.arrays(x=np.arange(40)).batch(8)


def test_rounds_are_measured_over_as_many_epochs_as_it_takes() -> None:
    measured = speed(PIPELINE, seconds=0.05, rounds=3, threads=1)
    assert len(measured.rates) == 3 and min(measured.rates) <= measured.median <= max(measured.rates)
    assert measured.samples == 8 * measured.batches > 40
    assert measured.seconds > 0.04
    assert measured.stats is not None and measured.stats.samples == measured.samples
    assert "samples/s (median of 3 rounds" in str(measured)
    plain = json.loads(json.dumps(measured.as_dict()))
    assert plain["median"] == measured.median and Stats.from_dict(plain["stats"]).samples == measured.samples


def test_a_loader_stays_open_and_a_step_stands_for_training() -> None:
    seen: list[Any] = []
    with PIPELINE.loader(threads=1) as loader:
        measured = speed(loader, seconds=0.01, rounds=1, warm_s=0.0, step=seen.append)
        assert len(seen) > measured.batches  # the first ones do not count
        assert len(list(loader)) == 5
        with pytest.raises(ConfigError, match="threads"):
            speed(loader, threads=2)


def test_batches_of_others_are_counted_by_their_first_field() -> None:
    batches = [(np.zeros((6, 2)), np.zeros(6))] * 3
    measured = speed(batches, seconds=0.01, burst=3)
    assert measured.samples == 6 * measured.batches and measured.stats is None
    assert speed([{"x": np.zeros(5)}], seconds=0.01).samples % 5 == 0


def test_what_ends_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match="no more batches"):
        speed(iter([np.zeros(3)]), seconds=0.01)
    with pytest.raises(ConfigError, match="above 0"):
        speed(PIPELINE, seconds=0)


def test_tests_of_the_same_thing_add_up() -> None:
    one, two = (speed(PIPELINE, seconds=0.02, rounds=2, threads=1) for _ in range(2))
    both = joined([one, two])
    assert both.rates == one.rates + two.rates and both.first_batch_s == one.first_batch_s
    assert both.stats is not None and one.stats is not None and two.stats is not None
    assert both.stats.elapsed_s == pytest.approx(one.stats.elapsed_s + two.stats.elapsed_s)
    assert [worker.number for worker in both.stats.by_worker] == [0] and both.stats.workers == 1


def test_a_speed_is_shown_in_a_line() -> None:
    shown = Speed((100.0,), 0.5, 2, 20, 0.2, 0.1, 0.1, Stats())
    assert repr(shown) == "Speed(100 samples/s; first batch after 0.50 s; 20 samples in 2 batches and 0.2 s)"
