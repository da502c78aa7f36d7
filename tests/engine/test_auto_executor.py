"""An executor made of others: tasks go to who is at work, those begun end where they are, and what is left behind is closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from stoker.engine.auto_executor import AutoExecutor
from stoker.engine.auto_policy import Setting
from stoker.engine.executor import CRASHED, Channel, Executor, Outcome, Task, TaskWork
from stoker.engine.feed import Feed
from stoker.engine.schedule import Window
from stoker.engine.threads import ThreadExecutor
from stoker.errors import ConfigError, WorkerError

from ..support import until
from .test_feed import Listed, Numbers, Scratch, take_all

PLENTY_S = 30


class Elsewhere(Executor):
    """Stands for processes: keeps tasks until it is told to answer them."""

    shares_memory = False

    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1) -> None:
        self.workers = workers
        self.tasks: list[Task[Any]] = []
        self.closed = False
        self.begun = True

    @property
    def ready(self) -> bool:
        return self.begun

    def channel(self, work: TaskWork[Any, Any]) -> Channel[Any, Any]:
        return ElsewhereChannel(self)

    def stacks(self, describe: Callable[[Any], str]) -> str:
        return "far away"

    def replace_stuck(self, quiet_s: float) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class ElsewhereChannel(Channel[Any, Any]):
    def __init__(self, executor: Elsewhere) -> None:
        self.executor, self.answered, self.cancelled, self.lost = executor, False, False, False
        self.crashes = False

    def submit(self, tasks: list[Task[Any]], *, first: bool = False) -> None:
        self.executor.tasks += tasks

    def collect(self, timeout_s: float) -> list[Outcome[Any, Any]]:
        if not self.answered and not self.lost:
            return []
        done, self.executor.tasks = self.executor.tasks, []
        if self.crashes:
            return [Outcome(task, lost=True, blame=CRASHED, cause="was killed by SIGSEGV") for task in done]
        lost, self.lost = self.lost, False
        return [Outcome(task, lost=True) if lost else Outcome(task, ("elsewhere", task.content)) for task in done]

    def cancel(self) -> None:
        self.cancelled = True


class Started:
    """What was started, and how."""

    def __init__(self) -> None:
        self.executors: list[Elsewhere] = []
        self.error: Exception | None = None

    def __call__(self, processes: int, threads: int) -> Executor:
        if self.error is not None:
            raise self.error
        self.executors.append(Elsewhere(processes * threads, Scratch))
        return self.executors[-1]


@pytest.fixture
def started() -> Started:
    return Started()


@pytest.fixture
def auto(started: Started) -> Iterator[AutoExecutor]:
    executor = AutoExecutor(2, Scratch, start_processes=started)
    yield executor
    executor.close()
    assert all(each.closed for each in started.executors)


def here(content: Any, scratch: Any) -> Any:
    return "here", content


def arrive(auto: AutoExecutor, setting: Setting) -> None:
    """Have a setting; what has to be started is started in the background."""
    auto.ask_for(setting)
    until(auto.arrived)


def outcomes(channel: Channel[Any, Any], number: int) -> set[Any]:
    """So many results."""
    found: set[Any] = set()
    deadline = time.monotonic() + PLENTY_S
    while len(found) < number and time.monotonic() < deadline:
        found |= {outcome.result for outcome in channel.collect(0.05)}
    return found


def test_new_units_go_to_who_is_at_work_and_those_begun_stay(auto: AutoExecutor, started: Started) -> None:
    gate = threading.Event()

    def work(content: Any, scratch: Any) -> Any:
        gate.wait(PLENTY_S)
        return here(content, scratch)

    channel = auto.channel(work)
    channel.submit([Task(0, 0, "a"), Task(1, 0, "b")])
    arrive(auto, Setting(2, 1))
    assert (auto.workers, auto.shares_memory) == (2, False)
    channel.submit([Task(1, -1, "more of b"), Task(2, 0, "c")], first=True)
    assert not auto.alone
    assert [task.content for task in started.executors[0].tasks] == ["c"], "unit 1 lies in memory that others do not see"
    gate.set()
    channel._now.answered = True  # type: ignore[attr-defined]
    assert outcomes(channel, 4) == {("here", "a"), ("here", "b"), ("here", "more of b"), ("elsewhere", "c")}
    assert auto.alone


def test_processes_that_are_left_end_their_tasks_and_are_closed(auto: AutoExecutor, started: Started) -> None:
    channel = auto.channel(here)
    arrive(auto, Setting(1, 2))
    far = channel._now  # type: ignore[attr-defined]
    channel.submit([Task(0, 0, "a")])
    arrive(auto, Setting(0, 2))
    assert auto.shares_memory
    channel.submit([Task(0, -1, "a is finished"), Task(1, 0, "b")])
    assert outcomes(channel, 1) == {("here", "b")}
    auto.ask_for(Setting(0, 3))
    auto.tidy()
    assert not auto.arrived() and not started.executors[0].closed, "it has tasks"
    far.answered = True
    assert outcomes(channel, 2) == {("elsewhere", "a"), ("elsewhere", "a is finished")}
    assert auto.arrived() and started.executors[0].closed


def test_what_is_lost_runs_again_where_it_was_and_never_among_threads(auto: AutoExecutor, started: Started) -> None:
    channel = auto.channel(here)
    settings = [Setting(1, 2), Setting(0, 2), Setting(2, 1)]
    arrive(auto, settings[0])
    far = channel._now  # type: ignore[attr-defined]
    task = Task(0, 0, "a", alone=True)
    channel.submit([task])
    arrive(auto, settings[1])
    for _ in range(3):
        far.lost = True
        [outcome] = channel.collect(PLENTY_S)
        assert outcome.lost and outcome.task is task
        channel.submit([outcome.task, Task(1, 0, "b")])
        assert [task.content for task in started.executors[0].tasks] == ["a"]
        auto.tidy()
        assert outcomes(channel, 1) == {("here", "b")} and not started.executors[0].closed
    far.answered = True
    assert outcomes(channel, 1) == {("elsewhere", "a")}
    arrive(auto, settings[2])
    assert started.executors[0].closed
    channel.submit([Task(2, 0, "c")])
    assert [task.content for task in started.executors[1].tasks] == ["c"]


def test_what_has_ended_a_worker_is_not_brought_home(auto: AutoExecutor, started: Started) -> None:
    channel = auto.channel(here)
    arrive(auto, Setting(1, 1))
    far = channel._now  # type: ignore[attr-defined]
    far.crashes = far.answered = True
    channel.submit([Task(0, 0, "a")])
    assert [outcome.lost for outcome in channel.collect(0.0)] == [True]
    with pytest.raises(WorkerError, match="was killed by SIGSEGV"):
        arrive(auto, Setting(0, 2))
    assert not auto.shares_memory and not started.executors[0].closed


def test_nothing_moves_before_a_worker_has_begun(auto: AutoExecutor, started: Started) -> None:
    channel = auto.channel(here)
    starting = threading.Event()

    def slow(processes: int, threads: int) -> Executor:
        starting.wait(PLENTY_S)
        executor = started(processes, threads)
        started.executors[0].begun = False
        return executor

    auto._start_processes = slow
    auto.ask_for(Setting(2, 1))
    assert not auto.arrived()
    starting.set()
    assert auto._coming is not None
    for thread in auto._coming._background._daemons._threads:
        thread.join(PLENTY_S)
    assert not auto.arrived()
    channel.submit([Task(0, 0, "a")])
    assert outcomes(channel, 1) == {("here", "a")}
    started.executors[0].begun = True
    assert auto.arrived() and not auto.shares_memory


def test_what_cannot_be_started_is_raised_and_work_stays(auto: AutoExecutor, started: Started) -> None:
    channel = auto.channel(here)
    started.error = ConfigError("no more processes")
    with pytest.raises(ConfigError, match="no more processes"):
        arrive(auto, Setting(2, 1))
    channel.submit([Task(0, 0, "a")])
    assert outcomes(channel, 1) == {("here", "a")}
    started.error = None
    arrive(auto, Setting(2, 1))
    assert not auto.shares_memory


def test_lines_that_have_ended_are_not_moved_and_new_ones_begin_where_work_is(auto: AutoExecutor, started: Started) -> None:
    old = auto.channel(here)
    old.cancel()
    new = auto.channel(here)
    arrive(auto, Setting(1, 1))
    later = auto.channel(here)
    for channel in (new, later):
        channel.submit([Task(0, 0, "a")])
    assert len(started.executors[0].tasks) == 2
    assert old._now is old.home  # type: ignore[attr-defined]


def test_reports_and_remedies_of_a_stall_are_those_of_all_who_work(auto: AutoExecutor) -> None:
    assert not auto.replace_stuck(1.0), "threads cannot be ended"
    line = auto.channel(here)
    arrive(auto, Setting(1, 1))
    assert "far away" in auto.stacks(repr) and "worker 0" in auto.stacks(repr)
    assert auto.replace_stuck(1.0)
    line.cancel()


def test_closing_while_processes_are_on_their_way_closes_them_too(started: Started) -> None:
    auto = AutoExecutor(1, Scratch, start_processes=started)
    line = auto.channel(here)
    auto.ask_for(Setting(2, 1))
    auto.close()
    assert auto.stopped and all(each.closed for each in started.executors)
    line.cancel()


def test_threads_can_become_more_and_fewer() -> None:
    executor = ThreadExecutor(1, Scratch)
    together = threading.Barrier(5)
    channel = executor.channel(lambda content, _: (together.wait(PLENTY_S) >= 0, content))
    for size in (5, 2, 5, 1):
        executor.resize(size)
        assert executor.workers == size
        if size == 5:
            for unit in range(5):
                channel.submit([Task(unit, 0, unit)])
            assert len(outcomes(channel, 5)) == 5, "all five work at once"
    executor.close()
    assert not any(thread.name.startswith("stoker-") and thread.is_alive() for thread in threading.enumerate())


def test_few_units_wait_for_workers_that_may_soon_be_others() -> None:
    executor = ThreadExecutor(2, Scratch)
    numbers = count()
    settings: dict[str, Any] = {"budget": 1 << 40, "watchdog_s": 30.0}
    for may_move, most in ((False, 64), (True, 2)):
        executor.may_move = may_move
        units = [Numbers(next(numbers), rows=4) for _ in range(80)]
        feed: Any = Feed(Listed(units), executor.channel(here), executor, window=Window(2, 64, 1 << 20), **settings)
        feed._pace.learn(1.0, 1.0, 1)  # a second for each row
        feed._pace.learn = lambda *task: None
        feed.take()
        feed.take()
        feed._fill(False)
        assert feed._schedule.in_flight == most
        assert len(take_all(feed)) == 78
        feed.close()
    executor.close()


def test_the_window_follows_the_number_of_workers() -> None:
    executor = ThreadExecutor(1, Scratch)
    units = [Numbers(number, rows=1) for number in range(200)]
    feed: Any = Feed(
        Listed(units), executor.channel(here), executor,
        window=Window(2, 2), budget=1 << 40, watchdog_s=30.0, resized=lambda workers: Window(2 * workers, 2 * workers),
    )  # fmt: skip
    feed.take()
    executor.resize(8)
    feed.take()
    feed._fill(False)
    assert feed._schedule.in_flight == 16
    feed.close()
    executor.close()


def test_memory_comes_from_who_is_at_work(auto: AutoExecutor) -> None:
    memory, address = auto.allocate(100)
    assert (memory.dtype, len(memory), address) == (np.uint8, 100, None)
