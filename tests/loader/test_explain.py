"""What made a batch, computed again from its number."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import ConfigError
from stoker.image import HorizontalFlip, RandomCrop, RandomResizedCrop, Resize, Rotate

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
        numbers().shuffle(seed=1).repeat().batch(7).skip(2).take(4),
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
        return stoker.files(image_folder).shuffle(seed=4).rename(picture="image")

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


def test_functions_on_other_fields_do_not_end_the_explanation() -> None:
    pixels = stoker.arrays(i=np.zeros((8, 9, 9, 3), np.uint8), n=np.arange(8))
    with pixels.image("i", RandomCrop(4)).batch(4).loader() as loader:
        alone = [row["image i"] for row in loader.explain(1)]
    with pixels.map(n=abs).image("i", RandomCrop(4)).batch(4).loader() as loader:
        assert [row["image i"] for row in loader.explain(1)] == alone


def test_every_image_stage_is_told_up_to_the_first_function() -> None:
    places = np.tile(np.stack(np.mgrid[:6, :9, :1], axis=3)[:, :, 0].astype(np.uint8), (8, 1, 1, 1))  # each pixel has its own
    arrays = stoker.arrays(a=places, b=np.zeros((8, 4, 4), np.uint8)).image("a", RandomCrop(5)).image("b", Rotate(9))
    stages = arrays.rename(c="a").image("c", RandomCrop(3)).image("c", RandomCrop(2))
    (batch,) = stages.batch(8)
    with stages.map(c=np.flip).image("c", RandomCrop(1)).batch(8).loader() as loader:
        rows = loader.explain(0)
    names = ["image a", "image c", "image c 2"]
    for row, made in zip(rows, batch["c"]):
        assert [name for name in row if name.startswith("image")] == ["image a", "image b", *names[1:]]
        assert [row[name]["size"] for name in names] == [[6, 9], [5, 5], [3, 3]]
        crops = [row[name]["drawn"][0] for name in names]
        assert made[0, 0, :2].tolist() == [sum(crop["top"] for crop in crops), sum(crop["left"] for crop in crops)]


def test_a_bad_sample_is_told_and_the_others_of_its_batch_all_the_same(image_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(image_folder, tmp_path / "photos"))
    gone, empty, odd_one, *_ = sorted(folder.rglob("*.jpg"))
    empty.write_bytes(b"")
    odd_one.write_bytes(b"<html>")
    crops = stoker.files(folder).image("image", RandomCrop(8)).image("image", Rotate(4)).batch(6)
    gone.unlink()
    with crops.on_error("skip", budget=9).loader() as loader:
        told = loader.explain(0)
        kept = next(iter(loader)).sample_keys
    assert [row["key"] for row in told if "error" not in row] == kept and len(kept) == 3
    assert all(("image image" in row) != ("error" in row) and ("image image 2" in row) != ("error" in row) for row in told)
    assert [row["error"].count(row["origin"]) for row in told[:3]] == [1, 1, 1]


def test_an_image_too_small_for_its_crop_is_told() -> None:
    with stoker.arrays(i=np.zeros((2, 4, 4, 3), np.uint8)).image("i", RandomCrop(5)).batch(2).loader() as loader:
        assert "a random crop of 5x5 does not fit into a 4x4 image" in loader.explain(0)[1]["error"]


def test_samples_that_cannot_be_counted_cannot_be_explained() -> None:
    with numbers().filter(odd).batch(4).loader() as loader, pytest.raises(ConfigError, match="counted"):
        loader.explain(0)


@pytest.mark.parametrize("wrong", [{"step": "0"}, {"step": 0.0}, {"step": 0, "epoch": -1}, {"step": 0, "epoch": "1"}], ids=str)
def test_steps_and_epochs_are_whole_numbers_from_0_on(wrong: dict[str, Any]) -> None:
    with numbers().batch(4).loader() as loader, pytest.raises(ConfigError, match=r"explain\((step|epoch)="):
        loader.explain(**wrong)


def test_an_endless_epoch_can_be_explained_anywhere() -> None:
    with numbers().shuffle(seed=1).repeat().batch(7).loader() as loader:
        assert [row["position"] for row in loader.explain(1000)] == list(range(7000, 7007))
        for step in (-1, 10**19):
            with pytest.raises(ConfigError, match=f"no batch {step} in an epoch without end"):
                loader.explain(step)
