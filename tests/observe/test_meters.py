"""What a loader measures of itself."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.batch.written_rows import Report
from stoker.engine.resources import usable_cores
from stoker.image import CenterCrop
from stoker.observe.meters import Meters, Span, StepName
from stoker.observe.stats import ExecutorStats, Moment, Stats

from ..loader.runs import numbers, odd
from ..support import Passing, image_bytes


def test_what_was_handed_out_is_counted() -> None:
    with numbers().batch(7, drop_last=False).loader(threads=2) as loader:
        executor, host, cores = ExecutorStats("threads", 0, 2), socket.gethostname(), usable_cores()
        by_process = {f"{host}:{os.getpid()}": cores}
        assert loader.stats() == Stats(workers=2, cores=cores, executor=executor, host=host, cores_by=by_process)
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
        with pytest.raises(FrozenInstanceError):
            snapshot.batches = 0  # type: ignore[misc]


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
        meters.task(Span(0, number, 0, 0.0, 1.0), 0.5, (), None)
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


def test_a_batch_function_before_unbatch_is_named() -> None:
    def spread(columns: dict[str, Any]) -> dict[str, Any]:
        return columns

    with numbers().batch(4).map_batch(spread).unbatch().batch(5).loader(executor="inline") as loader:
        list(loader)
        assert "batch 4, map_batch spread, unbatch" in loader.stats().steps_s


def test_batch_functions_are_seen_to_wait_for_a_core_and_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.stage.runner._try_lock", lambda scratch: 1.0)

    def nap(columns: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.001)
        return columns

    with numbers().batch(5).map_batch(nap).loader(executor="inline") as loader:
        list(loader)
        (step,) = (step for step in loader.stats().steps if step.name == "map_batch nap")
    assert step.lock_s > 0 and step.wait_s == 0, "the lock was found taken"


def test_after_work_has_moved_what_came_before_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    meters = Meters(2)
    steps(meters, clock, *[0.9] * 10)
    meters.moved(4, ExecutorStats("processes", 4, 1, 10, "because", 1))
    steps(meters, clock, 0.1)
    assert meters.since_move().batches == 11, "that is too little"
    steps(meters, clock, *[0.1] * 9)
    meters.moved(4, ExecutorStats("processes", 4, 1, 10, "because, still", 1))
    part = meters.since_move()
    assert (part.batches, part.samples_per_s, part.executor.reason) == (10, pytest.approx(10 / 0.68), "because, still")
    assert part.earlier_worker_s == part.resized_s == 0.0, "there were always as many workers"


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


def took(**values: Any) -> Report:
    """What a task of two steps says it took."""
    report = Report(2)
    for name, value in values.items():
        setattr(report, name, value)
    return report


READ, NATIVE, FUNCTION = StepName("read", "read"), StepName("image"), StepName("map f", "function")


def test_time_off_a_core_is_told_apart_by_what_a_step_does() -> None:
    meters = Meters(2)
    # 3 s off a core, of which 1 s without a free one: a third of what each step lost
    costs = took(rows=4, seconds=[2.0, 4.0], cpu_s=[1.0, 2.0], nbytes=[40, 400], read_bytes=50, queued_s=1.0)
    meters.task(Span(1, 0, 0, 10.0, 16.0), 3.0, (READ, NATIVE), costs)
    read, image = meters.snapshot().steps
    assert (read.wall_s, read.cpu_s, read.lock_s, image.wait_s) == (2.0, 1.0, 0.0, 0.0)
    assert (read.queued_s, read.wait_s) == pytest.approx((1 / 3, 2 / 3))
    assert (image.queued_s, image.lock_s) == pytest.approx((2 / 3, 4 / 3))
    assert (read.bytes_in, read.bytes_out, image.bytes_in, image.bytes_out) == (50, 40, 40, 400)
    assert (read.samples, image.sample_s) == (4, 1.0)
    (worker,) = meters.snapshot().by_worker
    assert (worker.number, worker.tasks, worker.busy_s, worker.cpu_s) == (1, 1, 6.0, 3.0)
    assert meters.snapshot().sample_costs.quantile(0.5) == pytest.approx(1.5, rel=0.2)


@pytest.mark.parametrize(("taken", "lock_s", "wait_s"), [(0.01, 3.0, 0.0), (1e-6, 0.0, 3.0)])
def test_functions_wait_for_the_interpreter_lock_where_it_was_found_taken(taken: float, lock_s: float, wait_s: float) -> None:
    meters = Meters(2)
    meters.task(Span(0, 0, 0, 0.0, 4.0), 1.0, (READ, FUNCTION), took(seconds=[0.0, 4.0], cpu_s=[0.0, 1.0], lock_s=taken))
    function = meters.snapshot().steps[1]
    assert (function.lock_s, function.wait_s) == (lock_s, wait_s)


def test_threads_of_python_functions_are_seen_to_wait_for_each_other() -> None:
    def busy(x: int) -> int:
        stop = time.thread_time() + 0.002
        while time.thread_time() < stop:
            pass
        return x

    with numbers().map(x=busy).batch(20).loader(threads=4) as loader:
        list(loader)
        (step,) = (step for step in loader.stats().steps if step.name == "map x")
    assert step.kind == "function" and step.cpu_s > 0
    assert step.lock_s > 0


def test_threads_that_wait_for_something_else_are_seen_to_do_so() -> None:
    gate = threading.Event()

    def waits(x: int) -> int:
        gate.wait(0.005)
        return x

    with numbers().map(x=waits).batch(20).loader(threads=1) as loader:
        list(loader)
        (step,) = (step for step in loader.stats().steps if step.name == "map x")
    assert step.wait_s > step.cpu_s + step.lock_s


def test_the_history_of_a_run_is_bounded_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    meters = Meters(3)
    for _ in range(5000):
        asked = meters.request()
        clock.sleep(0.1)
        meters.delivered(asked, 10, 1)
        clock.sleep(0.2)
    stats = meters.snapshot()
    assert 100 < len(stats.history) < 240
    last = stats.history[-1]
    assert last.at_s == pytest.approx(sum(moment.length_s for moment in stats.history))
    left = stats.batches - sum(moment.batches for moment in stats.history)
    assert sum(moment.samples for moment in stats.history) == 10 * (stats.batches - left)
    assert 0 <= left <= last.batches and last.workers == 3
    assert sum(moment.waited_s for moment in stats.history) == pytest.approx(0.1 * (stats.batches - left - 1))
    assert isinstance(last, Moment) and stats.loop.step_s == pytest.approx(0.2 * 4999)
    assert stats.loop.waits.quantile(0.99) == pytest.approx(0.1, rel=0.2)


def test_what_waits_for_the_loop_is_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.observe.meters._MOMENT_S", 0.0)
    monkeypatch.setattr("stoker.observe.meters._CPU_EVERY_S", -1.0)
    with numbers().batch(5).loader(threads=1, memory="1MB") as loader:
        list(loader)
        history = loader.stats().history
    assert {moment.budget for moment in history} == {1_000_000} and all(moment.nbytes <= moment.budget for moment in history)
    assert any(moment.in_flight for moment in history)


def test_who_waits_while_the_device_is_at_work_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    meters = Meters(1)
    for starved in (True, False, True, False):
        asked = meters.request()
        clock.sleep(0.25)
        meters.delivered(asked, 1, 1, starved)
        clock.sleep(0.5)
    stats = meters.snapshot()
    assert (stats.waited_s, stats.hidden_s, stats.elapsed_s) == (0.25, 0.5, 2.25)
    assert stats.loop.step_s == 2.0, "what is hidden is a part of the device's steps"


def steps(meters: Meters, clock: Passing, *lengths: float) -> None:
    """Steps of a loop that waits half a second for each batch."""
    for length in lengths:
        asked = meters.request()
        clock.sleep(0.5)
        meters.delivered(asked, 10, 100)
        clock.sleep(length)


@pytest.mark.parametrize("pause", ["between epochs", "in an epoch that was left", "in a step", "in the first step"])
def test_pauses_are_not_steps_and_count_in_no_share(pause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    meters = Meters(2)
    steps(meters, clock, 60.0 if pause == "in the first step" else 0.5)
    steps(meters, clock, *[0.5] * 19, 60.0 if pause == "in a step" else 0.5)
    if pause == "between epochs":
        meters.epoch_ended()
        clock.sleep(60.0)
    elif pause == "in an epoch that was left":
        clock.sleep(59.5)
        meters.epoch_left()
    steps(meters, clock, *[0.5] * 20)
    stats = meters.snapshot()
    assert stats.paused_s == (0.0 if pause == "in the first step" else 60.0), "the clock starts after the first step"
    assert (stats.wait_share, stats.samples_per_s) == pytest.approx((0.5, 10.0), rel=0.03)
    assert stats.loop.step_s == pytest.approx(0.5 * stats.loop.steps, rel=0.06)
    assert stats.process_s == pytest.approx(stats.elapsed_s, rel=0.06), "what is computed in a pause is not the loop's"
    assert (stats.batches, stats.samples) == (41, 410)


def test_a_pause_among_steps_so_short_that_they_are_summed_up_with_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    meters = Meters(2)
    for length in [1e-3] * 20 + [3.0] + [1e-3] * 20:
        meters.delivered(meters.request(), 10, 100)
        clock.sleep(length)
    assert meters.snapshot().paused_s == 3.0


def test_steps_that_are_all_long_are_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    meters = Meters(2)
    steps(meters, clock, *[30.0, 90.0] * 20)
    assert meters.snapshot().paused_s == 0.0


def test_what_was_done_before_the_first_batch_keeps_nobody_busy_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr("stoker.observe.meters.time", clock)
    meters = Meters(1)
    meters.task(Span(0, 0, 0, 0.0, 9.0), 9.0, (), took())
    for task in range(5):
        steps(meters, clock, 0.5)
        meters.task(Span(0, task, 0, 0.0, 0.5), 0.25, (), took())
    stats = meters.snapshot()
    assert (stats.early_s, stats.early_cpu_s) == (9.0, 9.0)
    assert stats.busy_share == pytest.approx(2.5 / 4.0)


def test_tasks_that_are_looked_at_say_how_time_is_divided_and_all_say_how_much_it_was() -> None:
    meters, kind = Meters(2), (READ, NATIVE)
    # One in five is looked at, and it takes four times as long as the others.
    costs = took(rows=2, seconds=[1.0, 3.0], cpu_s=[0.5, 1.5], nbytes=[40, 20], weight=2)
    meters.task(Span(0, 0, 0, 0.0, 4.0), 2.0, kind, costs)
    for number in range(4):
        meters.task(Span(0, 0, number, 0.0, 1.0), 0.5, kind, took(rows=2, weight=0))
    read, image = meters.snapshot().steps
    assert (read.wall_s, read.cpu_s, image.wall_s, image.cpu_s) == (2.0, 1.0, 6.0, 3.0)
    assert read.wall_s + image.wall_s == meters.snapshot().task_s
    assert (read.samples, image.samples) == (10, 10), "also those of tasks after the last one that was looked at"
    assert (read.bytes_out, image.bytes_in, image.bytes_out) == (200, 200, 100)
