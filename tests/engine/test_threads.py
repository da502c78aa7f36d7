"""The thread executor: one outcome a task, and a clean end whatever happens."""

from __future__ import annotations

import queue
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from stoker.engine import threads
from stoker.engine.executor import Channel, Outcome, Task
from stoker.engine.inline import InlineExecutor
from stoker.engine.run_task import presentable
from stoker.engine.threads import ThreadExecutor
from stoker.errors import ConfigError, FunctionError

from ..support import GIL, until


class Scratch:
    made: list[Scratch]

    def __init__(self) -> None:
        self.closed = False
        type(self).made.append(self)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _forget() -> None:
    Scratch.made = []


def wait_for(channel: Channel[Any, Any], count: int) -> list[Outcome[Any, Any]]:
    outcomes: list[Outcome[Any, Any]] = []
    deadline = time.monotonic() + 30
    while len(outcomes) < count and time.monotonic() < deadline:
        outcomes += channel.collect(0.2)
    return outcomes


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("stoker")]


def gone() -> bool:
    """Whether all of ours have ended, soon: `close` waits a second for them, and a busy machine may take longer."""
    for thread in ours():
        thread.join(20)
    return not ours()


def test_tasks_that_go_first_go_before_those_that_wait_and_keep_their_order() -> None:
    begun, release = threading.Event(), threading.Event()
    ran: list[str] = []

    def work(content: str, _: Any) -> None:
        if content == "at work":
            begun.set()
            release.wait(60)
        ran.append(content)

    executor = ThreadExecutor(1, Scratch)
    try:
        channel = executor.channel(work)
        channel.submit([Task(0, 0, "at work")])
        assert begun.wait(60)
        for content, first in (("a", False), ("b", False), ("finish 1", True), ("c", False), ("finish 2", True)):
            channel.submit([Task(0, 0, content)], first=first)
        release.set()
        assert len(wait_for(channel, 6)) == 6
        assert ran == ["at work", "finish 1", "finish 2", "a", "b", "c"]
    finally:
        release.set()
        executor.close()


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()], ids=repr)
def test_every_task_has_one_outcome_whatever_it_raises(error: BaseException) -> None:
    def work(content: int, _: Any) -> int:
        if content == 2:
            raise error
        return content

    executor = ThreadExecutor(2, Scratch)
    try:
        channel = executor.channel(work)
        channel.submit([Task(0, number, number) for number in range(5)])
        outcomes = wait_for(channel, 5)
        assert sorted(outcome.task.number for outcome in outcomes) == list(range(5))
        assert [outcome.fault.error() for outcome in outcomes if outcome.fault] == [error]
    finally:
        executor.close()
    assert gone()


def test_outcomes_say_who_did_it_and_when() -> None:
    executor = ThreadExecutor(1, Scratch)
    try:
        channel = executor.channel(lambda content, _: time.sleep(0.01))
        before = time.monotonic()
        channel.submit([Task(3, 4, None)])
        (outcome,) = wait_for(channel, 1)
        assert before <= outcome.start_s < outcome.stop_s <= time.monotonic()
        assert 0 <= outcome.cpu_s <= outcome.stop_s - outcome.start_s + 0.01
        assert (outcome.task.unit, outcome.task.number, outcome.worker) == (3, 4, 0)
    finally:
        executor.close()


def test_lines_do_not_mix() -> None:
    executor = ThreadExecutor(3, Scratch)
    try:
        channels = [executor.channel(lambda content, _, line=line: (line, content)) for line in range(4)]
        for number in range(20):
            for channel in channels:
                channel.submit([Task(0, number, number)])
        for line, channel in enumerate(channels):
            assert {outcome.result for outcome in wait_for(channel, 20)} == {(line, number) for number in range(20)}
    finally:
        executor.close()


def test_a_worker_keeps_one_scratch_and_closes_it() -> None:
    executor = ThreadExecutor(2, Scratch)
    seen: set[int] = set()
    channel = executor.channel(lambda _, scratch: seen.add(id(scratch)))
    for number in range(30):
        channel.submit([Task(0, number, None)])
    wait_for(channel, 30)
    executor.close()
    assert gone()
    assert len(Scratch.made) == 2
    assert seen <= {id(scratch) for scratch in Scratch.made}
    assert all(scratch.closed for scratch in Scratch.made)


def test_a_worker_holds_nothing_of_a_task_when_it_hands_it_over() -> None:
    """It may stand still from then on: whoever has the outcome must be the only one who has it."""
    executor = ThreadExecutor(1, Scratch)
    try:
        submitted = threading.Event()  # until then the caller holds the tasks
        channel = executor.channel(lambda content, _: set(content) if submitted.wait(30) else None)
        freed: queue.SimpleQueue[list[bool]] = queue.SimpleQueue()

        class Taken:
            def put(self, outcomes: list[Outcome[Any, Any]]) -> None:
                held = [weakref.ref(part) for outcome in outcomes for part in (outcome.task.content, outcome.result)]
                outcomes.clear()
                freed.put([part() is None for part in held])

        channel.done = Taken()  # type: ignore[attr-defined]
        channel.submit([Task(0, number, frozenset([number])) for number in range(2)])
        submitted.set()
        gone = freed.get(timeout=30)
        # Without GIL, what another thread has made is freed when that thread comes by: of contents nothing can be said here.
        assert gone == [True] * 4 if GIL else gone[1::2] == [True] * 2
    finally:
        executor.close()


