"""A pipeline inside `torch.utils.data.DataLoader`: its workers share the epoch without overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .torch import import_torch

#: (epoch, worker number, number of workers) -> that worker's batches or samples, as torch tensors
Open = Callable[[int, int, int], Iterator[Any]]

_MOST_WORKERS = 1024


def torch_dataset(open_: Open) -> Any:
    """An `IterableDataset`. Batched pipelines give batches (use ``batch_size=None``), others samples, both as dicts.

    Worker w of n makes batches w, w + n, ...; DataLoader asks its workers in turn, so what comes out is the very sequence a
    Stoker loader gives. Each iteration is the next epoch; `set_epoch` chooses one.
    """
    torch = import_torch("torch_dataset()")

    class StokerDataset(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            # Iterations begun, one counter a worker, in memory that worker processes share: DataLoader starts new processes
            # every epoch and tells them nothing, so this is the only place an epoch number can survive.
            self._begun = torch.zeros(_MOST_WORKERS, dtype=torch.int64).share_memory_()
            self._open = open_

        def set_epoch(self, epoch: int) -> None:
            self._begun.fill_(epoch)

        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info()
            number, count = (0, 1) if info is None else (info.id, info.num_workers)
            # Counted now and not with the first batch: a worker that is never asked for one has begun this epoch like the others.
            epoch = int(self._begun[number])
            self._begun[number] += 1
            return (dict(fields.items()) for fields in self._open(epoch, number, count))

        def __reduce__(self) -> Any:
            return _rebuilt, (self._open, self._begun)

    return StokerDataset()


def _rebuilt(open_: Open, begun: Any) -> Any:
    """A dataset in a spawned process: its class is made where torch is imported, so it cannot be found by name."""
    dataset = torch_dataset(open_)
    dataset._begun = begun
    return dataset
