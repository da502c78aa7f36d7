"""Loaders that move their work by themselves."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.engine.auto_executor import AutoExecutor
from stoker.engine.auto_policy import AutoPolicy, Choice, Load, Setting
from stoker.engine.executor_names import EXECUTORS
from stoker.engine.inline import InlineExecutor
from stoker.loader.auto_watch import AutoWatch, load_between, slowed
from stoker.observe.stats import ExecutorStats, LoopStats, Stats, StepStats
from stoker.storage.scratch import Scratch

from .runs import hash_of, numbers

PLENTY_S = 60


class Wishful(AutoPolicy):
    """Asks for the same whenever it is asked, and never again where it was refused."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(2, 2)
        self._choice: Choice | None = Choice(setting, "it was wished for")

    def see(self, load: Load) -> Choice | None:
        return self._choice if self._choice and self.setting != self._choice.setting else None

    def refused(self, choice: Choice, why: str) -> None:
        super().refused(choice, why)
        self._choice = None


def wish(monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    """Let every loader move to a setting as soon as it can."""
    monkeypatch.setattr("stoker.loader.machinery.policy_of", lambda *_: Wishful(setting))
    monkeypatch.setattr("stoker.observe.meters._CPU_EVERY_S", -1.0)
    monkeypatch.setattr("stoker.loader.auto_watch._LOAD_S", 0.0)
    monkeypatch.setattr("stoker.loader.auto_watch._LOAD_BATCHES", 1)


def doubled(x: Any) -> Any:
    return 2 * x


def test_work_moves_to_processes_in_the_middle_of_an_epoch_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = (
        stoker.arrays(x=np.arange(5000), y=np.ones((5000, 3), np.float32)).shuffle(seed=1).repeat().map(x=doubled).batch(16)
    )
    wish(monkeypatch, Setting(1, 2))
    moved_at, hashes, deadline = 0, [], time.monotonic() + PLENTY_S
    with pipeline.loader() as loader:
        assert isinstance(loader._machinery.executor, AutoExecutor)
        for batch in loader:
            hashes.append(hash_of(batch))
            moved = loader.stats().executor
            if moved.name == "processes":
                assert (moved.processes, moved.threads, moved.reason) == (1, 2, "it was wished for")
                assert 0 < moved.since <= len(hashes)
                moved_at = moved_at or len(hashes)
                if len(hashes) >= moved_at + 100:
                    break
            else:
                assert time.monotonic() < deadline
        assert loader.why().endswith(f"Work runs in 1 process of 2 threads since batch {moved.since:,}: it was wished for.")
    with pipeline.loader(executor="inline") as inline:
        assert hashes == [hash_of(batch) for batch, _ in zip(inline, hashes)]


def test_a_function_that_cannot_be_sent_stays_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()

    def locked(x: Any) -> Any:
        with lock:
            return x

    wish(monkeypatch, Setting(2, 1))
    monkeypatch.setitem(EXECUTORS._entries, "processes", ("tests.contract.pickling", "PicklingExecutor", ""))
    deadline = time.monotonic() + PLENTY_S
    with numbers(200).map(x=locked).batch(4).loader() as loader:
        while "could not be used" not in loader.why():
            assert time.monotonic() < deadline
            assert sum(int(x) for batch in loader for x in batch["x"]) == sum(range(200))
        assert (loader.stats().executor.name, loader.stats().executor.moves) == ("threads", 0)


def test_functions_of_a_module_that_workers_cannot_import_stay_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"homely_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    raise ImportError('only at home')\ndef same(x):\n    return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    homely = import_module(name)
    wish(monkeypatch, Setting(1, 1))
    deadline = time.monotonic() + PLENTY_S
    with numbers(200).map(x=homely.same).batch(4).loader() as loader:
        while "could not be used" not in loader.why():
            assert time.monotonic() < deadline
            assert sum(int(x) for batch in loader for x in batch["x"]) == sum(range(200))
        assert "ImportError: only at home" in loader.why()
        assert (loader.stats().executor.name, loader.stats().executor.moves) == ("threads", 0)
        assert not loader._machinery.executor.processes


def test_more_threads_take_part_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(5)

    def meet(x: Any) -> Any:
        if x >= 4000:
            together.wait(PLENTY_S)
        return x

    wish(monkeypatch, Setting(0, 5))
    with stoker.arrays(x=np.arange(4100)).map(x=meet).batch(20).loader(ahead=8) as loader:
        assert sum(len(batch["x"]) for batch in loader) == 4100
        assert loader.stats().executor == ExecutorStats("threads", 0, 5, loader.stats().executor.since, "it was wished for", 1)


def test_workers_that_are_not_needed_end_and_the_others_do_all_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    wish(monkeypatch, Setting(0, 1))
    with stoker.arrays(x=np.arange(4100)).map(x=doubled).batch(20).loader(ahead=8) as loader:
        assert sum(int(batch["x"].sum()) for batch in loader) == 4099 * 4100
        assert (loader.stats().executor.threads, loader.stats().workers) == (1, 1)


def test_steps_beside_busy_workers_are_compared_since_work_last_moved() -> None:
    before = LoopStats(busy_steps=100, busy_step_s=900.0, calm_steps=100, calm_step_s=1.0)
    after = replace(before, busy_steps=110, busy_step_s=913.0, calm_steps=110, calm_step_s=11.0)
    assert slowed(before, after) == pytest.approx(0.3)
    assert slowed(before, replace(after, calm_steps=103)) is None, "three steps are too few"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"threads": 3}, ExecutorStats("threads", 0, 3)),
        ({"executor": "threads", "threads": 1}, ExecutorStats("threads", 0, 1)),
        ({"executor": "inline"}, ExecutorStats("inline", 0, 0)),
        ({"processes": 1, "threads": 2}, ExecutorStats("processes", 1, 2)),
    ],
    ids=["threads", "by name", "inline", "processes"],
)
def test_a_choice_of_the_users_stays(options: dict[str, Any], told: ExecutorStats) -> None:
    with numbers().batch(4).loader(**options) as loader:
        assert loader.stats().executor == told
        list(loader)
        assert "Work runs" not in loader.why()


