"""Batches on a CUDA device; run where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoker
from stoker.batch.fields import Batch
from stoker.image import RandomResizedCrop

from ..loader.runs import PIPELINES, epochs_of, hash_of, numbers

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def on_host(batch: Batch) -> Batch:
    values = {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    return batch.with_values(values)


@pytest.mark.parametrize("kind", ["shuffled", "last batch kept", "map_batch", "pad", "list", "filter", "stream"])
def test_batches_on_the_device_hold_what_they_would_on_the_host(kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    with pipeline.loader() as host, pipeline.loader(device="cuda", threads=4) as device:
        expected = epochs_of(host, 3)
        assert [[hash_of(on_host(batch)) for batch in device] for _ in range(3)] == expected


def test_batches_that_are_kept_on_the_device_are_not_overwritten(image_folder: Path) -> None:
    pipeline = stoker.files(image_folder).shuffle(seed=1).image("image", RandomResizedCrop(64)).batch(6)
    with pipeline.loader() as host, pipeline.loader(device="cuda", threads=4, ahead=1) as device:
        expected = [hash_of(batch) for _ in range(10) for batch in host]
        kept = [batch for _ in range(10) for batch in device]
        assert [hash_of(on_host(batch)) for batch in kept] == expected
        assert kept[0]["image"].device.type == "cuda"


def test_a_copy_under_way_is_not_overtaken_by_the_next_batch() -> None:
    import numpy as np

    big = stoker.arrays(x=np.arange(64)[:, None] * np.ones((1, 1 << 20), np.float32)).batch(2)
    with big.loader(device="cuda", threads=4, ahead=1) as loader:
        for _ in range(3):
            sums = [batch["x"].mean(dim=1) for batch in loader]
            assert torch.cat(sums).cpu().tolist() == list(range(64))


def test_numbers_stay_the_types_they_were() -> None:
    with numbers().batch(4).loader(device="cuda") as loader:
        batch = next(iter(loader))
    assert (batch["x"].dtype, batch["y"].dtype) == (torch.int64, torch.float32)
