"""A torch DataLoader over images in memory, with a function on each: what its worker processes cost, and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure import SEED, Take, endless, pull

#: passes over the images in one epoch: many, so that the pause between epochs does not count
PASSES = 1000


@contextmanager
def torch_images_mapped(
    images: Callable[[int], NDArray[np.uint8]], count: int, function: Callable[[Any], Any], batch: int, workers: int
) -> Iterator[Take]:
    """Sample by sample, with the default collation, which puts batches into shared memory in the worker."""
    import torch
    from torch.utils.data import DataLoader

    generator = torch.Generator().manual_seed(SEED)
    loader: Any = DataLoader(
        Mapped(images(count), function),  # type: ignore[arg-type]
        batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        drop_last=True,
        generator=generator,
    )
    yield pull(endless(loader), batch)


class Mapped:
    """A map-style data set."""

    def __init__(self, images: NDArray[np.uint8], function: Callable[[Any], Any]) -> None:
        self._images, self._function = images, function

    def __len__(self) -> int:
        return len(self._images) * PASSES

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.from_numpy(self._function(self._images[index % len(self._images)]))