def test_a_loader_that_nobody_holds_is_freed_with_what_watches_it() -> None:
    loader = numbers().batch(4).loader()
    executor = loader._machinery.executor
    list(loader)
    del loader
    assert executor.stopped


def test_pillow_counts_as_a_function_because_it_needs_the_interpreter() -> None:
    steps = {"read": 1.0, "image('image')": 4.0, "map f": 2.0, "collate": 1.0}
    before = Stats(batches=3, steps=(StepStats("map f", wall_s=1.0),))
    took = tuple(StepStats(name, "function" if name == "map f" else "native", wall_s=seconds) for name, seconds in steps.items())
    after = Stats(batches=9, samples=60, elapsed_s=2.0, task_s=7.0, worked=80, pillow=40, steps=took)
    load = load_between(before, after)
    assert (load.function_s, load.samples, load.elapsed_s, load.task_s) == (3.0, 60, 2.0, 7.0)
    assert load.held_by == "images that Pillow decodes"


def test_a_watch_is_quiet_on_one_core() -> None:
    executor = AutoExecutor(1, Scratch)
    AutoWatch(AutoPolicy(1, 1), executor)
    assert not executor.may_move
    executor.close()


def test_reading_from_afar_is_python_code_but_for_the_time_it_waits() -> None:
    before = Stats(batches=3, steps=(StepStats("read", "read", wall_s=2.0, wait_s=1.0),))
    steps = (StepStats("read", "read", wall_s=7.0, wait_s=4.0), StepStats("image('jpg')", wall_s=1.0))
    after = Stats(batches=9, elapsed_s=2.0, task_s=6.0, worked=80, steps=steps)
    near, far = (load_between(before, after, remote=remote) for remote in (False, True))
    assert (near.function_s, far.function_s, far.held_by) == (0.0, 2.0, "reads over a network")


def test_what_is_insisted_on_waits_for_a_move_that_is_under_way() -> None:
    executor = AutoExecutor(1, Scratch, start_processes=lambda *_: InlineExecutor(1, Scratch))
    watch = AutoWatch(AutoPolicy(2, 1, fixed=True), executor)
    choice = Choice(Setting(1, 1), "somebody says so")
    assert watch.insist(choice)
    assert not watch.insist(choice)
    executor.close()
