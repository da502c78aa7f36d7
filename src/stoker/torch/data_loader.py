"""`DataLoader` with torch's arguments, over Stoker's engine: the same batches with any number of workers, and after a resume."""

from __future__ import annotations

import inspect
import math
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data as torch_data
from torch.utils.data._utils.collate import default_collate
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from ..engine.auto_executor import AutoExecutor
from ..engine.executor import Executor
from ..engine.home_first import HomeFirst
from ..engine.inline import InlineExecutor
from ..engine.machine import Machine
from ..engine.main_guard import check_processes, note_loader
from ..engine.preflight import preflight
from ..engine.process_executor import ProcessExecutor
from ..engine.sent_values import signature
from ..engine.threads import ThreadExecutor
from ..errors import ClosedError, ConfigError, StateError, message_of
from ..observe.facts import Facts
from ..observe.meters import Meters
from ..observe.stats import Stats
from ..plan.cursor import MOST_EPOCHS
from ..sizes import counted, parse_bytes
from ..storage.scratch import Scratch
from .batch_workers import BatchTimeout, BatchWorkers, EpochRun, Maker
from .fetch_work import FetchWork, StreamWork
from .fetched_batches import FetchedBatches
from .index_order import CountedOrder, EpochSampler, IndexOrder, Pick, SampledOrder, Start, StreamOrder
from .lowered_batches import LoweredBatches
from .lowered_dataset import Lowered, lower_dataset
from .own_copies import OwnCopies

if TYPE_CHECKING:
    from ..observe.verdict import Verdict

#: what a state of this class begins with
_FORMAT = "stoker.torch.DataLoader 1"
_EXECUTORS = ("auto", "inline", "threads", "processes")
_KNOWN = inspect.signature(torch_data.DataLoader.__init__).parameters


def _nobody() -> None:
    """Instead of a reference to an iterator, where there is none."""


