"""Pipelines put together at random, against what the same verbs would do to a plain list."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError
from stoker.plan.order import window_shuffle

from .runs import rest_of

SMALL = st.integers(0, 30)
VERBS = st.lists(
    st.one_of(
        st.tuples(st.just("map"), st.integers(1, 5)),
        st.tuples(st.just("filter"), st.integers(2, 4)),
        st.tuples(st.just("flat_map"), st.integers(2, 4)),
        st.tuples(st.just("take"), SMALL),
        st.tuples(st.just("skip"), SMALL),
        st.tuples(st.just("window"), st.integers(1, 12)),
        st.tuples(st.just("inner batch"), st.integers(1, 9)),
        st.tuples(st.just("inner batch, all"), st.integers(1, 9)),
        st.tuples(st.just("rename"), st.just(0)),
    ),
    max_size=5,
)
BEHIND = st.lists(st.tuples(st.sampled_from(["take", "skip"]), st.integers(0, 6)), max_size=2)


def backwards(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: column[::-1] for name, column in columns.items()}


def add(pipeline: Pipeline, verb: str, number: int) -> Pipeline:
    if verb == "map":
        return pipeline.map(x=lambda x: x + number)
    if verb == "filter":
        return pipeline.filter(lambda s: s["x"] % number)
    if verb == "flat_map":
        return pipeline.flat_map(lambda s: [{"x": s["x"] + 100 * part} for part in range(s["x"] % number)])
    if verb == "window":
        return pipeline.shuffle(seed=number, window=number)
    if verb.startswith("inner batch"):
        return pipeline.batch(number, drop_last=verb == "inner batch").map_batch(backwards).unbatch()
    if verb == "rename":
        return pipeline.rename(z="x").select("z").rename(x="z")
    return pipeline.take(number) if verb == "take" else pipeline.skip(number)


def as_list(values: list[int], verb: str, number: int, epoch: int) -> list[int]:
    if verb == "map":
        return [x + number for x in values]
    if verb == "filter":
        return [x for x in values if x % number]
    if verb == "flat_map":
        return [x + 100 * part for x in values for part in range(x % number)]
    if verb == "window":
        return [values[at] for at in window_shuffle(np.arange(len(values)), len(values), number, number, epoch)] if values else []
    if verb.startswith("inner batch"):
        cuts = [values[at : at + number] for at in range(0, len(values), number)]
        return [x for cut in cuts if len(cut) == number or verb != "inner batch" for x in cut[::-1]]
    if verb == "rename":
        return values
    return values[:number] if verb == "take" else values[number:]


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 50),
    verbs=VERBS,
    size=st.integers(1, 9),
    drop_last=st.booleans(),
    behind=BEHIND,
    threads=st.integers(0, 3),
    stop=st.integers(0, 8),
)
def test_a_pipeline_is_its_verbs_done_to_a_list(
    n: int, verbs: list[tuple[str, int]], size: int, drop_last: bool, behind: list[tuple[str, int]], threads: int, stop: int
) -> None:
    pipeline, expected = stoker.arrays(x=np.arange(n), y=np.arange(n)).select("x"), [list(range(n)) for _ in range(2)]
    for verb, number in verbs:
        pipeline = add(pipeline, verb, number)
        expected = [as_list(values, verb, number, epoch) for epoch, values in enumerate(expected)]
    batches = [[v[at : at + size] for at in range(0, len(v), size)] for v in expected]
    batches = [[batch for batch in epoch if len(batch) == size or not drop_last] for epoch in batches]
    pipeline = pipeline.batch(size, drop_last=drop_last)
    if pipeline.plan.counted:
        for verb, number in behind:
            pipeline = add(pipeline, verb, number)
            batches = [epoch[:number] if verb == "take" else epoch[number:] for epoch in batches]
    how: dict[str, Any] = {"threads": threads} if threads else {"executor": "inline"}
    try:
        loader = pipeline.loader(**how)
    except ConfigError as error:
        assert "batch of" in str(error) and not batches[0]
        return
    with loader:
        assert [[batch["x"].tolist() for batch in loader] for _ in range(2)] == batches
        if pipeline.plan.counted:
            assert len(loader) == len(batches[0])
    assume(stop <= len(batches[0]))
    with pipeline.loader(**how) as loader, pipeline.loader(**how) as again:
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        again.load_state_dict(loader.state_dict())
        assert [batch["x"].tolist() for batch in rest_of(again)] == batches[0][stop:]
        assert again.epoch == 1


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 50), verbs=VERBS, world=st.integers(1, 4), size=st.integers(1, 5))
def test_ranks_share_a_pipeline_without_loss_or_repetition(n: int, verbs: list[tuple[str, int]], world: int, size: int) -> None:
    base, expected = stoker.arrays(x=np.arange(n)), list(range(n))
    for verb, number in verbs:
        base = add(base, verb, number)
        expected = as_list(expected, verb, number, 0)
    assume(expected)
    ranks = [list(base.shard(rank, world, "keep").batch(size)) for rank in range(world)]
    assert len({len(rank) for rank in ranks}) == 1
    found = [int(x) for step in zip(*ranks) for batch in step for x in batch["x"][batch.valid]]
    assert found == expected
