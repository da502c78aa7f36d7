"""A pipeline explains itself before it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import image
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
        .on_error("skip", budget=0.05, window=1000, fill="repeat", quarantine="bad.jsonl")
    )
    text = pipeline.explain()
    for told in (
        str(image_folder), "seed=7", "window=9", "24 samples per epoch", "RandomResizedCrop(32)", "p=0.25", "uint8[32, 32, 3]",
        "abs", "rank 1 of 2", "pad", "5 x (", "may be shorter", "spread", "5.00% of samples among any 1,000",
        "good row", "bad.jsonl", "at once",
    ):  # fmt: skip
        assert told in text, told
    assert "abs" in repr(pipeline) and ".batch(5" in repr(pipeline)


def test_what_is_not_read_is_not_named() -> None:
    assert "reads x" in numbers().select("x").batch(2).explain()
    assert "y" not in numbers().select("x").batch(2).explain().splitlines()[1]


def test_ragged_pipelines_say_that_they_are() -> None:
    text = numbers().filter(odd).take(9).flat_map(expand).batch(2).explain()
    assert text.count("numbered again") == 2 and "replays" in text and "odd" in text and "take" in text.lower()
    assert "at once" in numbers().filter(odd).batch(2).explain()
    assert "in the order of the stream" in stoker.stream(samples).batch(2).explain()
    assert "single samples" in numbers().explain()
    assert "endless" in numbers().repeat().explain()


def test_images_of_several_sizes_are_said_to_become_a_list(image_folder: Path) -> None:
    photos = stoker.files(image_folder)
    told = "image: a list of images if their sizes differ"
    assert told in photos.image("image", image.Resize(8)).batch(2).explain()
    assert told not in photos.image("image", image.Resize((8, 8))).batch(2).explain()
    assert told not in photos.image("image", image.Resize(8)).batch(2, pad={"image": 0}).explain()


def test_explaining_runs_nothing() -> None:
    def never(*_: object) -> object:
        raise AssertionError("called")

    pipeline = numbers().map(never).filter(never).flat_map(never).batch(2).map_batch(never)
    assert pipeline.explain() and pipeline.fingerprint() and repr(pipeline)
    assert stoker.stream(never).map(never).batch(2).explain()  # type: ignore[arg-type]


def test_pixels_are_not_said_to_be_decoded(image_folder: Path) -> None:
    pixels = stoker.arrays(x=np.zeros((4, 8, 8, 3), np.uint8)).rename(image="x")
    told = pixels.image("image", CenterCrop(8)).explain()
    assert "decode" not in told and "CenterCrop: whole pixels moved, one copy" in told
    assert "decodes only" in stoker.files(image_folder).image("image", CenterCrop(8)).explain()


@pytest.mark.parametrize(
    "written",
    [
        "Resize(224)", "Resize((224, 224))", "Resize((224, 200))", "CenterCrop(224)", "CenterCrop((5, 6))",
        "RandomResizedCrop(224)", "RandomResizedCrop((8, 9), scale=(0.5, 1.0))", "Cutout(8)", "Cutout((8, 9), p=0.5)", "Pad(4)",
        "RandomCrop(32, pad=4)", "HorizontalFlip()", "Rotate(15)", "Affine(5, translate=(0.1, 0.2))",
        "ColorJitter(0.4, 0.4, 0.4)", "GaussianBlur(3)", "Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))", "RandAugment(2, 9)",
        "TrivialAugment()", "RandomErasing(value='random')", "CropBox('box')", "ToFloat()",
    ],
)  # fmt: skip
def test_an_operation_is_explained_by_what_makes_the_same_again(written: str) -> None:
    made = eval(written, vars(image))  # noqa: S307  the texts above
    text = stoker.arrays(image=np.zeros((1, 300, 300, 3), np.uint8), box=np.zeros((1, 4))).image("image", made).explain()
    call = text[text.index("image('image', ") + len("image('image', ") :].splitlines()[0].partition("): ")[0]
    names = {**vars(image), "first": lambda operation, **_: operation}
    assert eval(f"first({call})", names) == made, call  # noqa: S307


def test_squares_are_one_number_only_where_that_is_a_square() -> None:
    text = repr(numbers().image("x", image.Resize((64, 64)), image.Resize(48), CenterCrop((32, 32))))
    assert "Resize((64, 64)), Resize(48), CenterCrop(32)" in text
