"""Which batch comes next: by arithmetic if samples can be counted, by cutting a stream of rows if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.feed import Exhausted, Supply
from ..errors import SampleError, StateError
from ..plan.cursor import Cursor
from ..plan.deal import Deal, StepTurns
from ..plan.plan import Plan
from ..source.chunk import Chunk, Ints, join_chunks, numbers
from .batch_units import BatchUnit, Cursors, EpochEnd, Failure, FedUnit
from .front import Flow

#: the rows of an epoch without end
ENDLESS = 1 << 61

#: (epoch, rows, how many of them are padding, cursors after each step) -> a unit
MakeUnit = Callable[[int, Any, int, Cursors], BatchUnit]


class Turns:
    """Steps as they come, and which of them are one worker's."""

    def __init__(self, part: StepTurns) -> None:
        self._part, self._at = part, 0

    def mine(self, steps: int) -> Ints:
        """Which of the next `steps` steps are this worker's."""
        if self._part.count == 1:
            return numbers(steps)
        at = np.arange(self._at, self._at + steps)
        self._at += steps
        return np.flatnonzero(self._part.mine(at))


class SkipRows(Flow):
    """A flow without its first rows, which were handed out before a state was saved.

    Bad samples among them were accounted for then. Rows learn their number among those of their source sample on the way.
    """

    def __init__(self, inner: Flow, rows: int, skipped: list[SampleError]) -> None:
        self._inner, self._left, self._skipped = inner, rows, skipped

    def next(self, block: bool) -> Any:
        while (chunk := self._pull(block)) is not None:
            chunk = number_siblings(chunk)
            dropped = min(self._left, len(chunk))
            self._left -= dropped
            if dropped:
                self._skipped.clear()
            if dropped < len(chunk):
                return chunk.take(np.arange(dropped, len(chunk))) if dropped else chunk
        return None

    def _pull(self, block: bool) -> Any:
        try:
            return self._inner.next(block)
        except Exhausted:
            if self._left:
                raise StateError(
                    f"the epoch ends {self._left:,} rows before the saved state's position: the samples have changed since then"
                ) from None
            raise

    def close(self) -> None:
        self._inner.close()


