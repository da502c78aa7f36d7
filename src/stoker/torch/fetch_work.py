"""What a worker does for a batch of a data set that is asked for its items: fetch them, and join them with `collate_fn`.

A batch is one task, as in torch's own workers: so whatever `collate_fn` makes is sent home once. The work is a value: each worker
process has its own copy of the data set.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.collate import default_collate, default_convert

from ..batch.draft import column_bytes
from ..batch.written_rows import Report, clocks
from ..engine.sent_values import check_sendable
from ..engine.worker_number import worker_number
from ..errors import FunctionError, message_of
from ..faults import RunAgain
from ..plan.seeds import key_of
from ..stage.global_random import ALL, GENERATORS, SeededTurn
from ..stage.runner import NOT_LOOKED_AT, note_waits
from ..stage.user_function import UserFunction

#: random streams of what is asked for items, and of what joins them
_FETCH, _COLLATE = 1, 2
#: how long an iterable data set may keep functions of other loaders waiting that draw from the same generators
_PATIENCE_S = 60.0
#: what draws nothing, and whose results do not depend on the number of threads
_PLAIN = (default_collate, default_convert)


@dataclass(slots=True)
class FetchTask:
    """A batch to be made: its number in its epoch, and the indices of its items with their keys.

    With `part`, one item that is not joined: the one at this place of the batch.
    """

    epoch: int
    number: int
    indices: list[Any]
    keys: list[int]
    part: int | None = None


@dataclass(slots=True)
class FetchResult:
    """What became of it: a batch, the end of an iterable data set, or a failure."""

    value: Any
    rows: int
    nbytes: int
    report: Report
    ended: bool = False
    failure: FetchFailure | None = None


@dataclass(slots=True)
class FetchFailure:
    """An exception of the user's code, and what it was asked for; with a traceback where it was raised in another process."""

    error: Exception
    where: str
    trace: str = ""

    @classmethod
    def of(cls, error: Exception, where: str) -> FetchFailure:
        if isinstance(error, StopIteration):  # which would end the loop over batches
            stopped, error = error, RuntimeError(f"{where}: raised StopIteration({message_of(error)})")
            error.__cause__ = stopped
        if worker_number() is None:
            return cls(error, where)
        trace = "".join(traceback.format_exception(error))
        return cls(_sendable(error), where, f"in worker {worker_number()}:\n\n{trace}")

    def exception(self) -> Exception:
        """What is raised at home: the user's own exception, which says what it was about."""
        if self.trace:
            self.error.__cause__ = FunctionError(f"{self.where} failed {self.trace}")
        else:
            notes = self.error.__dict__.setdefault("__notes__", [])  # as add_note() does, from Python 3.11 on
            notes += [self.where] if self.where not in notes else []
        return self.error


def _sendable(error: Exception) -> Exception:
    """The exception, or the nearest to it that can be made again in another process."""
    text = message_of(error, 1 << 16)
    makers: list[Callable[[], Exception]] = [lambda: error, lambda: type(error)(text)]
    for make in makers:
        try:
            check_sendable(made := make())
            return made
        except Exception:  # noqa: BLE001  what a user's class may do when it is sent or made again, nobody knows
            continue
    return RuntimeError(f"{type(error).__qualname__}: {text}")


