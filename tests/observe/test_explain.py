"""A pipeline explains itself before it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import stoker
from stoker.image import CenterCrop, HorizontalFlip, RandomResizedCrop

from ..loader.runs import expand, numbers, odd, samples, spread


def test_everything_a_user_said_is_in_the_explanation(image_folder: Path) -> None:
    pipeline = (
        stoker.files(image_folder)
        .shuffle(seed=7, window=9)
        .shard(1, 2, "pad")
        .image("image", RandomResizedCrop(32), HorizontalFlip(p=0.25))
        .map(label=abs)
        .batch(5, drop_last=False)
        .map_batch(spread)
        .on_error(stoker.skip(budget=0.05, quarantine="bad.jsonl"))
    )
    text = pipeline.explain()
    for told in (
        str(image_folder), "seed=7", "window=9", "24 samples an epoch", "RandomResizedCrop(32)", "p=0.25", "uint8[32, 32, 3]",
        "abs", "rank 1 of 2", "pad", "5 x (", "may be shorter", "spread", "5.00% of samples", "bad.jsonl", "at once",
    ):  # fmt: skip
        assert told in text, told
    assert "abs" in repr(pipeline) and ".batch(5" in repr(pipeline)


def test_what_is_not_read_is_not_named() -> None:
    assert "reads x" in numbers().select("x").batch(2).explain()
    assert "y" not in numbers().select("x").batch(2).explain().splitlines()[1]


def test_ragged_pipelines_say_that_they_are() -> None:
    text = numbers().filter(odd).take(9).flat_map(expand).batch(2).explain()
    assert text.count("numbered anew") == 2 and "replays" in text and "odd" in text and "take" in text.lower()
    assert "at once" in numbers().filter(odd).batch(2).explain()
    assert "as the stream gives them" in stoker.stream(samples).batch(2).explain()
    assert "single samples" in numbers().explain()
    assert "endless" in numbers().repeat().explain()


def test_explaining_runs_nothing() -> None:
    def never(*_: object) -> object:
        raise AssertionError("called")

    pipeline = numbers().map(never).filter(never).flat_map(never).batch(2).map_batch(never)
    assert pipeline.explain() and pipeline.fingerprint() and repr(pipeline)
    assert stoker.stream(never).map(never).batch(2).explain()  # type: ignore[arg-type]


def test_pixels_are_not_said_to_be_decoded(image_folder: Path) -> None:
    pixels = stoker.arrays(x=np.zeros((4, 8, 8, 3), np.uint8)).rename(x="image")
    told = pixels.image("image", CenterCrop(8)).explain()
    assert "decode" not in told and "CenterCrop: whole pixels moved, one copy" in told
    assert "decodes only" in stoker.files(image_folder).image("image", CenterCrop(8)).explain()
