"""Batches of a data set that Stoker reads itself, by the indices that an order gives."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..batch.draft import Draft
from ..batch.slab import SlabPool
from ..device import choose_output
from ..engine.executor import Executor
from ..engine.schedule import Window
from ..errors import SKIP, SampleError
from ..loader.batch_units import BatchUnit, described
from ..loader.build import (
    compile_work,
    finish_names,
    finishes,
    observer,
    rows_layout,
    slab_memory,
    step_names,
    window_of,
)
from ..observe.meters import Meters
from ..plan.cursor import Cursor
from ..plan.order import Places
from .index_order import Pick
from .lowered_dataset import Lowered

#: what helps a pipeline against a bad sample, and what helps here
_REMEDIES = {
    SKIP: "leave its index out with torch.utils.data.Subset",
    "loader(executor='inline')": "num_workers=0",
}


class LoweredUnit(BatchUnit):
    """One batch of a data set that Stoker reads itself."""

    pick: Pick
    ended = False

    def _fail(self, row: int, error: BaseException) -> None:
        if isinstance(error, SampleError):
            for known, here in _REMEDIES.items():
                error.message = error.message.replace(known, here)
            error.args = (error.message,)
        super()._fail(row, error)

    @property
    def added(self) -> int:
        """Bytes of the batch."""
        return self.nbytes + self._added


class LoweredBatches:
    """Makes units of picks, and batches of units."""

    def __init__(self, lowered: Lowered, seed: int, executor: Executor, meters: Meters) -> None:
        self._lowered = lowered
        order = lowered.pipeline.plan.order
        assert order is not None and order.length is not None  # a data set has a length, and its items by number
        self._order, self._length = order, order.length
        self._plan = lowered.pipeline.shuffle(seed=seed).batch(1, drop_last=False).plan  # for its seed: the order is another
        layout = rows_layout(self._plan, 1)
        self.work, _ = compile_work(self._plan, layout)
        self._output = choose_output("torch", None)
        self._memory = slab_memory(executor, self._output)
        self._window = window_of(executor.workers) if executor.ahead else Window(1, 1)
        self._pools: dict[int, SlabPool] = {}  # by rows
        self._finish = finishes(self._plan, layout)
        self._observe = observer(meters, step_names(self.work.runner), finish_names(self.work.finish))

    def unit(self, pick: Pick) -> LoweredUnit:
        indices = np.array([self._checked(index) for index in pick.indices], np.int64)
        places = Places(np.array(pick.keys, np.int64), self._order.resolve(indices, 0), pick.epoch)
        unit = LoweredUnit(
            pick.epoch, places, 0, lambda _: Cursor(), Draft(len(places), self._pool(len(places))), self.work, self._finish,
            self._observe,
        )  # fmt: skip
        unit.pick = pick
        return unit

    def _checked(self, index: Any) -> int:
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"index {number} is out of range of a data set of {self._length:,} items")
        return number % self._length

    def _pool(self, rows: int) -> SlabPool:
        """Memory for batches of so many rows: most have as many, the last of an epoch fewer."""
        if rows not in self._pools:
            larger = min((size for size in self._pools if rows <= size <= 2 * rows), default=0)
            if larger:
                return self._pools[larger]
            layout = rows_layout(self._plan, rows)
            self._pools[rows] = SlabPool(layout, self._window.units(layout.nbytes) + 1, self._memory)
        return self._pools[rows]

    def value(self, unit: LoweredUnit) -> Any:
        """The batch of a unit, as torch would have joined it."""
        return self._lowered.restore(self._output.hand_over(unit.batch()))

    def describe(self, content: Any) -> str:
        """Which items a task is about."""
        return described(self.work.source, content)

    def window(self, workers: int, ahead: int) -> Window:
        """Workers share each batch, so a few are enough."""
        return self._window
