"""Data sets that tests of the DataLoader share. Worker processes import this module, so it imports little."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Draws(Dataset):
    """Items that draw from all generators there are."""

    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), np.random.rand(), torch.rand(2)


class DrawsTogether(Draws):
    """The same, asked for a batch at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Point(NamedTuple):
    x: Any
    y: Any


class Nested(Dataset):
    """Items of everything that torch joins."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return {
            "tensor": torch.full((2,), index),
            "array": np.full((2, 2), index, np.float32),
            "number": index,
            "float": index / 2,
            "flag": index % 2 == 0,
            "scalar": np.int16(index),
            "text": f"item {index}",
            "bytes": bytes([index]),
            "pair": (index, [torch.tensor(index), str(index)]),
            "point": Point(index, np.float64(index)),
        }


class Named(Dataset):
    """Items by name."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, name: str) -> Any:
        return name, random.random()


class Stream(IterableDataset):
    """Items as they come, which draw, too."""

    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.length):
            yield number, random.random(), torch.rand(1)


class Workers(Dataset):
    """Items that say who makes them."""

    def __init__(self, length: int = 16) -> None:
        self.length, self.prepared, self.asked = length, -1, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        info = get_worker_info()
        told = (-1, -1, False) if info is None else (info.id, info.num_workers, info.dataset is self)
        return index, os.getpid(), self.prepared, *told


def prepare(worker: int) -> None:
    """A `worker_init_fn`."""
    get_worker_info().dataset.prepared = 100 + worker


class Writes(Dataset):
    """Items that change what the data set holds: an array beside the pickle, one in it, and a number."""

    def __init__(self) -> None:
        self.large, self.small, self.asked = np.zeros(100_000), np.zeros(2), 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        self.large += 1
        self.small += 1
        self.asked += 1
        return index, float(self.large[0] - self.asked), float(self.small[0] - self.asked)


class ItemError(Exception):
    """An error that cannot be made again from its message."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"{why}: {index}")
        self.index = index


class Fails(Dataset):
    """One item of it fails, one stops, and one ends its process."""

    def __init__(self, fails: int = -1, stops: int = -1, dies: int = -1) -> None:
        self.fails, self.stops, self.dies = fails, stops, dies

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == self.fails:
            raise ItemError(index, "no such picture")
        if index == self.stops:
            raise StopIteration
        if index == self.dies and get_worker_info() is not None:
            signal.raise_signal(signal.SIGSEGV)  # in this very thread, which does not go on
        return index


class Gate(Dataset):
    """The first item of a batch waits until a file is there, and says that it does."""

    def __init__(self, folder: Path, length: int = 24) -> None:
        self.folder, self.length = folder, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index == 8:
            (self.folder / f"at-{os.getpid()}").touch()
            while not (self.folder / "open").exists():
                time.sleep(0.005)
        return index, random.random()
