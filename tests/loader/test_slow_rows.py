"""Samples that take much longer than others: how they are found, and that they are begun early."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.batch.written_rows import Report
from stoker.engine.feed import Feed
from stoker.loader.batch_units import _cuts_around
from stoker.loader.build import see_rows
from stoker.loader.origin_times import OriginTimes
from stoker.loader.slow_rows import SlowRows
from stoker.observe.meters import Meters, StepName
from stoker.observe.stats import OriginStats, Stats, merge
from stoker.plan.order import Places
from stoker.source.arrays import ArraysSource
from stoker.storage.scratch import Scratch

from ..source.making import sample_tar
from .runs import hash_of

PLENTY_S = 60
USUAL_S = 0.001


def report(seconds: float, *slow: tuple[int, float]) -> Report:
    made = Report(1)
    made.seconds[0], made.cpu_s[0], made.slow = seconds, seconds, slow
    return made


def rows(*indices: int) -> Any:
    return np.array(indices)


def learned(meters: Meters | None = None) -> SlowRows:
    """Knows what is usual, and nobody who is slow."""
    slow = SlowRows(ArraysSource({"x": np.arange(1000)}), meters)
    for first in range(0, 400, 8):
        slow.see(np.arange(first, first + 8), report(8 * USUAL_S))
    assert slow.slots(np.arange(1000)) == [] and slow.units(64, 4) == 0
    return slow


def test_the_slow_sample_that_a_function_names_is_known_at_once() -> None:
    meters = Meters(1)
    slow = learned(meters)
    slow.see(np.arange(8), report(107 * USUAL_S, (3, 100 * USUAL_S)))
    assert slow.slots(rows(9, 3, 5, 4)) == [1]
    assert [(each.key, each.seconds) for each in meters.snapshot().slowest] == [("3", 0.1)]


def test_of_others_all_samples_of_a_slow_task_are_tried_alone_and_the_innocent_are_forgotten() -> None:
    slow = learned()
    slow.see(rows(10, 11, 12), report(102 * USUAL_S))
    assert slow.slots(np.arange(20)) == [10, 11, 12]
    assert slow.units(64, 4) == 0, "which of them it was is not known yet"
    for index, seconds in ((10, USUAL_S), (11, 100 * USUAL_S), (12, USUAL_S)):
        slow.see(rows(index), report(seconds))
    assert slow.slots(np.arange(20)) == [11]
    assert slow.units(64, 4) > 4
    slow.see(rows(11), report(USUAL_S))
    assert slow.slots(np.arange(20)) == [] and slow.units(64, 4) == 0, "it is no longer slow"


def test_time_without_a_core_and_tasks_that_are_a_little_late_accuse_nobody() -> None:
    slow, queued = learned(), report(120 * USUAL_S)
    queued.queued_s = 112 * USUAL_S
    slow.see(np.arange(8), queued)
    named = report(120 * USUAL_S, (2, 113 * USUAL_S))
    named.queued_s = 112 * USUAL_S
    slow.see(np.arange(8), named)
    slow.see(np.arange(8), report(14 * USUAL_S))
    assert slow.slots(np.arange(20)) == []


def test_slow_samples_get_their_share_of_the_workers_and_never_all_of_them() -> None:
    slow = learned()
    for _ in range(4):
        slow.see(np.arange(100, 200), report(199 * USUAL_S, (1, 100 * USUAL_S)))
    assert 1 <= slow.lanes(2) == 1 < slow.lanes(16) <= 15
    assert slow.lanes(1) == 1


def test_where_many_are_slow_slow_is_usual() -> None:
    slow = learned()
    slow.see(np.arange(8), report(808 * USUAL_S, *((slot, 100 * USUAL_S) for slot in range(8))))
    assert slow.slots(np.arange(16)) == [] and len(slow.slots(np.arange(32))) == 8


def test_a_record_of_very_many_bytes_is_tried_alone_before_anything_is_read(tmp_path: Path) -> None:
    samples = [(f"{number:03}", {"bin": bytes(50_000 if number == 33 else 100)}) for number in range(100)]
    (tmp_path / "a.tar").write_bytes(sample_tar(samples))
    source = stoker.tar(tmp_path / "a.tar").plan.source
    assert isinstance(source, stoker.source.source.Source)
    assert SlowRows(source).slots(np.arange(30, 40)) == [3]


@given(st.integers(1, 100), st.integers(1, 40), st.sets(st.integers(0, 99), min_size=1))
def test_every_row_is_in_one_task_and_slow_rows_are_alone(count: int, size: int, slow: set[int]) -> None:
    slots = sorted(slot for slot in slow if slot < count)
    cuts, alone = _cuts_around(slots, count, size)
    assert [row for first, stop in cuts for row in range(first, stop)] == [*range(count)]
    assert all(first < stop <= first + size for first, stop in cuts)
    assert [cuts[number] for number in sorted(alone)] == [(slot, slot + 1) for slot in slots]


def test_a_slow_sample_begins_before_the_others_and_batches_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    submitted = threading.Event()
    begin_early = Feed._begin_early

    def begin(feed: Any) -> None:
        begin_early(feed)
        submitted.set()

    def watched(x: Any) -> Any:
        begun.append(int(x))
        if x == 0:
            assert submitted.wait(PLENTY_S)
        return x + 1

    monkeypatch.setattr(Feed, "_begin_early", begin)
    pipeline = stoker.arrays(x=np.arange(96)).map(x=watched).batch(32)
    with pipeline.loader(threads=1, ahead=2) as loader:
        slow = loader._machinery.slow_rows
        assert slow is not None
        slow._note(63, 1.0)
        hashes = [hash_of(batch) for batch in loader]
    first = begun.index(63)
    assert first < 32 and set(range(32, 63)) <= set(begun[first:]), "the last of the second batch comes before its others"
    submitted.set()
    with pipeline.loader(executor="inline") as inline:
        assert hashes == [hash_of(batch) for batch in inline]


@pytest.mark.parametrize("options", [{"threads": 3}, {"processes": 2, "threads": 1}], ids=["threads", "processes"])
def test_batches_do_not_depend_on_who_is_thought_to_be_slow(options: dict[str, Any]) -> None:
    pipeline = stoker.arrays(x=np.arange(300)).shuffle(seed=3).map(x=np.negative).batch(16)
    with pipeline.loader(executor="inline") as inline:
        expected = [hash_of(batch) for _ in range(2) for batch in inline]
    with pipeline.loader(**options) as loader:
        slow = loader._machinery.slow_rows
        assert slow is not None
        for index in range(0, 300, 13):
            slow._note(index, 5.0)
        assert [hash_of(batch) for _ in range(2) for batch in loader] == expected


def test_a_slow_function_call_is_reported_with_its_row() -> None:
    """The clock is the test's own: each call takes as long as it says."""
    from stoker.stage import stage

    now = [0.0]

    class Clock:
        perf_counter = staticmethod(lambda: now[0])

    def f(x: Any) -> Any:
        now[0] += 1.0 if x == 77 else 0.001
        return x

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "time", Clock)
        with stoker.arrays(x=np.arange(100)).map(x=f).batch(10).loader(threads=1) as loader:
            slow = loader._machinery.slow_rows
            assert slow is not None
            seen: list[tuple[int, float]] = []
            see = slow.see
            patch.setattr(
                slow,
                "see",
                lambda indices, report: (see(indices, report), seen.extend((int(indices[r]), s) for r, s in report.slow)),
            )
            list(loader)
    assert {(index, round(seconds, 6)) for index, seconds in seen} == {(77, 1.0)}


