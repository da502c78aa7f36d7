"""Floats made on a real GPU: every byte against the CPU's, whoever makes the rows, and while a model uses the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.image import Normalize, RandomResizedCrop

from .test_device_decode import make_folder
from .test_device_floats import AS_BEFORE, MEAN, STD, VARIANTS, batches, expected, pictures, plain, training

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

MADE_THERE = "on the GPU, after the pixels are copied as bytes"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("photos"))


@pytest.mark.parametrize("kind", VARIANTS)
def test_floats_of_the_device_are_the_cpus(photos: Path, kind: str) -> None:
    pipeline = VARIANTS[kind](photos)
    with pipeline.loader(device="cuda", threads=4) as loader:
        assert batches(loader) == expected(pipeline)
        assert loader._machinery.floats.told.endswith(MADE_THERE)


@pytest.mark.parametrize("kind", AS_BEFORE)
def test_what_somebody_looks_at_before_is_the_cpus_too(photos: Path, kind: str) -> None:
    pipeline = AS_BEFORE[kind](photos)
    with pipeline.loader(device="cuda", threads=4) as loader, pipeline.loader() as host:
        assert [[plain(value) for value in step] for step in loader] == [[plain(value) for value in step] for step in host]


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"processes": 1, "threads": 2}, {"ahead": 1}, {}], ids=str)
def test_it_does_not_matter_who_does_the_work(photos: Path, options: dict[str, Any]) -> None:
    pipeline = training(photos, 4)
    with pipeline.loader(device="cuda", **options) as loader:
        assert batches(loader, 4) == expected(pipeline, 4)
        assert loader._machinery.floats.told.endswith(MADE_THERE)


def test_large_batches_are_the_cpus_and_lie_on_the_device(photos: Path) -> None:
    pipeline = pictures(photos, RandomResizedCrop(501), Normalize(MEAN, STD)).batch(21)
    with pipeline.loader(device="cuda", threads=4) as loader:
        assert batches(loader, 3) == expected(pipeline, 3)
        assert next(iter(loader))["image"].device.type == "cuda"


def test_a_busy_model_beside_it_changes_no_byte_and_batches_that_are_kept_stay(photos: Path) -> None:
    """Memory is taken, used and given back by the model's stream while the next batches are copied and made into floats."""
    pipeline = training(photos, 4)
    heavy = torch.randn(2048, 2048, device="cuda")
    kept: list[Any] = []
    with pipeline.loader(device="cuda", threads=4, ahead=3) as loader:
        for _ in range(6):
            for batch in loader:
                for _ in range(10):
                    heavy = torch.nn.functional.normalize(heavy @ heavy)
                kept.append((batch["image"], batch["image"] * 1.0))
    torch.cuda.synchronize()
    for (image, seen), (*_, values) in zip(kept, expected(pipeline, 6)):
        assert plain(seen) == values[0], "what the model saw"
        assert plain(image) == values[0], "what was kept"


def test_on_another_stream_the_batch_is_complete(photos: Path) -> None:
    pipeline = training(photos)
    with pipeline.loader(device="cuda", threads=4) as loader, torch.cuda.stream(torch.cuda.Stream()):
        found = [plain(batch["image"].clone()) for _ in range(3) for batch in loader]
    assert found == [values[0] for *_, values in expected(pipeline, 3)]
