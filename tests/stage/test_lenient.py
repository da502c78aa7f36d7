"""Damaged JPEGs with lenient=True: decoded as far as that goes, counted, named once; the same wherever that is done."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.engine.feed import Pace
from stoker.errors import ImageError
from stoker.image import HorizontalFlip, RandomResizedCrop, Resize

from ..support import Simd, image_bytes, jpeg_bytes

COUNT, BAD = 12, {3: "cut", 7: "no end", 8: "flipped"}
OPS = (RandomResizedCrop(24), HorizontalFlip())


def wound(data: bytes, how: str) -> bytes:
    if how == "cut":
        return data[: len(data) // 2]
    if how == "no end":
        return data[:-2]
    middle = data.index(b"\xff\xda") + 200
    return data[:middle] + bytes(byte ^ 0x5A for byte in data[middle : middle + 40]) + data[middle + 40 :]


def store(folder: Path, **save: Any) -> Path:
    """Twelve JPEGs, three of them damaged; and, beside them in ``good``, the same ones whole."""
    for number in range(COUNT):
        data = jpeg_bytes(90, 70, seed=number, **save)
        for name, stored in (("good", data), ("bad", wound(data, BAD[number]) if number in BAD else data)):
            (folder / name / "a").mkdir(parents=True, exist_ok=True)
            (folder / name / "a" / f"{number:02}.jpg").write_bytes(stored)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("lenient"))


def pictures(pipeline: stoker.Pipeline, *ops: Any, **options: Any) -> tuple[np.ndarray, int]:
    """All pictures, and how many were damaged."""
    executor = {name: options.pop(name) for name in ("executor", "threads") if name in options} or {"threads": 2}
    with pipeline.image("image", *(ops or OPS), lenient=True, **options).batch(4).loader(**executor) as loader:
        return np.concatenate([batch["image"] for batch in loader]), loader.stats().damaged


def test_what_is_not_damaged_is_as_ever_and_what_is_is_counted(folder: Path) -> None:
    found, damaged = pictures(stoker.files(folder / "bad"))
    whole, none = pictures(stoker.files(folder / "good"))
    assert (damaged, none) == (len(BAD), 0)
    for number in range(COUNT):
        assert np.array_equal(found[number], whole[number]) or number in BAD
    assert np.array_equal(found[7], whole[7]), "only its end marker is missing"
    with pytest.raises(ImageError, match=r"03\.jpg"):
        list(stoker.files(folder / "bad").image("image", *OPS).batch(4))


def test_what_stands_in_front_of_the_damage_is_right(folder: Path) -> None:
    found, _ = pictures(stoker.files(folder / "bad"), Resize((70, 90)), fast=False)
    whole, _ = pictures(stoker.files(folder / "good"), Resize((70, 90)), fast=False)
    assert np.array_equal(found[3, :8], whole[3, :8]) and not np.array_equal(found[3], whole[3])


@pytest.mark.parametrize("threads", [1, 3])
def test_every_way_of_decoding_gives_the_same_pixels(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    expected, _ = pictures(stoker.files(folder / "bad"), executor="inline")
    paths = sorted((folder / "bad").rglob("*.jpg"))
    samples = [{"__key__": path.stem, "image": path.read_bytes()} for path in paths]
    stoker.write_tar(tmp_path / "{}.tar", samples, max_samples=5, seek=True)
    stoker.write_tfrecord(tmp_path / "a.tfrecord", [{"image": sample["image"]} for sample in samples])
    ways = {
        "files": stoker.files(folder / "bad"),
        "shards": stoker.tar(str(tmp_path / "*.tar")),
        "shards without seek indices": stoker.tar(str(tmp_path / "*.tar"), seek=False),
        "records": stoker.tfrecord(tmp_path / "a.tfrecord", features={"image": bytes}),
        "behind a function": stoker.files(folder / "bad").map(image=bytes),
    }
    monkeypatch.setattr(Pace, "task_rows", lambda self, unit_rows: 1)
    for name, pipeline in ways.items():
        found, damaged = pictures(pipeline, threads=threads)
        assert np.array_equal(found, expected) and damaged == len(BAD), name


def test_every_instruction_set_gives_the_same_pixels(folder: Path, simd: Simd) -> None:
    made = [pictures(stoker.files(folder / "bad"))[0] for level in range(3) if simd(level) == level]  # which this machine has
    assert made and all(np.array_equal(each, made[0]) for each in made)


def test_whole_images_are_decoded_leniently_too(folder: Path) -> None:
    with stoker.files(folder / "bad").decode("image", lenient=True).batch(4).loader() as loader:
        found = [image for batch in loader for image in batch["image"]]
        assert loader.stats().damaged == len(BAD)
    assert [image.shape for image in found] == [(70, 90, 3)] * COUNT
    expected, _ = pictures(stoker.files(folder / "bad"), Resize((70, 90)), fast=False)
    assert np.array_equal(np.stack(found), expected)
    with pytest.raises(ImageError, match=r"03\.jpg"):
        list(stoker.files(folder / "bad").decode("image").batch(4))


def test_images_that_are_turned_upright_are_counted_once(tmp_path: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    store(tmp_path, exif=exif)
    found, damaged = pictures(stoker.files(tmp_path / "bad"), Resize((90, 70)), orient=True)
    whole, _ = pictures(stoker.files(tmp_path / "good"), Resize((90, 70)), orient=True)
    assert damaged == len(BAD) and [np.array_equal(*pair) for pair in zip(found, whole)].count(False) == len(BAD) - 1


def test_the_first_is_named_in_the_log_and_why_tells_how_many(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = stoker.files(folder / "bad").image("image", *OPS, lenient=True).batch(4)
    with caplog.at_level(logging.WARNING, "stoker"), pipeline.loader(executor="inline") as loader:
        for _ in range(2):
            list(loader)
        assert loader.stats().damaged == 2 * len(BAD) and "6 damaged images decoded" in loader.why()
    [told] = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert "03.jpg" in told


def test_in_front_of_a_filter_they_are_counted_too(folder: Path) -> None:
    pipeline = (
        stoker.files(folder / "bad").image("image", *OPS, lenient=True).filter(lambda sample: sample["image"].any()).batch(4)
    )
    with pipeline.loader(executor="inline") as loader:
        assert sum(batch.rows for batch in loader) == COUNT and loader.stats().damaged >= len(BAD)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"<html>", image_bytes(20, 20, format="PNG")[:300]], ids=range(4))
def test_what_holds_no_picture_is_still_a_bad_sample(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(ImageError, match=r"a\.jpg"):
        list(stoker.files(tmp_path, labels=None).image("image", Resize(8), lenient=True).batch(1))


@pytest.mark.parametrize("value", ["yes", None, 2])
def test_lenient_is_yes_or_no(folder: Path, value: Any) -> None:
    for verb in ("image", "decode"):
        with pytest.raises(stoker.errors.ConfigError, match="lenient"):
            getattr(stoker.files(folder / "good"), verb)("image", lenient=value)