def test_the_shard_that_takes_longest_to_read_comes_first(tmp_path: Path) -> None:
    for shard in range(3):
        (tmp_path / f"{shard}.tar").write_bytes(sample_tar((f"{shard}-{n}", {"bin": b"x"}) for n in range(40)))
    source = stoker.tar(sorted(tmp_path.glob("*.tar"))).plan.source
    assert isinstance(source, stoker.source.source.Source)
    times = OriginTimes(source)
    for _ in range(32):
        times.see(rows(0, 41), 0.002)
        times.see(rows(42, 80), 0.2)
    found = times.slowest()
    assert [(each.name, each.samples) for each in found] == [("2.tar", 32), ("1.tar", 64), ("0.tar", 32)]
    assert found[0].wall_s == pytest.approx(32 * 0.1)


def test_tasks_that_nobody_looked_at_say_nothing_about_a_shard(tmp_path: Path) -> None:
    for shard in range(2):
        (tmp_path / f"{shard}.tar").write_bytes(sample_tar((f"{shard}-{n}", {"bin": b"x"}) for n in range(40)))
    source = stoker.tar(sorted(tmp_path.glob("*.tar"))).plan.source
    assert isinstance(source, stoker.source.source.Source)
    times = OriginTimes(source)
    see = see_rows(None, times, [StepName("read", "read")])
    assert see is not None
    for weight in (1, 0, 0, 0) * 32:
        made = report(0.1 * weight)
        made.weight = weight
        see(Places(rows(0), rows(0), 0), made, 0.0)
    assert [each.wall_s / each.samples for each in times.slowest()] == [pytest.approx(0.1)]


def test_what_was_slow_in_a_task_that_failed_is_not_said_of_the_next() -> None:
    scratch = Scratch()
    scratch.slow.append((3, 1.0))  # of a task of more rows, which then found no memory
    with stoker.arrays(x=np.arange(4)).map(x=lambda x: x).batch(4).loader(executor="inline") as loader:
        assert loader._machinery._work.runner.run(Places(rows(0), rows(0), 0), {}, scratch)[1].slow == ()
    scratch.close()


def test_the_slowest_shards_of_all_ranks_come_first() -> None:
    one = Stats(origins=(OriginStats("a", 10, 5.0), OriginStats("b", 10, 1.0)))
    other = Stats(origins=(OriginStats("c", 1, 0.4), OriginStats("b", 10, 4.0)))
    assert [(each.name, each.samples) for each in merge([one, other]).origins] == [("a", 10), ("c", 1), ("b", 20)]


def test_where_many_tasks_are_slow_no_sample_is_suspected() -> None:
    slow = learned()
    for first in range(1000, 1000 + 64 * 40, 64):
        slow.see(np.arange(first, first + 64), report(300 * USUAL_S))
    assert len(slow._suspects) <= 256, "the machine was slow, not these samples"


def test_tasks_of_very_many_quick_samples_are_not_suspected() -> None:
    slow = learned()
    slow.see(np.arange(1000, 1000 + 4096), report(4096 * 10 * USUAL_S))
    assert not slow._suspects


def test_who_waits_for_the_interpreter_lock_is_not_slow() -> None:
    slow = SlowRows(ArraysSource({"x": np.arange(1000)}), None, ["read", "native"])
    for first in range(0, 400, 8):
        slow.see(np.arange(first, first + 8), report(8 * USUAL_S))
    locked = report(1000 * USUAL_S)
    locked.cpu_s[0] = 8 * USUAL_S
    slow.see(np.arange(8), locked)
    assert not slow._suspects


def test_what_was_learned_of_other_workers_is_forgotten() -> None:
    slow = learned()
    slow.see(np.arange(8), report(107 * USUAL_S, (3, 100 * USUAL_S)))
    assert slow.units(64, 4) > 0
    slow.start_over()
    assert slow.units(64, 4) == 0 and slow.slots(rows(3)) == []
