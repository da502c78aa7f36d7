"""What made a batch, computed again from its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError
from stoker.image import HorizontalFlip, RandomResizedCrop, Resize

from .runs import numbers, odd


@pytest.mark.parametrize(
    "pipeline",
    [
        numbers().shuffle(seed=1).batch(7, drop_last=False),
        numbers().shuffle(seed=1).shard(1, 3, "pad").batch(7),
        numbers().shuffle(seed=1, window=9).shard(2, 3, "keep").batch(7),
        numbers().shuffle(seed=1).batch(7).skip(2).take(4),
        numbers().shuffle(seed=1).batch(7).skip(2).repeat(3),
        numbers().shuffle(seed=1).repeat(2).batch(7),
        numbers().shuffle(seed=1),
    ],
    ids=repr,
)
def test_the_explanation_of_every_step_is_what_the_step_gave(pipeline: Pipeline) -> None:
    with pipeline.loader() as loader:
        for epoch in range(2):
            for step, batch in enumerate(loader):
                told = loader.explain(step, epoch)
                assert [row["index"] for row in told] == np.atleast_1d(batch["x"]).tolist()
                assert [row["key"] for row in told] == [str(x) for x in np.atleast_1d(batch["x"])]
                assert told == loader.explain(step) or epoch != loader.epoch
        count = len(loader)
        for step in (-1, count):
            with pytest.raises(ConfigError, match=f"no batch {step} in an epoch of {count} batches"):
                loader.explain(step)


def test_crops_and_flips_are_told_and_they_are_the_ones_that_were_made(image_folder: Path) -> None:
    def pipeline(**how: bool) -> Pipeline:
        return stoker.files(image_folder).shuffle(seed=4).rename(image="picture")

    cut = pipeline().image("picture", RandomResizedCrop(16), HorizontalFlip()).batch(6)
    with cut.loader() as loader:
        told = loader.explain(1, epoch=3)
    rows = [row["image picture"] for row in told]
    assert all(row["output"] == [16, 16] for row in rows)
    assert {row["flipped"] for row in rows} == {True, False}
    for row in rows:
        height, width = row["size"]
        crop = row["crop"]
        assert 0 <= crop["top"] < crop["bottom"] <= height and 0 <= crop["left"] < crop["right"] <= width
    assert len({tuple(row["crop"].values()) for row in rows}) == 6


def test_functions_before_the_image_end_the_explanation_there() -> None:
    pixels = np.zeros((8, 4, 4, 3), np.uint8)
    pipeline = stoker.arrays(i=pixels).map(i=lambda v: v).image("i", Resize((2, 2))).batch(4)
    with pipeline.loader() as loader:
        assert loader.explain(0)[0].keys() == {"row", "position", "index", "key", "origin"}


def test_samples_that_cannot_be_counted_cannot_be_explained() -> None:
    with numbers().filter(odd).batch(4).loader() as loader, pytest.raises(ConfigError, match="counted"):
        loader.explain(0)


def test_an_endless_epoch_can_be_explained_anywhere() -> None:
    with numbers().shuffle(seed=1).repeat().batch(7).loader() as loader:
        assert [row["position"] for row in loader.explain(1000)] == list(range(7000, 7007))
