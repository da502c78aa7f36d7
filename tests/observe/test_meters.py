"""What a loader measures of itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.engine.resources import usable_cores
from stoker.image import CenterCrop
from stoker.observe.meters import ExecutorStats, Meters, Span, Stats

from ..loader.runs import numbers, odd
from ..support import Passing, image_bytes


def test_what_was_handed_out_is_counted() -> None:
    with numbers().batch(7, drop_last=False).loader(threads=2) as loader:
        assert loader.stats() == Stats(workers=2, cores=usable_cores(), executor=ExecutorStats("threads", 0, 2))
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

    with numbers().map(x=picky).batch(5).on_error("skip", budget=6).loader() as loader:
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


def test_batch_functions_and_joining_are_steps_too() -> None:
    def spread(columns: dict[str, Any]) -> dict[str, Any]:
        return columns

    with numbers().map(x=abs).batch(5).map_batch(spread).loader(executor="inline") as loader:
        list(loader)
        stats = loader.stats()
    assert set(stats.steps_s) == {"read", "map x", "collate", "map_batch spread"}
    assert stats.worked == 60, "a finishing task works on no sample of its own"


def test_images_that_go_to_pillow_are_counted(tmp_path: Path) -> None:
    for number, kind in enumerate(("JPEG", "PNG", "WEBP", "PNG")):
        (tmp_path / f"{number}.{kind.lower()}").write_bytes(image_bytes(40, 30, format=kind))
    files = stoker.files(tmp_path, labels=None)
    for pipeline in (files.image("image", CenterCrop(8)), files.decode("image"), files.decode("image").filter(bool)):
        with pipeline.batch(2).loader(executor="inline") as loader:
            list(loader)
            assert loader.stats().pillow == 3


def test_time_without_a_core_is_what_was_added_since_the_first_batch_and_outlives_its_threads() -> None:
    queued = [5.0]
    meters = Meters(1, 2, lambda: queued[0])
    assert meters.snapshot().queued_s is None
    for added in (1.0, 2.0):
        meters.delivered(meters.request(), 1, 1)
        queued[0] += added
    assert meters.snapshot().queued_s == 3.0
    queued[0] = 0.0  # the threads are gone
    assert meters.snapshot().queued_s == 3.0


def test_nothing_is_divided_by_nothing() -> None:
    stats = Stats()
    assert (stats.samples_per_s, stats.wait_share, stats.busy_share, stats.core_share) == (0, 0, 0, 1)
