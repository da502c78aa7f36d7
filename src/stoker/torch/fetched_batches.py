"""Batches of a data set that is asked for its items: what the engine makes, and what is handed out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.executor import Outcome, in_words
from ..engine.feed import Unit
from ..engine.run_task import presentable
from ..engine.schedule import Window
from ..errors import WorkerError
from ..observe.meters import Meters, StepName
from .fetch_work import FetchResult, FetchTask, FetchWork
from .index_order import Pick
from .own_copies import OwnCopies

#: what a task does, for statistics
_STEPS = [StepName("items", "function"), StepName("collate", "function")]


class FetchUnit(Unit[FetchTask, FetchResult]):
    """One batch: one task, or, where that ended its worker, one for each item."""

    def __init__(self, pick: Pick, rows: int, work: FetchWork, meters: Meters) -> None:
        self.pick, self.rows = pick, rows
        self.value: Any = None
        self.ended = False  # there is no such batch any more
        self.error: BaseException | None = None
        self.samples = self.added = 0
        self._work, self._meters = work, meters
        self._parts: dict[int, Any] = {}

    def split(self, rows: int) -> list[FetchTask]:
        return [FetchTask(self.pick.epoch, self.pick.number, self.pick.indices, self.pick.keys)]

    def done(self, outcome: Outcome[FetchTask, FetchResult]) -> int:
        task, content, result = outcome.task, outcome.task.content, outcome.result
        span = (outcome.worker, task.unit, task.number, outcome.start_s, outcome.stop_s)
        good = result is not None and result.failure is None and not result.ended
        self._meters.task(span, outcome.cpu_s, _STEPS, result.report if good and result is not None else None)
        if outcome.fault is not None:
            self._fail(outcome.fault.error())
        if result is None:
            return 0
        self._meters.worked(result.rows)
        if result.report.draws:
            self._meters.count(draws=1)
        self.ended = result.ended
        if result.failure is not None:
            self._fail(result.failure.exception())
        elif content.part is None:
            self.value, self.samples = result.value, result.rows
        else:
            self._take_part(content.part, result.value)
        self.added += result.nbytes
        return result.nbytes

    def _take_part(self, at: int, item: Any) -> None:
        """One of the items that are fetched by themselves; with the last of them, the batch."""
        self._parts[at] = item
        if len(self._parts) < self.rows or self.failed:
            return
        [task] = self.split(0)
        items, self._parts = [self._parts[at] for at in range(self.rows)], {}
        try:
            self.value, self.samples = self._work.joined(task, items, False), self.rows
        except Exception as error:  # noqa: BLE001  the user's, raised where the batch is asked for
            self._fail(error)

    def lost(self, outcome: Outcome[FetchTask, FetchResult]) -> None:
        self._meters.count(lost=1)

    def pieces(self, content: FetchTask) -> list[FetchTask]:
        if not self._work.by_item or content.part is not None:
            return []
        pairs = enumerate(zip(content.indices, content.keys))
        return [FetchTask(content.epoch, content.number, [index], [key], at) for at, (index, key) in pairs]

    def give_up(self, content: FetchTask | None, causes: Sequence[str]) -> int:
        assert content is not None  # it has no finishing task
        what = f"index {content.indices[0]!r} of the data set" if content.part is not None else self._work.describe(content)
        how = in_words(causes)
        self._fail(WorkerError(f"{what}: the process that worked on it {how}; to debug it, fetch it alone with num_workers=0"))
        return 0

    def _fail(self, error: BaseException) -> None:
        self.failed, self.error = True, presentable(error)

    def __str__(self) -> str:
        return self._work.describe(self.split(0)[0])


class FetchedBatches:
    """Makes units of picks, and batches of units."""

    def __init__(self, work: FetchWork | OwnCopies, size: int | None, meters: Meters) -> None:
        self.work, self._size, self._meters = work, size or 1, meters
        self._given = work.work if isinstance(work, OwnCopies) else work
        self.describe = self._given.describe

    def unit(self, pick: Pick) -> FetchUnit:
        return FetchUnit(pick, len(pick.indices) or self._size, self._given, self._meters)

    def value(self, unit: FetchUnit) -> Any:
        """The batch of a unit; from here on the user alone holds it."""
        value, unit.value = unit.value, None
        return value

    def window(self, workers: int, ahead: int) -> Window:
        """Each task is a batch, so every worker needs one."""
        units = max(1, workers, ahead)
        return Window(units, units, first=units)
