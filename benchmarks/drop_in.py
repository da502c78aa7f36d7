"""What does `from stoker.torch import DataLoader` give a program that changes nothing else?

The same data sets in both loaders, with two workers: ImageFolder with the usual torchvision transforms, a data set of pure
Python, and one that draws random numbers. And the first batch: from the loader's first line, in a new interpreter each time.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data
from first_batch import take_turns
from measure import SEED, BenchmarkParser, Comparison, Entry, Take, compare, endless, median, pull, ratio, report
from peers.torchvision_images import MEAN, STD, transforms
from workloads import compute

WHO = ("stoker", "torch")
WORKERS = 2
#: passes over the pictures in one epoch: many, so that the pause between epochs does not count
PASSES = 200
#: what was asked for: ours over torch's rate, and torch's first batch over ours
ASKED = {"images": 3.0, "python": 1.0, "first batch": 1.0}

FIRST = """
from {module} import DataLoader
from drop_in import {dataset}

dataset = {dataset}({arguments})
ready = time.perf_counter()
batches = DataLoader(dataset, size, shuffle=True, num_workers=2)
"""


class Pictures:
    """ImageFolder, with what most training scripts do to pictures. torchvision is imported when it is made."""

    def __new__(cls, folder: str, passes: int = 1) -> Any:
        transforms()
        from torchvision import transforms as v1
        from torchvision.datasets import ImageFolder

        recipe = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)])
        dataset = ImageFolder(folder, recipe)
        dataset.samples *= passes
        dataset.imgs, dataset.targets = dataset.samples, dataset.targets * passes
        return dataset


class Python:
    """Half a millisecond of pure Python an item, and a tensor."""

    def __init__(self, length: int = 1 << 20) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.full((3, 32, 32), float(compute(0.5))), index % 10


class Drawing(Python):
    """The same with random numbers, for which every item is seeded."""

    def __getitem__(self, index: int) -> Any:
        tensor, label = super().__getitem__(index)
        return tensor * random.random(), label


def made(who: str, dataset: Any, batch: int) -> Any:
    """A loader of one or the other."""
    import torch

    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the workers are the parallelism
    if who == "stoker":
        from stoker.torch import DataLoader
    else:
        from torch.utils.data import DataLoader  # type: ignore[assignment]
    return DataLoader(
        dataset, batch, shuffle=True, num_workers=WORKERS, persistent_workers=True, drop_last=True,
        multiprocessing_context="fork",  # torch's; that of a contestant's process is another
    )  # fmt: skip


@contextmanager
def pictures(who: str, folder: str, batch: int) -> Iterator[Take]:
    yield pull(endless(made(who, Pictures(folder, PASSES), batch)), batch)


@contextmanager
def items(who: str, kind: type[Python], batch: int) -> Iterator[Take]:
    yield pull(endless(made(who, kind(), batch)), batch)


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    data.add_arguments(parser)
    parser.amount("--seconds", 4.0, 0.05, "of a round")
    parser.amount("--batch", 64, 8, "images in a batch")
    return parser.parse_args()


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / "class").symlink_to(folder, target_is_directory=True)
        found = {
            "images": compared(options, pictures, root),
            "python": compared(options, items, Python),
            "drawing": compared(options, items, Drawing),
        }
        first = {
            "images": begun(options, "Pictures", root, "folder"),
            "python": begun(options, "Python", root, "4096"),
        }
    over = {name: result.ratios("stoker")["torch"] for name, result in found.items()}
    sooner = {
        name: ratio([run.batches_s[0] for run in runs["torch"]], [run.batches_s[0] for run in runs["stoker"]])
        for name, runs in first.items()
    }
    targets = {name: (over[name], ASKED[name], over[name] >= ASKED[name]) for name in ("images", "python")}
    targets |= {f"first batch, {name}": (each, ASKED["first batch"], each >= 1.0) for name, each in sooner.items()}
    report(
        "drop_in",
        options,
        workers=WORKERS,
        batch=options.batch,
        per_s={name: result.medians() for name, result in found.items()},
        over_torch=over,
        first_batch_s={
            name: {who: median(run.batches_s[0] for run in each) for who, each in runs.items()} for name, runs in first.items()
        },
        targets=targets,
    )


def compared(options: argparse.Namespace, make: Any, what: Any) -> Comparison:
    """Both loaders over one data set, in turn."""
    entries = [
        Entry(who, make, (who, what, options.batch), 1, 2 * WORKERS + 1, ("torch", "torchvision"), options.seconds) for who in WHO
    ]
    return compare(entries, options.rounds)


def begun(options: argparse.Namespace, dataset: str, folder: str, arguments: str) -> Any:
    """The first batch of both, each time in a new interpreter."""
    modules = {"stoker": "stoker.torch", "torch": "torch.utils.data"}
    scripts = {who: FIRST.format(module=module, dataset=dataset, arguments=arguments) for who, module in modules.items()}
    return take_turns(scripts, options.rounds, Path(folder), options.batch, 1, 1)


if __name__ == "__main__":
    main()
