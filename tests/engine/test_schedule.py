"""The scheduler alone: events in, commands out. No thread, no clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.engine.executor import CRASHED, KILLED, NOT_BEGUN, POISON
from stoker.engine.schedule import FINISH, Command, Emit, Finished, GiveUp, Lost, Offered, Run, RunAlone, Schedule, Taken, Window


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


def test_a_task_that_was_never_begun_runs_again_as_often_as_it_takes() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 1))
    for _ in range(200):
        assert schedule.handle(Lost(0, 0, NOT_BEGUN)) == [Run(0, 0)]
    assert schedule.handle(Finished(0, 0)) == [Emit(0)]


def test_what_ends_its_workers_runs_alone_and_is_given_up_when_it_is_to_blame_for_enough() -> None:
    for blames in ([CRASHED, CRASHED], [KILLED] * 4, [KILLED, CRASHED, KILLED], [KILLED, KILLED, KILLED, CRASHED]):
        schedule = of(4)
        schedule.handle(Offered(0, 1))
        schedule.handle(Offered(1, 2, finish=True))
        for number, blame in enumerate(blames[:-1]):
            assert schedule.handle(Lost(1, 0, blame, f"end {number}")) == [RunAlone(1, 0)]
            assert schedule.handle(Lost(1, 0)) == [RunAlone(1, 0)], "it only waited, and stays suspected"
        assert schedule.handle(Lost(1, 1, CRASHED)) == [], "another task waits until this one is done"
        causes = tuple(f"end {number}" for number in range(len(blames)))
        assert schedule.handle(Lost(1, 0, blames[-1], causes[-1])) == [GiveUp(1, 0, causes)]
        assert schedule.handle(Finished(1, 0)) == [RunAlone(1, 1)], "and has a blame of its own"
        assert schedule.handle(Finished(1, 1, failed=True)) == []
        assert schedule.handle(Finished(0, 0)) == [Emit(0), Emit(1)], "in its place, without a finish"


def test_a_lost_task_that_can_be_cut_comes_back_in_pieces_one_after_another_which_inherit_its_blame() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 2, finish=True))
    assert schedule.handle(Lost(0, 0, CRASHED, "a", pieces=3)) == [RunAlone(0, 2)]
    assert schedule.handle(Finished(0, 2)) == [RunAlone(0, 3)]
    assert schedule.handle(Lost(0, 3, CRASHED, "b")) == [GiveUp(0, 3, ("a", "b"))]
    assert schedule.handle(Finished(0, 3)) == [RunAlone(0, 4)]
    assert schedule.handle(Finished(0, 1)) == []
    assert schedule.handle(Finished(0, 4)) == [Run(0, FINISH)], "the unit can do without what was given up"
    assert schedule.handle(Lost(0, FINISH, KILLED)) == [Run(0, 1), Run(0, 2), Run(0, 4)], "neither what was cut nor what kills"


def test_a_piece_that_can_be_cut_is_never_given_up_and_blame_is_that_of_the_last_cut() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 1))
    assert schedule.handle(Lost(0, 0, CRASHED, "a", pieces=2)) == [RunAlone(0, 1)]
    assert schedule.handle(Lost(0, 1, CRASHED, "b", pieces=2)) == [RunAlone(0, 3)], "its pieces come before the one after it"
    assert schedule.handle(Lost(0, 3, KILLED, "c", pieces=2)) == [RunAlone(0, 5)]
    assert schedule.handle(Lost(0, 5, KILLED, "d")) == [RunAlone(0, 5)], "killed twice, whatever happened to more rows"
    assert schedule.handle(Finished(0, 5)) == [RunAlone(0, 6)]
    assert schedule.handle(Lost(0, 6, CRASHED, "e")) == [RunAlone(0, 6)]
    assert schedule.handle(Lost(0, 6, CRASHED, "f")) == [GiveUp(0, 6, ("c", "e", "f"))]
    assert schedule.handle(Finished(0, 6)) == [RunAlone(0, 4)]
    assert schedule.handle(Finished(0, 4)) == [RunAlone(0, 2)]
    assert schedule.handle(Finished(0, 2)) == [Emit(0)]


def test_suspects_whose_rows_come_after_one_that_has_failed_are_not_run() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 3))
    assert schedule.handle(Lost(0, 1, CRASHED, pieces=2)) == [RunAlone(0, 3)]
    assert schedule.handle(Lost(0, 0, CRASHED, pieces=2)) == []
    assert schedule.handle(Finished(0, 3, failed=True)) == [RunAlone(0, 5)], "what comes before it"
    assert schedule.handle(Finished(0, 5)) == [RunAlone(0, 6)]
    assert schedule.handle(Finished(0, 6)) == []
    assert schedule.handle(Lost(0, 2, CRASHED, pieces=2)) == [Emit(0)]


def test_a_lost_finishing_task_has_the_others_run_again_because_it_works_in_their_memory() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 2, finish=True))
    schedule.handle(Lost(0, 0, CRASHED))
    schedule.handle(Finished(0, 0))
    assert schedule.handle(Finished(0, 1)) == [Run(0, FINISH)]
    assert schedule.handle(Lost(0, FINISH)) == [Run(0, 0), Run(0, 1)], "it may have been done, and not told"
    assert schedule.handle(Finished(0, 0)) == []
    assert schedule.handle(Finished(0, 1)) == [Run(0, FINISH)], "and is not to blame"
    assert schedule.handle(Lost(0, FINISH, CRASHED, "a")) == [Run(0, 0), Run(0, 1)]
    assert schedule.handle(Lost(0, 0, CRASHED)) == [RunAlone(0, 0)], "it was done once: its first loss does not count"
    schedule.handle(Finished(0, 1))
    assert schedule.handle(Finished(0, 0)) == [RunAlone(0, FINISH)]
    assert schedule.handle(Lost(0, FINISH, CRASHED, "b")) == [GiveUp(0, FINISH, ("a", "b"))]
    assert schedule.handle(Finished(0, FINISH, failed=True)) == [Emit(0)]


def test_a_lost_finishing_task_of_a_unit_whose_tasks_were_all_given_up_runs_again() -> None:
    schedule = of(4)
    schedule.handle(Offered(0, 1, finish=True))
    schedule.handle(Lost(0, 0, CRASHED))
    schedule.handle(Lost(0, 0, CRASHED))
    assert schedule.handle(Finished(0, 0)) == [Run(0, FINISH)]
    assert schedule.handle(Lost(0, FINISH, KILLED)) == [RunAlone(0, FINISH)]
    assert schedule.handle(Finished(0, FINISH)) == [Emit(0)]


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


@settings(max_examples=300, deadline=None)
@given(data=st.data(), window=st.integers(1, 5), units=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12))
def test_whatever_order_tasks_end_in_and_whatever_is_lost_units_come_out_once_and_in_order(
    data: st.DataObject, window: int, units: list[tuple[int, bool]]
) -> None:
    schedule = of(window)
    running: list[Run | RunAlone] = []
    ready: list[int] = []
    offered = taken = 0
    rows = {unit: [range(4 * task, 4 * task + 4) for task in range(tasks)] for unit, (tasks, _) in enumerate(units)}
    done: dict[int, set[int]] = {unit: set() for unit in rows}  # rows that were answered for since the unit's tasks ran last
    blamed: dict[tuple[int, int], int] = {}
    given_up: set[tuple[int, int]] = set()
    failed: dict[int, int] = {}  # the row with which a unit failed first

    def obey(commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Emit):
                ready.append(command.unit)
                continue
            assert isinstance(command, (Run, RunAlone)) and command not in running, "no task is run twice at a time"
            assert command.task == FINISH or (command.unit, command.task) not in given_up
            running.append(command)
            alone = [other for other in running if isinstance(other, RunAlone) and other.unit == command.unit]
            assert len(alone) < 2, "one suspect at a time"

    def lose(task: Run | RunAlone) -> None:
        unit, place = task.unit, (task.unit, task.task)
        blame = data.draw(st.sampled_from([NOT_BEGUN, NOT_BEGUN, KILLED, CRASHED]))
        lost = rows[unit][task.task] if task.task != FINISH else range(0)
        pieces = 2 if blame and len(lost) > 1 else 0
        total = blamed[place] = blamed.get(place, 0) + blame
        if pieces:
            middle = (lost.start + lost.stop) // 2
            blamed.update({(unit, len(rows[unit]) + piece): blame for piece in range(pieces)})
            rows[unit] += [range(lost.start, middle), range(middle, lost.stop)]
            rows[unit][task.task] = range(0)
        commands = schedule.handle(Lost(unit, task.task, blame, pieces=pieces))
        if total >= POISON and not pieces:
            assert [type(command) for command in commands] == [GiveUp]
            given_up.add(place)
            finish(task)
            return
        if task.task == FINISH and blame:
            done[unit] = {row for number, one in given_up if number == unit for row in rows[unit][one]}
            blamed.update({place: 0 for place in blamed if place[0] == unit and place[1] != FINISH})
        obey(commands)

    def finish(task: Run | RunAlone, fails: bool = False) -> None:
        unit = task.unit
        if task.task != FINISH:
            done[unit].update(rows[unit][task.task])
            if fails:
                failed.setdefault(unit, rows[unit][task.task].start)
        obey(schedule.handle(Finished(unit, task.task, fails or unit in failed, nbytes=3)))

    while taken < len(units):
        choices = [
            *(["offer"] if offered < len(units) and schedule.room() else []),
            *(["end", "end", "fail", "lose"] if running else []),
        ]
        choice = data.draw(st.sampled_from([*choices, *(["take"] if ready else [])]))
        if choice == "offer":
            tasks, finishes = units[offered]
            obey(schedule.handle(Offered(offered, tasks, finish=finishes and tasks > 0)))
            offered += 1
        elif choice == "take":
            assert ready.pop(0) == taken, "in order"
            stop = failed.get(taken, 4 * units[taken][0])
            assert done[taken] >= set(range(stop)), "with every row, or those before the one that failed"
            schedule.handle(Taken(taken))
            taken += 1
        else:
            task = running.pop(data.draw(st.integers(0, len(running) - 1)))
            lose(task) if choice == "lose" else finish(task, choice == "fail")
        assert schedule.in_flight <= window
        assert schedule.nbytes >= 0
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
    assert schedule.limit(nbytes=100, rows=10) == 5, "what is allocated in advance counts too"


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
