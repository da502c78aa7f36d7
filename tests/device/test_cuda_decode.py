"""Decoding on a real GPU: every byte against the CPU's, with many numbers of threads and sizes of loads, again and again.

What the emulated device cannot show is a race between threads. So comparisons are repeated.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.device import device_decode
from stoker.image import CenterCrop, ColorJitter, HorizontalFlip, Normalize, RandAugment, RandomResizedCrop, Resize

from ..support import jpeg_bytes
from .test_device_decode import TAKEN, crops, damage, make_folder

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("photos"))


def values(pipeline: Pipeline, epochs: int = 2, **options: Any) -> list[Any]:
    """All batches in host memory, with keys and `valid`."""
    found: list[Any] = []
    with pipeline.loader(device="cuda", **options) as loader:
        for _ in range(epochs):
            for batch in loader:
                found.append((batch.sample_keys, batch.valid.tolist(), [column.cpu().numpy() for column in batch]))
        if options.get("decode_on") == "cuda":
            assert loader.stats().device_images >= epochs * TAKEN // 2
    return found


def check_same(found: list[Any], expected: list[Any]) -> None:
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    for (keys, _, columns), (_, _, others) in zip(found, expected):
        for column, other in zip(columns, others):
            assert column.dtype == other.dtype and column.shape == other.shape
            assert np.array_equal(column.view(np.uint8), other.view(np.uint8)), f"batch of {keys}"


@pytest.mark.parametrize("again", range(3))
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16])
def test_every_byte_is_the_cpus_whatever_the_number_of_threads(photos: Path, threads: int, again: int) -> None:
    check_same(values(crops(photos), 4, decode_on="cuda", threads=threads), values(crops(photos), 4))


@pytest.mark.parametrize("pictures", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("memory", ["16MB", "100MB", "1GB"])
def test_every_byte_is_the_cpus_whatever_the_size_of_loads(
    photos: Path, monkeypatch: pytest.MonkeyPatch, pictures: int, memory: str
) -> None:
    monkeypatch.setattr(device_decode, "_PICTURES", pictures)
    pipeline = crops(photos, 21)
    check_same(values(pipeline, decode_on="cuda", threads=4, device_memory=memory), values(pipeline))


OUTPUTS: dict[str, Callable[[Path], Pipeline]] = {
    "bytes": lambda root: stoker.files(root).image("image", Resize(90), CenterCrop(80)).batch(6),
    "planes of floats": lambda root: (
        stoker.files(root)
        .image("image", RandomResizedCrop(65), Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)), layout="chw")
        .batch(6)
    ),
    "gray": lambda root: stoker.files(root).image("image", RandomResizedCrop(71), HorizontalFlip(), color="gray").batch(6),
    "exact": lambda root: stoker.files(root).image("image", RandomResizedCrop(20), fast=False).batch(6),
    "finished on the CPU": lambda root: (
        stoker.files(root)
        .image("image", RandomResizedCrop(65), ColorJitter(0.4, 0.4), RandAugment(), Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)))
        .batch(6)
    ),
    "tiny": lambda root: stoker.files(root).image("image", RandomResizedCrop(3)).batch(6),
    "large": lambda root: stoker.files(root).image("image", RandomResizedCrop(500)).batch(6),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_every_kind_of_output_is_the_cpus(photos: Path, kind: str) -> None:
    pipeline = OUTPUTS[kind](photos)
    for threads in (1, 5):
        check_same(values(pipeline, decode_on="cuda", threads=threads), values(pipeline))


def test_damaged_pictures_are_the_cpus(tmp_path: Path) -> None:
    pipeline = crops(make_folder(tmp_path / "damaged", damage)).on_error("skip", budget=30, fill="repeat")
    check_same(values(pipeline, decode_on="cuda", threads=4), values(pipeline))


def test_a_busy_model_beside_it_changes_no_byte_and_batches_that_are_kept_stay(photos: Path) -> None:
    """Memory is taken, used and given back by the model's stream while others decode into it."""
    expected = values(crops(photos, 4), 6)
    heavy = torch.randn(2048, 2048, device="cuda")
    kept: list[Any] = []
    with crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=4, ahead=3) as loader:
        for _ in range(6):
            for batch in loader:
                for _ in range(10):
                    heavy = torch.nn.functional.normalize(heavy @ heavy)
                doubled = batch["image"].float() * 2
                kept.append((batch, (doubled / 2).to(torch.uint8)))
    torch.cuda.synchronize()
    for (batch, copied), (_, _, columns) in zip(kept, expected):
        assert np.array_equal(copied.cpu().numpy(), columns[0]), "what the model saw"
        assert np.array_equal(batch["image"].cpu().numpy(), columns[0]), "what was kept"


