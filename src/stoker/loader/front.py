"""The front of a ragged pipeline, for one epoch: source or stream, segments, counting verbs.

It yields chunks of samples in order, renumbered. Every rank runs the whole front and keeps its share of the result, so the global
order, and with it every state, is independent of the number of ranks. Put cheap filters before expensive stages.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..batch.draft import column_bytes
from ..batch.written_rows import Report
from ..engine.executor import Executor
from ..engine.feed import Exhausted, Feed, Supply
from ..engine.pump import Pump
from ..engine.run_task import presentable
from ..engine.schedule import Window
from ..errors import FunctionError, SampleError, StallError, StokerError, message_of
from ..plan.nodes import Regroup
from ..plan.order import Order
from ..plan.plan import Plan, Segment
from ..sizes import counted
from ..source.chunk import Chunk, chunk_of, join_chunks
from ..source.streams.stream import StreamSource
from ..stage.tail import Tails
from .batch_units import ChunkUnit, Observer, Rows, SegmentWork, described
from .cache_review import CacheReview

#: samples a task of a segment takes, when it may choose
ROWS = 16
#: memory that the look-ahead of a segment fills, where that is enough for all workers
_AHEAD_BYTES = 64 << 20


class Flow(ABC):
    """Chunks in order."""

    @abstractmethod
    def next(self, block: bool) -> Any:
        """The next rows; None when they would have to be waited for and `block` is False. Raises Exhausted at the end."""

    def close(self) -> None:
        """Stop whatever works for this flow."""


class Positions(Flow):
    """Runs of `rows` positions of the order, to be read by the first segment; with `whole` a last, shorter one is dropped."""

    def __init__(self, order: Order, epoch: int, start: int, rows: int, whole: bool, review: CacheReview | None = None) -> None:
        self._order, self._length, self._review = order, order.length, review
        self._epoch, self._at, self._rows, self._whole = epoch, start, rows, whole

    def next(self, block: bool) -> Any:
        stop = self._at + self._rows
        if self._length is not None:
            stop = min(stop, self._length)
        if stop <= self._at or (self._whole and stop - self._at < self._rows):
            raise Exhausted
        positions = np.arange(self._at, stop, dtype=np.int64)
        self._at = stop
        places = self._order.places(positions, self._epoch)
        return places if self._review is None else self._review.coming(places)


class Pulled(Flow):
    """Chunks of a stream's samples, pulled ahead by a thread."""

    def __init__(self, source: StreamSource, epoch: int, executor: Executor, budget: int, watchdog_s: float) -> None:
        self._source, self._epoch, self._count = source, epoch, 0
        self._pump = Pump(
            source.open, ROWS, 8, watchdog_s, executor.ahead, budget, lambda sample: column_bytes(list(sample.values()))
        )

    def next(self, block: bool) -> Any:
        try:
            samples = self._pump.get(block)
        except StokerError:
            raise
        except Exception as error:
            after = f"after {counted(self._count, 'sample')}" if self._count else "before its first sample"
            raise FunctionError(f"{self._source.title} raised {type(error).__name__} {after}: {message_of(error)}") from error
        if samples is None:
            return None
        if not samples:
            raise Exhausted
        numbered = list(enumerate(samples, self._count))
        keys = [self._source.key(sample, number) for number, sample in numbered]
        origins = [self._source.origin(sample, number) for number, sample in numbered]
        chunk = chunk_of(samples, self._epoch, self._count, keys, origins)
        self._count += len(samples)
        return chunk

    def close(self) -> None:
        self._pump.close()


class Regrouped(Flow):
    """The same rows in chunks of exactly `rows`; the last one is shorter, or dropped with `whole`."""

    def __init__(self, inner: Flow, rows: int, whole: bool) -> None:
        self._inner, self._rows, self._whole = inner, rows, whole
        self._held: list[Chunk] = []
        self._ended = False

    def next(self, block: bool) -> Any:
        while not self._ended and sum(map(len, self._held)) < self._rows:
            try:
                chunk = self._inner.next(block)
            except Exhausted:
                self._ended = True
                break
            if chunk is None:
                return None
            self._held.append(chunk)
        if sum(map(len, self._held)) < (self._rows if self._whole else 1):
            raise Exhausted
        rows = join_chunks(self._held)
        first, rest = np.split(np.arange(len(rows)), [self._rows])
        self._held = [rows.take(rest)] if len(rest) else []
        return rows.take(first)

    def close(self) -> None:
        self._inner.close()


class _Units(Supply[ChunkUnit]):
    def __init__(self, inner: Flow, work: SegmentWork, observe: Observer) -> None:
        self._inner, self._work, self._observe = inner, work, observe

    def poll(self, block: bool) -> ChunkUnit | None:
        rows = self._inner.next(block)
        return None if rows is None else ChunkUnit(rows, self._work, self._observe)


