"""Runs of stages: what is written where, and which error is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.engine.feed import Pace
from stoker.errors import FunctionError
from stoker.image import HorizontalFlip, MixUp, RandomCrop, Resize
from stoker.plan.columns import resolve, view_of
from stoker.plan.nodes import Decode, Drop, Filter, Image, Map, MapFields, Rename, Select, StageNode
from stoker.source.chunk import BYTES
from stoker.stage.runner import last_makers

from ..loader.runs import numbers


def makers(*nodes: StageNode) -> list[dict[str, str]]:
    """Who makes the final fields of samples with fields a and b: the read first, then the steps that are left of the nodes."""
    steps, view = resolve(nodes, view_of({"a": BYTES, "b": BYTES}))
    return last_makers(steps, None if view is None else {name: held.column for name, held in view.items()})


def test_only_the_last_maker_of_a_field_may_write_to_its_final_memory() -> None:
    image = Image("a", ())
    assert makers() == [{"a": "a", "b": "b"}]
    assert makers(image) == [{"b": "b"}, {"a": "a"}]
    assert makers(image, image) == [{"b": "b"}, {}, {"a": "a"}]
    assert makers(Decode("a")) == makers(MapFields((("a", (abs,)),))) == [{"b": "b"}, {"a": "a"}]
    assert makers(image, Filter(bool)) == [{}, {}, {}], "which rows are left is known afterwards"
    assert makers(Filter(bool), image) == [{}, {}, {"a": "a"}]
    assert makers(image, Map(dict)) == [{}, {}, {}]


def test_verbs_over_names_are_no_steps_and_final_fields_are_still_written_in_place() -> None:
    image = Image("a", ())
    assert makers(image, Rename((("a", "z"),))) == [{"b": "b"}, {"a": "z"}]
    assert makers(Rename((("a", "z"),)), Image("z", ())) == [{"b": "b"}, {"a": "z"}]
    assert makers(Rename((("a", "b"), ("b", "a")))) == [{"a": "b", "b": "a"}]
    assert makers(Select(("b",))) == makers(Drop(("a",))) == [{"b": "b"}]


def test_two_image_stages_on_one_field_do_not_read_what_they_write() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), np.uint8)
    twice = stoker.arrays(i=pixels).image("i", Resize((8, 8))).image("i", Resize((8, 8))).batch(4)
    once = stoker.arrays(i=pixels).image("i", Resize((8, 8))).batch(4)
    assert [batch["i"].tolist() for batch in twice] == [batch["i"].tolist() for batch in once]


def raises_at(**reasons: int) -> Any:
    """Functions by name that raise on one number each."""

    def make(name: str, at: int) -> Any:
        def function(value: Any) -> Any:
            if value == at:
                raise LookupError(name)
            return value

        return function

    return [make(name, at) for name, at in reasons.items()]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("threads", [1, 4])
def test_of_several_bad_samples_the_first_in_order_is_told_however_work_is_cut(
    rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: rows)
    late_row, early_row = raises_at(first_stage=15, second_stage=11)
    pipelines: list[Pipeline] = [
        numbers(20).map(x=late_row).map(x=early_row).batch(20),
        numbers(20).map(x=late_row).map(x=early_row).batch(5),
        numbers(20).map(x=late_row).map(x=early_row),
        numbers(20).map(x=late_row).filter(lambda s: True).map(x=early_row).batch(5),
        numbers(20).map(x=late_row).map(x=early_row).flat_map(lambda s: [s]).batch(5),
    ]
    for pipeline in pipelines:
        with pipeline.loader(threads=threads) as loader, pytest.raises(FunctionError, match="second_stage") as caught:
            list(loader)
        assert caught.value.key == "11"


def test_a_bad_sample_that_takes_longer_to_fail_is_still_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: 1)
    monkeypatch.setattr(Pace, "group_rows", lambda self: 1)

    def slow_then_fast(value: Any) -> Any:
        if value == 2:
            time.sleep(0.2)
        if value >= 2:
            raise LookupError(f"number {value}")
        return value

    for pipeline in (
        numbers(4).map(x=slow_then_fast).batch(4),
        numbers(64).map(x=slow_then_fast).filter(lambda s: True).batch(1),
    ):
        with pipeline.loader(threads=4) as loader, pytest.raises(FunctionError, match="number 2"):
            list(loader)


def test_the_steps_of_a_run_are_measured_by_name() -> None:
    with numbers().map(x=lambda v: v).filter(lambda s: True).map(lambda s: s).batch(4).loader() as loader:
        list(loader)
        assert set(loader.stats().steps_s) == {"read", "map x", "filter", "map <lambda>", "collate"}


QUIET: dict[str, Callable[[Pipeline], Pipeline]] = {
    "rename": lambda pipeline: pipeline.rename(picture="image").rename(image="picture"),
    "select": lambda pipeline: pipeline.select("image", "label"),
    "drop": lambda pipeline: pipeline.drop("extra"),
    "map": lambda pipeline: pipeline.map(dict),
    "map of a field": lambda pipeline: pipeline.map(label=int),
    "filter": lambda pipeline: pipeline.filter(bool),
}


@pytest.mark.parametrize("quiet", QUIET.values(), ids=QUIET)
def test_a_stage_that_draws_nothing_changes_nobodys_draws(quiet: Callable[[Pipeline], Pipeline]) -> None:
    images = np.random.default_rng(1).integers(0, 256, (24, 12, 12, 3), np.uint8)
    source = stoker.arrays(image=images, label=np.arange(24) % 5, extra=np.arange(24))

    def draw(sample: dict[str, Any], rng: Any) -> dict[str, Any]:
        return {**sample, "x": rng.random()}

    def drawn(pipeline: Pipeline) -> list[list[Any]]:
        pipeline = pipeline.image("image", RandomCrop(8), HorizontalFlip()).map(draw, rng=True).batch(8)
        return [
            [batch[name].tolist() for name in ("image", "label", "x")]
            for batch in pipeline.select("image", "label", "x").blend(MixUp(0.5, classes=5))
        ]

    assert drawn(quiet(source)) == drawn(source)
