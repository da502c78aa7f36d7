"""One function over many things."""

from __future__ import annotations

import threading

import pytest

from stoker.engine.background import Background
from stoker.engine.each import each


def test_results_come_in_the_order_of_the_things() -> None:
    assert each(lambda number: number * number, range(100)) == [number * number for number in range(100)]
    assert each(str, []) == [] and each(str, [3]) == ["3"]


def test_several_are_under_way_at_once() -> None:
    both = threading.Barrier(2, timeout=10)
    each(lambda _: both.wait(), range(2))


def test_the_first_things_error_is_raised() -> None:
    def work(number: int) -> int:
        if number >= 3:
            raise ValueError(f"thing {number}")
        return number

    with pytest.raises(ValueError, match="thing 3"):
        each(work, range(50))


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    each(lambda number: number, range(40))
    with pytest.raises(ZeroDivisionError):
        each(lambda number: 1 // number, range(5))
    assert threading.active_count() == before


def test_background_work_stops_when_told() -> None:
    running = threading.Barrier(4, timeout=10)

    def work(stop: threading.Event) -> None:
        running.wait()
        stop.wait(30)

    before = threading.active_count()
    background = Background(work, 3, "test")
    running.wait()
    assert threading.active_count() == before + 3
    background.close()
    background.close()
    assert threading.active_count() == before
