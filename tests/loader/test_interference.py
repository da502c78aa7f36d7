"""How steps beside busy workers are told from steps beside calm ones, and how the latter are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.loader.interference import Interference, compare, mean_busy
from stoker.observe.meters import Meters, Occupancy, Span

spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), min_size=1, max_size=20)


@given(spans, spans)
def test_the_mean_number_of_busy_workers_is_that_of_counting(tasks: Any, steps: Any) -> None:
    steps = [(begin, end + 1) for begin, end in steps]
    counted = [sum(a <= tick < b for a, b in tasks for tick in range(begin, end)) / (end - begin) for begin, end in steps]
    found = mean_busy(np.array(tasks, float), np.array(steps, float))
    np.testing.assert_allclose(found, counted, atol=1e-9)


def test_steps_beside_busy_workers_are_told_from_those_beside_calm_ones_and_odd_ones_do_not_count() -> None:
    tasks = np.array([(0.0, 10.0), (0.0, 10.0), (20.0, 20.1)])
    busy, calm = [(t, t + 1.3) for t in range(5)], [(t, t + 1.0) for t in range(11, 20)]
    steps = np.array([*busy, *calm, (30.0, 90.0)])
    beside = compare(tasks, steps, 2)
    assert beside.busy == (5, pytest.approx(6.5))
    assert beside.calm == (9, pytest.approx(9.0))


class Run:
    """A loop whose steps take so long, beside workers that are always busy unless there is a pause; with a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ready: int, wait_s: float = 0.0) -> None:
        self.now = 100.0
        monkeypatch.setattr("stoker.observe.meters.time.monotonic", lambda: self.now)
        self.meters, self.interference = Meters(2), Interference()
        self.meters.occupancy = lambda: Occupancy(ready=ready)
        self.interference.pause = self.pause
        self.pauses: list[float] = []
        self.wait_s, self.calm_left, self.number = wait_s, 0, 0

    def pause(self) -> None:
        self.pauses.append(self.now - 100.0)
        self.calm_left = 4

    def steps(self, count: int) -> None:
        for _ in range(count):
            asked = self.meters.request()
            self.interference.look(self.meters, asked)
            self.now += self.wait_s
            self.meters.delivered(asked, 1, 1)
            begun, calm = self.now, self.calm_left > 0
            self.now += 0.01 if calm else 0.015
            if calm:
                self.calm_left -= 1
            else:
                for worker in range(2):
                    self.meters.task(Span(worker, self.number, 0, begun, self.now), 0.0, (), None)
            self.number += 1


def test_where_workers_are_always_busy_pauses_show_how_much_they_slow_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, ready=5)
    run.steps(4000)
    loop = run.meters.snapshot(look=False).loop
    assert loop.interference == pytest.approx(0.5, abs=0.02)
    gaps = np.diff(run.pauses)
    assert len(run.pauses) == 6 and np.all(np.diff(gaps) > -1e-9) and gaps[-1] > 4 * gaps[0], "at first often, then rarely"


@pytest.mark.parametrize(("ready", "wait_s"), [(0, 0.0), (5, 0.002)], ids=["nothing ready", "the loop waits"])
def test_there_is_no_pause_while_the_loop_might_wait_for_it(monkeypatch: pytest.MonkeyPatch, ready: int, wait_s: float) -> None:
    run = Run(monkeypatch, ready, wait_s)
    run.steps(2000)
    assert run.pauses == []
    assert run.meters.snapshot(look=False).loop.interference is None
