"""The scheduler alone: events in, commands out. No thread, no clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.engine.schedule import FINISH, Command, Emit, Finished, GiveUp, Lost, Offered, Run, Schedule, Taken, Window


def of(units: int, budget: int = 1 << 62) -> Schedule:
    """A schedule whose window does not depend on sizes."""
    return Schedule(Window(units, units), budget)


def test_an_offered_unit_runs_all_its_tasks() -> None:
    assert of(4).handle(Offered(0, 3)) == [Run(0, 0), Run(0, 1), Run(0, 2)]


def test_a_unit_without_tasks_is_handed_over_at_once_but_in_its_place() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 1))
    assert schedule.handle(Offered(1, 0)) == []
    assert schedule.handle(Finished(0, 0)) == [Emit(0), Emit(1)]


def test_units_that_are_done_early_wait_for_those_before_them() -> None:
    schedule = of(4)
    for unit in range(3):
        schedule.handle(Offered(unit, 1))
    assert schedule.handle(Finished(2, 0)) == []
    assert schedule.handle(Finished(1, 0)) == []
    assert schedule.handle(Finished(0, 0)) == [Emit(0), Emit(1), Emit(2)]


def test_a_unit_is_complete_when_its_last_task_is_whichever_that_is() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 3))
    assert schedule.handle(Finished(0, 2)) == []
    assert schedule.handle(Finished(0, 0)) == []
    assert schedule.handle(Finished(0, 1)) == [Emit(0)]


def test_a_finishing_task_runs_last_and_once() -> None:
    schedule = of(4)
    assert schedule.handle(Offered(0, 2, finish=True)) == [Run(0, 0), Run(0, 1)]
    assert schedule.handle(Finished(0, 1)) == []
    assert schedule.handle(Finished(0, 0)) == [Run(0, FINISH)]
    assert schedule.handle(Finished(0, FINISH)) == [Emit(0)]


def test_a_lost_task_runs_again_and_counts_once() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 2))
    schedule.handle(Offered(1, 1))
    assert schedule.handle(Lost(0, 1)) == [Run(0, 1)]
    assert schedule.handle(Finished(1, 0)) == []
    assert schedule.handle(Finished(0, 0)) == []
    assert schedule.handle(Finished(0, 1)) == [Emit(0), Emit(1)]


def test_a_task_lost_twice_is_given_up_and_its_unit_comes_in_its_place_without_a_finish() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 1))
    schedule.handle(Offered(1, 2, finish=True))
    assert schedule.handle(Lost(1, 0)) == [Run(1, 0)]
    assert schedule.handle(Lost(1, 1)) == [Run(1, 1)], "another task, lost for the first time"
    assert schedule.handle(Lost(1, 0)) == [GiveUp(1, 0)]
    assert schedule.handle(Finished(1, 1)) == []
    assert schedule.handle(Finished(0, 0)) == [Emit(0), Emit(1)]


def test_a_lost_finishing_task_has_the_others_run_again_because_it_works_in_their_memory() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 2, finish=True))
    schedule.handle(Finished(0, 0))
    assert schedule.handle(Finished(0, 1)) == [Run(0, FINISH)]
    assert schedule.handle(Lost(0, FINISH)) == [Run(0, 0), Run(0, 1)]
    schedule.handle(Finished(0, 1))
    assert schedule.handle(Finished(0, 0)) == [Run(0, FINISH)]
    assert schedule.handle(Lost(0, FINISH)) == [GiveUp(0, FINISH), Emit(0)]


def test_a_failed_unit_is_not_finished_and_keeps_its_place() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 1))
    schedule.handle(Offered(1, 2, finish=True))
    assert schedule.handle(Finished(1, 0, failed=True)) == []
    assert schedule.handle(Finished(1, 1)) == [], "done, but unit 0 comes first"
    assert schedule.handle(Finished(0, 0)) == [Emit(0), Emit(1)]


def test_a_failed_finish_hands_the_unit_over_all_the_same() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 1, finish=True))
    schedule.handle(Finished(0, 0))
    assert schedule.handle(Finished(0, FINISH, failed=True)) == [Emit(0)]


def test_the_window_counts_a_unit_until_it_is_taken() -> None:
    schedule = of(2)
    assert schedule.room()
    schedule.handle(Offered(0, 1))
    assert schedule.room()
    schedule.handle(Offered(1, 1))
    assert not schedule.room()
    schedule.handle(Finished(0, 0))
    assert not schedule.room(), "handed over, but nobody has taken it"
    schedule.handle(Taken(0))
    assert schedule.room()
    assert schedule.in_flight == 1


def test_bytes_bound_what_is_let_in() -> None:
    schedule = of(10, budget=100)
    schedule.handle(Offered(0, 1, nbytes=60))
    assert schedule.room(40)
    assert not schedule.room(41)


def test_bytes_a_task_adds_count_too() -> None:
    schedule = of(10, budget=100)
    schedule.handle(Offered(0, 2, nbytes=10))
    schedule.handle(Finished(0, 0, nbytes=50))
    assert schedule.nbytes == 60
    assert schedule.room(40)
    assert not schedule.room(41)
    schedule.handle(Finished(0, 1, nbytes=39))
    schedule.handle(Taken(0))
    assert schedule.nbytes == 0


def test_what_units_grow_by_is_learned_row_by_row_and_set_aside_for_later_ones() -> None:
    schedule = of(10, budget=200)
    schedule.handle(Offered(0, 1, nbytes=5, rows=2))
    assert schedule.nbytes == 5, "nothing is known yet"
    schedule.handle(Finished(0, 0, nbytes=20))
    schedule.handle(Taken(0))
    schedule.handle(Offered(1, 2, nbytes=5, rows=7))
    assert schedule.nbytes == 5 + 70, "ten bytes a row"
    assert schedule.room(nbytes=25, rows=10)
    assert not schedule.room(nbytes=26, rows=10)
    schedule.handle(Finished(1, 0, nbytes=30))
    assert schedule.nbytes == 75, "what comes is not counted on top"
    schedule.handle(Finished(1, 1, nbytes=4))
    assert schedule.nbytes == 39, "now it is known"
    schedule.handle(Offered(2, 1, rows=1))
    schedule.handle(Finished(2, 0, nbytes=60))
    assert schedule.nbytes == 99, "more than was expected"
    assert schedule.room(rows=1)
    assert not schedule.room(rows=2), "and that is learned too"


def test_one_unit_is_always_let_in_however_large() -> None:
    schedule = of(4, budget=10)
    assert schedule.room(1000)
    schedule.handle(Offered(0, 1, nbytes=1000))
    assert not schedule.room(0)
    schedule.handle(Finished(0, 0))
    schedule.handle(Taken(0))
    assert schedule.room(1000)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), window=st.integers(1, 5), units=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=15))
def test_whatever_order_tasks_end_in_units_come_out_once_and_in_order(
    data: st.DataObject, window: int, units: list[tuple[int, bool]]
) -> None:
    schedule, running, ready = of(window), [], []
    offered = taken = 0
    ran: list[Command] = []

    def obey(commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Emit):
                ready.append(command.unit)
            else:
                ran.append(command)
                running.append(command)

    while taken < len(units):
        choices = [*(["offer"] if offered < len(units) and schedule.room() else []), *(["end"] if running else [])]
        choice = data.draw(st.sampled_from([*choices, *(["take"] if ready else [])]))
        if choice == "offer":
            tasks, finish = units[offered]
            obey(schedule.handle(Offered(offered, tasks, finish=finish and tasks > 0)))
            offered += 1
        elif choice == "end":
            task = running.pop(data.draw(st.integers(0, len(running) - 1)))
            obey(schedule.handle(Finished(task.unit, task.task, failed=data.draw(st.booleans()), nbytes=3)))
        else:
            assert ready.pop(0) == taken, "in order"
            schedule.handle(Taken(taken))
            taken += 1
        assert schedule.in_flight <= window
        assert schedule.nbytes >= 0
    assert len(set(ran)) == len(ran), "no task runs twice"
    assert not running and not ready and schedule.in_flight == 0 and schedule.nbytes == 0


def finished_unit(schedule: Schedule, unit: int, nbytes: int) -> None:
    schedule.handle(Offered(unit, 1, rows=10))
    schedule.handle(Finished(unit, 0, nbytes=nbytes))
    schedule.handle(Taken(unit))


def test_the_window_opens_by_what_units_turned_out_to_take() -> None:
    schedule = Schedule(Window(least=3, most=50, nbytes=1000))
    assert schedule.limit(rows=10) == 2, "nothing is known yet"
    finished_unit(schedule, 0, nbytes=100)
    assert schedule.limit(rows=10) == 10
    assert schedule.limit(rows=1) == 50
    assert schedule.limit(rows=1000) == 3
    assert schedule.limit(nbytes=100, rows=10) == 5, "what is laid out beforehand counts too"


def test_one_unit_that_is_much_larger_does_not_narrow_the_window_for_ever() -> None:
    schedule = Schedule(Window(least=2, most=50, nbytes=1000))
    for unit in range(20):
        finished_unit(schedule, unit, nbytes=10_000 if unit == 3 else 100)
        if unit == 3:
            assert schedule.limit(rows=10) == 2
    assert schedule.limit(rows=10) >= 8
    assert schedule.expect(0, 10) == 10_000, "the budget remembers it"


def test_taking_what_was_never_offered_is_a_bug_that_shows() -> None:
    with pytest.raises(KeyError):
        of(1).handle(Taken(0))
