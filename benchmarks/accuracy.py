"""Does a model train as well on Stoker's augmentation as on torchvision's?

One small convolutional network, one schedule, the same seeds; CIFAR's usual recipe (padded crop, flip, colours, erasing) by
torchvision's transforms on Pillow images in a torch DataLoader, the same recipe as `stoker.torch` lowers it, and no augmentation,
which says what the recipe is worth. Nothing is downloaded: the ten classes are shapes of 32 x 32 pixels that are rendered here.
Training images are few, with the shape in the middle and a narrow range of colours; those of the test are not, so that a model
has to learn from augmentation that neither matters. Accuracies are of one test set, in percent.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stoker
from measure import BenchmarkParser, note, report
from peers.torchvision_images import transforms
from stoker.torch.lowered_transforms import NotLowered, lower_transforms

SIDE, CLASSES = 32, 10
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
BATCH, TOP_RATE = 64, 0.05
Images, Labels = NDArray[np.uint8], NDArray[np.int64]
#: (images, labels) as torch's tensors; each pass is an epoch
Batches = Iterable[Sequence[Any]]


# ---- the data ------------------------------------------------------------------------------------------------------------


def shapes(count: int, seed: int, spread: float, colours: float) -> tuple[Images, Labels]:
    """Shapes in noise: centres up to `spread` pixels from the middle, colours of a share `colours` of all."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    middle = (SIDE - 1) / 2 + rng.uniform(-spread, spread, (2, count, 1, 1))
    turn, size = rng.uniform(-0.25, 0.25, (count, 1, 1)), rng.uniform(6.0, 9.0, (count, 1, 1))
    y, x = np.mgrid[:SIDE, :SIDE][:, None] - middle
    x, y = (np.cos(turn) * x - np.sin(turn) * y) / size, (np.sin(turn) * x + np.cos(turn) * y) / size
    inside = np.select([(labels == number)[:, None, None] for number in range(CLASSES)], _masks(x, y)).astype(bool)
    level = rng.uniform(128 - 100 * colours, 128 + 100 * colours, (count, 1, 1, 1))
    contrast = rng.choice([-1, 1], (count, 1, 1, 1)) * rng.uniform(35, 60, (count, 1, 1, 1))
    tint = rng.normal(0, 40 * colours, (2, count, 1, 1, 3))
    pixels = np.where(inside[..., None], level + contrast + tint[0], level + tint[1])
    pixels += rng.normal(0, 15, pixels.shape)
    return pixels.clip(0, 255).astype(np.uint8), labels.astype(np.int64)


def _masks(x: NDArray[Any], y: NDArray[Any]) -> list[NDArray[Any]]:
    """Where each of the ten shapes is; none is another one's mirror image."""
    far, near = np.maximum(abs(x), abs(y)), np.minimum(abs(x), abs(y))
    radius, diagonal = np.hypot(x, y), abs(abs(x) - abs(y))
    return [
        radius < 1,
        far < 0.9,
        (abs(x) < (y + 1) / 2) & (y < 0.9),
        (abs(x) < (1 - y) / 2) & (y > -0.9),
        (near < 0.25) & (far < 1),
        (diagonal < 0.35) & (far < 0.8),
        (radius < 1) & (radius > 0.6),
        (far < 0.9) & (far > 0.55),
        (far < 0.95) & (abs(abs(y) - 0.6) < 0.3),
        (far < 0.95) & (abs(abs(x) - 0.6) < 0.3),
    ]


# ---- the feeds -----------------------------------------------------------------------------------------------------------


def recipe(augment: bool) -> Any:
    """CIFAR's usual transforms, or those of its test images."""
    import torch

    v2 = transforms()
    before = [v2.RandomCrop(SIDE, padding=4), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)]
    floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return v2.Compose([*before, *floats, v2.RandomErasing(0.25, (0.02, 0.2))] if augment else floats)