class DataLoader(torch_data.DataLoader):  # type: ignore[misc]
    """torch's DataLoader, with batches that do not depend on who makes them.

    All arguments are torch's, and mean what they mean there. Beside them: `seed` is what all random choices depend on, by default
    drawn from `generator` or torch's own; `lower=False` has every item made by the data set itself, also where Stoker could read
    and transform it; `memory` bounds the bytes of batches that are made ahead; `executor` is who runs items. By default these are
    worker processes, as in torch, and threads for what Stoker reads itself. ``"threads"``: threads of this process, each with its
    own copy of the data set; ``"processes"``: nothing is run here, not even while they start; ``"auto"``: threads or processes,
    by measurement; ``"inline"``: the thread that asks for a batch.

    Each iteration is the next epoch. Before an item is asked for, Python's, NumPy's and torch's generators are seeded by (seed,
    epoch, index), so that batches are the same with any number of workers. `state_dict()` says which batches were handed out, and
    after `load_state_dict()` the next iteration goes on after them.

    >>> import torch
    >>> loader = DataLoader(torch.utils.data.TensorDataset(torch.arange(6)), batch_size=2, shuffle=True, seed=7)
    >>> epoch = iter(loader)
    >>> _ = next(epoch)
    >>> state = loader.state_dict()
    >>> again = DataLoader(torch.utils.data.TensorDataset(torch.arange(6)), batch_size=2, shuffle=True, seed=7)
    >>> again.load_state_dict(state)
    >>> [batch.tolist() for [batch] in again] == [batch.tolist() for [batch] in epoch]
    True
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        lower: bool = True,
        executor: str | None = None,
        memory: int | str = "2GB",
    ) -> None:
        if executor is not None and (not isinstance(executor, str) or executor not in _EXECUTORS):
            raise ConfigError(f"DataLoader(executor={executor!r}): choose one of {', '.join(_EXECUTORS)}")
        if executor == "threads" and worker_init_fn is not None:
            raise ConfigError(
                "DataLoader(executor='threads', worker_init_fn=...): it prepares worker processes, but there are none with "
                "threads; omit one of the two"
            )
        if seed is not None and (isinstance(seed, bool) or not hasattr(seed, "__index__")):
            raise ConfigError(f"DataLoader(seed={seed!r}): must be an integer")
        if shuffle and sampler is None and batch_sampler is None and not isinstance(dataset, torch_data.IterableDataset):
            sampler, shuffle = EpochSampler(dataset, generator), False
        given: dict[str, Any] = {"in_order": in_order} if "in_order" in _KNOWN else {}
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **given,
        )
        if executor in ("threads", "processes") and not num_workers:
            raise ConfigError(f"DataLoader(executor={executor!r}): with num_workers=0 there are no workers; set num_workers >= 1")
        self.in_order, self.lower, self.executor, self.memory = in_order, lower, executor, memory
        self._memory_bytes = parse_bytes(memory, "DataLoader: memory")
        self._seed_given = seed is not None
        # As plain attributes, by the names of the arguments: frameworks make a loader again from them.
        self.seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator)) if seed is None else int(seed)
        self._position = Start()
        self._sampler_epoch: int | None = None
        self._begun = self._advanced = False  # an iterator was made since then; and asked for a batch
        self._wanted: int | None = None
        self._forget_workers()

    def _forget_workers(self) -> None:
        self._workers: BatchWorkers | None = None
        self._run: EpochRun | None = None
        self._user: Callable[[], Any] = _nobody  # the iterator that has the workers
        self._latest: Callable[[], Any] = _nobody
        self._prepared: DataLoaderIterator | None = None  # whose first batch was looked at already
        self._not_sent = ""  # why items are fetched in this process although there should be workers
        self._signature: str | None = None
        self._lowered: Any = None

    # ---- iterating ---------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.usable and self._wanted is None:
            return prepared
        return self._begin_at(self._next_start())

    def _begin_at(self, start: Start) -> DataLoaderIterator:
        user = self._user()
        alone = user is None or user.ended  # else this one gets workers of its own: two iterators at once
        if alone and self._run is not None:
            self._run.leave()
        run = self._begin(self._kept_workers() if alone else self._start_workers(), start)
        iterator = DataLoaderIterator(self, run, start)
        if alone:
            self._run, self._user = run, weakref.ref(iterator)
        self._position, self._begun, self._advanced = start, True, False
        self._latest = weakref.ref(iterator)
        return iterator

    def _next_start(self) -> Start:
        """Where the next iteration begins."""
        position, wanted = self._position, self._wanted
        if isinstance(self.sampler, EpochSampler):
            wanted, self.sampler.epoch = self.sampler.epoch if wanted is None else wanted, None
        self._wanted = None
        # An iterator that nobody has and nobody asked for a batch was made to see whether that can be done.
        begun = self._begun and (self._advanced or self._latest() is not None)
        if wanted is not None and (begun or wanted != position.epoch):
            return Start(wanted)
        return Start(position.epoch + 1) if begun or self._complete(position) else position

    def _complete(self, position: Start) -> bool | None:
        """Whether no batch is left in the epoch; None where that is not known beforehand."""
        try:
            return None if self._iterable else 0 < len(self) <= position.batches
        except (TypeError, NotImplementedError):
            return None

    def _begin(self, workers: BatchWorkers, start: Start) -> EpochRun:
        order = self._order()
        if isinstance(order, SampledOrder):
            self._sampler_epoch = order.sampler_epoch
        if self.pin_memory and not torch.cuda.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=4,
            )
        return workers.epoch(order.picks(start))

    def _order(self) -> IndexOrder:
        if self._iterable:
            return StreamOrder()
        plain = type(self.batch_sampler) is torch_data.BatchSampler and self.batch_sampler.sampler is self.sampler
        if plain or self.batch_sampler is None:
            size = self.batch_size or 1
            if type(self.sampler) is EpochSampler:
                return CountedOrder(self.sampler.data_source, size, self.drop_last, self.seed)
            if type(self.sampler) is torch_data.SequentialSampler:
                return CountedOrder(self.sampler.data_source, size, self.drop_last, None)
        batched = self.batch_sampler is not None
        return SampledOrder(self.batch_sampler if batched else self.sampler, batched, self._length() or 0, self.seed)

    def _length(self) -> int | None:
        """How many items the data set has; None where it does not say."""
        try:
            return None if self._iterable else len(self.dataset)
        except (TypeError, NotImplementedError):
            return None

    @property
    def _iterable(self) -> bool:
        return isinstance(self.dataset, torch_data.IterableDataset)

    def _handed_out(self, iterator: DataLoaderIterator, position: Start) -> None:
        """Called by iterators; only the last one that was made moves the loader."""
        if self._latest() is iterator:
            self._position = position

    def _ended(self, iterator: DataLoaderIterator, epoch: int) -> None:
        if self._latest() is iterator:
            self._position, self._begun = Start(epoch + 1), False

    # ---- workers -----------------------------------------------------------------------------------------------------------

    def _kept_workers(self) -> BatchWorkers:
        """The workers of before, if the data set is what it was then; else others."""
        workers = self._workers
        if workers is not None and workers.usable and self._same(workers):
            return workers
        if workers is not None and workers.process == os.getpid():
            workers.close()
        self._workers = self._start_workers()
        return self._workers

    def _same(self, workers: BatchWorkers) -> bool:
        """Whether workers have the data set as it is now: torch's, unless they are persistent, get it again for each epoch."""
        if self.persistent_workers:
            return True
        if isinstance(workers.maker, LoweredBatches):
            return self._signature is not None and signature(self.dataset) == self._signature
        work, executor = workers.maker.work, workers.executor
        try:
            if isinstance(work, OwnCopies):
                return work.unchanged()
            return not isinstance(executor, (HomeFirst, ProcessExecutor)) or executor.is_sent(work)
        except ConfigError:
            return False

    def _start_workers(self) -> BatchWorkers:
        lowered = self._lowered = self._lowering()
        ahead = self.num_workers * (self.prefetch_factor or 1)
        if isinstance(lowered, Lowered):
            kind = self._kind("threads")
            executor = self._make_executor(kind)
            make: Callable[[Meters], Maker] = partial(LoweredBatches, lowered, self.seed, executor)
            self._signature = None if self.persistent_workers else signature(self.dataset)
        else:
            kind, executor, work = self._fetching()
            make = partial(FetchedBatches, work, self.batch_size)
        return BatchWorkers(executor, kind, make, self._memory_bytes, ahead)

    def _fetching(self) -> tuple[str, Executor, FetchWork | OwnCopies]:
        """Who asks the data set for its items, and what they do. In this thread where workers cannot have the data set."""
        self._not_sent = ""
        kind, work = self._kind("processes"), self._work()
        if kind == "inline":
            return kind, self._make_executor(kind), work
        executor: HomeFirst | ProcessExecutor | None = None
        try:
            if kind != "processes":
                copies = OwnCopies(work)  # now: nobody has used the data set here yet
                return "threads", self._make_executor(kind), copies
            executor = self._start_processes()
            executor.pack(work)
        except (ConfigError, MemoryError) as error:
            if executor is not None:
                executor.close()
            if self.executor in ("processes", "threads"):
                raise
            self._not_sent = f"the data set cannot be sent to worker processes ({message_of(error.__cause__ or error)})"
            warnings.warn(
                f"DataLoader(num_workers={self.num_workers}): items are fetched in this process, one after another, because "
                f"{self._not_sent}; open files, locks and connections in __getitem__ or worker_init_fn, where each worker has "
                "its own",
                RuntimeWarning,
                stacklevel=6,
            )
            return "inline", self._make_executor("inline"), work
        return kind, executor, work

    def _start_processes(self) -> HomeFirst | ProcessExecutor:
        # What an iterable data set gives cannot be had twice for sure; and what a worker is prepared for is not prepared here.
        prepared = self._iterable or self.worker_init_fn is not None or self.executor == "processes"
        workers = 1 if self._iterable else self.num_workers
        preflight(workers, 1, memory=self._memory_bytes)
        return (ProcessExecutor if prepared else HomeFirst)(workers, Scratch, workers)

    def _kind(self, usual: str) -> str:
        """Who runs items, by name."""
        if not self.num_workers:
            return "inline"
        if self.executor != "auto":
            return self.executor or usual
        # What prepares a worker, and what asks which one it is, means a process.
        return usual if usual == "threads" or self._iterable or self.worker_init_fn is not None else "auto"

    def _make_executor(self, kind: str) -> Executor:
        note_loader("DataLoader()")
        if kind == "inline":
            return InlineExecutor(1, Scratch)
        workers = 1 if self._iterable else self.num_workers
        if kind != "threads":
            check_processes(f"DataLoader(num_workers={workers})")
        if kind == "auto":
            return AutoExecutor(workers, Scratch, start_processes=partial(_processes, self._memory_bytes))
        return (ThreadExecutor if kind == "threads" else ProcessExecutor)(workers, Scratch, workers)

    def _work(self) -> FetchWork:
        common = (self.dataset, self.collate_fn, self.worker_init_fn, self.seed, self.num_workers)
        if self._iterable:
            return StreamWork(*common, self.batch_size, self.drop_last)
        return FetchWork(*common, self._auto_collation)

    def _lowering(self) -> Any:
        """The data set as Stoker reads it itself; or why it does not."""
        if not self.lower:
            return "lower=False"
        if self._iterable:
            return "it is an iterable data set"
        if not self._auto_collation:
            return "items are not joined into batches"
        if self.collate_fn is not default_collate:
            return "they are joined by a collate_fn"
        lowered = lower_dataset(self.dataset)
        return lowered if isinstance(lowered, Lowered) else lowered.why

    def close(self) -> None:
        """Stop all workers; idempotent. Batches handed out stay valid, and a further iteration starts workers again."""
        workers = self._workers
        self._forget_workers()
        if workers is not None and workers.process == os.getpid():
            workers.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """All but the workers, which belong to this process."""
        kept = dict(self.__dict__)
        for name in ("_workers", "_run", "_user", "_latest", "_prepared", "_not_sent", "_signature", "_lowered"):
            kept.pop(name)
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_workers()

    def _given_context(self) -> Any:
        """What was given. Accelerate asks for it where it makes another loader of this one's parts."""
        caller = sys._getframe(1)
        callers = [each.f_code.co_name for each in (caller, caller.f_back) if each is not None]
        if "skip_first_batches" in callers:
            raise ConfigError(
                "skip_first_batches() would pass this DataLoader's data set and sampler to torch's own, which has a different "
                "order: some samples would be repeated, and others missed; call loader.skip(n), which reads nothing, and "
                "iterate the loader itself"
            )
        return torch_data.DataLoader.multiprocessing_context.fget(self)

    multiprocessing_context = property(_given_context, torch_data.DataLoader.multiprocessing_context.fset)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Accelerate asks this of what it is about to prepare."""
        warnings.warn(
            "accelerator.prepare() takes data set and batch sampler from this DataLoader and gives them to torch's own, which "
            "makes the batches: they are complete, but neither seeded by item nor resumable as Stoker's are. Give the loader a "
            "DistributedSampler instead, and leave it out of prepare()",
            RuntimeWarning,
            stacklevel=3,
        )
        return False

    # ---- state -------------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch being iterated, or, between epochs, the next one.

        After `load_state_dict` this may wait for a batch: where nobody knows the number of batches, only that shows whether the
        saved epoch goes on.
        """
        position = self._position
        if self._begun or not position.batches:
            return position.epoch
        if self._complete(position) is None:
            self._prepared = self._begin_at(position)
            self._prepared.look_ahead()
            return self._position.epoch
        return position.epoch + bool(self._complete(position))

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch `epoch`, from its start; a sampler that has epochs hears of it, too."""
        if isinstance(epoch, bool) or not hasattr(epoch, "__index__") or not 0 <= epoch < MOST_EPOCHS:
            raise ConfigError(f"set_epoch({epoch!r}): must be an integer >= 0 and < {MOST_EPOCHS:,}")
        self._wanted = int(epoch)
        if isinstance(order := self._order(), SampledOrder):
            order.say_epoch(int(epoch))

    def skip(self, batches: int) -> None:
        """Leave out the next batches of this epoch, as if they had been taken; the next iteration goes on from there.

        For programs that know how many batches they have trained on, and have saved no state. No item is asked for; a sampler is
        run through, and an iterable data set is replayed.
        """
        if isinstance(batches, bool) or not hasattr(batches, "__index__") or batches < 0:
            raise ConfigError(f"skip({batches!r}): must be an integer >= 0")
        start = self._position if self._begun else self._next_start()
        there = self._order().after(start, int(batches))
        if there is None:
            raise ConfigError(
                f"skip({batches}): epoch {start.epoch} has fewer batches left; use set_epoch() to start a later epoch"
            )
        self._go_to(there)

    def _go_to(self, start: Start) -> None:
        """Let the next iteration begin there."""
        self._position, self._begun, self._wanted = start, False, None
        self._latest, self._prepared = _nobody, None
        if isinstance(self.sampler, EpochSampler):
            self.sampler.epoch = None

    def state_dict(self) -> dict[str, Any]:
        """Where this loader is, as a small JSON value: batches that were handed out, never those prepared ahead.

        It does not depend on the number of workers. The state of a sampler that has `state_dict` is part of it.
        """
        position, of = self._position, self._identity()
        state = {"format": _FORMAT, "epoch": position.epoch, "batches": position.batches, "items": position.items}
        state |= {"seed": self.seed, "of": of}
        if position.sampler is not None:
            state["sampler"] = position.sampler
        if position.batches and self._sampler_epoch is not None:
            state["sampler_epoch"] = self._sampler_epoch
        return state

    def _identity(self) -> dict[str, Any]:
        """What a state must agree with."""
        return {"length": self._length(), "batch_size": self.batch_size, "drop_last": self.drop_last, "order": self._order().name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the batches of a saved state with the next iteration; after the last one of an epoch, with the next epoch.

        A state of another data set or other batches is refused, naming what differs.
        """
        start, seed = self._decoded(state)
        if seed != self.seed:
            self.close()
            self.seed = seed
        self._go_to(start)
        self._sampler_epoch = None
        if isinstance(order := self._order(), SampledOrder) and isinstance(said := state.get("sampler_epoch"), int):
            order.say_epoch(said)
            self._sampler_epoch = said

    def _decoded(self, state: Any) -> tuple[Start, int]:
        if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
            raise StateError(f"not a state of stoker.torch.DataLoader ({_FORMAT!r}); states of other loaders cannot be loaded")
        numbers: dict[str, int] = {}
        for name in ("epoch", "batches", "items", "seed"):
            value = state.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or (value < 0 and name != "seed"):
                raise StateError(f"the state's {name!r} is {value!r}, not a number; it is damaged")
            numbers[name] = value
        epoch, batches, items, seed = numbers.values()
        of, own = state.get("of"), self._identity()
        if not isinstance(of, Mapping):
            raise StateError(f"the state's 'of' is {of!r}; it is damaged")
        differing = [f"{name} was {of.get(name)!r} and is {value!r}" for name, value in own.items() if of.get(name) != value]
        if differing:
            raise StateError(f"the state belongs to other batches: {'; '.join(differing)}")
        if self._seed_given and seed != self.seed:
            raise StateError(f"the state's seed is {seed}, and this loader was given seed={self.seed}; omit one of them")
        if epoch >= MOST_EPOCHS:
            raise StateError(f"the state's 'epoch' is {epoch:,}; it is damaged")
        if own["order"] in ("in sequence", "shuffled") and batches > len(self):
            raise StateError(f"the state's 'batches' is {batches:,}, but an epoch has {counted(len(self), 'batch', 'batches')}")
        return Start(epoch, batches, items, state.get("sampler")), seed

    # ---- looking in ----------------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """What has been measured so far, as plain data."""
        return Stats() if self._workers is None else self._workers.meters.snapshot()

    def why(self, *, training: bool = True) -> Verdict:
        """What limits this run, and what would help, in a few sentences: a text, with `limit` and `advice` as data.

        Without `training` whoever takes the batches does nothing with them, so that waiting for them means nothing.
        """
        from ..observe.verdict import verdict

        workers = self._workers
        if workers is None:
            return verdict(Stats(), Facts(), training=training)
        facts = Facts(
            samples=self._length() or 0,
            memory_left=Machine.read().memory_left or 0,
            idle_cores=workers.idle.mean(),
            machine_cores=os.cpu_count() or 0,
            budget=self._memory_bytes,
            ahead_option="prefetch_factor",
            chosen=True,
        )
        return verdict(workers.meters.since_move(), facts, training=training)

    def explain(self) -> str:
        """What will happen: the order, what Stoker does itself and what the data set does, and who runs it."""
        lowered = self._lowering() if self._lowered is None else self._lowered
        kind = type(self.dataset).__name__
        length = self._length()
        items = "items" if length is None else counted(length, "item")
        size = "one by one" if self.batch_size is None and self.batch_sampler is None else f"in batches of {self.batch_size}"
        size = "in batches" if self.batch_size is None and self.batch_sampler is not None else size
        lines = [f"{kind}: {items}, {self._order().name}, {size}; seed {self.seed}"]
        if isinstance(lowered, Lowered):
            lines += ["Stoker reads them itself:", *(f"  {note}" for note in lowered.notes)]
        else:
            lines.append(f"the data set makes its items ({lowered})")
        return "\n".join([*lines, self._who(isinstance(lowered, Lowered))])

    def _who(self, lowered: bool) -> str:
        kind = "inline" if self._not_sent else self._kind("threads" if lowered else "processes")
        if kind == "inline":
            return "run in this thread, when you take a batch" + (f": {self._not_sent}" if self._not_sent else "")
        workers, own, why = (
            1 if self._iterable else self.num_workers,
            "" if lowered else ", each with its own copy of the data set",
            "",
        )
        if kind == "auto":
            now = self.stats().executor
            kind, why = now.name if now.reason else "threads", f": {now.reason or 'nothing was measured yet'}"
        if kind == "threads":
            return f"run in {counted(workers, 'thread')} of this process{own}{why}"
        return f"run in {counted(workers, 'worker process', 'worker processes')}{own}{why}"