def test_memory_that_torch_fills_is_filled_before_it_is_written_to(photos: Path) -> None:
    expected = values(crops(photos), 4)
    torch.use_deterministic_algorithms(True)
    try:
        check_same(values(crops(photos), 4, decode_on="cuda", threads=4), expected)
    finally:
        torch.use_deterministic_algorithms(False)


def test_auto_gives_the_same(photos: Path) -> None:
    check_same(values(crops(photos, 4), 5, decode_on="auto", threads=2), values(crops(photos, 4), 5))


def test_on_another_stream_the_batch_is_complete(photos: Path) -> None:
    expected = values(crops(photos), 1)
    side = torch.cuda.Stream()
    with crops(photos).loader(device="cuda", decode_on="cuda", threads=4) as loader, torch.cuda.stream(side):
        found = [batch["image"].clone().cpu().numpy() for batch in loader]
    for got, (_, _, columns) in zip(found, expected):
        assert np.array_equal(got, columns[0])


def test_large_photographs_are_the_cpus(tmp_path: Path) -> None:
    from stoker.pack.jobs.seeking import index_folder
    from stoker.source.shards.sidecar import keep_sidecar

    folder = tmp_path / "c"
    folder.mkdir()
    for number in range(24):
        (folder / f"{number:02}.jpg").write_bytes(jpeg_bytes(1500 + 40 * number, 1100, seed=number, subsampling=number % 3))
    for step in (16, 4, 1):
        keep_sidecar(str(tmp_path).encode(), index_folder(str(tmp_path).encode(), step=step).index)
        pipeline = stoker.files(tmp_path).shuffle(seed=1).image("image", RandomResizedCrop(224), HorizontalFlip()).batch(12)
        with pipeline.loader(device="cuda", decode_on="cuda", threads=4) as loader:
            found = [batch["image"].cpu().numpy() for _ in range(3) for batch in loader]
            assert loader.stats().device_images >= 72
        with pipeline.loader() as loader:
            assert all(np.array_equal(got, batch["image"]) for got, batch in zip(found, (b for _ in range(3) for b in loader)))


def test_loaders_one_after_another_use_the_same_memory(photos: Path) -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for _ in range(20):
        values(crops(photos), 1, decode_on="cuda", threads=4, device_memory="100MB")
    assert torch.cuda.memory_reserved() - before < 250_000_000


def test_a_graph_that_the_training_captures_meanwhile_is_whole(photos: Path) -> None:
    expected, found, x = values(crops(photos, 4), 3), [], torch.zeros(64, device="cuda")
    with crops(photos, 4).loader(device="cuda", decode_on="cuda", threads=4, ahead=3, pinned_memory="50MB") as loader:
        for _ in range(3):
            for batch in loader:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for _ in range(200):
                        x += 1
                graph.replay()
                found.append(batch["image"].cpu().numpy())
    assert float(x.min()) == float(x.max()) == 200 * len(found)
    for got, (_, _, columns) in zip(found, expected, strict=True):
        assert np.array_equal(got, columns[0])


@pytest.mark.parametrize("place", ["cuda", "cpu"])
def test_a_program_that_ends_with_loads_under_way_ends_well(photos: Path, place: str) -> None:
    script = f"""
import stoker
from stoker.image import Normalize, RandomResizedCrop

endless = stoker.files({str(photos)!r}).shuffle(seed=1).repeat()
pipeline = endless.image("image", RandomResizedCrop(65), Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1))).batch(16)
loader = pipeline.loader(device="cuda", decode_on={place!r}, threads=4)
batches = iter(loader)
kept = [next(batches) for _ in range(5)]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
