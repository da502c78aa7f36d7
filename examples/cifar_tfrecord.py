"""CIFAR from TFRecords with its usual augmentation: how long an epoch waits for data, without and with a parallel pipeline.

    python examples/cifar_tfrecord.py [TRAIN TEST] [--trace cifar.json]

TRAIN and TEST are TFRecords with the features `image` (32 x 32 x 3 pixels) and `label`; without them, small ones are made.
The trace has every task of the workers and every wait of the loop: open it in https://ui.perfetto.dev. It is written while the
program runs, so a long run takes no more memory than a short one.
"""

import argparse
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import small_data
import stoker
from stoker import observe
from stoker.image import Cutout, HorizontalFlip, Normalize, RandomCrop, Rotate

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
GRAY = tuple(round(255 * level) for level in MEAN)  # what Normalize makes zero of
RAW = stoker.Feature(bytes, (32, 32, 3), dtype="uint8")


def make_pipelines(given: argparse.Namespace) -> tuple[stoker.Pipeline, stoker.Pipeline]:
    features = {"image": bytes if given.encoded else RAW, "label": int}
    augment = RandomCrop(32, pad=4), HorizontalFlip(), Rotate(5), Cutout(8, fill=GRAY)
    train = stoker.tfrecord(given.train, features).shuffle(seed=7).image("image", *augment, Normalize(MEAN, STD), layout="chw")
    test = stoker.tfrecord(given.test, features).image("image", Normalize(MEAN, STD), layout="chw")
    return train.batch(given.batch), test.batch(given.batch, drop_last=False)


def make_model(classes: int) -> nn.Module:
    def block(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())

    body = block(3, 16), block(16, 32), block(32, 64)
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def warm_up(classes: int) -> None:
    """The first step of a program takes long, whatever it is fed with: it is not to count for either pipeline."""
    model = make_model(classes)
    learn(model, make_optimizer(model), [(torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64))])


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Any]) -> None:
    model.train()
    for images, labels in batches:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, test: stoker.Pipeline) -> float:
    """Over every sample of the test set, each once."""
    model.eval()
    right = seen = 0
    for images, labels in test.loader(format="torch"):
        right += int((model(images).argmax(1) == labels).sum())
        seen += len(labels)
    return right / seen


def run(name: str, given: argparse.Namespace, executor: str, trace: Path | None = None) -> None:
    """Train; a line for every epoch."""
    train, test = make_pipelines(given)
    torch.manual_seed(0)
    model = make_model(given.classes)
    optimizer = make_optimizer(model)
    with train.loader(format="torch", executor=executor) as batches:
        if trace:
            observe.trace(batches, trace)  # until the loader is closed
        for epoch in range(given.epochs):
            before, began = batches.stats(), time.perf_counter()
            learn(model, optimizer, batches)
            spent, during = time.perf_counter() - began, batches.stats() - before
            stall = during.waited_s + (during.first_batch_s if epoch == 0 else 0)
            right = accuracy(model, test)
            print(f"{name:10} {epoch:5} {spent:8.2f} s {stall:8.3f} s {during.samples / spent:10,.0f} {right:10.1%}", flush=True)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("train", nargs="?", help="TFRecords to train on: 'cifar/train-*.tfrecord'")
    words.add_argument("test", nargs="?", help="TFRecords to test with")
    words.add_argument("--encoded", action="store_true", help="the images are PNG or JPEG, not raw pixels")
    words.add_argument("--classes", type=int, default=10, help="(default: 10)")
    words.add_argument("--epochs", type=int, default=3, help="(default: 3)")
    words.add_argument("--batch", type=int, default=100, help="(default: 100)")
    words.add_argument("--trace", type=Path, help="write a trace of the parallel run")
    given = words.parse_args()
    if given.train and not given.test:
        words.error("give both TRAIN and TEST, or none of them")
    with tempfile.TemporaryDirectory() as folder:
        if not given.train:
            made = small_data.make_cifar(Path(folder))
            given.train, given.test = made / "train.tfrecord", made / "test.tfrecord"
        print(f"{'pipeline':10} {'epoch':>5} {'took':>10} {'stalled':>10} {'images/s':>10} {'accuracy':>10}")
        warm_up(given.classes)
        run("serial", given, "inline")
        run("parallel", given, "auto", given.trace)
    if given.trace:
        print(f"\nThe trace of the parallel run is in {given.trace}, {given.trace.stat().st_size / 1e3:,.0f} kB")
