"""What pages and terminals show of a loader, running or closed."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .facts import Facts
from .followers import meters_of
from .page_data import page_data, recent_timeline, recorded_timeline
from .pipeline_graph import graph_nodes, graph_svg
from .run_settings import run_settings
from .stats import Stats
from .timeline import TimelineRecorder
from .verdict import verdict

if TYPE_CHECKING:
    from ..loader import Loader

#: how long a reading is reused: requests within this time get the same
_FRESH_S = 0.9
#: how many looks are remembered, and over how many of them rates are taken
_LOOKS, _OVER = 120, 3
#: tasks and steps of the loop that a timeline shows at most
_TASKS = 600
#: pixels of a page that the graph may take before it continues in another row
_GRAPH = 1090


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen at one moment. `recent` has a row for each look so far: seconds before now, samples/s, and the shares of
    time that the loop waited and workers were busy."""

    stats: Stats
    why: str
    closed: bool
    recent: tuple[tuple[float, float, float, float], ...] = ()


class LoaderView:
    """Reads a loader at most once per second, however many ask, from any thread; does not keep it alive.

    Without `training` the batches are not used for anything.
    """

    def __init__(self, loader: Loader, call: str, title: str = "", training: bool = True) -> None:
        self.title = title or (Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "") or "Stoker"
        self.training = training
        self._loader, self._meters, self._plan = weakref.ref(loader), meters_of(loader, call), loader._plan
        self._arguments, self._explained = loader._options.shown(), loader._explained()
        self._recorder: TimelineRecorder | None = None
        self._facts: Facts | None = None
        self._lock = threading.Lock()
        self._glance: Glance | None = None
        self._until_s = 0.0
        self._looks: deque[tuple[float, int, float, float, int]] = deque(maxlen=_LOOKS + _OVER)

    @property
    def closed(self) -> bool:
        """Whether the loader was closed, or is no longer referenced."""
        loader = self._loader()
        return loader is None or loader._closed

    def glance(self) -> Glance:
        """What is to be seen now, or was a moment ago."""
        with self._lock:
            glance = self._glance
            if glance is None or (time.monotonic() >= self._until_s and not glance.closed):
                glance = self._glance = self._look()
                self._until_s = time.monotonic() + _FRESH_S
            return glance

    def data(self, command: str = "", **more: Any) -> dict[str, Any]:
        """The same for a page; `command` is what was typed, `more` what else `page_data` takes."""
        glance = self.glance()
        given = {
            "training": self.training,
            "state": "closed" if glance.closed else "running",
            "under": self._plan.source.describe(),
            "graph": graph_svg(graph_nodes(self._plan, glance.stats), _GRAPH),
            "plan": self._explained,
            "timeline": self._timeline(),
            "settings": run_settings(glance.stats, self._arguments, command),
            "recent": () if glance.closed else glance.recent,
        }
        return page_data(self.title, glance.stats, glance.why, **{**given, **more})

    def record(self) -> None:
        """From now on the steps of tasks are recorded, for the timeline: all of them, which costs a little."""
        with self._lock:
            if self._recorder is None and not self.closed:
                self._recorder = TimelineRecorder(_TASKS)
                self._meters.sinks += (self._recorder,)

    def stop_recording(self) -> None:
        with self._lock:
            recorder, self._recorder = self._recorder, None
            if recorder is not None:
                self._meters.sinks = tuple(sink for sink in self._meters.sinks if sink is not recorder)

    def _timeline(self) -> dict[str, Any] | None:
        recorder = self._recorder
        if recorder is not None:
            # The loop's thread goes on adding to it; should it do so while a list is copied, there is another way to draw this.
            with suppress(RuntimeError):
                if (found := recorded_timeline(recorder)) is not None:
                    return found
        return recent_timeline(self._meters)

    def _look(self) -> Glance:
        loader, closed = self._loader(), self.closed
        stats = self._meters.snapshot()
        if loader is not None:
            self._facts = loader.facts()
        why = verdict(self._meters.since_move(), self._facts, training=self.training)
        self._looks.append((time.monotonic(), stats.samples, stats.waited_s, stats.task_s, stats.workers))
        return Glance(stats, why, closed, self._rates())

    def _rates(self) -> tuple[tuple[float, float, float, float], ...]:
        looks = list(self._looks)
        rows = []
        for (t0, samples0, waited0, task0, _), (t1, samples, waited, task, workers) in zip(looks, looks[_OVER:] or looks[1:]):
            long = max(1e-9, t1 - t0)
            busy = min(1.0, (task - task0) / long / max(1, workers))
            rows.append((t1 - looks[-1][0], (samples - samples0) / long, min(1.0, (waited - waited0) / long), busy))
        return tuple(rows)
