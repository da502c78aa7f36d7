"""What runs a loader's plan: workers, memory for batches, meters, and the feed, which starts at any cursor."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ..batch.batch import Batch
from ..batch.draft import Draft
from ..batch.slab import SlabPool
from ..device import Output
from ..engine.auto_executor import AutoExecutor
from ..engine.executor import Executor
from ..engine.feed import Feed, Supply
from ..engine.resources import queued_seconds
from ..engine.schedule import Window
from ..errors import SampleError
from ..observe.facts import Facts
from ..observe.meters import Meters, Occupancy
from ..plan.cursor import Cursor
from ..plan.deal import Deal, StepTurns
from ..plan.plan import Plan
from ..source.chunk import Chunk
from ..source.source import Source
from ..storage.sample_cache import SampleCache
from .auto_watch import AutoWatch
from .batch_units import BatchUnit, Content, Cursors, FedUnit, Result, described
from .build import (
    AHEAD_SHARE,
    can_hope,
    compile_work,
    decodes,
    executor_stats,
    finish_names,
    finishes,
    group_of,
    layout_of,
    loose_fields,
    make_executor,
    make_remote,
    memory_for_blocks,
    observer,
    policy_of,
    reading_ahead,
    see_rows,
    slab_memory,
    step_names,
    window_of,
)
from .cache_review import CacheReview
from .decode_place import LOADS, decoding_of
from .decode_watch import DecodeWatch, decode_watch
from .float_place import FloatPlace, float_place
from .front import Flow, open_front
from .idle_cores import IdleCores
from .interference import Interference
from .loader_options import LoaderOptions
from .look_ahead import Forerunner
from .open_cache import open_cache
from .origin_times import OriginTimes
from .slow_rows import SlowRows
from .supply import CountedSupply, CutSupply, SkipRows
from .thread_count import core_share


class Machinery:
    """Everything that a loader works with, except its position: `start` receives that, and the ranks.

    A machinery without references closes its workers.
    """

    def __init__(
        self,
        plan: Plan,
        deal: Deal,
        options: LoaderOptions,
        output: Output,
        *,
        part: StepTurns,
        once: bool,
        cache: SampleCache | None,
    ) -> None:
        self._options, self._deal, self._output, self._part, self._once = options, deal, output, part, once
        self._ahead_bytes = 0
        if options.pool is None:  # which reads for itself
            plan, self._ahead_bytes = reading_ahead(plan, deal, part, options.memory_bytes // AHEAD_SHARE)
        self.plan = plan
        self.floats = FloatPlace(plan) if options.elsewhere else float_place(plan, output)
        made = self.floats.plan  # other programs make rows by the user's plan
        self.decoding = decoding_of(made, output, options)
        self._group = group_of(made, options.ahead) if part.count == 1 or not plan.batch else 1
        self.layout = layout_of(made, self._group)
        self.cache, self._lent = (cache, True) if cache is not None else (open_cache(plan, part.count), False)
        self._work, self._fronts = compile_work(made, self.layout, self.cache)
        name, threads = options.executor, options.threads
        if self.decoding.device is not None:
            name, threads = self.decoding.executor, self.decoding.threads
            self._work.runner.on_device(self.decoding.step)
            self._work = replace(self._work, cores=self.decoding.cores)
        self.executor = _executor_of(options, output, name, threads, made)
        self._finalizer = weakref.finalize(self, self.executor.close)
        self._finalizer.atexit = False  # whatever runs then is stopped by the engine, all loaders at once
        policy = policy_of(self.executor, output, plan)
        told = executor_stats(name, self.executor, policy)
        turns = self.decoding.turns
        if turns is not None:  # threads that wait for a device do not count as workers
            told = replace(told, threads=turns)
        self.meters = Meters(turns or self.executor.workers, core_share().threads, queued_seconds, told)
        keep, allocate = self._window.units(self.layout.nbytes) + 1, slab_memory(self.executor, output)
        self.slabs = SlabPool(self.layout, keep, allocate)
        # Once: the meters know each kind of work by these lists.
        self._steps, self._finish_steps = step_names(self._work.runner), finish_names(self._work.finish)
        self._front_steps = [step_names(work.runner) for work in self._fronts]
        self.front_skipped: list[SampleError] = []
        self._idle: IdleCores | None = None  # since the first batch was asked for
        self.feed: Feed[FedUnit, Content, Result] | None = None
        self._supply: Supply[FedUnit] | None = None
        self.forerunner: Forerunner | None = None
        self.meters.decoding(self.decoding.reason)
        self._interference, watch = Interference(), None
        if options.elsewhere:
            self.meters.watch = _RemoteWatch(self._interference, self.executor).look
        elif self.executor.ahead:
            if policy is not None and isinstance(self.executor, AutoExecutor):
                waits = isinstance(plan.source, Source) and plan.source.waits
                watch = AutoWatch(policy, self.executor, self.slabs.start_over, waits)
            self.meters.watch = partial(_look, self._interference, watch, decode_watch(self.decoding))
        source = plan.source if isinstance(plan.source, Source) else None
        self._origins = OriginTimes(source) if source is not None and source.origins > 1 else None
        if self._origins is not None:
            self.meters.origins = self._origins.slowest
        # Without workers there is nobody who could begin early, and on a longer way rows have no index any more.
        # Nor where others ask for the same tasks, which all are to cut alike.
        early = source is not None and plan.counted and plan.batch is not None and self.executor.ahead and options.pool is None
        self.slow_rows = SlowRows(source, self.meters, self._work.runner.kinds) if early and source is not None else None
        if watch is not None:
            watch.on_moved = partial(_when_moved, weakref.ref(self))  # a watcher must not keep an unused loader alive
        self._learns = plan.batch is not None and not plan.finishing.steps and loose_fields(plan, self.layout)

    # ---- the feed ----------------------------------------------------------------------------------------------------------

    def start(self, cursor: Cursor, deal: Deal) -> Feed[FedUnit, Content, Result]:
        """Begin to make what comes from a cursor on, for the ranks of a deal."""
        options = self._options
        self.forerunner = self._run_ahead(cursor, deal)
        if self._idle is None:
            self._idle = IdleCores()
            self.meters.summed = self._idle.look
        self._supply = self._make_supply(cursor, deal)
        self.feed = Feed(
            self._supply,
            self.executor.channel(self._work),
            self.executor,
            window=self._window,
            budget=self._share_bytes,
            watchdog_s=options.watchdog_s,
            first=not self.plan.counted,
            describe=partial(described, self._work.source),
            resized=window_of if self._units_ahead is None else None,
            early=self.slow_rows,
        )
        self.meters.occupancy = partial(_occupancy, self.feed)
        # Not where samples pass through feeds before: these go on, and their workers are busy.
        self._interference.pause = self.feed.pause if self.plan.counted else None
        return self.feed

    def reached(self, cursor: Cursor) -> None:
        """The consumer has come this far."""
        forerunner = self.forerunner
        if forerunner is None:
            return
        if self._reads_elsewhere:
            self.forerunner = None
            forerunner.close()
        else:
            forerunner.reached(cursor)

    def learn(self, batch: Batch) -> None:
        """Have room in the memory of batches for fields that functions make, if these arrays are as others will be."""
        if not self._learns or batch.rows != self.layout.rows:
            return
        self._learns = False
        layout, rules = self.layout, self._work.rules
        columns = {name: column for name, column in batch._asdict().items() if can_hope(name, column, layout, rules)}
        if columns:
            self.slabs.start_over(layout.hoping(columns))

    def stop(self) -> None:
        """Drop what is being made, and what was prepared."""
        feed, supply, forerunner = self.feed, self._supply, self.forerunner  # once: two threads may do this at the same time
        self.feed = self._supply = self.forerunner = None
        self.meters.occupancy, self._interference.pause = Occupancy, None
        if feed is not None:
            feed.close()
        if isinstance(supply, CutSupply):
            supply.close()
        if forerunner is not None:
            forerunner.close()
        self.front_skipped.clear()

    def close(self) -> None:
        """Stop all workers and free memory."""
        self.stop()
        self._finalizer.detach()
        self.executor.close()
        if self.decoding.device is not None:
            self.decoding.device.close()
        if self.cache is not None and not self._lent:
            self.cache.release()
        self.slabs.start_over()  # a closed loader that is still referenced does not keep its memory

    def facts(self) -> Facts:
        """What the verdict uses besides measurements: where samples are stored, what could be cached, the user's settings."""
        from .known_facts import facts_of

        options = self._options
        return facts_of(
            self.plan,
            self._work.runner,
            draws=self.meters.snapshot(look=False).draws > 0,
            idle=self._idle,
            budget=self._share_bytes,
            memory_for_blocks=self._memory_for_blocks if self.executor.shares_memory else 0,
            ahead=options.ahead,
            chosen=(options.threads, options.processes) != (None, None),
            device=self._output.beside_device,
            processes=bool(self.executor.processes),
        )

    @cached_property
    def _memory_for_blocks(self) -> int:
        options = self._options
        if self._ahead_bytes or options.pool is not None:
            return 0
        return memory_for_blocks(self.plan, self._deal, self._part, options.memory_bytes)

    @property
    def _window(self) -> Window:
        """Units in the making or waiting."""
        if self._units_ahead is not None:
            return Window(self._units_ahead, self._units_ahead)
        window = window_of(self.executor.workers)
        return window if self.decoding.turns is None else replace(window, least=max(window.least, LOADS + 2))

    @property
    def _units_ahead(self) -> int | None:
        """How many units are made ahead, whoever works on them; None: that depends."""
        if not self.executor.ahead:
            return 1
        return None if self._options.ahead is None else max(1, self._options.ahead // self._group)

    @property
    def _share_bytes(self) -> int:
        """What batches may take of `memory`; on a longer way, so may each part of it, and what waits between the parts."""
        parts = 1 if self.plan.counted else 2 + len(self._fronts) + (self.plan.order is None)
        return (self._options.memory_bytes - self._ahead_bytes) // parts

    def _run_ahead(self, cursor: Cursor, deal: Deal) -> Forerunner | None:
        """Whoever tells the source what comes; None: it does not want to know, or workers would not see what it fetches."""
        plan, source = self.plan, self.plan.source
        if not isinstance(source, Source) or source.foresight is None or plan.order is None or self._reads_elsewhere:
            return None
        if not source.foresight.shared and (not self.executor.shares_memory or self.executor.remote is not None):
            return None
        lead = self._window.units(self.layout.nbytes) * self.layout.rows
        dealt = deal if plan.counted else None
        return Forerunner(source, plan.order, cursor, decodes(plan), self.cache, dealt, self._part, self._once, lead)

    @property
    def _reads_elsewhere(self) -> bool:
        """Whether all that is read is read by workers on other machines."""
        remote = self.executor.remote
        return remote is not None and remote.shy and remote.workers > 0

    def _moved(self) -> None:
        """Others do the work from now on."""
        if self.slow_rows is not None:
            self.slow_rows.start_over()
        source, forerunner = self.plan.source, self.forerunner
        if forerunner is None or not isinstance(source, Source) or self.executor.shares_memory:
            return
        if source.foresight is not None and not source.foresight.shared:
            self.forerunner = None
            forerunner.close()

    def _make_supply(self, cursor: Cursor, deal: Deal) -> Supply[FedUnit]:
        plan, group, make = self.plan, self._group, self._make_unit()
        if plan.counted:
            return CountedSupply(plan, deal, group, cursor, make, self._once, self._part)
        opener, skipped = self._front_opener(), self.front_skipped
        return CutSupply(plan, deal, group, cursor, opener, make, skipped, self._once, self._part)

    def _make_unit(self) -> Any:
        plan, pool, work, skipped = self.plan, self.slabs, self._work, self.front_skipped
        finish = finishes(plan, self.layout)
        fill = plan.batch is not None and plan.policy is not None and plan.policy.fill == "repeat"
        slow, executor, steps, decoding = self.slow_rows, self.executor, self._steps, self.decoding.device
        see = see_rows(slow, self._origins, steps)
        observe = observer(self.meters, steps, self._finish_steps, see=see)
        review = self._cache_review() if plan.counted else None

        def make(epoch: int, rows: Any, padded: int, cursors: Cursors) -> BatchUnit:
            draft = Draft(len(rows), pool, fill, None if decoding is None else decoding.batch(len(rows)))
            start = rows if isinstance(rows, Chunk) or plan.order is None else plan.order.places(rows, epoch)
            if review is not None:
                start = review.coming(start)
            alone = slow.slots(start.indices) if slow is not None else ()
            if alone and slow is not None:
                pool.keep(slow.units(len(rows), executor.workers))
            unit = BatchUnit(epoch, start, padded, cursors, draft, work, finish, observe, skipped, alone)
            skipped.clear()
            return unit

        return make

    def _cache_review(self) -> CacheReview | None:
        order = self.plan.order
        # Where each pass has every sample once, it finds those that are there when it begins, and no choice gives more.
        return None if self.cache is None or order is None or order.each_once else CacheReview(self.cache, order)

    def _front_opener(self) -> Callable[[Cursor], Flow]:
        # Not a method: what the supply holds must not reference the loader, or an unused loader would not be freed at once.
        plan, fronts, executor, skipped = self.plan, self._fronts, self.executor, self.front_skipped
        named = self._front_steps
        sees = [see_rows(None, self._origins, steps) for steps in named]
        observers = [observer(self.meters, steps, front=True, see=see) for steps, see in zip(named, sees)]
        budget, watchdog_s, review = self._share_bytes, self._options.watchdog_s, self._cache_review()

        def open_(cursor: Cursor) -> Flow:
            placed = cursor.at is not None and not plan.replays
            start, drop = cursor.at if placed and cursor.at else (0, cursor.row)
            flow = open_front(plan, fronts, executor, cursor.epoch, start, observers, skipped, budget, watchdog_s, review)
            return SkipRows(flow, drop, skipped)

        return open_


def _executor_of(options: LoaderOptions, output: Output, name: str, threads: int | None, plan: Plan) -> Executor:
    processes = options.processes
    if options.pool is not None:
        return make_remote(options.pool, True, options.pool_keys, threads, processes, name, plan)
    if options.workers_at is not None:
        return make_remote(options.workers_at, False, options.worker_keys, threads, processes, name, plan)
    beside = output.beside_device
    return make_executor(name, threads, processes, plan, options.memory_bytes, beside, options.ray_address)


def _look(interference: Interference, auto: AutoWatch | None, decoding: DecodeWatch | None, meters: Meters, now: float) -> None:
    interference.look(meters, now)
    for watch in (auto, decoding):
        if watch is not None:
            watch.look(meters, now)


def _when_moved(machinery: weakref.ref[Machinery]) -> None:
    if (moved := machinery()) is not None:
        moved._moved()


class _RemoteWatch:
    """Tells the meters which remote workers there are, and of tasks that ran again because one was lost."""

    def __init__(self, interference: Interference, executor: Executor) -> None:
        self._interference, self._executor, self._rerun = interference, executor, 0

    def look(self, meters: Meters, now: float) -> None:
        self._interference.look(meters, now)
        executor, remote = self._executor, self._executor.remote
        assert remote is not None
        told = executor_stats("remote", executor, None)
        if (told.remote, told.remote_threads) != (meters.executor.remote, meters.executor.remote_threads):
            told = replace(told, since=meters.snapshot(look=False).batches)
            meters.moved(executor.workers, told, core_share().threads + remote.away)
        if remote.rerun > self._rerun:
            meters.count(lost=remote.rerun - self._rerun)
            self._rerun = remote.rerun


def _occupancy(feed: Feed[Any, Any, Any]) -> Occupancy:
    return Occupancy(*feed.occupancy)
