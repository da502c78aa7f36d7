"""A pipeline inside `torch.utils.data.DataLoader`: its workers share the epoch without overlap."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator, MutableMapping
from itertools import chain
from types import FrameType
from typing import Any, Protocol

import numpy as np

from ..batch.batch import Batch, Sample
from ..errors import ConfigError
from ..registry import needed
from . import check_batches

_MOST_WORKERS = 1024


class Part(Protocol):
    """What a data set asks of its pipeline; it travels to worker processes."""

    @property
    def batched(self) -> bool:
        """Whether it gives batches, not samples."""

    @property
    def sharded(self) -> bool:
        """Whether it gives this rank's share, one of several."""

    def warn_unsharded(self) -> None:
        """Log that every rank gets all samples, if this process is one of several and the pipeline has no `shard`."""

    def __len__(self) -> int:
        """Batches or samples of one epoch; TypeError if that is unknown."""

    def __call__(self, epoch: int, number: int, count: int, batches: str = "tuple", skip: int = 0, run: int = 1) -> Iterator[Any]:
        """What worker `number` of `count` makes of an epoch, as torch tensors in tuples or dicts; without its first `skip`.

        Workers take turns at runs of `run` batches or samples.
        """


def torch_dataset(part: Part, batches: str) -> Any:
    """An `IterableDataset`. Batched pipelines give batches (use ``batch_size=None``), others samples.

    Worker w of n makes batches w, w + n, ..., or as many samples as DataLoader makes one batch of; DataLoader asks its workers in
    turn, so what comes out is the very sequence a Stoker loader gives. Each iteration is the next epoch; `set_epoch` chooses one.
    """
    torch = needed("torch", "torch", "torch_dataset()")
    check_batches("torch_dataset", batches)
    torch.utils.data._utils.collate.default_collate_fn_map[Sample] = _joined

    class StokerDataset(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            # Iterations begun, one counter a worker, in memory that worker processes share: DataLoader starts new processes
            # every epoch and tells them nothing, so this is the only place an epoch number can survive. It belongs to the
            # process that has the DataLoader: ranks that were handed one data set count for themselves (`own`).
            # The last three are what all of them leave out, as `_taken_over` says: in which epoch, how much, and of what size.
            self._begun = torch.zeros(_MOST_WORKERS + 3, dtype=torch.int64, device="cpu").share_memory_()
            self._owner = os.getpid()
            self._dealt = False  # whether Accelerate shares what this gives among ranks
            self._skips: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
            _data_sets.add(self)

        def own(self) -> None:
            """Count in memory of this process's own, and of the workers it starts, from here on."""
            if self._owner != os.getpid() and torch.utils.data.get_worker_info() is None:
                self._begun, self._owner = self._begun.clone().share_memory_(), os.getpid()

        def set_epoch(self, epoch: int) -> None:
            self._dealt |= _check_consumer(_callers(sys._getframe(1)), part, batches)
            self.own()
            self._begun[:_MOST_WORKERS] = _checked_epoch(epoch)
            taken_over = _taken_over(self, _callers(sys._getframe(1)), self._skips)
            self._begun[_MOST_WORKERS:] = torch.tensor((epoch, *taken_over), device="cpu")

        def __iter__(self) -> Iterator[Any]:
            dealt = _check_consumer(_callers(sys._getframe(1)), part, batches) or self._dealt
            self.own()
            info = torch.utils.data.get_worker_info()
            number, count = (0, 1) if info is None else (info.id, info.num_workers)
            if not number and not dealt:
                part.warn_unsharded()
            # Counted now and not with the first batch: a worker that is never asked for one has begun this epoch like the others.
            epoch = int(self._begun[number])
            self._begun[number] += 1
            skipping, steps, each = self._begun[_MOST_WORKERS:].tolist()
            steps = steps if epoch == skipping else 0
            # The first batch that is wanted is asked of worker 0, whoever made it when nothing was left out.
            role = (number + steps) % count
            return self._share(epoch, role, count, max(0, -((role - steps) // count)) * each)

        def _share(self, epoch: int, role: int, count: int, skip: int) -> Iterator[Any]:
            # Begun with the first sample, because it is whoever asks for that who knows how many become a batch.
            run = 1 if count == 1 or part.batched else _put_together(sys._getframe(1))
            yield from part(epoch, role, count, batches, skip, run)

        def __len__(self) -> int:
            return len(part)

        def __bool__(self) -> bool:
            return True  # a length that is not known is no reason to fail in `if dataset:`

        def __reduce__(self) -> Any:
            self.own()
            return _rebuilt, (part, batches, self._begun, self._owner, self._dealt)

    return StokerDataset()


def _joined(samples: list[Sample], *, collate_fn_map: Any) -> Batch:
    """A batch of the samples that DataLoader joins; for torch's table of how it joins what."""
    collate: Any = needed("torch", "torch", "torch_dataset()").utils.data._utils.collate.collate
    columns = {name: collate(values, collate_fn_map=collate_fn_map) for name, values in zip(samples[0]._fields, zip(*samples))}
    return Batch.of(columns, len(samples), [sample.key for sample in samples])


def _rebuilt(part: Part, batches: str, begun: Any, owner: int, dealt: bool) -> Any:
    """A dataset in a spawned process: its class is made where torch is imported, so it cannot be found by name."""
    dataset = torch_dataset(part, batches)
    dataset._begun, dataset._owner, dataset._dealt = begun, owner, dealt
    return dataset


_data_sets: weakref.WeakSet[Any] = weakref.WeakSet()


def _own_all() -> None:
    for data_set in list(_data_sets):
        data_set.own()


os.register_at_fork(before=_own_all)  # a worker that is forked can no longer know whose it is


def _checked_epoch(epoch: Any) -> int:
    if not isinstance(epoch, (int, np.integer)) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 32:
        raise ConfigError(f"set_epoch({epoch!r}): must be an integer >= 0 and < {1 << 32:,}")
    return int(epoch)


# ---- who iterates a data set ----------------------------------------------------------------------------------------------
#
# A DataLoader does not say what it will do with what it gets, nor Accelerate that it deals it out; and both only show wrong
# shapes, or half of the data. So the caller is looked at: the object whose method asks. Accelerate calls `set_epoch` on every
# rank before any of them waits for another, so all ranks fail there together; in `__iter__` rank 0 alone might.

#: Accelerate's, and Trainer's own in older versions: rank 0 reads and the others get slices; every rank reads and keeps its turn
_DISPATCHER, _TURNS = "DataLoaderDispatcher", "IterableDatasetShard"
#: those that pass over the first batches of an epoch, in the middle of which a run was stopped
_SKIPPERS = (_DISPATCHER, "DataLoaderShard")


def _callers(frame: FrameType | None) -> Iterator[object]:
    """The objects whose methods led to a call, which came from this frame; the innermost first."""
    while frame is not None:
        yield frame.f_locals.get("self")
        frame = frame.f_back


def _put_together(frame: FrameType | None) -> int:
    """How many samples become one batch of the DataLoader that asks from this frame; on several ranks, one of all of them."""
    while frame is not None:
        caller: Any = frame.f_locals.get("self")
        if _deals(caller) and type(caller).__name__ == _TURNS:
            return _turn_size(caller)
        wanted = frame.f_locals.get("possibly_batched_index")
        if _framework(caller) in ("torch", "torchdata") and isinstance(wanted, list):
            return len(wanted) or 1
        frame = frame.f_back
    return 1


def _turn_size(turns: Any) -> int:
    size: int = turns.batch_size * (1 if turns.split_batches else turns.num_processes)
    return size


def _check_consumer(callers: Iterator[object], part: Part, batches: str) -> bool:
    """Refuse what would give wrong shapes or lose data; whether Accelerate shares what the data set gives among its ranks."""
    consumer = next(callers, None)
    if _framework(consumer) in ("torch", "torchdata") and getattr(consumer, "auto_collation", False):
        module = str(getattr(getattr(consumer, "collate_fn", None), "__module__", ""))
        if part.batched and module.startswith(("torch.", "transformers.")):
            raise _batched_twice()
        if batches == "tuple" and module.startswith("transformers."):
            raise ConfigError("Hugging Face's Trainer expects samples as dicts: use torch_dataset(batches='dict')")
    # A data set of the user's own may stand between.
    dealer = next((caller for caller in chain([consumer], callers) if _deals(caller)), None)
    if dealer is not None:
        _check_shares(dealer, part)
    if dealer is not None and dealer is consumer:
        _check_batches(dealer, part)
    return dealer is not None


def _framework(caller: object) -> str:
    return type(caller).__module__.partition(".")[0]


def _deals(caller: object) -> bool:
    return type(caller).__name__ in (_DISPATCHER, _TURNS) and _framework(caller) in ("accelerate", "transformers")


def _check_shares(dealer: Any, part: Part) -> None:
    ranks = (dealer if type(dealer).__name__ == _TURNS else dealer.state).num_processes
    if ranks > 1 and part.sharded:
        raise ConfigError(
            f"this pipeline has .shard(), and Accelerate would distribute its samples among its {ranks} processes once more, so "
            "most samples would never be seen: omit .shard(), or keep it and iterate the loader without accelerator.prepare()"
        )


def _taken_over(dataset: Any, callers: Iterator[object], skips: MutableMapping[Any, int]) -> tuple[int, int]:
    """What Accelerate would read and throw away in this epoch, where the data set can leave it out itself.

    As batches of the DataLoader, and how many of the data set's batches or samples each is. `skip_first_batches` makes a loader
    that counts what it has passed over. It tells the data set its epoch before it reads the first batch, so from there on there
    is nothing to pass over.
    """
    loaders = (caller for caller in callers if type(caller).__name__ in _SKIPPERS and _framework(caller) == "accelerate")
    loader: Any = next(loaders, None)
    if loader is None:
        return 0, 0
    turns = loader.dataset if type(loader.dataset).__name__ == _TURNS else None
    if dataset is not (loader.dataset if turns is None else turns.dataset):
        return 0, 0  # what a data set of the user's own makes of this one's samples is not known
    if loader.skip_batches:
        skips[loader], loader.skip_batches = loader.skip_batches, 0
    ranks, each = 1, loader.batch_size or 1
    if type(loader).__name__ == _DISPATCHER and not loader.split_batches:
        ranks = loader.state.num_processes  # it puts so many of DataLoader's batches together
    if turns is not None:
        each = _turn_size(turns)
    return skips.get(loader, 0) * ranks, each


def _check_batches(dealer: Any, part: Part) -> None:
    if part.batched and dealer.batch_size is not None:
        raise _batched_twice()
    if part.batched and type(dealer).__name__ == _TURNS:
        raise ConfigError(
            "Accelerate with dispatch_batches=False takes single samples, but this pipeline returns batches: omit .batch() and "
            "pass batch_size to DataLoader, or omit dispatch_batches=False"
        )


def _batched_twice() -> ConfigError:
    return ConfigError(
        "this pipeline makes batches, and DataLoader would stack batches of them: pass batch_size=None to DataLoader; if a "
        "framework makes the DataLoader (Hugging Face's Trainer), omit .batch()"
    )
