"""Who did what when: the training loop's waits and steps, and the steps of every task, in the row of its worker.

`TimelineRecorder` listens to a loader's meters; a `Timeline` is what it recorded, as plain data, and `timeline_svg.py` draws it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .meters import Meters, Span, StepName, TaskCosts

if TYPE_CHECKING:
    from ..loader import Loader

#: what the training loop does
WAIT, STEP = "wait", "step"
#: a task of which nothing else is known: it failed, or its steps are over
TASK = "other"


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that took a while; seconds since the timeline's beginning."""

    name: str  # "wait", "step", or a step of the pipeline: "read", "image jpg", ...
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """What one did, in the order of time: the training loop, or a worker."""

    name: str  # "loop", "worker 0", ...
    bars: tuple[Bar, ...]

    def cells(self, length_s: float, count: int) -> list[str]:
        """What went on in most of each of `count` equal parts of the time; nothing: ``""``."""
        cell_s = length_s / count
        spent: list[dict[str, float]] = [{} for _ in range(count)]
        for bar in self.bars:
            first, last = max(0, int(bar.start_s / cell_s)), min(count - 1, int(bar.stop_s / cell_s))
            for at in range(first, last + 1):
                within = min(bar.stop_s, (at + 1) * cell_s) - max(bar.start_s, at * cell_s)
                spent[at][bar.name] = spent[at].get(bar.name, 0.0) + within
        return [
            max(each, key=lambda name: each[name]) if each and sum(each.values()) >= cell_s / 2 else ""
            for each in spent
        ]  # fmt: skip

    def seconds(self) -> dict[str, float]:
        """Time by name."""
        spent: dict[str, float] = {}
        for bar in self.bars:
            spent[bar.name] = spent.get(bar.name, 0.0) + bar.stop_s - bar.start_s
        return spent


@dataclass(frozen=True, slots=True)
class Timeline:
    """A part of a run: the training loop's row first, then one for each worker that did something."""

    rows: tuple[TimelineRow, ...] = ()
    length_s: float = 0.0

    @property
    def names(self) -> list[str]:
        """All names of bars, the training loop's first, then in the order of the pipeline."""
        found = dict.fromkeys(bar.name for row in self.rows for bar in row.bars)
        first, last = (STEP, WAIT, "read"), (TASK,)
        others = [name for name in found if name not in (*first, *last)]
        return [*(name for name in first if name in found), *others, *(name for name in last if name in found)]

    def last(self, seconds: float) -> Timeline:
        """Its end, so long."""
        away, length_s = max(0.0, self.length_s - seconds), min(self.length_s, seconds)
        moved = ((row.name, [Bar(bar.name, bar.start_s - away, bar.stop_s - away) for bar in row.bars]) for row in self.rows)
        return Timeline(tuple(TimelineRow(name, tuple(_within(bars, length_s))) for name, bars in moved), length_s)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return asdict(self)


class TimelineRecorder:
    """Hears of every task and every step of the loop, and keeps the latest of them (a `Sink`)."""

    def __init__(self, most: int = 20_000) -> None:
        self._tasks: deque[tuple[Span, Sequence[StepName], Sequence[float]]] = deque(maxlen=most)
        self._loop: deque[tuple[float, float, float]] = deque(maxlen=most)

    def task(self, span: Span, steps: Sequence[StepName], costs: TaskCosts | None) -> None:
        self._tasks.append((span, steps, () if costs is None else costs.seconds))

    def loop(self, asked_s: float, got_s: float, next_s: float) -> None:
        self._loop.append((asked_s, got_s, next_s))

    def timeline(self, start_s: float | None = None, stop_s: float | None = None) -> Timeline:
        """What happened between two moments (monotonic); by default all that is kept of the loop's steps, or of tasks."""
        loop, tasks = list(self._loop), list(self._tasks)
        if start_s is None:
            start_s = loop[0][0] if loop else min((span.start_s for span, _, _ in tasks), default=0.0)
        if stop_s is None:
            stop_s = loop[-1][2] if loop else max((span.stop_s for span, _, _ in tasks), default=0.0)
        length_s = max(0.0, stop_s - start_s)
        bars: dict[str, list[Bar]] = {"loop": []} if loop else {}
        for asked, got, then in loop:
            bars["loop"] += [Bar(WAIT, asked - start_s, got - start_s), Bar(STEP, got - start_s, then - start_s)]
        for number in sorted({span.worker for span, _, _ in tasks}):
            bars[f"worker {number}"] = []
        for span, steps, seconds in sorted(tasks, key=lambda task: task[0].start_s):
            bars[f"worker {span.worker}"] += _task_bars(span, steps, seconds, start_s)
        rows = (TimelineRow(name, tuple(_within(each, length_s))) for name, each in bars.items())
        return Timeline(tuple(row for row in rows if row.bars), length_s)


@contextmanager
def recorded(loader: Loader | Meters, most: int = 20_000) -> Iterator[TimelineRecorder]:
    """Listen to a loader, or its meters, while the ``with`` block runs.

    >>> import numpy as np, stoker
    >>> with stoker.arrays(x=np.arange(8)).batch(2).loader(threads=1) as batches, recorded(batches) as recorder:
    ...     for batch in batches:
    ...         pass
    >>> [row.name for row in recorder.timeline().rows]
    ['loop', 'worker 0']
    """
    meters = loader if isinstance(loader, Meters) else loader._meters
    recorder = TimelineRecorder(most)
    meters.sinks += (recorder,)
    try:
        yield recorder
    finally:
        meters.sinks = tuple(sink for sink in meters.sinks if sink is not recorder)


def _task_bars(span: Span, steps: Sequence[StepName], seconds: Sequence[float], start_s: float) -> Iterator[Bar]:
    """A task's steps, one after another; what is left of its time has no name of its own."""
    at = span.start_s
    for step, spent in zip(steps, seconds):
        stop = min(span.stop_s, at + spent)
        if stop > at:
            yield Bar(step.name, at - start_s, stop - start_s)
            at = stop
    if span.stop_s > at:
        yield Bar(TASK, at - start_s, span.stop_s - start_s)


def _within(bars: Sequence[Bar], length_s: float) -> Iterator[Bar]:
    """What of these lies between 0 and the end."""
    for bar in bars:
        if bar.stop_s > 0 and bar.start_s < length_s and bar.stop_s > bar.start_s:
            yield Bar(bar.name, max(0.0, bar.start_s), min(length_s, bar.stop_s))
