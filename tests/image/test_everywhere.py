"""Full recipes give the same bytes on any executor, in tasks of any size, with any instructions, from any form, once resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.engine.feed import Pace
from stoker.image import (
    Affine,
    AutoAugment,
    ColorJitter,
    CutMix,
    Cutout,
    GaussianBlur,
    HorizontalFlip,
    MixUp,
    Normalize,
    Operation,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Rotate,
    Sharpness,
    TrivialAugment,
    VerticalFlip,
)
from stoker.kernel import native

from ..loader.runs import hash_of, sha_of_run
from ..support import image_bytes, jpeg_bytes

COUNT = 40
IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
#: everything in one stage: a resampling, colours, policies, neighbours, erasing, floats
FULL: tuple[Operation, ...] = (
    RandomResizedCrop(40), HorizontalFlip(), ColorJitter(0.4, 0.4, 0.4, 0.1), RandAugment(2, 9), GaussianBlur(5), Cutout(12),
    IMAGENET,
)  # fmt: skip
CIFAR: tuple[Operation, ...] = (RandomCrop(32, 4), HorizontalFlip(), Rotate(10), Cutout(8), Normalize(0.5, 0.25))
POLICIES: tuple[Operation, ...] = (
    RandomResizedCrop((33, 47)), VerticalFlip(), TrivialAugment(fill=9), Affine(10, (0.1, 0.1), (0.8, 1.2), 8), AutoAugment(),
    Sharpness((0, 3)), RandomErasing(0.7, value="random"),
)  # fmt: skip


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    corners = np.sort(rng.uniform(0, 32, (COUNT, 3, 2, 2)), axis=2)
    return {
        "image": rng.integers(0, 256, (COUNT, 32, 32, 3), np.uint8),
        "label": np.arange(COUNT) % 10,
        "box": corners.reshape(COUNT, 3, 4).astype(np.float32),
    }


@pytest.fixture(scope="module")
def recipes(image_folder: Path, small: dict[str, Any]) -> dict[str, Pipeline]:
    arrays, files = stoker.arrays(**small).shuffle(seed=6), stoker.files(image_folder).shuffle(seed=6)
    return {
        "full": files.image("image", *FULL, layout="chw").batch(7),
        "full, exact": files.image("image", *FULL, fast=False).batch(7),
        "policies": files.image("image", *POLICIES).batch(7),
        "policies, gray": files.image("image", *POLICIES, color="gray").batch(7),
        "cifar": arrays.image("image", *CIFAR, layout="chw").batch(16),
        "cifar, mixed": arrays.image("image", *CIFAR, layout="chw").batch(16).blend(MixUp(classes=10), CutMix(classes=10)),
        "full, boxes": arrays.image("image", *FULL, boxes="box").batch(16),
        "policies, boxes": arrays.image("image", *POLICIES, boxes="box").batch(16),
    }


RECIPES = ["full", "full, exact", "policies", "policies, gray", "cifar", "cifar, mixed", "full, boxes", "policies, boxes"]


@pytest.fixture(scope="module")
def expected(recipes: dict[str, Pipeline]) -> dict[str, str]:
    """What the calling thread alone makes, with scalar code."""
    native.simd(0)
    try:
        return {name: sha_of_run(pipeline, 2, executor="inline") for name, pipeline in recipes.items()}
    finally:
        native.simd(-1)


def test_the_recipes_are_all_different(recipes: dict[str, Pipeline], expected: dict[str, str]) -> None:
    assert list(recipes) == RECIPES and len(set(expected.values())) == len(RECIPES)


@pytest.mark.parametrize("how", [{"executor": "inline"}, {"executor": "threads", "threads": 3}], ids=["inline", "threads"])
@pytest.mark.parametrize("name", RECIPES)
def test_any_instructions_on_any_executor_give_the_same_bytes(
    name: str, how: dict[str, Any], level: int, recipes: dict[str, Pipeline], expected: dict[str, str]
) -> None:
    assert sha_of_run(recipes[name], 2, **how) == expected[name]


@pytest.mark.parametrize("rows", [1, 5, 1000])
@pytest.mark.parametrize("name", RECIPES)
def test_tasks_of_any_size_give_the_same_bytes(
    name: str, rows: int, recipes: dict[str, Pipeline], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: rows)
    assert sha_of_run(recipes[name], 2, threads=2) == expected[name]


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_left_after_a_resume_is_what_was_left(name: str, recipes: dict[str, Pipeline]) -> None:
    with recipes[name].loader(executor="inline") as loader:
        whole, states = [], []
        for batch in loader:
            whole.append(hash_of(batch))
            states.append(json.loads(json.dumps(loader.state_dict())))
    middle = len(whole) // 2
    with recipes[name].loader(threads=2) as loader:
        loader.load_state_dict(states[middle - 1])
        assert [hash_of(batch) for batch in loader] == whole[middle:]


# ---- the same image in other forms ---------------------------------------------------------------------------------------------


def encoded(kind: str, at: int) -> bytes:
    size = 40 + at % 7, 36 + at % 5
    if kind == "png":
        return image_bytes(*size, seed=at, format="PNG")
    options: dict[str, dict[str, Any]] = {"progressive": {"progressive": True}, "gray": {"mode": "L"}, "444": {"subsampling": 0}}
    return jpeg_bytes(*size, seed=at, **options.get(kind, {}))


def forms(kind: str) -> tuple[Pipeline, Pipeline]:
    """The same images as bytes and as pixels, handed over by a function either way, so that both draw the same numbers."""
    files = [encoded(kind, at) for at in range(COUNT)]
    which = stoker.arrays(image=np.arange(COUNT))
    as_bytes = which.map(image=lambda at: files[at])
    pixels = [sample["image"] for sample in as_bytes.decode("image")]
    return as_bytes, which.map(image=lambda at: pixels[at])


def stacked(pipeline: Pipeline) -> Any:
    (batch,) = pipeline.batch(COUNT)
    return np.array(batch["image"])


@pytest.mark.parametrize(
    "kind, fast",
    [
        *((kind, False) for kind in ("jpeg", "444", "gray", "progressive", "png")),
        *((kind, True) for kind in ("444", "gray", "png")),  # there is no chroma to be smoothed
    ],
)
def test_bytes_are_as_good_as_pixels(kind: str, fast: bool, level: int) -> None:
    """To the last bit, where nothing is resized."""
    ops = (RandomCrop(32), *FULL[1:])
    as_bytes, as_pixels = forms(kind)
    assert np.array_equal(stacked(as_bytes.image("image", *ops, fast=fast)), stacked(as_pixels.image("image", *ops)))


@pytest.mark.parametrize("kind, apart", [("png", 0.0), ("progressive", 0.0), ("gray", 0.02), ("jpeg", 0.3)])
def test_resized_bytes_are_as_good_as_resized_pixels(kind: str, apart: float) -> None:
    """A JPEG's luminance and chroma are resized as they are stored, and made red, green and blue behind it: rounding differs."""
    as_bytes, as_pixels = forms(kind)
    one, other = (stacked(form.image("image", *FULL[:2], fast=False)) for form in (as_bytes, as_pixels))
    assert np.abs(one.astype(int) - other).mean() <= apart


def test_the_same_files_in_a_folder_and_in_shards_give_the_same_bytes(tmp_path: Path) -> None:
    files = [encoded("jpeg", at) for at in range(COUNT)]
    (tmp_path / "files").mkdir()
    for at, data in enumerate(files):
        (tmp_path / "files" / f"{at:03}.jpg").write_bytes(data)
    stoker.write_tar(
        tmp_path / "{}.tar", ({"__key__": f"{at:03}", "image": data} for at, data in enumerate(files)), max_samples=15
    )
    ops = FULL[:-1]
    folder = stoker.files(tmp_path / "files", labels=None).shuffle(seed=3).image("image", *ops)
    shards = stoker.tar(str(tmp_path / "*.tar")).shuffle(seed=3).image("image", *ops)
    assert np.array_equal(stacked(folder), stacked(shards))
