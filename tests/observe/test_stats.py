"""Statistics as values: JSON, sums over ranks, differences between two moments."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.errors import ConfigError
from stoker.observe.rank_stats import gather
from stoker.observe.stats import (
    ExecutorStats,
    Histogram,
    LoopStats,
    Moment,
    OriginStats,
    SlowSample,
    Stats,
    StepStats,
    WorkerStats,
    merge,
)

from ..loader.runs import numbers

COUNT = st.integers(0, 1000)
SECONDS = st.integers(0, 4000).map(lambda count: count / 4)  # exact, so that sums are
HISTOGRAM = st.lists(COUNT, max_size=8).map(lambda counts: Histogram(tuple(counts)))


def some(kind: Any, **given: Any) -> st.SearchStrategy[Any]:
    """Values of a class of numbers."""
    of = {"int": COUNT, "float": SECONDS, "Histogram": HISTOGRAM, "str": st.text(max_size=4)}
    return st.builds(kind, **{each.name: of[each.type] for each in fields(kind)} | given)


STEPS = st.lists(some(StepStats), max_size=4, unique_by=lambda step: step.name).map(tuple)
WORKERS = st.lists(some(WorkerStats), max_size=4, unique_by=lambda worker: worker.number).map(tuple)
NUMBERS = {each.name: {"int": COUNT, "float": SECONDS}[each.type] for each in fields(Stats) if each.type in ("int", "float")}
STATS = st.builds(
    Stats,
    **NUMBERS | {"ranks": st.just(1)},
    queued_s=st.none() | SECONDS,
    skipped_by=st.dictionaries(st.sampled_from("abc"), st.integers(1, 9)),
    executor=some(ExecutorStats),
    loop=some(LoopStats),
    steps=STEPS,
    by_worker=WORKERS,
    sample_costs=HISTOGRAM,
    slowest=st.lists(some(SlowSample), max_size=3).map(tuple),
    origins=st.lists(some(OriginStats), max_size=3).map(tuple),
    history=st.lists(some(Moment), max_size=3).map(tuple),
    host=st.sampled_from(["a", "b"]),
    cores_by=st.just({}) | st.dictionaries(st.sampled_from(["a:1", "a:2", "b:1"]), COUNT, min_size=1),
)


@given(STATS)
def test_statistics_go_through_json_unchanged(stats: Stats) -> None:
    assert Stats.from_dict(json.loads(json.dumps(stats.as_dict()))) == stats


def test_statistics_of_another_version_keep_what_is_known() -> None:
    saved = Stats(batches=3).as_dict() | {"invented later": 1}
    saved["loop"]["invented later"] = 2
    assert Stats.from_dict(saved) == Stats(batches=3)


@given(STATS, STATS)
def test_what_two_ranks_did_is_the_sum(one: Stats, other: Stats) -> None:
    both = merge([one, other])
    for name in ("batches", "samples", "bytes", "waited_s", "task_s", "cpu_s", "workers", "lost", "cache_hits", "worked"):
        assert getattr(both, name) == getattr(one, name) + getattr(other, name)
    assert both.elapsed_s == max(one.elapsed_s, other.elapsed_s) and both.ranks == 2
    assert sum(step.wall_s for step in both.steps) == sum(step.wall_s for stats in (one, other) for step in stats.steps)
    assert len({step.name for step in both.steps}) == len(both.steps)
    assert both.loop.waits.total == one.loop.waits.total + other.loop.waits.total
    assert len(both.by_worker) == len(one.by_worker) + len(other.by_worker)
    assert both.wait_share <= 1


@given(STATS, STATS, STATS)
def test_it_does_not_matter_in_which_order_ranks_are_merged(one: Stats, two: Stats, three: Stats) -> None:
    assert merge([merge([one, two]), three]) == merge([one, merge([two, three])]) == merge([one, two, three])


def test_ranks_have_their_own_cores_and_loaders_of_a_process_the_same() -> None:
    ranks = [Stats(cores=4, host="a", cores_by={f"a:{rank}": 4}) for rank in range(2)]
    assert (merge(ranks).cores, merge(ranks).host) == (8, "a")
    assert merge([ranks[0], ranks[0], ranks[1]]).cores == 8
    assert merge([merge(ranks), Stats(cores=2, host="b", cores_by={"b:7": 2})]).host == "a, b"


def doubled(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"x": sample["x"]}, {"x": sample["x"]}]


SHAPES: dict[str, Any] = {
    "plain": lambda p, size: p.batch(size, drop_last=False),
    "single": lambda p, size: p,
    "filter": lambda p, size: p.filter(lambda sample: sample["x"] % 3 != 0).batch(size, drop_last=False),
    "flat_map": lambda p, size: p.flat_map(doubled).batch(size),
    "unbatch": lambda p, size: p.batch(3).map_batch(lambda batch: batch).unbatch().batch(size, drop_last=False),
    "map_batch": lambda p, size: p.batch(size).map_batch(lambda batch: batch),
}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.integers(1, 90),
    st.integers(1, 20),
    st.sampled_from(["inline", "threads"]),
    st.lists(st.integers(0, 40), min_size=1, max_size=3),
)
def test_counts_are_those_of_what_was_handed_out(shape: str, rows: int, size: int, executor: str, takes: list[int]) -> None:
    pipeline = SHAPES[shape](stoker.arrays(x=np.arange(rows)).shuffle(seed=1), size)
    batches = samples = nbytes = 0
    with pipeline.loader(executor=executor) as loader:
        for take in takes:  # epochs, some of them left in the middle
            for batch in itertools.islice(loader, take):
                batches += 1
                samples += 1 if shape == "single" else len(batch.x)
                nbytes += 0 if shape == "single" else batch.x.nbytes
            stats = loader.stats()
            assert (stats.batches, stats.samples, stats.bytes) == (batches, samples, nbytes)
    stats = loader.stats()
    assert (stats.batches, stats.samples, stats.bytes) == (batches, samples, nbytes), "also when it is closed"
    assert Stats.from_dict(json.loads(json.dumps(stats.as_dict()))) == stats


def test_the_part_between_two_snapshots_is_their_difference() -> None:
    with numbers().map(x=abs).batch(5).loader(threads=2) as loader:
        list(loader)
        first = loader.stats()
        list(loader)
        second = loader.stats()
    part = second - first
    assert (part.batches, part.samples, part.epochs, part.first_samples) == (12, 60, 1, 0)
    assert part.loop.waits.total == 12 and part.elapsed_s == second.elapsed_s - first.elapsed_s
    made = [{step.name: step.samples for step in stats.steps}["map x"] for stats in (first, second, part)]
    assert made[2] == made[1] - made[0]  # those made ahead included, however many these are by now
    assert part.samples_per_s > 0 and part.task_s == pytest.approx(second.task_s - first.task_s)
    with pytest.raises(ConfigError, match="later - earlier"):
        first - second


def test_no_part_of_a_run_waited_less_than_nothing_although_reasons_are_estimated_anew() -> None:
    earlier = Stats(batches=1, steps=(StepStats("read", "read", 4, 2.0, 1.0, lock_s=0.5, wait_s=0.5),))
    later = Stats(batches=2, steps=(StepStats("read", "read", 8, 4.0, 2.0, lock_s=0.4, wait_s=1.6),))
    [step] = (later - earlier).steps
    assert step.lock_s == 0 and step.wait_s == pytest.approx(1.1) and step.samples == 4


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(ConfigError, match="no statistics"):
        merge([])


@given(st.lists(st.floats(2e-6, 100.0), min_size=1))
def test_a_quantile_is_off_by_a_fifth_at_most(times: list[float]) -> None:
    counts = [0] * 64
    for seconds in times:
        counts[Histogram.bucket(seconds)] += 1
    found, exact = Histogram(tuple(counts)).quantile(1.0), max(times)
    assert exact / 1.2 <= found <= exact * 1.2


def test_steps_beside_busy_workers_are_compared_with_calm_ones() -> None:
    assert LoopStats(busy_steps=4, busy_step_s=6.0, calm_steps=2, calm_step_s=2.0).interference == 0.5
    assert LoopStats(busy_steps=4, busy_step_s=6.0).interference is None


def test_what_is_not_statistics_is_refused_also_where_there_is_one_rank() -> None:
    with stoker.arrays(x=np.arange(4)).batch(2).loader(executor="inline") as batches:
        with pytest.raises(ConfigError, match=r"must be statistics, as returned by loader\.stats\(\), not Loader"):
            gather(batches)  # type: ignore[arg-type]
        assert gather(batches.stats()) == batches.stats()
