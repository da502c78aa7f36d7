"""A pipeline inside `torch.utils.data.DataLoader`: its workers share the epoch without overlap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..batch.fields import Fields
from ..batch.named_fields import NamedFields, named
from ..errors import ConfigError
from .torch import import_torch

_MOST_WORKERS = 1024


class Part(Protocol):
    """What a data set asks of its pipeline; it travels to worker processes."""

    @property
    def batched(self) -> bool:
        """Whether it gives batches, not samples."""

    @property
    def sharded(self) -> bool:
        """Whether it gives this rank's share, one of several."""

    def __len__(self) -> int:
        """Batches or samples of one epoch; TypeError where that is not known."""

    def __call__(self, epoch: int, number: int, count: int) -> Iterator[Fields]:
        """What worker `number` of `count` makes of an epoch, as torch tensors."""


def torch_dataset(part: Part, batches: str) -> Any:
    """An `IterableDataset`. Batched pipelines give batches (use ``batch_size=None``), others samples.

    Worker w of n makes batches w, w + n, ...; DataLoader asks its workers in turn, so what comes out is the very sequence a
    Stoker loader gives. Each iteration is the next epoch; `set_epoch` chooses one.
    """
    torch = import_torch("torch_dataset()")
    if batches not in _FORMS:
        raise ConfigError(f"torch_dataset(batches={batches!r}): must be {' or '.join(map(repr, _FORMS))}")
    form = _FORMS[batches]

    class StokerDataset(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            # Iterations begun, one counter a worker, in memory that worker processes share: DataLoader starts new processes
            # every epoch and tells them nothing, so this is the only place an epoch number can survive.
            self._begun = torch.zeros(_MOST_WORKERS, dtype=torch.int64).share_memory_()

        def set_epoch(self, epoch: int) -> None:
            _check_consumer(_caller(), part, batches)
            self._begun.fill_(_checked_epoch(epoch))

        def __iter__(self) -> Iterator[NamedFields | dict[str, Any]]:
            _check_consumer(_caller(), part, batches)
            info = torch.utils.data.get_worker_info()
            number, count = (0, 1) if info is None else (info.id, info.num_workers)
            # Counted now and not with the first batch: a worker that is never asked for one has begun this epoch like the others.
            epoch = int(self._begun[number])
            self._begun[number] += 1
            return map(form, part(epoch, number, count))

        def __len__(self) -> int:
            return len(part)

        def __bool__(self) -> bool:
            return True  # a length that is not known is no reason to fail in `if dataset:`

        def __reduce__(self) -> Any:
            return _rebuilt, (part, batches, self._begun)

    return StokerDataset()


def _as_dict(fields: Fields) -> dict[str, Any]:
    return dict(fields.items())


_FORMS: dict[str, Callable[[Fields], NamedFields | dict[str, Any]]] = {"tuple": named, "dict": _as_dict}


def _rebuilt(part: Part, batches: str, begun: Any) -> Any:
    """A dataset in a spawned process: its class is made where torch is imported, so it cannot be found by name."""
    dataset = torch_dataset(part, batches)
    dataset._begun = begun
    return dataset


def _checked_epoch(epoch: Any) -> int:
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 32:
        raise ConfigError(f"set_epoch({epoch!r}): must be an integer >= 0 and < {1 << 32:,}")
    return epoch


# ---- who iterates a data set ----------------------------------------------------------------------------------------------
#
# A DataLoader does not say what it will do with what it gets, nor Accelerate that it deals it out; and both only show wrong
# shapes, or half of the data. So the caller is looked at: the object whose method asks. Accelerate calls `set_epoch` on every
# rank before any of them waits for another, so all ranks fail there together; in `__iter__` rank 0 alone might.

#: Accelerate's, and Trainer's own in older versions: rank 0 reads and the others get slices; every rank reads and keeps its turn
_DISPATCHER, _TURNS = "DataLoaderDispatcher", "IterableDatasetShard"


def _caller() -> object:
    """The object whose method called a method of the data set."""
    return sys._getframe(2).f_locals.get("self")


def _check_consumer(consumer: object, part: Part, batches: str) -> None:
    kind = type(consumer)
    framework = kind.__module__.partition(".")[0]
    if framework in ("accelerate", "transformers") and kind.__name__ in (_DISPATCHER, _TURNS):
        _check_dealer(consumer, kind.__name__, part)
    elif framework in ("torch", "torchdata") and getattr(consumer, "auto_collation", False):
        if part.batched:
            raise _batched_twice()
        collate_module = str(getattr(getattr(consumer, "collate_fn", None), "__module__", ""))
        if batches == "tuple" and collate_module.startswith("transformers."):
            raise ConfigError("Hugging Face's Trainer takes samples as dicts: use torch_dataset(batches='dict')")


def _check_dealer(dealer: Any, kind: str, part: Part) -> None:
    ranks = (dealer if kind == _TURNS else dealer.state).num_processes
    if ranks > 1 and part.sharded:
        raise ConfigError(
            f"this pipeline has .shard(), and Accelerate shares what torch_dataset() gives among its {ranks} processes once "
            "more, so most samples would never be seen: leave out .shard(), or keep it and iterate the loader without "
            "accelerator.prepare()"
        )
    if part.batched and dealer.batch_size is not None:
        raise _batched_twice()
    if part.batched and kind == _TURNS:
        raise ConfigError(
            "Accelerate with dispatch_batches=False takes single samples, but this pipeline makes batches: leave out .batch() "
            "and pass batch_size to DataLoader, or leave out dispatch_batches=False"
        )


def _batched_twice() -> ConfigError:
    return ConfigError(
        "this pipeline makes batches, and DataLoader would stack batches of them: pass batch_size=None to DataLoader; where a "
        "framework makes the DataLoader (Hugging Face's Trainer), leave out .batch()"
    )
