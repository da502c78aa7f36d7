"""Which batch comes next: by arithmetic where samples can be counted, by cutting a stream of rows where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.feed import Exhausted, Supply, Unit
from ..errors import SampleError
from ..plan.cursor import Cursor
from ..plan.deal import Deal
from ..plan.plan import Plan
from ..source.chunk import Chunk, Ints, join_chunks
from .front import Flow
from .units import BatchUnit, Cursors, EpochEnd, Failure

_ENDLESS = 1 << 61

#: (epoch, rows, how many of them are padding, cursors behind each step) -> a unit
MakeUnit = Callable[[int, Any, int, Cursors], BatchUnit]


class Turns:
    """Every `count`-th batch, from `number` on: how the workers of a torch DataLoader share an epoch."""

    def __init__(self, part: tuple[int, int]) -> None:
        self._number, self._count = part
        self._at = -1

    def mine(self) -> bool:
        """Whether the next batch is this worker's."""
        self._at += 1
        return self._at % self._count == self._number


class SkipRows(Flow):
    """A flow without its first rows; rows learn their number among those of their source sample on the way."""

    def __init__(self, inner: Flow, rows: int) -> None:
        self._inner, self._left = inner, rows

    def next(self, block: bool) -> Any:
        while (chunk := self._inner.next(block)) is not None:
            chunk = number_siblings(chunk)
            dropped = min(self._left, len(chunk))
            self._left -= dropped
            if dropped < len(chunk):
                return chunk.take(np.arange(dropped, len(chunk))) if dropped else chunk
        return None

    def close(self) -> None:
        self._inner.close()


