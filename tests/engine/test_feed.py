"""The driver between scheduler and executor, with units made by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from stoker.engine.executor import CRASHED, NOT_BEGUN, Channel, Executor, Outcome, Task
from stoker.engine.feed import Exhausted, Feed, Pace, Supply, Unit
from stoker.engine.inline import InlineExecutor
from stoker.engine.schedule import FINISH, Window
from stoker.engine.threads import ThreadExecutor
from stoker.errors import StallError

from ..support import Passing


class Scratch:
    def close(self) -> None:
        pass


class Numbers(Unit[Any, Any]):
    """A unit whose tasks give back their numbers."""

    def __init__(self, number: int, rows: int = 4, finish: bool = False, nbytes: int = 0) -> None:
        self.number, self.rows, self.finish, self.nbytes = number, rows, finish, nbytes
        self.results: list[Any] = []
        self.errors: list[BaseException] = []
        self.given_up: list[Any] = []

    def split(self, rows: int) -> list[Any]:
        return [(self.number, first) for first in range(0, self.rows, rows)]

    def finisher(self) -> Any:
        return (self.number, "finish")

    def done(self, outcome: Outcome[Any, Any]) -> int:
        self.failed = outcome.fault is not None
        if outcome.fault is not None:
            self.errors.append(outcome.fault.error())
        else:
            self.results.append(outcome.result)
        return 0

    def pieces(self, content: Any) -> list[Any]:
        return [] if len(content) == 3 else [(*content, row) for row in range(2)]

    def give_up(self, content: Any, causes: Sequence[str]) -> int:
        self.given_up.append((content, *causes))
        return 0

    def __str__(self) -> str:
        return f"unit {self.number}"


class Listed(Supply[Numbers]):
    """Units, or errors to raise, from a list; None means "not yet"."""

    def __init__(self, units: list[Any]) -> None:
        self.units = units
        self.polled = 0

    def poll(self, block: bool) -> Numbers | None:
        self.polled += 1
        if not self.units:
            raise Exhausted
        if self.units[0] is None and not block:
            return None
        while self.units[0] is None:
            self.units.pop(0)
        unit = self.units.pop(0)
        if isinstance(unit, BaseException):
            raise unit
        return unit  # type: ignore[no-any-return]


@pytest.fixture(params=["inline", "1 thread", "4 threads"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made = InlineExecutor(1, Scratch) if request.param == "inline" else ThreadExecutor(int(request.param[0]), Scratch)
    yield made
    made.close()


def feed_of(
    executor: Executor, units: list[Any], work: Callable[[Any, Any], Any] = lambda content, _: content, **options: Any
) -> Feed[Numbers, Any, Any]:
    settings = {"window": 4, "budget": 1 << 40, "watchdog_s": 30.0, **options}
    settings["window"] = Window(settings["window"], settings["window"])
    return Feed(Listed(units), executor.channel(work), executor, **settings)


def take_all(feed: Feed[Numbers, Any, Any]) -> list[Numbers]:
    taken = []
    while True:
        try:
            unit = feed.take()
        except Exhausted:
            return taken
        assert unit is not None
        taken.append(unit)


def test_units_come_whole_and_in_order_however_long_their_tasks_take(executor: Executor) -> None:
    def work(content: Any, _: Any) -> Any:
        time.sleep(0.002 * (content[0] % 3))
        return content

    taken = take_all(feed_of(executor, [Numbers(n, rows=n % 5 + 1) for n in range(20)], work))
    assert [unit.number for unit in taken] == list(range(20))
    assert all(sorted(unit.results)[0] == (unit.number, 0) for unit in taken)


def test_a_finishing_task_sees_the_others_done(executor: Executor) -> None:
    done: list[Any] = []

    def work(content: Any, _: Any) -> Any:
        number, part = content
        if part != "finish":
            time.sleep(0.001)
        done.append(content)
        return [one for one in done if one[0] == number]

    taken = take_all(feed_of(executor, [Numbers(n, rows=8, finish=True) for n in range(5)], work))
    for unit in taken:
        seen = next(result for result in unit.results if (unit.number, "finish") in result)
        assert seen[-1] == (unit.number, "finish") and len(seen) == len(unit.results) >= 2


class Watched(Channel[Any, Any]):
    """Passes everything on, and notes what is submitted."""

    def __init__(self, inner: Channel[Any, Any]) -> None:
        self.inner = inner
        self.submitted: list[tuple[list[Task[Any]], bool]] = []

    def submit(self, tasks: list[Task[Any]], *, first: bool = False) -> None:
        self.submitted.append((tasks, first))
        self.inner.submit(tasks, first=first)

    def collect(self, timeout_s: float) -> list[Outcome[Any, Any]]:
        return self.inner.collect(timeout_s)

    def cancel(self) -> None:
        self.inner.cancel()


def test_a_finishing_task_goes_before_all_look_ahead_work() -> None:
    executor = InlineExecutor(1, Scratch)
    units = Listed([Numbers(n, finish=True) for n in range(5)])
    channel = Watched(executor.channel(lambda content, _: content))
    take_all(Feed(units, channel, executor, window=Window(4, 4), budget=1 << 40, watchdog_s=30.0))
    finishing = [task.number == FINISH for tasks, _ in channel.submitted for task in tasks]
    assert sum(finishing) == 5 and finishing == [first for tasks, first in channel.submitted for _ in tasks]


def test_tasks_of_a_feed_that_takes_what_others_give_go_before_theirs() -> None:
    begun, release = threading.Event(), threading.Event()
    ran: list[Any] = []

    def work(content: Any, _: Any) -> Any:
        begun.set()
        release.wait(60)
        ran.append(content)

    executor = ThreadExecutor(1, Scratch)
    try:
        front = feed_of(executor, [Numbers(n, rows=8) for n in range(2)], work)
        last = feed_of(executor, [Numbers(9, rows=8)], work, first=True)
        assert front.take(block=False) is None and begun.wait(60)
        assert last.take(block=False) is None
        release.set()
        take_all(front), take_all(last)
        assert ran == [(0, 0), (9, 0), (1, 0)]
    finally:
        release.set()
        executor.close()


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError("x")], ids=repr)
def test_a_task_that_raises_reaches_its_unit_and_no_other(executor: Executor, error: BaseException) -> None:
    def work(content: Any, _: Any) -> Any:
        if content[0] == 2:
            raise error
        return content

    taken = take_all(feed_of(executor, [Numbers(n) for n in range(5)], work))
    assert [bool(unit.errors) for unit in taken] == [False, False, True, False, False]
    assert taken[2].errors[0] is error


class Losing(Channel[Any, Any]):
    """Loses the tasks whose contents it is told, each as often and with such blame as it is told; notes what runs alone."""

    def __init__(self, inner: Channel[Any, Any], losses: dict[Any, list[int]]) -> None:
        self.inner, self.losses = inner, losses
        self.alone: list[Any] = []

    def submit(self, tasks: list[Task[Any]], *, first: bool = False) -> None:
        assert first or not any(task.alone for task in tasks)
        assert len(tasks) == 1 or not any(task.alone for task in tasks)
        self.alone += [task.content for task in tasks if task.alone]
        self.inner.submit(tasks, first=first)

    def collect(self, timeout_s: float) -> list[Outcome[Any, Any]]:
        return [
            Outcome(outcome.task, lost=True, blame=losses.pop(0), cause="ended")
            if (losses := self.losses.get(outcome.task.content))
            else outcome
            for outcome in self.inner.collect(timeout_s)
        ]

    def cancel(self) -> None:
        self.inner.cancel()


def losing(losses: dict[Any, list[int]], units: list[Numbers]) -> tuple[list[Numbers], Losing]:
    executor = InlineExecutor(1, Scratch)
    channel = Losing(executor.channel(lambda content, _: content), losses)
    return take_all(Feed(Listed(units), channel, executor, window=Window(4, 4), budget=1 << 40, watchdog_s=30.0)), channel


def test_a_lost_task_runs_again_in_pieces_alone_until_the_piece_that_ends_workers_is_given_up() -> None:
    losses = {(1, 0): [NOT_BEGUN] * 50 + [CRASHED], (1, 0, 1): [NOT_BEGUN, CRASHED], (2, 0): [NOT_BEGUN]}
    taken, channel = losing(losses, [Numbers(n, rows=8) for n in range(4)])
    assert [unit.number for unit in taken] == [0, 1, 2, 3]
    assert [unit.given_up for unit in taken] == [[], [((1, 0, 1), "ended", "ended")], [], []]
    assert [unit.results for unit in taken] == [[(0, 0)], [(1, 0, 0)], [(2, 0)], [(3, 0)]]
    assert channel.alone == [(1, 0, 0), (1, 0, 1), (1, 0, 1)]


def test_a_lost_finishing_task_is_not_cut_and_given_up_for_all() -> None:
    taken, channel = losing({(1, "finish"): [CRASHED, CRASHED]}, [Numbers(n, finish=True) for n in range(3)])
    assert [unit.given_up for unit in taken] == [[], [(None, "ended", "ended")], []]
    assert taken[1].results == [(1, 0), (1, 0)], "its parts ran again"
    assert channel.alone == [(1, "finish")]


def test_an_error_of_the_supply_is_told_after_the_units_before_it(executor: Executor) -> None:
    feed = feed_of(executor, [Numbers(0), Numbers(1), Numbers(2), LookupError("no more")])
    assert [feed.take().number for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]
    with pytest.raises(LookupError, match="no more"):
        feed.take()


def test_an_interrupt_in_the_supply_is_not_kept_waiting() -> None:
    executor = InlineExecutor(1, Scratch)
    with pytest.raises(KeyboardInterrupt):
        take_all(feed_of(executor, [Numbers(0), KeyboardInterrupt()], window=8))


def test_asking_without_waiting_gives_none_and_never_blocks() -> None:
    release = threading.Event()
    executor = ThreadExecutor(1, Scratch)
    try:
        feed = feed_of(executor, [Numbers(0)], lambda content, _: release.wait(20))
        assert feed.take(block=False) is None
        release.set()
        assert feed.take().number == 0  # type: ignore[union-attr]
    finally:
        release.set()
        executor.close()


def test_a_supply_that_has_nothing_yet_does_not_end_the_feed(executor: Executor) -> None:
    assert [unit.number for unit in take_all(feed_of(executor, [Numbers(0), None, Numbers(1), None, None, Numbers(2)]))] == [
        0,
        1,
        2,
    ]


def test_no_more_units_are_in_flight_than_the_window_allows(executor: Executor) -> None:
    units = [Numbers(n) for n in range(40)]
    feed = feed_of(executor, units, window=3)
    for taken in range(1, 41):
        feed.take()
        assert 40 - len(units) <= taken + 3


def test_no_more_bytes_are_in_flight_than_the_budget_allows(executor: Executor) -> None:
    units = [Numbers(n, nbytes=100) for n in range(40)]
    feed = feed_of(executor, units, window=30, budget=250)
    for taken in range(1, 41):
        feed.take()
        assert 40 - len(units) <= taken + 2


def test_sizes_that_show_only_afterwards_are_learned_and_bound_what_follows() -> None:
    class Grows(Numbers):
        def done(self, outcome: Outcome) -> int:
            super().done(outcome)
            return 100

    executor = ThreadExecutor(4, Scratch)
    try:
        units: list[Any] = [Grows(n, rows=1) for n in range(60)]
        feed = feed_of(executor, units, window=50, budget=250)
        for taken in range(1, 61):
            feed.take()
            time.sleep(0.001)
            assert 60 - len(units) <= taken + 2
    finally:
        executor.close()


def test_a_budget_smaller_than_a_unit_slows_down_and_does_not_stop(executor: Executor) -> None:
    assert len(take_all(feed_of(executor, [Numbers(n, nbytes=100) for n in range(10)], budget=1))) == 10


def test_a_stall_is_told_with_the_unit_and_every_workers_stack() -> None:
    begun, release = threading.Event(), threading.Event()

    def wait_for_godot(content: Any, _: Any) -> Any:
        begun.set()
        return release.wait(60)

    executor = ThreadExecutor(2, Scratch)
    try:
        feed = feed_of(executor, [Numbers(7)], wait_for_godot, watchdog_s=0.3)
        assert feed.take(block=False) is None and begun.wait(60)
        with pytest.raises(StallError) as caught:
            feed.take()
        told = str(caught.value)
        assert "unit 7" in told and "wait_for_godot" in told and "0.3 s" in told
        assert "worker 0" in told and "worker 1" in told
    finally:
        release.set()
        executor.close()


def test_workers_that_are_stuck_are_replaced_where_that_can_be_and_what_is_stuck_again_is_given_up(
    caplog: pytest.LogCaptureFixture, passing: Passing
) -> None:
    class Replacing(InlineExecutor):
        """Its worker is stuck in tasks of unit 1 until it is replaced."""

        def __init__(self) -> None:
            super().__init__(1, Scratch)
            self.stuck: list[Task[Any]] = []
            self.replaced = 0

        def channel(self, work: Any) -> Channel[Any, Any]:
            return Stuck(self)

        def stacks(self, describe: Callable[[Any], str]) -> str:
            return "".join(f"worker 0, at {describe(task.content)}: wait_for_godot" for task in self.stuck)

        def replace_stuck(self, quiet_s: float) -> bool:
            assert quiet_s == 0.9 * 30
            self.replaced += 1
            return True

    class Stuck(Channel[Any, Any]):
        def __init__(self, executor: Replacing) -> None:
            self.executor, self.waiting = executor, list[Task[Any]]()

        def submit(self, tasks: list[Task[Any]], *, first: bool = False) -> None:
            self.waiting += tasks

        def collect(self, timeout_s: float) -> list[Outcome[Any, Any]]:
            stuck = self.executor.stuck
            if stuck and self.executor.replaced:
                self.executor.replaced = 0
                return [Outcome(stuck.pop(), lost=True, blame=CRASHED, cause="was stuck")]
            for task in self.waiting if not stuck else ():
                self.waiting.remove(task)
                if task.content in {(1, 0), (1, 0, 1)}:
                    stuck.append(task)
                    break
                return [Outcome(task, task.content)]
            passing.sleep(timeout_s)
            return []

        def cancel(self) -> None:
            self.waiting.clear()

    with caplog.at_level("WARNING", "stoker"):
        taken = take_all(feed_of(Replacing(), [Numbers(n, rows=8) for n in range(3)], describe=lambda content: f"<{content}>"))
    assert [unit.given_up for unit in taken] == [[], [((1, 0, 1), "was stuck", "was stuck")], []]
    assert [unit.results for unit in taken] == [[(0, 0)], [(1, 0, 0)], [(2, 0)]]
    reports = [record.getMessage() for record in caplog.records if "no task finished for 30 s" in record.getMessage()]
    assert ["<(1, 0)>: wait_for_godot" in report for report in reports] == [True, False]
    assert "<(1, 0, 1)>: wait_for_godot" in reports[1] and "their tasks run again" in reports[1]


def test_nothing_is_stuck_while_a_worker_is_starting(passing: Passing) -> None:
    class Starting(InlineExecutor):
        @property
        def starting(self) -> bool:
            return passing.now < 100

        def channel(self, work: Any) -> Channel[Any, Any]:
            return Late(super().channel(work))

    class Late(Losing):
        def __init__(self, inner: Channel[Any, Any]) -> None:
            super().__init__(inner, {})

        def collect(self, timeout_s: float) -> list[Outcome[Any, Any]]:
            passing.sleep(timeout_s)
            return super().collect(timeout_s) if passing.now >= 100 else []

    assert len(take_all(feed_of(Starting(1, Scratch), [Numbers(0)], watchdog_s=30.0))) == 1


def test_work_that_is_slow_but_moves_is_no_stall(passing: Passing) -> None:
    def work(content: Any, _: Any) -> Any:
        passing.sleep(0.4)
        return content

    executor = ThreadExecutor(1, Scratch)
    try:
        taken = take_all(feed_of(executor, [Numbers(n, rows=12) for n in range(4)], work, watchdog_s=0.6))
        assert len(taken) == 4 and passing.now > 3
    finally:
        executor.close()


def test_what_the_supply_waited_for_is_no_stall_of_the_tasks(passing: Passing) -> None:
    class Slow(Listed):
        def poll(self, block: bool) -> Numbers | None:
            passing.sleep(100)
            return super().poll(block)

    def work(content: Any, _: Any) -> Any:
        time.sleep(0.05)  # long enough to be waited for
        return content

    executor = ThreadExecutor(1, Scratch)
    try:
        feed = Feed(Slow([Numbers(0)]), executor.channel(work), executor, window=Window(1, 1), budget=1 << 40, watchdog_s=30.0)
        assert feed.take().number == 0  # type: ignore[union-attr]
    finally:
        executor.close()


def test_very_large_units_are_not_cut_into_very_many_tasks_before_anything_is_learned() -> None:
    pace = Pace(workers=4, window=8)
    assert pace.task_rows(64) == 8 and pace.task_rows(6) == 2
    assert -(-1_000_000 // pace.task_rows(1_000_000)) <= 1100


def test_the_pace_cuts_even_tasks_of_about_the_same_time() -> None:
    pace = Pace(workers=4, window=8)
    assert pace.task_rows(256) == 8, "before anything is known"
    assert pace.task_rows(3) == 1
    pace.learn(cpu_s=0.001 * 10, wall_s=0.001 * 10, rows=10)  # a millisecond a row
    assert pace.task_rows(1000) in range(1, int(Pace.TASK_S / 0.001) + 1)
    assert pace.task_rows(1) == 1
    tasks = -(-1000 // pace.task_rows(1000))
    assert 1000 - (tasks - 1) * pace.task_rows(1000) > 0
    pace.learn(cpu_s=0.0, wall_s=1.0, rows=0)  # a task of no rows teaches nothing
    slow = Pace(workers=1, window=8)
    slow.learn(5.0, 5.0, 1)
    assert slow.task_rows(64) == 1
    fast = Pace(workers=1, window=8)
    fast.learn(0.0, 0.0, 1000)
    assert fast.task_rows(64) == 64


def test_with_a_small_window_every_worker_has_tasks_to_do() -> None:
    pace = Pace(workers=16, window=2)
    pace.learn(cpu_s=1e-3, wall_s=1e-3, rows=1)  # 24 ms would be 24 rows, too few tasks for all
    assert 2 * -(-256 // pace.task_rows(256)) >= 2 * 16


def test_however_many_workers_there_are_a_task_is_worth_handing_over() -> None:
    pace = Pace(workers=16, window=8)
    pace.learn(cpu_s=2e-6, wall_s=2e-6, rows=1)
    assert pace.task_rows(512) == 512
    pace = Pace(workers=16, window=2)
    pace.learn(cpu_s=1e-4, wall_s=1e-4, rows=1)
    assert 32 <= pace.task_rows(256) <= 40  # about 4 ms


def test_work_that_waits_instead_of_computing_is_cut_by_the_clock() -> None:
    pace = Pace(workers=2, window=64)
    pace.learn(cpu_s=1e-5, wall_s=0.1, rows=1)  # a download
    assert pace.task_rows(256) * 0.1 <= Pace.MOST_S
    assert pace.group_rows() == 1, "and none of them waits for another's end"


def test_slow_rows_are_no_stall_as_long_as_they_move(passing: Passing) -> None:
    class Slow(Numbers):
        def split(self, rows: int) -> list[Any]:
            return [min(rows, self.rows - first) for first in range(0, self.rows, rows)]

    executor = ThreadExecutor(2, Scratch)
    try:
        units = [Slow(n, rows=64) for n in range(3)]
        taken = take_all(feed_of(executor, list(units), lambda rows, _: passing.sleep(0.03 * rows), watchdog_s=1.5))
        assert len(taken) == 3 and passing.now > 5
    finally:
        executor.close()


def test_tasks_that_take_long_begin_first_but_only_so_many_at_a_time_and_those_that_are_due_at_once() -> None:
    class Early:
        def lanes(self, workers: int) -> int:
            return 1

        def units(self, rows: int, workers: int) -> int:
            return 0

        due = units

    class Mixed(Numbers):
        def split(self, rows: int) -> list[Any]:
            self.early = {1, 3}
            return [(self.number, task) for task in range(4)]

    executor = InlineExecutor(1, Scratch)
    channel = Watched(executor.channel(lambda content, _: content))
    units = Listed([Mixed(n) for n in range(6)])
    taken = take_all(Feed(units, channel, executor, window=Window(4, 4), budget=1 << 40, watchdog_s=30.0, early=Early()))
    assert [sorted(unit.results) for unit in taken] == [[(n, task) for task in range(4)] for n in range(6)]
    groups = [[(task.unit, task.number) for task in tasks] for tasks, first in channel.submitted if first]
    assert [each for group in groups for each in group] == [(n, task) for n in range(6) for task in (1, 3)]
    assert groups[0] == [(0, 1), (0, 3), (1, 1), (1, 3)], "the lane that is free gets all there are at first"


def test_a_pause_lasts_until_few_units_are_ready() -> None:
    executor = InlineExecutor(1, Scratch)
    feed = feed_of(executor, [Numbers(n) for n in range(20)], window=6)
    for _ in range(4):
        feed.take()
    while feed.occupancy[0] < 5:  # the inline executor does one task at a time
        feed._collect(1.0)
    feed.pause()
    before, in_flight = feed._offered, []
    while feed._offered == before:
        feed.take()
        in_flight.append(feed.occupancy[1])
    assert len(in_flight) >= 4 and in_flight[:3] == sorted(in_flight[:3], reverse=True)
    assert len(take_all(feed)) == 20 - 4 - len(in_flight)