class EpochSteps:
    """Where the steps of an epoch begin, starting at a row; by arithmetic, if samples can be counted."""

    def __init__(self, plan: Plan, deal: Deal, row: int = 0) -> None:
        self._plan, self._deal, self.row = plan, deal, row

    def pass_over(self, steps: int) -> int:
        """Skip the next steps; returns how many of them do not exist."""
        while steps and (run := self.next_run()) is not None:
            have = self._deal.steps(run[1] - run[0])
            if steps < have:
                self.row = run[0] + steps * self._deal.stride
                return 0
            self.row, steps = self._pass_end(run[0]), steps - have
        return steps

    @property
    def ended(self) -> bool:
        """Whether no step is left in the present epoch, on any rank."""
        return self.next_run() is None

    def next_run(self) -> tuple[int, int] | None:
        """The rows of this pass, or of the first one after it, that give a step; None at the end of the epoch."""
        while (run := self._run()) is not None and not self._deal.steps(run[1] - run[0]):
            self.row = self._pass_end(run[0])
        return run

    def _pass_end(self, row: int) -> int:
        rows = self._plan.pass_rows
        return ENDLESS if not rows else (row // rows + 1) * rows

    def _run(self) -> tuple[int, int] | None:
        """The rows still to be dealt in this pass; None at the end of the epoch."""
        rows, steps = self._plan.pass_rows, self._plan.steps
        if rows is None:
            stride = self._deal.stride
            start = self.row or steps.begin * stride
            stop = ENDLESS if steps.end is None else steps.end * stride
            return (start, stop) if start < stop else None
        if not rows or (steps.passes is not None and self.row >= rows * steps.passes):
            return None
        base = self.row // rows * rows
        stop = base + rows if steps.end is None else min(base + rows, base + steps.end * self._deal.stride)
        # What a pass leaves out is at its beginning: in the middle of it, other ranks count other batches, and lose none.
        start = self.row if self.row > base else base + steps.begin * self._deal.stride
        return start, max(start, stop)


class CountedSupply(Supply[FedUnit]):
    """Batches known by arithmetic, epoch after epoch from a cursor on.

    Up to `group` steps of the deal become one unit: 1 where a step is worth a unit of its own; more where steps are so small
    that handing each to a worker would cost more than making it. Units grow from one step to `group`, so that the first batch
    is early all the same.
    """

    def __init__(self, plan: Plan, deal: Deal, group: int, cursor: Cursor, make: MakeUnit, once: bool, part: StepTurns) -> None:
        self._deal, self._group, self._make, self._once = deal, group, make, once
        self._epoch, self._steps = cursor.epoch, EpochSteps(plan, deal, cursor.row)
        self._first_epoch = cursor.epoch
        self._turns = Turns(part)
        self._grown = 1

    def poll(self, block: bool) -> FedUnit:
        if self._once and self._epoch > self._first_epoch:
            raise Exhausted
        while (run := self._steps.next_run()) is not None:
            if (unit := self._unit(*run)) is not None:
                return unit
        self._epoch, self._steps.row = self._epoch + 1, 0
        return EpochEnd(self._epoch - 1)

    def _unit(self, start: int, stop: int) -> BatchUnit | None:
        """The next steps; None when they are all another worker's."""
        deal, epoch = self._deal, self._epoch
        steps = min((stop - start) // deal.stride, self._grown)
        self._grown = min(2 * self._grown, self._group)
        if steps:
            mine, padded, taken = self._turns.mine(steps), 0, deal.stride
            rows = my_rows(deal, start, steps, mine)
            self._steps.row = start + steps * taken
        else:
            mine, share = self._turns.mine(1), deal.share(0, start, stop)
            rows, padded, taken = share.rows(), share.padded, stop - start
            self._steps.row = stop
        if not len(mine):
            return None
        return self._make(epoch, rows, padded, lambda step: Cursor(epoch, start + (int(mine[step]) + 1) * taken))


def my_rows(deal: Deal, start: int, steps: int, mine: Ints) -> Ints:
    """This rank's rows of those of the `steps` steps that are this worker's."""
    rows = deal.rows(start, steps)
    return rows if len(mine) == steps else rows.reshape(steps, deal.size)[mine].ravel()


class CutSupply(Supply[FedUnit]):
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
        part: StepTurns,
    ) -> None:
        self._skipped = skipped
        self._deal, self._group, self._make, self._open, self._once = deal, group, make, open_, once
        self._placed = not plan.replays
        self._cursor = cursor
        self._flow: Flow | None = None
        self._rows = _Buffer(cursor, self._placed)
        self._ended = False
        self._failure: Exception | None = None
        self._done = False
        self._turns = Turns(part)

    def poll(self, block: bool) -> FedUnit | None:
        while True:
            if self._done:
                raise Exhausted
            if not self._fill(block):
                return None
            left = len(self._rows)
            full = min(left // self._deal.stride, self._group)
            if full:
                unit = self._cut(full)
            elif self._failure is not None:
                self._done = True
                return Failure(self._failure)
            elif self._deal.steps(left):
                unit = self._cut_last(left)
            else:
                return self._next_epoch()
            if unit is not None:
                return unit

    def _fill(self, block: bool) -> bool:
        """Whether there are rows for a unit, or will be no more."""
        if self._flow is None:
            self._flow = self._open(self._cursor)
        while not self._ended and len(self._rows) < self._deal.stride * self._group:
            try:
                chunk = self._flow.next(block)
            except Exhausted:
                self._ended = True
                break
            except Exception as error:  # noqa: BLE001  raised in its place, after the batches before it
                self._ended, self._failure = True, error
                break
            if chunk is None:
                return False
            self._rows.add(chunk)
        return True

    def close(self) -> None:
        if self._flow is not None:
            self._flow.close()

    def _cut(self, steps: int) -> BatchUnit | None:
        """`steps` whole steps in one unit."""
        mine = self._turns.mine(steps)
        return self._unit(my_rows(self._deal, 0, steps, mine), 0, steps * self._deal.stride, self._deal.stride, mine)

    def _cut_last(self, left: int) -> BatchUnit | None:
        share = self._deal.share(0, 0, left)
        return self._unit(share.rows(), share.padded, left, left, self._turns.mine(1))

    def _unit(self, rows: Ints, padded: int, taken: int, stride: int, mine: Ints) -> BatchUnit | None:
        """The next `taken` rows are dealt, and some of them are this rank's; None when all steps are another worker's."""
        chunk, cursors = self._rows.cut(rows, taken)
        if not len(mine):
            return None
        return self._make(self._cursor.epoch, chunk, padded, lambda step: cursors((int(mine[step]) + 1) * stride))

    def _next_epoch(self) -> EpochEnd:
        epoch, left = self._cursor.epoch, len(self._rows)
        self.close()
        self._flow, self._ended, self._done = None, False, self._once
        self._cursor = Cursor(epoch + 1, 0)
        self._rows = _Buffer(self._cursor, self._placed)
        skipped = list(self._skipped)
        self._skipped.clear()
        return EpochEnd(epoch, skipped, left)


class _Buffer:
    """Rows that have come and are not yet dealt. It remembers where in the source each came from, for the cursor."""

    def __init__(self, cursor: Cursor, placed: bool) -> None:
        self._epoch, self._first, self._placed = cursor.epoch, cursor.row, placed
        self._held: Chunk | None = None
        self._at = 0  # rows of it that are dealt
        self._new: list[Chunk] = []
        self._left = 0

    def __len__(self) -> int:
        return self._left

    def add(self, chunk: Chunk) -> None:
        self._new.append(chunk)
        self._left += len(chunk)

    def cut(self, rows: Ints, taken: int) -> tuple[Chunk, Cursors]:
        """The given rows of the next `taken`, which are gone from here afterwards, and the cursor after any number of them."""
        held, at, first = self._reach(taken), self._at, self._first
        chunk = held.take(at + rows)
        chunk.positions = first + rows
        self._at, self._first, self._left = at + taken, first + taken, self._left - taken
        epoch, placed = self._epoch, self._placed
        return chunk, lambda count: Cursor(epoch, first + count, _place(held, at + count) if placed else None)

    def _reach(self, rows: int) -> Chunk:
        """A chunk that holds the next `rows` rows, from `_at` on. Chunks are joined only when they must be."""
        if self._held is None or len(self._held) - self._at < rows:
            rest = [] if self._held is None else [self._held.take(np.arange(self._at, len(self._held)))]
            self._held = join_chunks([*rest, *self._new])
            self._at, self._new = 0, []
        return self._held


def _place(chunk: Chunk, row: int) -> tuple[int, int]:
    """Where a row comes from: its source position, and its number among the rows from there (see `number_siblings`)."""
    if row < len(chunk):
        return int(chunk.parents[row]), int(chunk.slots[row])
    return int(chunk.parents[-1]) + 1, 0


def number_siblings(chunk: Chunk) -> Chunk:
    """Note in `slots` each row's number among the rows that came from the same source sample."""
    starts = np.flatnonzero(np.diff(chunk.parents, prepend=-1))
    counts = np.diff(np.append(starts, len(chunk)))
    chunk.slots = np.arange(len(chunk), dtype=np.int64) - np.repeat(starts, counts)
    return chunk
