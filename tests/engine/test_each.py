"""One function over many things."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stoker.engine.background import Background
from stoker.engine.each import Crew, Crews, Stopped, _Job, _Turn


def test_results_come_in_the_order_of_the_things() -> None:
    crew = Crew(8)
    assert list(crew(lambda number: number * number, range(100))) == [number * number for number in range(100)]
    assert list(crew(str, [])) == [] and list(crew(str, [3])) == ["3"]


def test_several_are_under_way_at_once() -> None:
    both = threading.Barrier(2, timeout=60)
    list(Crew(2)(lambda _: both.wait(), range(2)))


def test_several_callers_do_not_wait_for_each_other() -> None:
    all_at_once, crew = threading.Barrier(9, timeout=60), Crew(16)
    failed: list[BaseException] = []

    def call() -> None:
        try:
            list(crew(lambda _: all_at_once.wait(), range(3)))
        except BaseException as error:
            failed.append(error)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failed


def test_the_first_things_error_is_raised() -> None:
    def work(number: int) -> int:
        if number >= 3:
            raise ValueError(f"thing {number}")
        return number

    with pytest.raises(ValueError, match="thing 3"):
        list(Crew(1)(work, range(50)))


def test_after_an_error_no_new_work_begins() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        raise ValueError

    with pytest.raises(ValueError):
        list(Crew(1)(work, range(50)))
    assert len(done) <= 2


def test_a_thread_that_comes_after_the_error_was_raised_begins_nothing() -> None:
    """It would work on in the background, and write an index say, when the caller has long been told."""
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        raise ValueError

    turn, jobs = _Turn(work, threading.Event()), [_Job(number, number) for number in range(5)]
    turn.run(jobs[0])
    with pytest.raises(ValueError):
        turn.result(jobs[0])
    turn.run(jobs[1])
    assert done == [0]


def test_results_come_as_they_are_asked_for_and_work_goes_no_further_ahead() -> None:
    taken: list[int] = []

    def things() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = Crew(2, ahead=4)(lambda number: number * 2, things())
    assert [next(results) for _ in range(3)] == [0, 2, 4] and len(taken) == 7
    results.close()  # type: ignore[attr-defined]
    assert len(taken) == 7


def test_whoever_waits_may_do_something_meanwhile_and_works_not_itself() -> None:
    ticked, workers = threading.Event(), set()

    def work(number: int) -> int:
        workers.add(threading.current_thread())
        assert ticked.wait(60)
        return number

    with Crew(2, tick=ticked.set) as crew:
        assert list(crew(work, range(5))) == [0, 1, 2, 3, 4]
    assert threading.current_thread() not in workers and not any(thread.is_alive() for thread in workers)


def test_work_within_work_that_is_given_up_comes_to_its_end() -> None:
    """Ctrl-C: nothing new begins, what waits for smaller work is told, and all threads are gone before the block is left."""
    begun, before = threading.Event(), set(threading.enumerate())
    ends: list[str] = []

    def small(number: int) -> int:
        begun.set()
        while True:
            crews.check()

    def large(number: int) -> list[int]:
        try:
            return list(crews.each(small, range(9)))
        except Stopped:
            ends.append("stopped")
            raise

    def interrupt() -> None:
        if begun.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Crews(2, 3, interrupt) as crews:
        list(crews.over(large, range(3)))
    assert ends and set(threading.enumerate()) <= before


def test_many_threads_may_call_at_once() -> None:
    crew = Crew(3)
    results: list[list[int]] = []
    callers = [
        threading.Thread(target=lambda by=by: results.append(list(crew(lambda n: n * by, range(40)))))
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
    list(crew(lambda number: number, range(40)))
    with pytest.raises(ZeroDivisionError):
        list(crew(lambda number: 1 // number, range(5)))
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
