"""Timelines of tasks and waits as Chrome traces, which Perfetto and chrome://tracing open.

A process of the trace is the training process or a worker process; its rows are the training loop and the workers. Times are
whole microseconds since the trace began: all are rounded down, so nested spans stay nested.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, WriteError
from ..sizes import parse_bytes
from ..storage.names import AnyPath
from .followers import Follower
from .meters import Meters, Occupancy, Span, StepName, TaskCosts
from .trace_file import TraceFile, write_trace
from .wall_clock import utc_text

if TYPE_CHECKING:
    from ..loader import Loader

_log = logging.getLogger("stoker")

#: tasks and steps of the loop that are held back, and for how long; so much is lost when the process is killed
_NOTED, _HELD_S = 1000, 1.0
#: between two values of a counter
_COUNT_S = 0.05
#: the training loop's row; no row is number 0, which Perfetto takes for the idle processor
_LOOP = 1
#: numbers of processes of one rank
_RANK = 1000


def trace(loader: Loader, path: AnyPath, *, seconds: float | None = None, most: int | str = "2GB") -> Trace:
    """Write a timeline of everything a loader does: a Chrome trace for ui.perfetto.dev or chrome://tracing.

    It has every task with its steps on its worker's row, the waits and the steps of the training loop, and counters of batches
    ready, memory in flight and samples per second. It is written as it goes: in memory are some hundred kilobytes, and the file
    is complete JSON about once per second, also if the process is killed. With a name that ends in ``.gz`` it is packed. An
    existing file is replaced.

    It ends as a context manager, by `close()`, with its loader, or after so many `seconds` or bytes (`most`). Where the file
    cannot be written, a warning is logged and training continues.

    >>> import numpy as np, stoker, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, stoker.arrays(x=np.arange(8)).batch(4).loader() as loader:
    ...     with stoker.observe.trace(loader, f"{folder}/trace.json"):
    ...         batches = list(loader)
    """
    if seconds is not None and (not isinstance(seconds, (int, float)) or not seconds > 0):
        raise ConfigError(f"observe.trace(seconds={seconds!r}): must be a number of seconds above 0")
    return Trace(loader, path, seconds, parse_bytes(most, "observe.trace: most"))


class Trace(Follower):
    """A timeline being written; made by `stoker.observe.trace`. `error` is why it could not be written; None: it could."""

    def __init__(self, loader: Loader, path: AnyPath, seconds: float | None, most: int) -> None:
        super().__init__(loader, "observe.trace(loader)")
        self.error: WriteError | None = None
        self._events = TraceEvents(self._meters, time.monotonic(), self.rank)
        self._file = TraceFile(path, *self._events.head)
        self._most, self._seconds = most, seconds
        self._begin(loader)
        self._meters.sinks += (self,)

    def task(self, span: Span, steps: Sequence[StepName], costs: TaskCosts | None) -> None:
        """A task is done."""
        events = self._events
        events.task(span, steps, costs)
        if events.noted >= _NOTED:
            self._write()

    def loop(self, asked_s: float, got_s: float, next_s: float) -> None:
        """A step of the loop is done."""
        events = self._events
        events.loop(asked_s, got_s, next_s)
        if next_s >= events.written_s + _HELD_S or events.noted >= _NOTED:
            self._write()
        if self._seconds is not None and next_s >= events.base_s + self._seconds:
            self._stop(f"{self._seconds:g} seconds have passed")

    def _write(self) -> None:
        if self.closed:
            return
        if self._process != os.getpid():
            self.close()  # in a forked child, to which the file does not belong
            return
        try:
            self._add()
        except WriteError as error:
            self.error = error
            _log.warning("the trace ends here, and training continues: %s", error)
            self.close()
            return
        if self._file.size >= self._most:
            self._stop("it has reached its maximum size; raise that with most=")

    def _add(self) -> None:
        self._events.written_s = time.monotonic()
        self._file.write(self._events.take_lines())

    def _stop(self, why: str) -> None:
        if not self.closed:
            self._events.note(f"recording ended: {why}")
            _log.info("%s: recording ended: %s", self._file.told, why)
            self.close()

    def _finish(self) -> None:
        try:
            if self.error is None:
                self._add()
            self._file.close()
        except WriteError as error:
            self.error = error
            _log.warning("the trace is incomplete: %s", error)


class _Tasks:
    """What is noted of tasks with the same steps."""

    __slots__ = ("formats", "labels", "nothing", "numbers", "steps")

    def __init__(self, steps: Sequence[StepName]) -> None:
        self.steps, self.nothing = steps, (0.0,) * len(steps)
        self.labels = [json.dumps(step.name).replace("%", "%%") for step in steps]
        self.numbers: list[float] = []  # for each: worker, unit (~unit: it joins one), rows (-1: it failed), times
        self.formats: dict[tuple[int, bytes], str] = {}  # by worker, and which of its lines there are


class TraceEvents:
    """Turns what happened into lines of a trace.

    What happens is only noted, as numbers; `take_lines` makes lines of all that was noted, with one format for all of them. That
    takes less than half of the time of a format for each.
    """

    def __init__(self, meters: Meters, base_s: float, rank: int = 0) -> None:
        self.base_s = self.written_s = base_s
        self.noted = 0  # tasks, and steps of the loop, of which there are no lines yet
        self._lines: list[str] = []
        self._meters, self._executor = meters, meters.executor
        self._rank, self._pid = rank, rank * _RANK + 1
        self._named: set[tuple[int, int]] = set()  # rows that have a name by now
        self._tasks: dict[int, _Tasks] = {}  # by the identity of their list of steps
        self._loops: list[float] = []  # for each step: asked, got, asked again (0: not yet), time of the hand-over
        self._call(self._pid, _LOOP, "thread_name", "training loop")
        self._handed_s, self._got_s = meters.handed_s, 0.0
        self._counted_s, self._samples, self._occupancy = base_s, meters.samples, Occupancy(-1, -1, -1, -1)

    @property
    def head(self) -> tuple[str, dict[str, Any]]:
        """What a file of these lines begins with."""
        about = {"made by": "stoker", "host": socket.gethostname(), "rank": self._rank, "begun": utc_text()}
        return _name("process_name", self._pid, 0, f"training, rank {self._rank}" if self._rank else "training"), about

    def take_lines(self) -> list[str]:
        """All lines since the last call."""
        self._make_lines()
        lines, self._lines = self._lines, []
        return lines

    def task(self, span: Span, steps: Sequence[StepName], costs: TaskCosts | None) -> None:
        """A task, and its steps one after another."""
        worker, unit, number, start_s, stop_s = span
        if start_s < self.base_s:
            return  # begun before
        if self._meters.executor is not self._executor:
            self._make_lines()  # on the rows they ran on
            self._executor, self._tasks = self._meters.executor, {}
        tasks = self._tasks.get(id(steps))
        if tasks is None:
            tasks = self._tasks[id(steps)] = _Tasks(steps)
        rows, seconds = (-1, tasks.nothing) if costs is None else (costs.rows, costs.seconds)
        if len(seconds) != len(steps):
            seconds = (*seconds, *tasks.nothing)[: len(steps)]
        tasks.numbers.extend((worker, unit if number >= 0 else ~unit, rows, stop_s, start_s, *seconds))
        self.noted += 1

    def loop(self, asked_s: float, got_s: float, next_s: float) -> None:
        """A step of the loop, the wait before it and the hand-over at its end; and counters."""
        if asked_s < self.base_s or got_s == self._got_s:
            return  # begun before, or said already, before a request that failed
        self._got_s, handed_s = got_s, self._meters.handed_s
        self.step(asked_s, got_s, next_s, handed_s - self._handed_s)
        self._handed_s = handed_s
        if next_s >= self._counted_s + _COUNT_S:
            self._count(next_s)

    def step(self, asked_s: float, got_s: float, next_s: float, handed_s: float = 0.0) -> None:
        """A step of the loop, and the wait before it; with 0 for `next_s` the wait alone."""
        self._loops.extend((asked_s, got_s, next_s, handed_s))
        self.noted += 1

    def _make_lines(self) -> None:
        self.noted = 0
        if self._loops:
            self._make_loops()
        for tasks in self._tasks.values():
            if tasks.numbers:
                self._make_tasks(tasks)

    def _make_tasks(self, tasks: _Tasks) -> None:
        held, tasks.numbers = tasks.numbers, []
        table = np.array(held).reshape(-1, 5 + len(tasks.steps))
        worker, unit, rows = table[:, :3].astype(np.int64).T
        stops = self._microseconds(table[:, 3:4])
        # Where each step ends: not after its task, nor before the one in front of it.
        marks = np.minimum(self._microseconds(np.cumsum(table[:, 4:], axis=1)), stops)
        np.maximum.accumulate(marks, axis=1, out=marks)
        lengths = np.diff(marks, axis=1)
        there = np.column_stack((unit < 0, rows >= 0, lengths > 0))
        numbers = np.empty((len(table), 4 + 2 * len(tasks.steps)), np.int64)
        numbers[:, 0], numbers[:, 1], numbers[:, 2], numbers[:, 3] = (
            np.maximum(unit, ~unit),
            marks[:, 0],
            stops[:, 0] - marks[:, 0],
            rows,
        )
        numbers[:, 4::2], numbers[:, 5::2] = marks[:, :-1], lengths
        written = np.ones(numbers.shape, np.bool_)
        written[:, 3], written[:, 4::2], written[:, 5::2] = there[:, 1], there[:, 2:], there[:, 2:]
        bits = np.packbits(there, axis=1)
        formats, keys = tasks.formats, zip(worker.tolist(), bits.view(f"V{bits.shape[1]}")[:, 0].tolist())
        text = "".join([formats.get(key) or self._task_format(tasks, *key) for key in keys])
        self._lines.append(text % tuple(numbers[written].tolist()))

    def _task_format(self, tasks: _Tasks, worker: int, flags: bytes) -> str:
        """How the lines of a worker's tasks are written of which there is so much."""
        joins, done, *steps = np.unpackbits(np.frombuffer(flags, np.uint8), count=2 + len(tasks.steps))
        row = self._row(worker)
        name, rows = "join unit" if joins else "unit", ',"args":{"rows":%d}' if done else ""
        lines = [f'{row}"{name} %d","ts":%d,"dur":%d{rows}}}']
        lines += [f'{row}{label},"ts":%d,"dur":%d}}' for label, there in zip(tasks.labels, steps) if there]
        text = tasks.formats[worker, flags] = "".join(lines)
        return text

    def _make_loops(self) -> None:
        held, self._loops = self._loops, []
        table = np.array(held).reshape(-1, 4)
        asked, got, then = self._microseconds(table[:, :3]).T
        begun = np.maximum(asked, self._microseconds(table[:, 1] - table[:, 3]))
        numbers = np.column_stack((asked, got - asked, begun, got - begun, got, then - got))
        there = np.column_stack((got >= asked, got > begun, table[:, 2] > 0))
        row = self._begun_line(self._pid, _LOOP)
        wait, handed, step = (f'{row}"{name}","ts":%d,"dur":%d}}' for name in ("wait", "hand over", "step"))
        formats = [wait, wait + handed, wait + step, wait + handed + step]
        text = "".join([formats[which] for which in (there[:, 1] + 2 * there[:, 2]).tolist()])
        self._lines.append(text % tuple(numbers[np.repeat(there, 2, axis=1)].tolist()))

    def _microseconds(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Since the trace began."""
        return ((seconds - self.base_s) * 1e6).astype(np.int64)

    def note(self, text: str) -> None:
        """A mark over all rows, at the end of what there is."""
        self._make_lines()
        at = int((time.monotonic() - self.base_s) * 1e6)
        mark = {"ph": "i", "s": "g", "pid": self._pid, "tid": _LOOP, "name": text, "ts": at}
        self._lines.append(",\n" + json.dumps(mark))

    def _count(self, now_s: float) -> None:
        now, samples, occupancy = int((now_s - self.base_s) * 1e6), self._meters.samples, self._meters.occupancy()
        rate = (samples - self._samples) / (now_s - self._counted_s)
        self._counted_s, self._samples = now_s, samples
        head = f',\n{{"ph":"C","pid":{self._pid},"ts":{now},"name":'
        self._lines.append(f'{head}"samples per second","args":{{"samples":{rate:.0f}}}}}')
        if occupancy.ready != self._occupancy.ready or occupancy.nbytes != self._occupancy.nbytes:
            self._lines.append(f'{head}"units ready","args":{{"units":{occupancy.ready}}}}}')
            self._lines.append(f'{head}"bytes in flight","args":{{"bytes":{occupancy.nbytes}}}}}')
        self._occupancy = occupancy

    def _row(self, worker: int) -> str:
        """How the lines of a worker begin; its row, and its process, get their names with the first of them."""
        executor, pid = self._executor, self._pid
        if executor.processes:
            process = worker // max(1, executor.threads)
            pid += 1 + process
            self._call(pid, 0, "process_name", f"worker process {process}")
        self._call(pid, worker + 1 + _LOOP, "thread_name", f"worker {worker}")
        return self._begun_line(pid, worker + 1 + _LOOP)

    def _call(self, pid: int, tid: int, kind: str, name: str) -> None:
        if (pid, tid) not in self._named:
            self._named.add((pid, tid))
            self._lines.append(",\n" + _name(kind, pid, tid, name))

    @staticmethod
    def _begun_line(pid: int, tid: int) -> str:
        return f',\n{{"ph":"X","pid":{pid},"tid":{tid},"name":'


def write_latest(meters: Meters, path: AnyPath, rank: int = 0) -> None:
    """The latest tasks and waits that meters remember, as a trace."""
    spans, waits = meters.spans, meters.waits
    begun = [span.start_s for span in spans] + [asked_s for asked_s, _ in waits[:1]]
    events = TraceEvents(meters, min(begun, default=0.0), rank)
    for span in spans:
        events.task(span, (), None)
    for (asked_s, got_s), (next_s, _) in zip(waits, [*waits[1:], (0.0, 0.0)]):
        events.step(asked_s, got_s, next_s)
    write_trace(path, *events.head, events.take_lines())


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}})
