"""Batches on a CUDA device; run where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.batch.batch import Batch
from stoker.image import RandomResizedCrop

from ..loader.runs import PIPELINES, epochs_of, hash_of, numbers

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def on_host(batch: Batch) -> Batch:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(part) for part in value]
        return value.cpu().numpy() if isinstance(value, torch.Tensor) else value

    return batch.with_values([plain(value) for value in batch])


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
    big = stoker.arrays(x=np.arange(64)[:, None] * np.ones((1, 1 << 20), np.float32)).batch(2)
    with big.loader(device="cuda", threads=4, ahead=1) as loader:
        for _ in range(3):
            sums = [batch["x"].mean(dim=1) for batch in loader]
            assert torch.cat(sums).cpu().tolist() == list(range(64))


def test_numbers_stay_the_types_they_were() -> None:
    with numbers().batch(4).loader(device="cuda") as loader:
        batch = next(iter(loader))
    assert (batch["x"].dtype, batch["y"].dtype) == (torch.int64, torch.float32)


def test_lists_of_arrays_are_lists_of_tensors_on_the_device() -> None:
    pipeline = numbers(8).map(lambda s: {"boxes": np.full((s["x"] % 3, 4), s["x"], np.float32), "text": "t"})
    with pipeline.batch(4, pad={"boxes": list}).loader(device="cuda") as loader:
        batches = list(loader)
    boxes = [boxes for batch in batches for boxes in batch["boxes"]]
    assert {tensor.device.type for tensor in boxes} == {"cuda"}
    assert [tensor.cpu().tolist() for tensor in boxes] == [[[float(x)] * 4] * (x % 3) for x in range(8)]
    assert batches[0]["text"] == ["t"] * 4


@pytest.mark.parametrize("kind", ["shuffled", "map_batch", "pad", "list", "filter"])
def test_batches_of_worker_processes_hold_the_same_on_the_device(kind: str) -> None:
    pipeline = PIPELINES[kind](4)
    with pipeline.loader() as host, pipeline.loader(device="cuda", processes=2, threads=2) as device:
        expected = epochs_of(host, 2)
        assert [[hash_of(on_host(batch)) for batch in device] for _ in range(2)] == expected


def test_shared_memory_is_pinned_where_it_lies_and_used_again() -> None:
    rows = np.arange(64)[:, None] * np.ones((1, 1 << 18), np.float32)
    seen: list[bool] = []
    with stoker.arrays(x=rows).batch(4).loader(device="cuda", processes=1, threads=2, ahead=2) as loader:
        hand_over = loader._output.hand_over

        def looked_at(batch: Batch) -> Batch:
            seen.append(torch.from_numpy(batch["x"]).is_pinned())
            return hand_over(batch)

        loader._output.hand_over = looked_at  # type: ignore[method-assign]
        for _ in range(3):
            sums = [batch["x"].mean(dim=1) for batch in loader]
            assert torch.cat(sums).cpu().tolist() == list(range(64))
    assert seen and all(seen)
