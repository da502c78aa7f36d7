"""Timelines of tasks and waits as Chrome traces, which Perfetto and chrome://tracing open.

A process of the trace is the training process, or a worker process; its rows are the training loop and the workers. Times are
whole microseconds since the trace began: of numbers that are cut off alike, what lies within another still does.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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

#: lines held back, and for how long; so much is lost when the process is killed
_LINES, _HELD_S = 2000, 1.0
#: between two values of a counter
_COUNT_S = 0.05
#: the training loop's row; no row is number 0, which Perfetto takes for the idle processor
_LOOP = 1
#: numbers of processes of one rank
_RANK = 1000


def trace(loader: Loader, path: AnyPath, *, seconds: float | None = None, most: int | str = "2GB") -> Trace:
    """Write a timeline of all that a loader does from now on: a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

    It has every task with its steps on its worker's row, the waits and the steps of the training loop, and counters of batches
    ready, memory in flight and samples per second. It is written as it goes: in memory are some hundred kilobytes, and the file
    is complete JSON about once per second, also if the process is killed. With a name that ends in ``.gz`` it is packed. An
    existing file is replaced.

    It ends as a context manager, by `close()`, with its loader, or after so many `seconds` or bytes (`most`). Where the file
    cannot be written, a warning is logged and training goes on.

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
        self._events.task(span, steps, costs)
        if len(self._events.lines) >= _LINES:
            self._write()

    def loop(self, asked_s: float, got_s: float, next_s: float) -> None:
        """A step of the loop is done."""
        events = self._events
        events.loop(asked_s, got_s, next_s)
        if next_s >= events.written_s + _HELD_S or len(events.lines) >= _LINES:
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
            self._events.write_to(self._file)
        except WriteError as error:
            self.error = error
            _log.warning("the trace ends here, and training goes on: %s", error)
            self.close()
            return
        if self._file.size >= self._most:
            self._stop("it has as many bytes as it may have; allow it more with most=")

    def _stop(self, why: str) -> None:
        if not self.closed:
            self._events.note(f"recording ended: {why}")
            _log.info("%s: recording ended: %s", self._file.told, why)
            self.close()

    def _finish(self) -> None:
        try:
            if self.error is None:
                self._events.write_to(self._file)
            self._file.close()
        except WriteError as error:
            self.error = error
            _log.warning("the trace is not whole: %s", error)


