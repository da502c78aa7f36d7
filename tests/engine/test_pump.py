"""Pulling an iterator ahead of its consumer."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.engine.pump import Pump
from stoker.errors import FunctionError, StallError


def all_of(pump: Pump) -> list[Any]:
    values: list[Any] = []
    while found := pump.get(block=True):
        values += found
    return values


def pumps() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stoker-pump"]


def gone(deadline_s: float = 20.0) -> bool:
    deadline = time.monotonic() + deadline_s
    while pumps() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not pumps()


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
def test_values_come_in_order_and_none_is_lost(count: int, threaded: bool) -> None:
    pump = Pump(lambda: iter(range(count)), 16, 3, 30.0, threaded)
    assert all_of(pump) == list(range(count))
    pump.close()


@pytest.mark.parametrize("threaded", [True, False])
def test_an_error_comes_after_the_values_before_it(threaded: bool) -> None:
    def values() -> Iterator[int]:
        yield from range(20)
        raise LookupError("torn")

    pump = Pump(values, 8, 9, 30.0, threaded)
    seen: list[int] = []
    with pytest.raises(LookupError, match="torn"):
        while True:
            seen += pump.get(block=True) or []
    assert seen == list(range(20)), "all of them, whatever the lists were"
    pump.close()


def test_an_error_before_the_first_value_is_told_too() -> None:
    def nothing() -> Iterator[int]:
        raise LookupError("never began")

    with pytest.raises(LookupError):
        all_of(Pump(nothing, 8, 2, 30.0, True))


def test_sys_exit_in_the_stream_does_not_end_the_program() -> None:
    def values() -> Iterator[int]:
        yield 1
        raise SystemExit(3)

    with pytest.raises(FunctionError) as caught:
        all_of(Pump(values, 8, 2, 30.0, True))
    assert isinstance(caught.value.__cause__, SystemExit)


def test_the_pump_runs_ahead_only_so_far() -> None:
    pulled: list[int] = []

    def values() -> Iterator[int]:
        for number in range(10_000):
            pulled.append(number)
            yield number

    pump = Pump(values, 4, 3, 30.0, True)
    pump.get(block=True)
    time.sleep(0.5)
    assert len(pulled) <= 4 * 6
    pump.close()
    assert gone()


def test_large_values_are_not_pulled_by_the_dozen() -> None:
    pulled: list[int] = []

    def values() -> Iterator[bytes]:
        for number in range(1000):
            pulled.append(number)
            yield bytes(1000)

    pump = Pump(values, 16, 8, 30.0, True, 10_000, len)
    pump.get(block=True)
    time.sleep(0.5)
    assert len(pulled) <= 11, "ten of them are what may be held"
    assert sum(len(pump.get(block=True) or []) for _ in range(999)) == 999
    pump.close()


def test_a_watchdog_may_wait_for_ever() -> None:
    def values() -> Iterator[int]:
        time.sleep(0.3)
        yield 1

    assert all_of(Pump(values, 4, 3, float("inf"), True)) == [1]


def test_asking_without_waiting_does_not_wait() -> None:
    release = threading.Event()

    def values() -> Iterator[int]:
        release.wait(20)
        yield 1

    pump = Pump(values, 4, 3, 30.0, True)
    assert pump.get(block=False) is None
    release.set()
    assert all_of(pump) == [1]


def test_a_slow_stream_is_no_stall_as_long_as_values_come() -> None:
    def values() -> Iterator[int]:
        for number in range(7):
            time.sleep(0.4)
            yield number

    assert all_of(Pump(values, 100, 3, 2.5, True)) == list(range(7))


def test_a_stream_that_stands_still_is_a_stall_and_its_place_is_shown() -> None:
    begun, release = threading.Event(), threading.Event()

    def never_gives() -> Iterator[int]:
        begun.set()
        release.wait(60)
        yield 1

    pump = Pump(never_gives, 4, 3, 0.3, True)
    assert begun.wait(60)
    with pytest.raises(StallError, match="never_gives"):
        pump.get(block=True)
    release.set()
    pump.close()


def test_a_closed_pump_ends_its_thread_and_its_generator() -> None:
    ended = threading.Event()

    def values() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    pump = Pump(values, 4, 2, 30.0, True)
    pump.get(block=True)
    pump.close()
    pump.close()
    assert gone()
    del pump
    gc.collect()
    assert ended.wait(20)


def test_a_pump_nobody_holds_stops() -> None:
    def values() -> Iterator[int]:
        while True:
            yield 1

    pump = Pump(values, 4, 2, 30.0, True)
    pump.get(block=True)
    del pump
    gc.collect()
    assert gone()
