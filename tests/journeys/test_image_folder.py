"""A project that trained from torchvision's ImageFolder moves to Stoker: first with its transforms, then without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.image import CenterCrop, HorizontalFlip, Normalize, RandomResizedCrop, Resize

torch = pytest.importorskip("torch")

from ..image.vision import v2  # noqa: E402  it imports torchvision wherever that can be done

datasets = pytest.importorskip("torchvision.datasets")

CLASSES = {"ant": (220, 40, 40), "bee": (40, 220, 40), "cat": (40, 40, 220)}
ENDINGS = {"JPEG": "jpg", "PNG": "png"}
TRAIN, VAL, BATCH, SIDE = 10, 7, 8, 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders in train/ and val/, as people have them: two formats, several sizes, and a file that is no image."""
    root = tmp_path_factory.mktemp("photos")
    for part, count in (("train", TRAIN), ("val", VAL)):
        for name, colour in CLASSES.items():
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                kind = "PNG" if number == 3 else "JPEG"
                pixels = np.full((36 + 5 * number, 40 + 3 * number, 3), colour, np.int64)
                noise = np.random.default_rng(number).integers(-30, 30, pixels.shape)
                picture = Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))
                picture.save(folder / f"{name}_{number:03d}.{ENDINGS[kind]}", kind)
        (root / part / "ant" / "notes.txt").write_text("not an image")
    return root


def make_model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (SIDE // 8) ** 2, len(CLASSES)))


def train_one_epoch(model: Any, batches: Iterator[Any]) -> int:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    steps = 0
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    return steps


def validate(model: Any, pipeline: stoker.Pipeline) -> tuple[Counter[str], int]:
    """How often each sample was seen, and how many were classified correctly."""
    seen: Counter[str] = Counter()
    correct = 0
    with torch.no_grad(), pipeline.loader(format="torch", threads=2) as batches:
        for batch in batches:
            images, labels = batch
            seen.update(batch.sample_keys)
            correct += int((model(images).argmax(1) == labels).sum())
    return seen, correct


def test_samples_classes_and_labels_are_those_of_image_folder(photos: Path) -> None:
    for part in ("train", "val"):
        theirs, ours = datasets.ImageFolder(photos / part), stoker.files(photos / part)
        assert len(ours) == len(theirs) and list(ours.classes) == theirs.classes
        expected = {str(Path(path).relative_to(photos / part)): label for path, label in theirs.samples}
        assert {sample.key: int(sample["label"]) for sample in ours} == expected


def test_the_transforms_that_are_there_go_on_working(photos: Path) -> None:
    compose = v2.Compose(
        [v2.Resize((SIDE, SIDE)), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    )
    val = stoker.files(photos / "val").decode("image", format="pil").map(image=compose).batch(BATCH, drop_last=False)
    theirs = datasets.ImageFolder(photos / "val", transform=compose)
    by_key = {str(Path(path).relative_to(photos / "val")): number for number, (path, _) in enumerate(theirs.samples)}
    rows = 0
    with val.loader(format="torch", threads=2) as batches:
        for batch in batches:
            for key, image, label in zip(batch.sample_keys, *batch):
                expected, target = theirs[by_key[key]]
                assert int(label) == target
                assert torch.allclose(image, expected, atol=3 / 255 / min(STD)), "as near as two decoders of JPEG are"
                rows += 1
    assert rows == len(theirs)


def test_the_native_pipeline_trains_and_validates_every_sample_once(photos: Path) -> None:
    train = (
        stoker.files(photos / "train")
        .shuffle(seed=7)
        .image("image", RandomResizedCrop(SIDE, scale=(0.5, 1)), HorizontalFlip(), Normalize(MEAN, STD), layout="chw")
        .batch(BATCH)
    )
    val = (
        stoker.files(photos / "val")
        .image("image", Resize(SIDE), CenterCrop(SIDE), Normalize(MEAN, STD), layout="chw")
        .batch(BATCH, drop_last=False)
    )
    model = make_model()
    with train.loader(format="torch", threads=2) as batches:
        assert train_one_epoch(model, iter(batches)) == len(batches) == len(CLASSES) * TRAIN // BATCH
    seen, correct = validate(model, val)
    assert len(seen) == len(CLASSES) * VAL and set(seen.values()) == {1}
    assert correct > len(seen) / 2, "three colours are learned in an epoch; guessing gives a third"


def test_a_model_cannot_tell_which_loader_fed_it(photos: Path) -> None:
    """Native resizing is torchvision's within a few levels, so validation gives the same answers."""
    compose = v2.Compose([v2.Resize(SIDE), v2.CenterCrop(SIDE), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
    theirs = datasets.ImageFolder(photos / "val", transform=compose)
    ours = stoker.files(photos / "val").image("image", Resize(SIDE), CenterCrop(SIDE), layout="chw", out="float32")
    for number, (image, label) in enumerate(theirs):
        sample = ours.sample(number)
        assert int(sample["label"]) == label
        assert float(np.abs(np.asarray(sample["image"]) - image.numpy()).mean()) < 3 / 255
