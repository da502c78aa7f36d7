"""`fill="repeat"`: bad rows are filled with good ones of their batch, so that shapes stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.engine.feed import Pace
from stoker.errors import DataLossError
from stoker.plan.nodes import OnError, SkipPolicy

from .runs import N, bad_every_seventh, numbers, odd, pictures, real_ids, sha_of_run, spread, tokens


def filled(pipeline: Pipeline, budget: float = N) -> Pipeline:
    return Pipeline(pipeline._source, (*pipeline._nodes, OnError(SkipPolicy(budget, fill="repeat"))))


def test_every_batch_keeps_its_rows_and_says_which_are_real() -> None:
    bad = {x for x in range(N) if x % 7 == 3}
    with filled(numbers().map(x=bad_every_seventh).batch(5, drop_last=False)).loader(threads=2) as loader:
        batches = list(loader)
        assert loader.stats().skipped == len(bad)
    assert [batch.rows for batch in batches] == [5] * (N // 5)
    for number, batch in enumerate(batches):
        rows = range(5 * number, 5 * number + 5)
        good = [row for row in rows if row not in bad]
        nearest = [max((row for row in good if row <= at), default=good[0]) for at in rows]
        assert batch["x"].tolist() == nearest and real_ids(batch) == good
        assert np.array_equal(batch["y"], numbers_y()[nearest]), "all fields are of the same sample"


def numbers_y() -> Any:
    return np.random.default_rng(1).normal(size=(N, 5)).astype(np.float32)


PIPELINES = {
    "in the slab": numbers().shuffle(seed=2).map(x=bad_every_seventh).batch(6, drop_last=False),
    "beside it": numbers().map(x=bad_every_seventh).map(tokens).batch(6, pad={"t": list}),
    "padded": numbers().map(x=bad_every_seventh).map(tokens).batch(6, pad={"t": -1}),
    "map_batch": numbers().map(x=bad_every_seventh).batch(6).map_batch(spread),
    "blend": pictures().map(x=bad_every_seventh).batch(6).blend(stoker.image.MixUp(classes=10)),
    "shared out": numbers().map(x=bad_every_seventh).batch(7, drop_last=False).shard(1, 2, "pad"),
    "behind a filter": numbers().filter(odd).map(x=bad_every_seventh).batch(6),
    "before a filter": numbers().map(x=bad_every_seventh).filter(odd).batch(6),
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_the_result_does_not_depend_on_who_made_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = filled(PIPELINES[kind])
    with pipeline.loader(executor="inline") as loader:
        batches = list(loader)
    short = [batch.rows for batch in batches if batch.rows < max(batch.rows for batch in batches)]
    assert len(short) <= ("drop_last=False" in repr(pipeline)), "what fails before samples are numbered is simply missing"
    expected = sha_of_run(pipeline, executor="inline")
    for rows in (1, 4, 1000):
        with monkeypatch.context() as patch:
            patch.setattr(Pace, "task_rows", lambda self, unit_rows, rows=rows: rows)
            assert sha_of_run(pipeline, threads=2) == expected, rows


def test_a_batch_without_a_good_row_has_nothing_to_be_filled_with() -> None:
    with (
        filled(numbers().map(x=bad_every_seventh).skip(3).batch(1)).loader() as loader,
        pytest.raises(DataLossError, match=r"every sample of a batch was bad \(1 sample of epoch 0, starting at row 0\)"),
    ):
        list(loader)


def test_filled_rows_count_against_the_budget() -> None:
    with (
        filled(numbers().map(x=bad_every_seventh).batch(6), budget=3).loader() as loader,
        pytest.raises(DataLossError, match="4 of 30"),
    ):
        list(loader)