def _processes(memory: int, processes: int, threads: int) -> Executor:
    """Worker processes, which are ready when all of them have the data set."""
    preflight(processes, threads, memory=memory)
    return HomeFirst(processes * threads, Scratch, processes)


class DataLoaderIterator(Iterator[Any]):
    """One epoch of a DataLoader."""

    def __init__(self, loader: DataLoader, run: EpochRun, start: Start) -> None:
        self._loader, self._run, self._epoch = loader, run, start.epoch
        self._resumed = start.batches > 0  # and no batch has come since: perhaps there is none left in that epoch
        self._held: tuple[Pick, Any] | None = None
        self.ended = False

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def usable(self) -> bool:
        """Whether it can give batches in this process."""
        return self._run.workers.usable

    def look_ahead(self) -> None:
        """Wait for the next batch, and keep it for who asks: so it is known whether there is one, and in which epoch."""
        self._held = self._taken()

    def __next__(self) -> Any:
        if self.ended:
            raise StopIteration
        loader = self._loader
        if loader._latest() is self:
            loader._advanced = True
        held, self._held = self._held, None
        taken = self._taken() if held is None else held
        if taken is None:
            self.ended = True
            loader._ended(self, self._epoch)
            raise StopIteration
        pick, value = taken
        loader._handed_out(self, Start(pick.epoch, pick.number + 1, pick.items, pick.sampler))
        return pinned(value, loader.pin_memory_device or None) if loader.pin_memory and torch.cuda.is_available() else value

    def _taken(self) -> tuple[Pick, Any] | None:
        """The next batch, and what it was made of; None at the end."""
        loader = self._loader
        if not self.usable:
            raise ClosedError(
                "this iterator's workers have ended, because its loader was closed, or it was made in another process; make "
                "a new one with iter()"
            )
        if self._run.ended:
            raise ClosedError("this iterator was interrupted, or its loader was iterated again; make a new one with iter()")
        timeout_s = loader.timeout if loader.timeout and loader.num_workers else math.inf
        try:
            taken = self._run.take(timeout_s)
            if taken is None and self._resumed:
                # The state was saved after the last batch of its epoch.
                self._epoch += 1
                self._run = loader._begin(self._run.workers, Start(self._epoch))
                if loader._latest() is self:
                    loader._run, loader._position = self._run, Start(self._epoch)
                taken = self._run.take(timeout_s)
        except BatchTimeout:
            raise RuntimeError(f"DataLoader timed out after {loader.timeout} seconds") from None
        self._resumed = False
        return taken