class OutputWatch:
    """Notices that endless samples go in and none comes out, because a function keeps none of them.

    That is never certain, so there are two conditions: the consumer has waited for a sample for `watchdog_s` seconds, and twice
    as many samples as the data have were examined in vain.
    """

    def __init__(self, samples: int, watchdog_s: float) -> None:
        self._samples, self._watchdog_s = samples, watchdog_s
        self._looked_at = 0
        self._since = 0.0

    def begin(self) -> None:
        """A sample came out."""
        self._looked_at = 0
        self.wait()

    def wait(self) -> None:
        """Somebody begins to wait; the time between is the consumer's."""
        self._since = time.monotonic()

    def looked_at(self, rows: int) -> None:
        self._looked_at += rows

    def check(self, block: bool) -> None:
        """Raise if waiting is in vain; only if the consumer waits, because then nothing is in flight after this place."""
        waited = time.monotonic() - self._since
        if block and self._looked_at >= 2 * self._samples and waited >= self._watchdog_s:
            raise StallError(
                f"filter() or flat_map() returned no sample for {self._watchdog_s:g} s (watchdog_s) while "
                f"{counted(self._looked_at, 'sample')} went in, and repeat() never ends; check the function, or put "
                "take(n) before it"
            )


class Through(Flow):
    """Rows sent through a segment's stages by the workers."""

    def __init__(
        self,
        inner: Flow,
        work: SegmentWork,
        executor: Executor,
        observe: Observer,
        skipped: list[SampleError],
        budget: int,
        watchdog_s: float,
        first: bool,
        watch: OutputWatch | None,
        last: bool,
    ) -> None:
        self._inner, self._skipped = inner, skipped
        self._watch, self._counts, self._last = watch, not first, last
        self._failure: BaseException | None = None
        self._feed: Feed[ChunkUnit, Rows, tuple[Chunk, Report]] = Feed(
            _Units(inner, work, observe),
            executor.channel(work),
            executor,
            window=_window(executor.workers),
            budget=budget,
            watchdog_s=watchdog_s,
            first=first,
            describe=partial(described, work.source),
            resized=_window,
        )

    def next(self, block: bool) -> Any:
        if self._failure is not None:
            raise presentable(self._failure)
        unit = self._feed.take(block)
        if unit is None:
            return None
        if unit.chunk is None:
            assert unit.error is not None
            raise presentable(unit.error)
        self._failure = unit.error  # raised when the rows before it have gone on
        self._skipped += unit.skipped
        if self._watch is not None:
            self._watch_output(self._watch, unit, block)
        return unit.chunk

    def _watch_output(self, watch: OutputWatch, unit: ChunkUnit, block: bool) -> None:
        if self._counts:
            watch.looked_at(unit.rows)
        if not unit.chunk:
            watch.check(block)
        elif self._last:
            watch.begin()

    def close(self) -> None:
        self._feed.close()
        self._inner.close()


class Numbered(Flow):
    """Rows after counting verbs, numbered from 0."""

    def __init__(self, inner: Flow, segment: Segment, epoch: int, watch: OutputWatch | None) -> None:
        self._inner, self._tails = inner, Tails(segment.tail, epoch)
        self._ready: list[Chunk] = []
        self._count = 0
        self._ended = False
        self._watch = watch

    def next(self, block: bool) -> Any:
        if self._watch is not None and block:
            self._watch.wait()
        while not self._ready:
            if self._ended:
                raise Exhausted
            try:
                self._ended = self._tails.full
                chunk = None if self._ended else self._inner.next(block)
            except Exhausted:
                self._ended = True
            if self._ended:
                self._ready += [out for out in self._tails.end() if len(out)]
            elif chunk is None:
                return None
            else:
                self._ready += [out for out in self._tails.push(chunk) if len(out)]
        rows = self._ready.pop(0)
        rows.positions = np.arange(self._count, self._count + len(rows), dtype=np.int64)
        self._count += len(rows)
        return rows

    def close(self) -> None:
        self._inner.close()


def open_front(
    plan: Plan,
    works: Sequence[SegmentWork],
    executor: Executor,
    epoch: int,
    start: int,
    observers: Sequence[Observer],
    skipped: list[SampleError],
    budget: int,
    watchdog_s: float,
    review: CacheReview | None = None,
) -> Flow:
    """The whole front for one epoch, reading from source position `start`; each part of it may take `budget` bytes."""
    flow: Flow
    if isinstance(plan.source, StreamSource):
        flow = Pulled(plan.source, epoch, executor, budget, watchdog_s)
    else:
        assert plan.order is not None
        flow = Positions(plan.order, epoch, start, plan.segments[0].unit or ROWS, _whole(plan.segments[0]), review)
    watch = None
    if plan.order is not None and plan.order.length is None:
        watch = OutputWatch(plan.order.source_length, watchdog_s)
    for number, (segment, work) in enumerate(zip(plan.segments, works)):
        last = number == len(plan.segments) - 1
        indexed = number == 0 and plan.order is not None
        if segment.unit and not indexed:
            flow = Regrouped(flow, segment.unit, _whole(segment))
        if segment.nodes or indexed:
            flow = Through(flow, work, executor, observers[number], skipped, budget, watchdog_s, number > 0, watch, last)
        flow = Numbered(flow, segment, epoch, watch if last else None)
    return flow


def _window(workers: int) -> Window:
    """Units of a segment in flight. Each is one task: with fewer of them than workers, some would have nothing to do."""
    return Window(workers + 2, 4 * workers + 4, _AHEAD_BYTES) if workers > 1 else Window(2, 2)


def _whole(segment: Segment) -> bool:
    """Whether the segment takes whole units only: an inner batch that drops its last, short one."""
    return any(isinstance(node, Regroup) and node.batch.drop_last for node in segment.nodes)
