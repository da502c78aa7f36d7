"""Read and image stage in one native call or in two: nobody can tell the difference."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.image import CenterCrop, CropBox, HorizontalFlip, RandomResizedCrop, Resize
from stoker.source.files.labelled_files import LabelledFiles
from stoker.source.shards.tar_source import TarSource

from ..support import image_bytes, jpeg_bytes

COUNT = 23
OPS = (RandomResizedCrop(24), HorizontalFlip())


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of two classes, every fifth of them a PNG."""
    folder = tmp_path_factory.mktemp("drawing")
    for number in range(COUNT):
        (folder / "ab"[number % 2]).mkdir(exist_ok=True)
        data = image_bytes(60, 50, seed=number, format="PNG") if number % 5 == 4 else jpeg_bytes(70, 60, seed=number)
        (folder / "ab"[number % 2] / f"{number:02}.jpg").write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def shards(images: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    samples = (
        {"__key__": path.stem, "jpg": path.read_bytes(), "cls": number, "json": {"n": number}}
        for number, path in enumerate(sorted(images.rglob("*.jpg")))
    )
    stoker.write_tar(folder / "{}.tar", samples, max_samples=10)
    return str(folder / "*.tar")


@pytest.fixture
def in_two(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes sources read and stages decode, each by itself."""

    def apply() -> None:
        for source in (LabelledFiles, TarSource):
            monkeypatch.setattr(source, "draws", lambda self, field: False)

    return apply


def collected(pipeline: Any, **options: Any) -> tuple[list[Any], str]:
    """All batches as plain values, and the error they end with."""
    batches: list[Any] = []
    with pipeline.loader(**options) as loader:
        try:
            for batch in loader:
                columns = {name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in batch.items()}
                batches.append((batch.sample_keys, columns))
        except stoker.StokerError as error:
            return batches, f"{type(error).__name__}: {error}"
    return batches, ""


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_files_give_the_same_batches(images: Path, in_two: Any, executor: str) -> None:
    pipeline = stoker.files(images).shuffle(seed=1).image("image", *OPS).batch(7, drop_last=False)
    drawn = collected(pipeline, executor=executor)
    assert len(drawn[0]) == 4 and drawn[1] == ""
    in_two()
    assert collected(pipeline, executor=executor) == drawn


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_tar_shards_give_the_same_batches(shards: str, in_two: Any, executor: str) -> None:
    pipeline = stoker.tar(shards).shuffle(seed=1).image("jpg", *OPS).batch(7, drop_last=False)
    drawn = collected(pipeline, executor=executor)
    assert len(drawn[0]) == 4 and drawn[1] == ""
    in_two()
    assert collected(pipeline, executor=executor) == drawn


@pytest.mark.parametrize("leave_out", [False, True])
def test_bad_files_are_told_the_same(images: Path, tmp_path: Path, in_two: Any, leave_out: bool) -> None:
    folder = tmp_path / "bad"
    shutil.copytree(images, folder)
    pipeline = stoker.files(folder).image("image", *OPS)
    pipeline = (pipeline.on_error("skip", budget=20) if leave_out else pipeline).batch(COUNT)
    (folder / "b" / "07.jpg").unlink()
    (folder / "a" / "08.jpg").write_bytes(jpeg_bytes(70, 60)[:300])
    (folder / "b" / "11.jpg").write_bytes(b"")
    (folder / "b" / "01.jpg").write_bytes(b"no picture at all")
    drawn = collected(pipeline, threads=2)
    assert (len(drawn[0]), bool(drawn[1])) == ((1, False) if leave_out else (0, True))
    in_two()
    assert collected(pipeline, threads=2) == drawn


def test_a_record_without_a_field_and_a_damaged_one_are_told_the_same(tmp_path: Path, in_two: Any) -> None:
    samples = [{"__key__": f"{n}", "jpg": jpeg_bytes(60, 50, seed=n), "cls": n} for n in range(12)]
    del samples[5]["cls"]
    stoker.write_tar(tmp_path / "{}.tar", samples, max_samples=12)
    shard = next(tmp_path.glob("*.tar"))
    whole = bytearray(shard.read_bytes())
    at = whole.index(samples[8]["jpg"])
    whole[at + 50] ^= 255
    shard.write_bytes(whole)
    pipeline = stoker.tar(str(shard)).image("jpg", *OPS).on_error("skip", budget=3).batch(4)
    drawn = collected(pipeline, threads=2)
    assert [len(keys) for keys, _ in drawn[0]] == [4, 3, 3]
    in_two()
    assert collected(pipeline, threads=2) == drawn


def test_what_comes_behind_the_image_stage_sees_its_pictures(images: Path, in_two: Any) -> None:
    def mean(sample: Any) -> Any:
        return {**sample, "mean": np.float32(sample["image"].mean())}

    pipeline = stoker.files(images).image("image", Resize(30), CenterCrop(20), layout="chw").map(mean).batch(5, drop_last=False)
    drawn = collected(pipeline, threads=2)
    assert len(drawn[0]) == 5
    in_two()
    assert collected(pipeline, threads=2) == drawn


def test_a_crop_to_a_box_is_still_made_in_two_steps(shards: str) -> None:
    pipeline = stoker.tar(shards).map(lambda sample: {**sample, "box": (0.1, 0.1, 0.6, 0.9)})
    batches, error = collected(pipeline.image("jpg", CropBox("box", relative=True), Resize((16, 16))).batch(8), threads=2)
    assert len(batches) == 2 and error == ""


def test_statistics_still_tell_reading_from_decoding(images: Path) -> None:
    with stoker.files(images).image("image", *OPS).batch(COUNT).loader(threads=1) as loader:
        assert sum(1 for _ in loader) == 1
        steps = loader.stats().steps_s
    assert list(steps) == ["read", "image('image')"]
    assert steps["read"] > 0 and steps["image('image')"] > 0