class CountedSupply(Supply[Unit]):
    """Batches known by arithmetic, epoch after epoch from a cursor on.

    Up to `group` steps of the deal become one unit: 1 where a step is worth a unit of its own; more where steps are so small
    that handing each to a worker would cost more than making it. Units grow from one step to `group`, so that the first batch
    is early all the same.
    """

    def __init__(
        self, plan: Plan, deal: Deal, group: int, cursor: Cursor, make: MakeUnit, once: bool, part: tuple[int, int]
    ) -> None:
        self._plan, self._deal, self._group, self._make, self._once = plan, deal, group, make, once
        self._epoch, self._row = cursor.epoch, cursor.row
        self._first_epoch = cursor.epoch
        self._turns = Turns(part)
        self._grown = 1

    def poll(self, block: bool) -> Unit:
        if self._once and self._epoch > self._first_epoch:
            raise Exhausted
        while (run := self._run()) is not None:
            start, stop = run
            if not self._deal.steps(stop - start):
                self._row = self._pass_end(start)
            elif self._turns.mine():
                return self._unit(start, stop)
            else:
                self._row = min(start + self._deal.stride, stop)
        self._epoch, self._row = self._epoch + 1, 0
        return EpochEnd(self._epoch - 1)

    def _pass_end(self, row: int) -> int:
        rows = self._plan.pass_rows
        return _ENDLESS if not rows else (row // rows + 1) * rows

    def _run(self) -> tuple[int, int] | None:
        """The rows still to be dealt in this pass; None at the end of the epoch."""
        rows, steps = self._plan.pass_rows, self._plan.steps
        if rows is None:
            return self._row, _ENDLESS
        if not rows or (steps.passes is not None and self._row >= rows * steps.passes):
            return None
        base = self._row // rows * rows
        stop = base + rows if steps.end is None else min(base + rows, base + steps.end * self._deal.stride)
        start = max(self._row, base + steps.begin * self._deal.stride)
        return start, max(start, stop)

    def _unit(self, start: int, stop: int) -> BatchUnit:
        deal, epoch = self._deal, self._epoch
        steps = min((stop - start) // deal.stride, self._grown)
        self._grown = min(2 * self._grown, self._group)
        if steps:
            rows, padded, taken = deal.rows(start, steps), 0, deal.stride
            self._row = start + steps * taken
        else:
            share = deal.share(0, start, stop)
            rows, padded, taken = share.rows(), share.padded, stop - start
            self._row = stop
        return self._make(epoch, rows, padded, lambda step: Cursor(epoch, start + (step + 1) * taken))


class CutSupply(Supply[Unit]):
    """Batches cut from chunks of samples that are numbered as they come."""

    def __init__(
        self,
        plan: Plan,
        deal: Deal,
        group: int,
        cursor: Cursor,
        open_: Callable[[Cursor], Flow],
        make: MakeUnit,
        skipped: list[SampleError],
        once: bool,
        part: tuple[int, int],
    ) -> None:
        self._skipped = skipped
        self._deal, self._group, self._make, self._open, self._once = deal, group, make, open_, once
        self._placed = not plan.replays
        self._cursor = cursor
        self._flow: Flow | None = None
        self._rows = _Buffer(cursor, self._placed)
        self._ended = False
        self._done = False
        self._turns = Turns(part)

    def poll(self, block: bool) -> Unit | None:
        while True:
            unit = self._poll(block)
            if not isinstance(unit, BatchUnit) or self._turns.mine():
                return unit

    def _poll(self, block: bool) -> Unit | None:
        if self._done:
            raise Exhausted
        if self._flow is None:
            self._flow = self._open(self._cursor)
        while not self._ended and len(self._rows) < self._deal.stride * self._group:
            try:
                chunk = self._flow.next(block)
            except Exhausted:
                self._ended = True
                break
            except Exception as error:  # noqa: BLE001  told in its place, after the batches before it
                self._done = True
                return Failure(error)
            if chunk is None:
                return None
            self._rows.add(chunk)
        left = len(self._rows)
        full = min(left // self._deal.stride, self._group)
        if full:
            return self._cut(full)
        if self._deal.steps(left):
            return self._cut_last(left)
        return self._next_epoch()

    def close(self) -> None:
        if self._flow is not None:
            self._flow.close()

    def _cut(self, steps: int) -> BatchUnit:
        """`steps` whole steps in one unit."""
        return self._unit(self._deal.rows(0, steps), 0, steps * self._deal.stride, self._deal.stride)

    def _cut_last(self, left: int) -> BatchUnit:
        share = self._deal.share(0, 0, left)
        return self._unit(share.rows(), share.padded, left, left)

    def _unit(self, rows: Ints, padded: int, taken: int, stride: int) -> BatchUnit:
        chunk, cursors = self._rows.cut(rows, taken)
        return self._make(self._cursor.epoch, chunk, padded, lambda step: cursors[(step + 1) * stride])

    def _next_epoch(self) -> EpochEnd:
        epoch = self._cursor.epoch
        self.close()
        self._flow, self._ended, self._done = None, False, self._once
        self._cursor = Cursor(epoch + 1, 0)
        self._rows = _Buffer(self._cursor, self._placed)
        skipped = list(self._skipped)
        self._skipped.clear()
        return EpochEnd(epoch, skipped)


class _Cursors:
    """The cursor behind each of a run of rows, worked out when asked for."""

    def __init__(self, epoch: int, first: int, parents: Ints, numbers: Ints) -> None:
        self._epoch, self._first, self._parents, self._numbers = epoch, first, parents, numbers

    def __getitem__(self, rows: int) -> Cursor:
        at = (int(self._parents[rows]), int(self._numbers[rows])) if len(self._parents) > rows else None
        return Cursor(self._epoch, self._first + rows, at)


class _Buffer:
    """Rows that have come and are not yet dealt. It remembers where in the source each came from, for the cursor."""

    def __init__(self, cursor: Cursor, placed: bool) -> None:
        self._epoch, self._first, self._placed = cursor.epoch, cursor.row, placed
        self._chunks: list[Chunk] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)

    def cut(self, rows: Ints, taken: int) -> tuple[Chunk, _Cursors]:
        """The given rows of the next `taken`, which are gone from here afterwards."""
        held = join_chunks(self._chunks)
        first, parents = self._first, held.parents
        # Slots carry each row's number among the rows of its source sample; see `number_siblings`.
        places = np.append(parents, parents[-1] + 1) if self._placed else parents[:0]
        cursors = _Cursors(self._epoch, first, places, np.append(held.slots, 0))
        chunk = held.take(rows)
        chunk.positions = first + rows
        rest = np.arange(taken, len(held))
        self._chunks = [held.take(rest)] if len(rest) else []
        self._first += taken
        return chunk, cursors


def number_siblings(chunk: Chunk) -> Chunk:
    """Note in `slots` each row's number among the rows that came from the same source sample."""
    starts = np.flatnonzero(np.diff(chunk.parents, prepend=-1))
    counts = np.diff(np.append(starts, len(chunk)))
    chunk.slots = np.arange(len(chunk), dtype=np.int64) - np.repeat(starts, counts)
    return chunk
