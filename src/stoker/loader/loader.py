"""The loader: the program's position in the data, and which thread's turn it is. `machinery.py` makes the batches."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from ..batch.batch import Batch, Sample
from ..device import choose_output
from ..engine.daemons import ended
from ..engine.feed import Exhausted
from ..engine.run_task import presentable
from ..errors import ClosedError, ConfigError, DataLossError, StateError
from ..foreign_names import unknown_attribute
from ..observe.facts import Facts
from ..observe.followers import newcomers
from ..observe.stats import Stats
from ..plan.cursor import MOST_EPOCHS, Cursor, decode, encode
from ..plan.deal import WHOLE, StepTurns
from ..plan.plan import Plan
from ..plan.ranks import Rank, check_rank, rank_of
from ..profiler_ranges import within
from ..sizes import counted
from ..storage.names import AnyPath
from ..storage.sample_cache import SampleCache
from .bad_samples import BadSamples, kind_of
from .batch_units import BatchUnit, EpochEnd, FedUnit
from .budget import SkipBudget
from .build import explained
from .epoch_iterator import EarlyStep, EpochIterator, EpochProgress, Portions, UnitSteps
from .loader_options import LoaderOptions, check_count
from .machinery import Machinery
from .step_count import check_even, check_steps, epoch_steps, nothing_came
from .supply import EpochSteps
from .trainer_epochs import Trainer, TrainerSampler

if TYPE_CHECKING:
    from ..observe.verdict import Verdict

#: how often a thread that waits for its turn checks whether the loader was closed, and how long `close` waits for its turn
_TURN_S = 1.0

_log = logging.getLogger("stoker")

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Method = Callable[Concatenate["Loader", _Given], _Result]


def _in_turn(method: _Method[_Given, _Result]) -> _Method[_Given, _Result]:
    """Let one thread at a time call methods that move a loader.

    The thread whose turn it is may wait for a batch, and the others wait for it. So nothing that a worker's function may call
    (`stats`, `state_dict`, the epoch) needs a turn: the batch would wait for the function, and the function for the batch.
    """

    @wraps(method)
    def call(self: Loader, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        if not self._turn.acquire(False):
            self._await_turn()
        try:
            return method(self, *args, **kwargs)
        finally:
            self._end_turn()

    return call


class Loader:
    """Batches of a pipeline, epoch after epoch.

    One iteration is one epoch; the next iteration is the next epoch, whether or not the last one was finished. Use it as a
    context manager, or call `close()`; a loader without references closes itself. Several threads may share an iterator: each
    batch goes to exactly one of them.

    Made by `pipeline.loader(...)`, which documents the parameters.
    """

    def __init__(
        self,
        plan: Plan,
        options: LoaderOptions,
        *,
        row: int = 0,
        once: bool = False,
        part: StepTurns = WHOLE,
        carried: Rank | None = None,
        cache: SampleCache | None = None,
    ) -> None:
        self._options, self._once, self._part = options, once, part
        self._output = choose_output(options.format, options.device, options.sharding)
        self._dicts = options.batches == "dict"
        self._carried = carried  # the rank found by the process that started this one
        self._rank = rank_of(plan.shard, carried)
        self._deal = plan.deal(self._rank.rank, self._rank.world)
        check_steps(plan, self._deal)
        if self._output.joins_ranks:
            check_even(plan, self._deal)
        self._machinery = Machinery(plan, self._deal, options, self._output, part=part, once=once, cache=cache)
        self._plan, self._meters = self._machinery.plan, self._machinery.meters
        self._identity: dict[str, str] | None = None
        self._cursor = Cursor(int(options.epoch), row)
        self._before: Cursor | None = None  # before the batch that the consumer has; None: it has none
        self._placed: Cursor | None = self._cursor  # where the user put it: made or loaded there; None: a batch was taken since
        self._unsettled = False  # whether it is unknown if the epoch continues after a loaded cursor
        self._passed: Cursor | None = None  # loaded, but no batch came after it, so the next epoch comes
        self._taking = False  # whether the thread whose turn it is waits for a batch
        self._wanted: int | None = None  # the epoch after the current one; None: the next
        self._trainer = Trainer()
        self._progress: EpochProgress | None = None  # of the current iterator
        self._failed: Exception | None = None  # raised after the last batch handed out
        self._peeked: FedUnit | None = None  # taken from the feed to see whether the epoch continues, or to hand it over early
        self._early: EarlyStep | None = None  # handed over before it is requested
        self._skips, self._bad_samples = None, None
        if plan.policy is not None:
            self._skips = SkipBudget(plan.policy)
            self._bad_samples = BadSamples(plan.policy, plan.source.fingerprint)
        self._closed = self._told_empty = False
        self._turn = threading.RLock()  # reentrant, because a signal handler runs in the thread that it interrupts
        self._process = os.getpid()
        if not once:
            for follow in newcomers:
                follow(self)

    # ---- iterating ---------------------------------------------------------------------------------------------------------

    @_in_turn
    def __iter__(self) -> Iterator[Any]:
        self._check_open()
        if self._machinery.executor.stopped:
            raise ended()
        self._follow_rank()
        if self._progress is not None and self._progress.begun:
            # The last epoch was left in the middle: drop what was prepared for it and continue with the next.
            self._drop_prepared()
            self._meters.epoch_left()
            self._end_epoch()
        self._progress = EpochProgress()
        return EpochIterator(self, self._progress)

    def __len__(self) -> int:
        """Batches (samples, for a pipeline without `batch`) of one whole epoch on this rank."""
        self._follow_rank()
        count = epoch_steps(self._plan, self._deal)
        if count is None:
            raise TypeError(
                "the length is not known in advance: the pipeline has filter, flat_map or unbatch, a stream, or an endless repeat"
            )
        return count

    def _next(self, iterator: EpochIterator) -> Batch | Sample | dict[str, Any]:
        """The next step of an iterator, which has acquired the turn."""
        if iterator.progress.ended:
            raise StopIteration
        self._check_open()
        if iterator.progress is not self._progress:
            raise ClosedError("this iterator has ended: its loader was iterated again, or loaded a state; use the new iterator")
        iterator.progress.begun = True
        if iterator.portions is not None and iterator.portions.deal is not self._deal:
            iterator.portions = None  # resharded: what was not handed out of them is dealt again
        asked = None if iterator.portions and not self._meters.sinks else self._meters.request()
        # A consumer that requests a batch is done with the previous one.
        if self._unsettled:
            self._settle()
        self._before, self._placed = self._cursor, None
        while not iterator.portions:
            self._taking = True
            try:
                unit = within("wait for batch", self._take)
                iterator.portions = None if unit is None else Portions(self, unit)
            except BaseException:
                self._end_iteration(iterator)
                raise
            finally:
                self._taking = False
            if unit is None:
                if self._wanted == self._cursor.epoch:
                    self._wanted = None  # meant this very epoch, not that it should run again
                self._end_epoch()
                self._meters.epoch_ended()
                iterator.progress.ended = True
                raise StopIteration
        here = self._cursor
        try:
            step = iterator.portions.pop(asked)
            if self._output.looks_ahead:
                self._look_ahead(iterator.portions)
        except BaseException:
            self._cursor = here  # interrupted while looking ahead: this step is not delivered
            self._end_iteration(iterator)
            raise
        return step

    def _end_iteration(self, iterator: EpochIterator) -> None:
        """End an iterator that has failed."""
        self._drop_prepared()
        iterator.progress.ended = not self._closed  # if closed, the next request reports that instead of an end

    def _look_ahead(self, portions: Portions) -> None:
        """Hand over the next step if it is complete, so that it is copied while the training works on this one."""
        coming = portions.next_step()
        if coming is None:
            unit = self._peek()
            if not isinstance(unit, BatchUnit) or unit.error is not None:
                return
            coming = unit, 0, None
        unit, number, steps = coming
        with suppress(Exception):  # raised when the step is requested: it fails again then
            steps = steps or UnitSteps(unit.batch(), self._deal, self._plan.batch is None)
            if number < steps.count:
                self._early = EarlyStep(unit, number, self._output.hand_over(steps.step(number)))

    def _peek(self) -> FedUnit | None:
        """The unit that comes next, if it is complete."""
        feed = self._machinery.feed
        if self._peeked is None and feed is not None:
            with suppress(Exception):  # raised again when the unit is requested
                self._peeked = feed.take(block=False)
        return self._peeked

    def _await_turn(self, progress: EpochProgress | None = None) -> None:
        while not self._turn.acquire(timeout=_TURN_S):
            if progress is not None and progress.ended:
                raise StopIteration  # the thread that ended it may have closed the loader since
            self._check_open(in_turn=False)

    def _end_turn(self) -> None:
        if self._closed:
            self._let_go()  # closed by another thread that could not wait
        self._turn.release()

    def _end_epoch(self) -> None:
        self._progress = None
        self._move(Cursor(self._cursor.epoch + 1))
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            self.set_epoch(wanted)

    def _take_unit(self) -> FedUnit | None:
        if self._peeked is not None:
            unit, self._peeked = self._peeked, None
            return unit
        feed = self._machinery.feed or self._machinery.start(self._cursor, self._deal)
        try:
            return feed.take()
        except Exhausted:
            return None

    def _take(self) -> BatchUnit | None:
        """The next batch, complete and accounted for; None at the end of the epoch."""
        if self._failed is not None:
            raise self._failed
        unit = self._take_unit()
        if unit is None:
            return None
        if isinstance(unit, EpochEnd):
            self._account(0, unit)
            if self._bad_samples is not None:
                self._bad_samples.epoch_ended(unit.epoch)
            self._note_empty(unit)
            return None
        good = None
        if unit.error is not None:
            self._failed = presentable(unit.error)
            # If a unit has several batches, those before the error are delivered, as if each were a unit of its own.
            good = unit.good_rows // self._deal.size * self._deal.size if isinstance(unit, BatchUnit) else 0
            if not good:
                raise self._failed
        assert isinstance(unit, BatchUnit)
        batch = unit.batch(good)
        rows = batch.rows
        self._machinery.learn(batch)
        self._account(unit.samples, unit)
        self._meters.count(damaged=unit.damaged)
        if not rows and self._plan.batch is not None:
            last = unit.bad[-1]
            raise DataLossError(f"every sample of a batch was bad ({unit}); the last one: {last}") from last
        return unit

    def _note_empty(self, end: EpochEnd) -> None:
        """Log once that an epoch was empty: a training loop over no batches ends silently."""
        if self._cursor.row or self._part.number or self._told_empty:
            return  # a batch was handed out, perhaps before a state was saved; or other workers may have some
        self._told_empty = True
        _log.warning(nothing_came(self._plan, self._deal, end.epoch, end.left, len(end.skipped)))

    def _account(self, rows: int, unit: BatchUnit | EpochEnd) -> None:
        if self._skips is None or self._bad_samples is None:
            return
        skipped = unit.skipped
        if skipped:
            self._meters.skipped(map(kind_of, skipped))
            # What fails before a filter or similar fails on all ranks and in all torch workers: one of them lists it.
            elsewhere = 0 if self._rank.rank == self._part.number == 0 else unit.fronts
            self._bad_samples.note(skipped, unit.epoch, elsewhere)
        self._skips.count(rows, skipped, unit.fronts, unit.epoch, unit.before_skipped, self._cursor)

    # ---- state -------------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch being iterated, or, between epochs, the next one.

        After `load_state_dict` this may wait for a batch: if samples cannot be counted, only that shows whether the saved epoch
        continues. While that is unknown, a function that makes the batch sees the saved epoch.
        """
        self._follow_rank()
        if self._unsettled:
            self._settle()
        return self._cursor.epoch

    @_in_turn
    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch `epoch`, from its start.

        If a state of that epoch was just loaded, its position is kept, as long as no batch was taken since. A running iterator
        continues unchanged. If it is of that epoch and comes to its end, nothing changes: trainers call this during an epoch.
        """
        check_count("set_epoch(", epoch, 0, MOST_EPOCHS)
        self._check_open()
        if self._progress is not None and self._progress.begun:
            self._wanted = int(epoch)
            return
        epoch, cursor = int(epoch), self._cursor
        if self._placed is not None and self._placed.epoch == epoch:
            cursor = self._placed
        elif cursor.epoch != epoch:
            cursor = Cursor(epoch)
        if cursor != self._cursor:
            self._drop_prepared()
        self._move(cursor)

    @property
    def remaining(self) -> int | None:
        """Batches left in the present epoch; None if samples cannot be counted, or the epoch is endless."""
        if epoch_steps(self._plan, self._deal) is None:
            return None
        self._follow_rank()
        most = 1 << 61
        return most - EpochSteps(self._plan, self._deal, self._cursor.row).pass_over(most)

    @property
    def rank(self) -> Rank:
        """The rank of this loader: `rank`, `world`, and `where` they come from.

        It prints as "rank 1 of 2 (torchrun: RANK and WORLD_SIZE)". A loader of a pipeline without `shard` is alone.
        """
        self._follow_rank()
        return self._rank

    @property
    def batch_sampler(self) -> TrainerSampler:
        """For trainers such as Lightning, which use it to set a loader's epoch."""
        return TrainerSampler(self._follow_trainer, self._deal.size)

    def _follow_trainer(self, epoch: int) -> None:
        placed = None if self._placed is None else self._placed.epoch
        begun = None if self._progress is None else self._progress.begun
        self._trainer.says(epoch, self._cursor.epoch, placed, begun)
        self.set_epoch(epoch)

    def state_dict(self, *, before: bool | None = None) -> dict[str, Any]:
        """The position of this loader, as a small JSON value.

        It counts delivered batches, never those prepared ahead. After the same number of steps it is the same on every rank, and
        it can be loaded on any number of ranks and workers. (Only with ``on_error("skip")`` its entry ``"skipped"`` counts the
        bad samples of this rank.) With ``before=True``, the batch delivered last does not count until the next one is requested:
        the state to save if the training step on it may not be complete.
        """
        if before is None:
            before = self._trainer.reads_ahead
        cursor = self._before if before and self._before is not None else self._cursor
        counts = None if self._skips is None else self._with_counts(cursor).counts
        return encode(cursor, self._pipeline_identity(), counts)

    @_in_turn
    def load_state_dict(self, state: Any, *, force: bool = False) -> None:
        """Continue from a saved state with the next iteration.

        If no batch is left in its epoch, the next one starts. A state of other data or another pipeline raises a `StateError`
        that names what differs; `force` uses its position anyway.
        """
        self._check_open()
        cursor = decode(state, self._pipeline_identity(), force=force)
        rows = self._plan.order.length if self._plan.counted and self._plan.order else None
        if rows is not None and cursor.row > rows:
            raise StateError(f"the state's 'row' is {cursor.row:,}, but an epoch has {counted(rows, 'row')}")
        length = self._plan.order.length if self._plan.order else None
        if cursor.at is not None and length is not None and cursor.at[0] > length:
            raise StateError(f"the state's 'at' starts at sample {cursor.at[0]:,}, but an epoch has {counted(length, 'sample')}")
        self._drop_prepared()
        self._meters.epoch_left()
        self._progress = self._wanted = None
        self._trainer = Trainer()
        self._cursor = self._placed = cursor  # from here on it does not matter which rank this was
        self._follow_rank()
        self._place(cursor, cursor)

    @_in_turn
    def skip(self, steps: int) -> None:
        """Skip the next `steps` batches of this epoch (samples, without `batch`), as if they had been taken.

        For programs that know how many batches they have trained on, but have saved no state; the next iteration continues from
        there. Nothing is read, unless samples cannot be counted (after a `filter`, on a stream): then they are made and dropped.
        """
        check_count("skip(", steps, 0)
        self._check_open()
        epoch, here = self.epoch, self.state_dict(before=False)
        if self._plan.counted:
            place = EpochSteps(self._plan, self._deal, self._cursor.row)
            missing = place.pass_over(int(steps))
            there = {**here, "row": place.row}
        else:
            self.load_state_dict(here)
            missing = int(steps) - sum(1 for _ in itertools.islice(self, int(steps)))
            there = self.state_dict(before=False)
        self.load_state_dict(here if missing else there)
        if missing:
            raise ConfigError(
                f"skip({steps}): epoch {epoch} has {int(steps) - missing:,} left; use set_epoch() to start a later epoch"
            )

    @_in_turn
    def reshard(self, rank: int, world: int) -> None:
        """Become `rank` of `world` at the next step, for ranks that join and leave.

        Every rank calls it after the same step, between two batches. A running iterator continues: what was prepared for the old
        ranks is dropped, and samples that no rank has received are distributed again. So each comes exactly once (with
        ``remainder="drop"``, except those that do not fill the last batch). A rank that joins first loads the state of any other.
        """
        self._check_open()
        check_count("reshard(rank=", rank, 0)
        check_count("reshard(world=", world, 1)
        check_rank(rank := int(rank), world := int(world), "reshard")
        if self._plan.shard is None:
            raise ConfigError(
                f"reshard({rank}, {world}): this pipeline has no shard(), so every rank gets all samples; add .shard() to it"
            )
        if self._taking:
            raise ConfigError("reshard() was called while a batch is being made; call it between steps, not in a signal handler")
        deal = self._plan.deal(rank, world)
        check_steps(self._plan, deal)
        here, before = self._with_counts(self._passed or self._cursor), self._before and self._with_counts(self._before)
        self._plan = replace(self._plan, shard=replace(self._plan.shard, rank=rank, world=world))
        self._rank, self._deal = rank_of(self._plan.shard), deal
        self._drop_prepared()
        if self._progress is None or not self._progress.begun:
            self._place(here, self._placed)
            return
        self._move(here)  # where no step is left, the iterator ends
        self._before = before

    def _with_counts(self, cursor: Cursor) -> Cursor:
        """The same place with the bad samples counted up to it. A loaded cursor, and one from before a reshard, has them."""
        if self._skips is None or cursor.counts is not None:
            return cursor
        return replace(cursor, counts=self._skips.counts(cursor, self._deal.world))

    def _place(self, cursor: Cursor, placed: Cursor | None) -> None:
        """Continue here, or at the start of the next epoch if no batch is left. `placed` is where the user put it."""
        self._move(cursor)
        self._placed = placed
        # The state may have been saved right after the last batch of its epoch, or with batches of another size.
        if not self._plan.counted:
            self._unsettled = cursor.row > 0
        elif EpochSteps(self._plan, self._deal, cursor.row).ended:
            self._pass(cursor)

    def _pass(self, cursor: Cursor) -> None:
        """Begin the next epoch, because no batch is left after a loaded cursor; other ranks may have one."""
        self._move(Cursor(cursor.epoch + 1))
        self._passed = cursor

    def _move(self, cursor: Cursor) -> None:
        self._cursor, self._before, self._unsettled, self._passed = cursor, None, False, None
        if self._skips is not None:
            self._skips.begin(cursor.counts)

    @_in_turn
    def _settle(self) -> None:
        """Find out whether the epoch continues after a loaded state, if only its samples can show that."""
        if not self._unsettled:
            return
        self._unsettled = False  # first: a function that makes this batch may ask too, and must not wait for it
        try:
            self._check_open()
            unit = self._take_unit()
            if isinstance(unit, EpochEnd):
                self._account(0, unit)
                self._pass(self._cursor)
            else:
                self._peeked = unit
        except Exception as error:  # noqa: BLE001  raised later, when the next batch is requested
            self._failed = error
        except BaseException:
            self._unsettled = True
            raise

    def _pipeline_identity(self) -> dict[str, str]:
        if self._identity is None:
            self._identity = self._plan.identity()
        return self._identity

    # ---- looking in ----------------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """The measurements so far, as plain data. Remote workers are those connected now, also before the first batch."""
        stats, remote = self._meters.snapshot(), self._machinery.executor.remote
        if remote is None:
            return stats
        return replace(stats, executor=replace(stats.executor, remote=remote.workers, remote_threads=remote.threads))

    def why(self, *, training: bool = True) -> Verdict:
        """What limits this run, and what would help, in a few sentences: a text, with `limit` and `advice` as data.

        With ``training=False`` waiting for batches does not count, for loops that do nothing with them.
        """
        from ..observe.verdict import verdict

        return verdict(self._meters.since_move(), self.facts(), training=training)

    def facts(self) -> Facts:
        """What the verdict uses besides measurements: where samples are stored, what could be cached, the user's settings."""
        return self._machinery.facts()

    def trace(self, path: AnyPath) -> None:
        """Write a timeline of the latest tasks and waits for Perfetto or chrome://tracing.

        `stoker.observe.trace` writes all of them, and the steps of each task, as they come.
        """
        from ..observe.trace_events import write_latest

        write_latest(self._meters, path, self._rank.rank)

    def _explained(self) -> str:
        """What `pipeline.explain()` says."""
        return explained(self._plan, self._deal, self._machinery.decoding.told, self._machinery.floats.told)

    def explain(self, step: int, epoch: int | None = None) -> list[dict[str, Any]]:
        """Which samples, crops and seeds make batch `step` of an epoch (the present one): one mapping per row."""
        from .explain_step import explain_step

        return explain_step(self._plan, self._deal, self._cursor.epoch if epoch is None else epoch, step)

    @property
    def workers_at(self) -> str | None:
        """Where remote workers connect, with the port that was found; None: nowhere."""
        return None if self._options.workers_at is None else getattr(self._machinery.executor, "address", None)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all workers; idempotent. Delivered batches stay valid. A thread that waits for one gets a ClosedError."""
        if self._closed:
            return
        self._closed = True
        if not self._once and not sys.is_finalizing():  # else its statistics cannot be requested any more
            self._meters.look()
        self._drop_prepared()  # ends the wait of another thread
        mine = self._turn.acquire(timeout=_TURN_S)
        # Without workers another thread works, with memory that must not be freed while it does: it frees the memory itself.
        if mine or self._machinery.executor.ahead:
            self._let_go()
        if mine:
            self._turn.release()
        for end in self._meters.endings:
            end()

    def _let_go(self) -> None:
        self._drop_prepared()
        self._machinery.close()

    def _drop_prepared(self) -> None:
        """Drop what was prepared for the steps that come next."""
        self._peeked = self._early = self._failed = None
        self._machinery.stop()

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            "a loader cannot be copied or sent to another process, because its workers belong to this one; send the pipeline "
            "and call .loader() there"
        )

    def __bool__(self) -> bool:
        return True  # a loader is never "empty", and its length may be unknown

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"epoch {self._cursor.epoch}, row {self._cursor.row:,}"
        return f"Loader({self._machinery.executor.workers} x {type(self._machinery.executor).__name__}, {state})"

    def _repr_html_(self) -> str:
        """Settings, state and measurements, for notebooks."""
        from ..observe.notebook_html import loader_html

        state = "closed" if self._closed else f"epoch {self._cursor.epoch}, row {self._cursor.row:,}"
        options = self._options
        device = "" if options.device is None else str(options.device)
        return loader_html(self._plan, self._meters.snapshot(look=False), state, options.memory_bytes, device)

    if not TYPE_CHECKING:  # type checkers know what is there

        def __getattr__(self, name: str) -> Any:
            """Advice for names known from other loaders."""
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property that raised an AttributeError: again, to show that
            raise unknown_attribute(self, name)

    def _check_open(self, in_turn: bool = True) -> None:
        if self._closed:
            raise ClosedError("this loader is closed; make a new one with pipeline.loader()")
        if self._process == os.getpid():
            return
        # A forked child. Without workers it can continue, unless a thread that does not exist here was using the loader.
        survives = self._machinery.executor.survives_fork
        if not survives or not in_turn:
            why = "a thread was using it" if survives else "its workers are"
            raise ClosedError(f"this loader was made in another process, where {why}; make a new one with pipeline.loader()")
        self._process = os.getpid()

    def _follow_rank(self) -> None:
        """Follow the present rank of this process: a loader may be made before the process group.

        Once a batch was taken for another rank, it is too late.
        """
        now = rank_of(self._plan.shard, self._carried)
        if not now.contradicts(self._rank):
            return
        if self._placed is None or self._machinery.feed is not None:
            raise ConfigError(
                f"this loader delivered batches when this process was {self._rank}, and now it is {now}; make a new loader after "
                "init_process_group(), use shard(rank=, world=), or let all ranks call loader.reshard(rank, world)"
            )
        self._rank, self._deal = now, self._plan.deal(now.rank, now.world)
        check_steps(self._plan, self._deal)
        # A batch of more ranks has more rows: fewer may be left to come, or with fewer ranks more.
        self._place(self._passed or self._cursor, self._placed)
