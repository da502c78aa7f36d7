"""torch DataLoaders over records in memory: a batched gather by hand, and sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data import records
from measure import SEED, Take, endless, pull


@contextmanager
def torch_gather(count: int, batch: int) -> Iterator[Take]:
    """The fast way by hand: ``__getitems__`` gathers a whole batch with NumPy; no workers, nothing to collate."""
    yield pull(endless(_loader(Gather(*records(count)), batch, collate_fn=_as_it_is)), batch)


@contextmanager
def torch_samples(count: int, batch: int, workers: int) -> Iterator[Take]:
    """The usual way: ``__getitem__`` and the default collation."""
    yield pull(endless(_loader(Samples(*records(count)), batch, num_workers=workers, persistent_workers=workers > 0)), batch)


def _loader(dataset: Any, batch: int, **options: Any) -> Any:
    import torch
    from torch.utils.data import DataLoader

    generator = torch.Generator().manual_seed(SEED)
    return DataLoader(dataset, batch, shuffle=True, drop_last=True, generator=generator, **options)


def _as_it_is(batch: Any) -> Any:
    return batch


class Gather:
    """A batch at a time."""

    def __init__(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
        import torch

        self._x, self._y, self._tensor = x, y, torch.from_numpy

    def __len__(self) -> int:
        return len(self._x)

    def __getitems__(self, indices: list[int]) -> Any:
        index = np.array(indices)
        return self._tensor(self._x.take(index, 0)), self._tensor(self._y.take(index))


class Samples:
    """A sample at a time: a tensor and a Python number, which is what torch indexes and collates fastest."""

    def __init__(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
        import torch

        self._x, self._y = list(torch.from_numpy(x)), y.tolist()

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._x[index], self._y[index]