class FetchWork:
    """Items by index, joined to a batch. `workers` is what the data set hears of how many there are; 0: it hears of none."""

    #: it may write to arrays of the data set, which are its own in every process
    writes = True

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], init: Any, seed: int, workers: int, batched: bool) -> None:
        self.dataset, self.collate, self._init = dataset, collate, init
        self._seed, self._workers, self._batched = seed, workers, batched
        #: whether it stands for a worker although this is not a process of one: then `get_worker_info()` tells of that here
        self.stands_in = False
        self._prepare()

    def _prepare(self) -> None:
        self._info: Any = None
        self._fetch = UserFunction(self.dataset, self._seed, _FETCH, True)
        self._join = UserFunction(self.collate, self._seed, _COLLATE, True)

    def __getstate__(self) -> dict[str, Any]:
        made = ("_info", "_fetch", "_join", "stands_in")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.stands_in = True
        self._prepare()

    @property
    def by_item(self) -> bool:
        """Whether items can be fetched one by one."""
        return self._batched and not getattr(self.dataset, "__getitems__", None)

    def __call__(self, task: FetchTask | None, scratch: Any) -> FetchResult | None:
        if task is None:
            return None  # a worker is asked whether it has this
        report, at = Report(), _At(self, task)
        report.weight = scratch.weight(self)
        clock, queued_s = (clocks(), scratch.queued_s(time.monotonic())) if report.weight else NOT_LOOKED_AT
        begun_s = clock[0]
        try:
            with self._as_worker(), _one_thread():
                items = self._items(task, at)
                if items is None:
                    return FetchResult(None, 0, 0, report, ended=True)
                clock = report.lap(clock)
                rows = len(items) if self._batched else 1
                at.joins = True
                value = items[0] if task.part is not None else self.joined(task, items, True)
            report.lap(clock)
        except RunAgain:
            raise
        except Exception as error:  # noqa: BLE001  the user's, and raised at home
            report.weight = 0
            return FetchResult(None, 0, 0, report, failure=FetchFailure.of(error, at.in_words()))
        if report.weight:
            note_waits(report, scratch, begun_s, queued_s)
        report.rows, report.draws = rows, self._fetch.draws or self._join.draws
        return FetchResult(value, rows, column_bytes(value), report)

    def joined(self, task: FetchTask, items: list[Any], again: bool) -> Any:
        """The batch of these items; `again` says whether the task could be run again."""
        given = items if self._batched else items[0]
        if self.collate in _PLAIN:
            return self.collate(given)
        key = task.keys[0] if task.keys else task.number
        return self._join.once(task.epoch, key, lambda: self.collate(given), again)

    def _items(self, task: FetchTask, at: _At) -> list[Any] | None:
        """The items of a batch; None where there is none any more."""
        dataset, indices, keys = self.dataset, task.indices, task.keys
        if self._batched and task.part is None and not self.by_item:
            found: list[Any] = self._fetch.once(task.epoch, keys[0], lambda: dataset.__getitems__(indices), True)
            return found

        def body(rows: range, before: Callable[[int], None] | None) -> list[Any]:
            done = []
            for row in rows:
                at.index = indices[row]
                if before is not None:
                    before(keys[row])
                done.append(dataset[at.index])
            return done

        return self._fetch.run(body, len(indices), 1, task.epoch, True)

    def describe(self, task: FetchTask) -> str:
        """Which items a task is about."""
        listed = ", ".join(map(repr, task.indices[:16])) + (", ..." if len(task.indices) > 16 else "")
        return f"batch {task.number} of epoch {task.epoch} (indices {listed})"

    @contextmanager
    def _as_worker(self) -> Iterator[None]:
        """Let `get_worker_info()` tell the data set who asks."""
        number = worker_number()
        if not self._workers or (number is None and not self.stands_in):
            yield  # as torch has it without workers; threads are not workers of torch
            return
        if self._info is None:
            seed = (key_of(self._seed) >> 2) + (number or 0)  # as torch's: not negative, and another one for each
            info = {"id": number or 0, "num_workers": self._workers, "seed": seed, "dataset": self.dataset}
            self._info = torch_worker._worker_info = torch_worker.WorkerInfo(**info)
            if number is not None and self._init is not None:
                for generator in GENERATORS:
                    generator.seed(seed)
                self._init(number)
        torch_worker._worker_info = self._info
        try:
            yield
        finally:
            if number is None:
                torch_worker._worker_info = None


_NOTHING: Any = object()


class _At:
    """What is being asked for, for the error that may come of it."""

    __slots__ = ("_task", "_work", "index", "joins")

    def __init__(self, work: FetchWork, task: FetchTask) -> None:
        self._work, self._task = work, task
        self.index, self.joins = _NOTHING, False

    def in_words(self) -> str:
        if self.joins:
            return f"collate_fn for {self._work.describe(self._task)}"
        return self._work.describe(self._task) if self.index is _NOTHING else f"index {self.index!r} of the data set"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute with one thread, as it does in worker processes: sums of floats depend on how many there are."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class StreamWork(FetchWork):
    """Items of an iterable data set as they come, joined to batches. One worker does it, so there is one sequence.

    A worker that has to begin in the middle, because another ended, passes over what was there before.
    """

    by_item = False

    def __init__(self, dataset: Any, collate: Any, init: Any, seed: int, workers: int, size: int | None, drop_last: bool) -> None:
        super().__init__(dataset, collate, init, seed, min(1, workers), size is not None)
        self._size, self._drop_last = size or 1, drop_last

    def _prepare(self) -> None:
        super()._prepare()
        self._stream: _StreamEpoch | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_stream"}

    def _items(self, task: FetchTask, at: _At) -> list[Any] | None:
        stream = self._stream
        if stream is None or (stream.epoch, stream.number) != (task.epoch, task.number):
            stream = self._stream = _StreamEpoch(self.dataset, key_of(self._seed, task.epoch), task.epoch)
            while stream.number < task.number:
                stream.pull(self._size)
        items = stream.pull(self._size)
        return None if not items or (self._drop_last and len(items) < self._size) else items

    def describe(self, task: FetchTask) -> str:
        return f"batch {task.number} of epoch {task.epoch} of the iterable data set"


class _StreamEpoch:
    """One epoch of an iterable data set, as far as it was taken. It draws from generators as if it were alone in the process."""

    def __init__(self, dataset: Any, key: int, epoch: int) -> None:
        self.epoch, self.number = epoch, 0
        self._dataset, self._key = dataset, key
        self._states: list[Any] | None = None
        self._items: Iterator[Any] | None = None

    def pull(self, size: int) -> list[Any]:
        """The next items, fewer at the end."""
        self.number += 1
        turn = SeededTurn(ALL, False, _PATIENCE_S)
        try:
            turn.begin()
            if self._states is None:
                turn.seed(self._key)
            else:
                turn.go_on(self._states)
            if self._items is None:
                self._items = iter(self._dataset)
            try:
                return list(islice(self._items, size))
            finally:
                self._states = turn.left()
        finally:
            turn.end()