def test_a_task_that_took_long_is_handed_over_before_the_next_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a watchdog takes two tasks that wait for the same silent server for one that hangs."""
    monkeypatch.setattr(threads, "LONG_S", -1.0)
    executor, release = ThreadExecutor(1, Scratch), threading.Event()
    try:

        def work(content: frozenset[int], _: Any) -> set[int]:
            assert content == {0} or release.wait(30)
            return set(content)

        channel = executor.channel(work)
        contents = [frozenset([number]) for number in range(3)]
        held = [weakref.ref(content) for content in contents]
        channel.submit([Task(0, number, contents.pop(0)) for number in range(3)])
        first = wait_for(channel, 1)
        assert [outcome.result for outcome in first] == [{0}]
        first.clear()
        assert held[0]() is None or not GIL, "and nothing of it stays with the worker"
        release.set()
        assert [outcome.result for outcome in wait_for(channel, 2)] == [{1}, {2}]
    finally:
        release.set()
        executor.close()


def test_cancelled_work_that_has_not_begun_never_begins() -> None:
    begun: list[int] = []
    release = threading.Event()

    def work(content: int, _: Any) -> None:
        begun.append(content)
        release.wait(20)

    executor = ThreadExecutor(1, Scratch)
    try:
        channel = executor.channel(work)
        channel.submit([Task(0, number, number) for number in range(3)])
        channel.submit([Task(1, 0, 99)])
        while not begun:
            time.sleep(0.001)
        channel.cancel()
        channel.cancel()
        release.set()
        other = executor.channel(lambda content, _: content)
        other.submit([Task(0, 0, "other")])
        assert [outcome.result for outcome in wait_for(other, 1)] == ["other"], "the worker lives on"
        assert begun == [0]
    finally:
        executor.close()


def test_closing_twice_and_closing_while_busy_is_fine() -> None:
    executor = ThreadExecutor(3, Scratch)
    channel = executor.channel(lambda content, _: time.sleep(0.05))
    for number in range(50):
        channel.submit([Task(0, number, None)])
    executor.close()
    executor.close()
    assert gone()


def test_a_worker_that_never_returns_does_not_hold_up_the_end() -> None:
    release = threading.Event()
    executor = ThreadExecutor(2, Scratch)
    channel = executor.channel(lambda content, _: release.wait(30))
    channel.submit([Task(0, 0, None)])
    while "at None" not in executor.stacks(str):
        time.sleep(0.001)
    begun = time.monotonic()
    executor.close()
    assert time.monotonic() - begun < 10, "it stops waiting"
    assert all(thread.daemon for thread in ours()), "and the process can end"
    release.set()
    assert gone()


def test_when_threads_cannot_be_started_those_that_were_end_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "stoker-2":
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(ConfigError, match=r"3 of 5 could not be started .*can't start new thread.*fewer threads"):
        ThreadExecutor(5, Scratch)
    monkeypatch.undo()
    assert gone()


def test_the_inline_executor_runs_in_the_callers_thread_when_asked() -> None:
    executor = InlineExecutor(1, Scratch)
    seen: list[int] = []
    channel = executor.channel(lambda content, _: seen.append(threading.get_ident()))
    channel.submit([Task(0, 0, None), Task(0, 1, None)])
    assert not seen
    assert len(wait_for(channel, 2)) == 2
    assert set(seen) == {threading.get_ident()}
    channel.submit([Task(0, 2, None)])
    channel.cancel()
    assert channel.collect(0.0) == []
    executor.close()
    assert Scratch.made[0].closed


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_the_callers_own_thread_is_the_callers(error: type[BaseException]) -> None:
    def work(content: Any, _: Any) -> None:
        raise error

    channel = InlineExecutor(1, Scratch).channel(work)
    channel.submit([Task(0, 0, None)])
    with pytest.raises(error):
        channel.collect(0.0)


def test_what_would_end_the_program_is_wrapped_and_the_rest_is_not() -> None:
    error = ValueError()
    assert presentable(error) is error
    wrapped = presentable(SystemExit(3))
    assert isinstance(wrapped, FunctionError) and isinstance(wrapped.__cause__, SystemExit)
    assert "SystemExit(3)" in str(wrapped)


def test_stacks_name_every_worker_and_what_it_does() -> None:
    release = threading.Event()

    def sleeping_beauty(content: Any, _: Any) -> None:
        release.wait(20)

    executor = ThreadExecutor(2, Scratch)
    try:
        executor.channel(sleeping_beauty).submit([Task(5, 1, "rows 3 to 7")])
        told = until(lambda: "sleeping_beauty" in (told := executor.stacks(str)) and told)
        assert ", at rows 3 to 7:" in told and "waiting for work" in told
    finally:
        release.set()
        executor.close()
    assert gone()
    assert "(ended)" in executor.stacks(str)
    assert sys.getrefcount(executor) < 10
