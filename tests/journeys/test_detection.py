"""A detector is to be trained on images with XML annotations: from the folder on disk to what torchvision's detectors take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.image import HorizontalFlip, RandomResizedCrop

torch = pytest.importorskip("torch")

#: a class is a colour, so that an image itself says where its objects are
COLOURS = ("red", "green", "blue")
COUNT = 12

Object = tuple[str, tuple[int, int, int, int]]


@pytest.fixture
def scenes(tmp_path: Path) -> dict[str, list[Object]]:
    """Black images of several sizes with none to three rectangles, stored as PASCAL VOC does: the objects of each image."""
    (tmp_path / "JPEGImages").mkdir()
    (tmp_path / "Annotations").mkdir()
    scenes: dict[str, list[Object]] = {}
    for number in range(COUNT):
        rng = np.random.default_rng(number)
        height, width = int(rng.integers(60, 90)), int(rng.integers(90, 120))
        pixels = np.zeros((height, width, 3), np.uint8)
        objects: list[Object] = []
        for at, colour in enumerate(COLOURS[: number % 4]):
            xmin, ymin = 30 * at + int(rng.integers(0, 8)), int(rng.integers(0, height // 2))
            xmax, ymax = xmin + int(rng.integers(12, 20)), ymin + int(rng.integers(15, height // 2))
            pixels[ymin:ymax, xmin:xmax, COLOURS.index(colour)] = 255
            objects.append((colour, (ymin, xmin, ymax, xmax)))
        Image.fromarray(pixels).save(tmp_path / "JPEGImages" / f"{number:03}.png")
        _annotate(tmp_path / "Annotations" / f"{number:03}.xml", objects)
        scenes[str(tmp_path / "JPEGImages" / f"{number:03}.png")] = objects
    return scenes


def _annotate(path: Path, objects: list[Object]) -> None:
    told = "".join(
        f"<object><name>{name}</name><bndbox><ymin>{ymin}</ymin><xmin>{xmin}</xmin><ymax>{ymax}</ymax><xmax>{xmax}</xmax></bndbox>"
        "</object>"
        for name, (ymin, xmin, ymax, xmax) in objects
    )
    path.write_text(f"<annotation>{told}</annotation>")


def as_targets(batch: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Images and targets as torchvision's detectors want them: boxes (x1, y1, x2, y2) that have an area, class 0 for nothing."""
    targets = []
    for boxes, labels in zip(batch["box"], batch["label"]):
        left = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        targets.append({"boxes": boxes[left][:, [1, 0, 3, 2]], "labels": labels[left] + 1})
    return list(batch["image"]), targets


def check_as_detectors_do(images: list[Any], targets: list[dict[str, Any]]) -> None:
    """What torchvision's detectors ask of their arguments."""
    for image, target in zip(images, targets, strict=True):
        boxes, labels = target["boxes"], target["labels"]
        assert image.dtype == torch.float32 and image.shape[0] == 3 and image.min() >= 0 and image.max() <= 1
        assert boxes.dtype == torch.float32 and boxes.shape == (len(labels), 4) and (boxes[:, 2:] > boxes[:, :2]).all()
        assert labels.dtype == torch.int64 and (labels > 0).all()


def painted(image: Any, label: int, classes: tuple[str, ...]) -> tuple[float, float, float, float] | None:
    """Where an image shows the colour of a class, (x1, y1, x2, y2)."""
    there = (image[COLOURS.index(classes[label])] > 0.5).nonzero()
    return None if not len(there) else (*there.min(0).values.flip(0).tolist(), *(there.max(0).values.flip(0) + 1).tolist())


def test_boxes_follow_random_crops_and_flips_to_the_detector(scenes: dict[str, list[Object]], tmp_path: Path) -> None:
    train = (
        stoker.voc(list(scenes), annotations=tmp_path / "Annotations", objects="together")
        .shuffle(seed=3)
        .image("image", RandomResizedCrop(64, scale=(0.4, 1)), HorizontalFlip(), layout="chw", out="float32", boxes="box")
        .batch(5, drop_last=False)
    )
    assert train.classes == ("blue", "green", "red")
    flips = shown = 0
    with train.loader(format="torch") as loader:
        for _ in range(2):
            keys = []
            for batch in loader:
                images, targets = as_targets(batch)
                check_as_detectors_do(images, targets)
                keys += batch.sample_keys
                for key, image, labels, target in zip(batch.sample_keys, images, batch["label"], targets):
                    assert [train.classes[label] for label in labels] == [name for name, _ in scenes[key]]
                    for box, label in zip(target["boxes"].tolist(), (target["labels"] - 1).tolist()):
                        found = painted(image, label, train.classes)
                        if found is not None:  # a sliver at the border may be paler than half
                            assert np.abs(np.subtract(found, box)).max() < 2
                            shown += 1
                    flips += len(target["boxes"]) > 1 and bool(target["boxes"][0, 0] > target["boxes"][1, 0])
            assert sorted(keys) == sorted(scenes), "every image once an epoch"
    assert shown > 20 and flips > 0


def test_whole_images_of_any_size_come_as_lists_with_every_object(scenes: dict[str, list[Object]], tmp_path: Path) -> None:
    val = (
        stoker.voc(list(scenes), annotations=tmp_path / "Annotations", labels=["red", "green", "blue"], objects="together")
        .image("image", layout="chw", out="float32")
        .batch(4)
    )
    found: dict[str, list[Object]] = {}
    for batch in val.loader(format="torch"):
        assert all(isinstance(value, torch.Tensor) for name in ("image", "box", "label") for value in batch[name])
        for key, image, boxes, labels in zip(batch.sample_keys, batch["image"], batch["box"], batch["label"]):
            found[key] = [(val.classes[label], tuple(map(int, box))) for label, box in zip(labels, boxes)]
            for label, (ymin, xmin, ymax, xmax) in zip(labels, boxes.tolist()):
                assert painted(image, label, val.classes) == (xmin, ymin, xmax, ymax)
    assert found == scenes