def by_stoker(images: Images, labels: Labels, seed: int, augment: bool = True) -> Batches:
    """The recipe as it is lowered, over the arrays."""
    made = lower_transforms(recipe(augment))
    if isinstance(made, NotLowered):
        raise SystemExit(made.why)
    pipeline = stoker.arrays(image=images, label=labels).shuffle(seed=seed).image("image", *made.ops, layout="chw", out=made.out)
    return pipeline.batch(BATCH).loader(format="torch", threads=1)


def by_torchvision(images: Images, labels: Labels, seed: int) -> Batches:
    """The recipe as it is written, on Pillow images."""
    import torch
    from PIL import Image

    transform = recipe(True)

    class Shapes:
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return transform(Image.fromarray(images[index])), int(labels[index])

    generator = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(Shapes(), BATCH, shuffle=True, drop_last=True, generator=generator)


def unaugmented(images: Images, labels: Labels, seed: int) -> Batches:
    """The images as they are."""
    return by_stoker(images, labels, seed, augment=False)


FEEDS: dict[str, Callable[[Images, Labels, int], Batches]] = {
    "stoker": by_stoker,
    "torchvision": by_torchvision,
    "unaugmented": unaugmented,
}


# ---- the training --------------------------------------------------------------------------------------------------------


def network() -> Any:
    """Four convolutions, about as small as can learn this."""
    from torch import nn

    def block(given: int, made: int) -> list[Any]:
        return [nn.Conv2d(given, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU()]

    halve, end = nn.MaxPool2d(2), [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)]
    return nn.Sequential(*block(3, 16), halve, *block(16, 32), halve, *block(32, 64), halve, *block(64, 64), *end)


def trained(batches: Batches, epochs: int, steps: int, seed: int) -> Any:
    """A network after so many epochs; seeds its weights, and torchvision's transforms."""
    import torch

    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=TOP_RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, TOP_RATE, total_steps=epochs * steps)
    for _ in range(epochs):
        for images, labels in batches:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def accuracy(model: Any, images: Images, labels: Labels) -> float:
    """Percent of the test images."""
    import torch

    right = 0
    with torch.no_grad():
        for first in range(0, len(images), 500):
            pixels = torch.from_numpy(images[first : first + 500]).permute(0, 3, 1, 2).float() / 255
            guesses = model((pixels - MEAN[0]) / STD[0]).argmax(1)
            right += int((guesses == torch.from_numpy(labels[first : first + 500])).sum())
    return 100 * right / len(images)


def figures(found: dict[str, list[float]]) -> dict[str, Any]:
    """Means, spreads, and whether the two differ by more than chance."""
    means = {name: statistics.fmean(each) for name, each in found.items()}
    deviations = {name: statistics.stdev(each) if len(each) > 1 else 0.0 for name, each in found.items()}
    difference = means["stoker"] - means["torchvision"]
    error = math.sqrt(sum(deviations[name] ** 2 / len(found[name]) for name in ("stoker", "torchvision")))
    return {
        "accuracy": means,
        "deviation": deviations,
        "runs": found,
        "difference": difference,
        "standard_error": error,
        "within_two_errors": abs(difference) <= 2 * error,
    }


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=10)
    parser.add_argument("--first-seed", type=int, default=0, help="rounds have this seed and those after it (0)")
    parser.amount("--images", 2_000, 4 * BATCH, "training images")
    parser.amount("--epochs", 15, 1, "of each run")
    return parser.parse_args()


def main() -> None:
    import torch

    options = parse()
    torch.set_num_threads(1)  # so that the same seeds give the same on any number of cores
    train = shapes(options.images, 1, spread=2, colours=0.4)
    test = shapes(500 if options.quick else 5_000, 2, spread=6, colours=1.0)
    found: dict[str, list[float]] = {name: [] for name in FEEDS}
    for seed in range(options.first_seed, options.first_seed + options.rounds):
        for name, make in FEEDS.items():
            model = trained(make(*train, seed), options.epochs, options.images // BATCH, seed)
            found[name].append(accuracy(model, *test))
            note(f"seed {seed}  {name:12} {found[name][-1]:6.2f} %")
    report("accuracy", options, images=options.images, epochs=options.epochs, **figures(found))


if __name__ == "__main__":
    main()
