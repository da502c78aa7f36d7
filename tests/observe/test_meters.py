"""What a loader measures of itself."""

from __future__ import annotations

from dataclasses import asdict

import pytest

import stoker
from stoker.observe.meters import Meters, Span, Stats

from ..loader.runs import numbers, odd
from ..support import Passing


def test_what_was_handed_out_is_counted() -> None:
    with numbers().batch(7, drop_last=False).loader(threads=2) as loader:
        assert loader.stats() == Stats(workers=2)
        list(loader)
        list(loader)
        stats = loader.stats()
    assert (stats.batches, stats.samples, stats.epochs, stats.first_samples, stats.skipped) == (18, 120, 2, 7, 0)
    assert stats.bytes == 2 * 60 * (8 + 5 * 4)
    assert stats.task_s > 0 and stats.steps_s["read"] > 0
    assert 0 <= stats.wait_share <= 1 and 0 <= stats.busy_share <= 1 and stats.samples_per_s > 0
    assert stats.first_batch_s > 0 and stats.elapsed_s >= stats.waited_s >= 0


def test_single_samples_and_ragged_pipelines_are_counted_too() -> None:
    for pipeline, batches, samples in ((numbers(), 60, 60), (numbers().filter(odd).batch(4), 7, 28)):
        with pipeline.loader() as loader:
            list(loader)
            assert (loader.stats().batches, loader.stats().samples) == (batches, samples)


def test_a_snapshot_is_plain_data_that_does_not_change() -> None:
    with numbers().batch(7).loader() as loader:
        iterator = iter(loader)
        next(iterator)
        snapshot = loader.stats()
        before = asdict(snapshot)
        list(iterator)
        assert asdict(snapshot) == before
        snapshot.steps_s["read"] = -1
        assert loader.stats().steps_s["read"] >= 0


def test_bad_samples_are_counted() -> None:
    def picky(x: int) -> int:
        if x % 10 == 0:
            raise ValueError
        return x

    with numbers().map(x=picky).batch(5).on_error(stoker.skip(budget=6)).loader() as loader:
        list(loader)
        assert (loader.stats().skipped, loader.stats().samples) == (6, 54)


def test_a_loop_that_never_waits_and_one_that_always_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    calm, hungry = Meters(2), Meters(2)
    for meters, pause in ((calm, 0.25), (hungry, 0.75)):
        for _ in range(5):
            asked = meters.request()
            clock.sleep(pause)
            meters.delivered(asked, 10, 100)
            clock.sleep(1 - pause)
    assert (calm.snapshot().wait_share, hungry.snapshot().wait_share) == (0.25, 0.75)


def test_only_the_latest_spans_are_kept() -> None:
    meters = Meters(1)
    for number in range(Meters.MOST_SPANS + 10):
        meters.task(Span(0, number, 0, 0.0, 1.0), 0.5)
        meters.delivered(meters.request(), 1, 1)
    assert len(meters.spans) == len(meters.waits) == Meters.MOST_SPANS
    assert meters.spans[-1].unit == Meters.MOST_SPANS + 9
    assert meters.snapshot().task_s == pytest.approx(Meters.MOST_SPANS + 10)


def test_nothing_is_divided_by_nothing() -> None:
    stats = Stats()
    assert (stats.samples_per_s, stats.wait_share, stats.busy_share) == (0, 0, 0)
