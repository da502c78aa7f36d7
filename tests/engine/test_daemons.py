"""Threads of the engine: started in one place, stopped together."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stoker.engine import daemons
from stoker.engine.background import Background
from stoker.engine.daemons import Daemons, ended
from stoker.engine.each import Crew
from stoker.engine.executor import Task
from stoker.engine.pump import Pump
from stoker.engine.threads import ThreadExecutor
from stoker.errors import ClosedError, ConfigError

from ..support import until


class Scratch:
    def close(self) -> None:
        pass


@pytest.fixture
def the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the program may come in this test; nothing else knows of it."""
    monkeypatch.setattr(daemons, "_running", {})
    monkeypatch.setattr(daemons, "_ending", False)
    monkeypatch.setattr(daemons.TURNS, "_over", False)


def wait_for(event: threading.Event) -> None:
    event.wait(60)


def meet_and_wait(meeting: threading.Barrier, event: threading.Event) -> None:
    meeting.wait()
    event.wait(60)


def numbers() -> Iterator[int]:
    while True:
        yield 1


def test_the_end_of_the_program_stops_every_thread_there_is(the_end: None) -> None:
    before = set(threading.enumerate())
    executor = ThreadExecutor(2, Scratch)
    executor.channel(lambda content, scratch: content).submit([Task(0, 0, None)])
    pump = Pump(numbers, 4, 2, 30.0, True)
    background = Background(wait_for, 2, "stoker-test")
    crew = Crew(2)
    assert list(crew(abs, [-1, -2, -3])) == [1, 2, 3]
    started = set(threading.enumerate()) - before
    assert len(started) == 7 and not executor.stopped
    daemons._stop_all()
    for thread in started:
        thread.join(30)  # a second may be too short on a busy machine
    assert not any(thread.is_alive() for thread in started)
    assert executor.stopped and not daemons._running
    with pytest.raises(ClosedError, match="the program is ending"):
        while True:
            pump.get(block=True)
    with pytest.raises(ConfigError, match=r"worker thread 1 of 2 could not be started \(the program is ending\)"):
        ThreadExecutor(2, Scratch)
    assert list(crew(abs, [-1, -2, -3])) == [1, 2, 3], "the caller does it alone"
    background.close()


def raised_in_a_daemon() -> BaseException:
    raised: list[BaseException] = []
    thread = threading.Thread(target=lambda: raised.append(ended()), daemon=True)
    thread.start()
    thread.join(30)
    return raised[0]


def test_a_daemon_thread_ends_without_a_word_at_the_end_of_the_program_and_only_then(the_end: None) -> None:
    assert isinstance(raised_in_a_daemon(), ClosedError)
    daemons._stop_all()
    assert isinstance(raised_in_a_daemon(), SystemExit)
    assert isinstance(ended(), ClosedError)


def test_who_waits_for_a_stream_hears_of_its_close() -> None:
    begun, release = threading.Event(), threading.Event()

    def nothing() -> Iterator[int]:
        begun.set()
        release.wait(60)
        yield 1

    pump = Pump(nothing, 4, 2, 60.0, True)
    assert begun.wait(60)
    closing = threading.Thread(target=pump.close)
    closing.start()
    with pytest.raises(ClosedError, match="was closed while a batch was awaited"):
        pump.get(block=True)
    release.set()
    closing.join(60)


def test_threads_that_are_closed_are_known_no_longer(the_end: None) -> None:
    meeting, release = threading.Barrier(2, timeout=60), threading.Event()
    stuck = Daemons(lambda: None)
    stuck.start("a thread", "stoker-stuck", meet_and_wait, meeting, release)
    meeting.wait()
    assert len(daemons._running) == 1
    stuck.close(0.0)
    assert not daemons._running, "the end does not wait for it again"
    release.set()


def test_where_no_thread_can_be_started_a_crew_does_without_and_others_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name in ("stoker-crew", "stoker-pump", "stoker-ahead-1"):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    stopped = threading.Event()
    assert list(Crew(3)(abs, [-1, -2, -3])) == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"reads a stream could not be started \(can't start new thread\)"):
        Pump(numbers, 4, 2, 30.0, True)
    with pytest.raises(ConfigError, match="background thread 2 of 3 could not be started"):
        Background(lambda stop: stopped.set() if stop.wait(60) else None, 3, "stoker-ahead")
    assert stopped.wait(60), "the one that was started"


def test_the_end_waits_for_a_thread_that_has_no_core_and_leaves_one_alone_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    done, looks = threading.Event(), []
    thread = threading.Thread(target=done.wait, args=(60,), daemon=True)
    thread.start()

    def wants_core(thread: threading.Thread) -> bool:
        looks.append(thread)
        return len(looks) <= 8  # ready to run, and other programs have the cores

    monkeypatch.setattr(daemons, "_core_seconds", lambda thread: 1.0)
    monkeypatch.setattr(daemons, "_wants_core", wants_core)
    monkeypatch.setattr(daemons, "_LOOK_S", 0.001)
    daemons._join_busy([thread])
    assert thread.is_alive() and len(looks) == 8 + daemons._IDLE_LOOKS
    done.set()
    thread.join(60)


def test_whether_a_thread_would_run_is_known() -> None:
    stop = threading.Event()
    sleeping = threading.Thread(target=stop.wait, args=(60,), daemon=True)
    sleeping.start()
    until(lambda: not daemons._wants_core(sleeping))
    assert daemons._wants_core(threading.current_thread())
    stop.set()
    sleeping.join(60)
