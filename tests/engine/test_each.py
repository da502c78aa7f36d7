"""One function over many things."""

from __future__ import annotations

import threading

import pytest

from stoker.engine.background import Background
from stoker.engine.each import Crew, _Round


def test_results_come_in_the_order_of_the_things() -> None:
    crew = Crew(8)
    assert crew(lambda number: number * number, range(100)) == [number * number for number in range(100)]
    assert crew(str, []) == [] and crew(str, [3]) == ["3"]


def test_several_are_under_way_at_once() -> None:
    both = threading.Barrier(2, timeout=60)
    Crew(2)(lambda _: both.wait(), range(2))


def test_the_first_things_error_is_raised() -> None:
    def work(number: int) -> int:
        if number >= 3:
            raise ValueError(f"thing {number}")
        return number

    with pytest.raises(ValueError, match="thing 3"):
        Crew(1)(work, range(50))


def test_after_an_error_no_new_work_begins() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        raise ValueError

    with pytest.raises(ValueError):
        Crew(1)(work, range(50))
    assert len(done) <= 2


def test_a_thread_that_comes_after_the_error_was_raised_begins_nothing() -> None:
    """It would work on in the background, and write an index say, when the caller has long been told."""
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        raise ValueError

    turn = _Round(work, list(range(5)))
    turn.help()
    with pytest.raises(ValueError):
        turn.results()
    turn.help()
    assert done == [0]


def test_many_threads_may_call_at_once() -> None:
    crew = Crew(3)
    results: list[list[int]] = []
    callers = [
        threading.Thread(target=lambda by=by: results.append(crew(lambda n: n * by, range(40))))
        for by in range(8)  # type: ignore[misc]
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert sorted(results) == [[n * by for n in range(40)] for by in range(8)]


def test_no_thread_is_left_behind() -> None:
    before = set(threading.enumerate())
    crew = Crew(5)
    crew(lambda number: number, range(40))
    with pytest.raises(ZeroDivisionError):
        crew(lambda number: 1 // number, range(5))
    started = set(threading.enumerate()) - before
    assert 0 < len(started) <= 5
    del crew
    for thread in started:
        thread.join(10)
    assert not any(thread.is_alive() for thread in started)


def test_background_work_stops_when_told() -> None:
    running = threading.Barrier(4, timeout=60)

    def work(stop: threading.Event) -> None:
        running.wait()
        stop.wait(30)

    before = set(threading.enumerate())
    background = Background(work, 3, "test")
    running.wait()
    started = set(threading.enumerate()) - before
    assert len(started) == 3
    background.close()
    background.close()
    assert not any(thread.is_alive() for thread in started)


def test_no_thread_undoes_the_stop_that_another_calls() -> None:
    turn = _Round(str, list(range(9)))
    stopping = threading.Thread(target=turn.stop)
    with turn._changed:  # where a thread notes what it begins
        stopping.start()
        stopping.join(0.2)  # it has no chance before that is noted
        turn._next = 1
    stopping.join()
    turn.help()
    assert turn.results() == [None] * 9