class TraceEvents:
    """Turns what happened into lines of a trace. `lines` are those that nobody has written yet."""

    def __init__(self, meters: Meters, base_s: float, rank: int = 0) -> None:
        self.lines: list[str] = []
        self.base_s = self.written_s = base_s
        self._meters, self._executor = meters, meters.executor
        self._rank, self._pid = rank, rank * _RANK + 1
        self._rows: dict[int, str] = {}  # how the lines of a worker begin
        self._named: set[tuple[int, int]] = set()  # rows that have a name by now
        self._labels: dict[int, tuple[Sequence[StepName], list[str]]] = {}  # names of steps, by the identity of their list
        self._loop_row = self._begun_line(self._pid, _LOOP)
        self._call(self._pid, _LOOP, "thread_name", "training loop")
        self._handed_s, self._got_s = meters.handed_s, 0.0
        self._counted_s, self._samples, self._occupancy = base_s, meters.samples, Occupancy(-1, -1, -1, -1)

    @property
    def head(self) -> tuple[str, dict[str, Any]]:
        """What a file of these lines begins with."""
        about = {"made by": "stoker", "host": socket.gethostname(), "rank": self._rank, "begun": utc_text()}
        return _name("process_name", self._pid, 0, f"training, rank {self._rank}" if self._rank else "training"), about

    def write_to(self, file: TraceFile) -> None:
        """Write what is held back."""
        lines, self.lines = self.lines, []
        self.written_s = time.monotonic()
        file.write(lines)

    def task(self, span: Span, steps: Sequence[StepName], costs: TaskCosts | None) -> None:
        """A task, and its steps one after another."""
        start_s = span.start_s - self.base_s
        if start_s < 0:
            return  # begun before
        if self._meters.executor is not self._executor:
            self._executor, self._rows = self._meters.executor, {}
        row = self._rows.get(span.worker) or self._row(span.worker)
        at, stop = int(start_s * 1e6), int((span.stop_s - self.base_s) * 1e6)
        name = f'"unit {span.unit}"' if span.task >= 0 else f'"join unit {span.unit}"'
        lines = self.lines
        if costs is None:
            lines.append(f'{row}{name},"ts":{at},"dur":{stop - at}}}')
            return
        lines.append(f'{row}{name},"ts":{at},"dur":{stop - at},"args":{{"rows":{costs.rows}}}}}')
        if not costs.weight:
            return  # its steps were not looked at
        known = self._labels.get(id(steps))
        if known is None:
            known = self._labels[id(steps)] = steps, [json.dumps(step.name) for step in steps]
        for label, seconds in zip(known[1], costs.seconds):
            start_s += seconds
            end = min(stop, int(start_s * 1e6))
            if end > at:
                lines.append(f'{row}{label},"ts":{at},"dur":{end - at}}}')
                at = end

    def wait(self, asked_s: float, got_s: float) -> None:
        """The loop waited for a batch."""
        asked, got = int((asked_s - self.base_s) * 1e6), int((got_s - self.base_s) * 1e6)
        self.lines.append(f'{self._loop_row}"wait","ts":{asked},"dur":{got - asked}}}')

    def step(self, got_s: float, next_s: float) -> None:
        """The loop did something with it."""
        got, asked = int((got_s - self.base_s) * 1e6), int((next_s - self.base_s) * 1e6)
        self.lines.append(f'{self._loop_row}"step","ts":{got},"dur":{asked - got}}}')

    def loop(self, asked_s: float, got_s: float, next_s: float) -> None:
        """A step of the loop, the wait before it and the hand-over at its end; and counters."""
        if asked_s < self.base_s or got_s == self._got_s:
            return  # begun before, or said already, before a request that failed
        self._got_s = got_s
        self.wait(asked_s, got_s)
        handed_s = self._meters.handed_s
        if handed_s > self._handed_s:
            begun_s = max(asked_s, got_s - (handed_s - self._handed_s))
            begun, got = int((begun_s - self.base_s) * 1e6), int((got_s - self.base_s) * 1e6)
            if got > begun:
                self.lines.append(f'{self._loop_row}"hand over","ts":{begun},"dur":{got - begun}}}')
        self._handed_s = handed_s
        self.step(got_s, next_s)
        if next_s >= self._counted_s + _COUNT_S:
            self._count(next_s)

    def note(self, text: str) -> None:
        """A mark over all rows, at the end of what there is."""
        at = int((time.monotonic() - self.base_s) * 1e6)
        mark = {"ph": "i", "s": "g", "pid": self._pid, "tid": _LOOP, "name": text, "ts": at}
        self.lines.append(",\n" + json.dumps(mark))

    def _count(self, now_s: float) -> None:
        now, samples, occupancy = int((now_s - self.base_s) * 1e6), self._meters.samples, self._meters.occupancy()
        rate = (samples - self._samples) / (now_s - self._counted_s)
        self._counted_s, self._samples = now_s, samples
        head = f',\n{{"ph":"C","pid":{self._pid},"ts":{now},"name":'
        self.lines.append(f'{head}"samples per second","args":{{"samples":{rate:.0f}}}}}')
        if occupancy.ready != self._occupancy.ready or occupancy.nbytes != self._occupancy.nbytes:
            self.lines.append(f'{head}"units ready","args":{{"units":{occupancy.ready}}}}}')
            self.lines.append(f'{head}"bytes in flight","args":{{"bytes":{occupancy.nbytes}}}}}')
        self._occupancy = occupancy

    def _row(self, worker: int) -> str:
        """How the lines of a worker begin; its row, and its process, get their names with the first of them."""
        executor, pid = self._executor, self._pid
        if executor.processes:
            process = worker // max(1, executor.threads)
            pid += 1 + process
            self._call(pid, 0, "process_name", f"worker process {process}")
        self._call(pid, worker + 1 + _LOOP, "thread_name", f"worker {worker}")
        row = self._rows[worker] = self._begun_line(pid, worker + 1 + _LOOP)
        return row

    def _call(self, pid: int, tid: int, kind: str, name: str) -> None:
        if (pid, tid) not in self._named:
            self._named.add((pid, tid))
            self.lines.append(",\n" + _name(kind, pid, tid, name))

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
        events.wait(asked_s, got_s)
        if next_s:
            events.step(got_s, next_s)
    write_trace(path, *events.head, events.lines)


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    values: dict[str, Any] = {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}
    return json.dumps(values)
