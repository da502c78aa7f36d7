"""What runs the work, decided from loads: no clock, no workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.engine.auto_policy import MOST_THREADS, AutoPolicy, Choice, Load, Setting

#: two threads on two cores, and a consumer that waits all the time
COMPUTING = Load(elapsed_s=0.5, waited_s=0.45, samples=500, task_s=0.98, cpu_s=0.95, function_s=0.0, process_s=1.0)
LOCKED = replace(COMPUTING, cpu_s=0.5, function_s=0.95, process_s=0.52)
SLEEPING = replace(COMPUTING, cpu_s=0.01, function_s=0.95, process_s=0.02)
READING = replace(COMPUTING, cpu_s=0.1, process_s=0.12)
CALM = replace(LOCKED, waited_s=0.01)


def faster(load: Load, times: float) -> Load:
    return replace(load, samples=int(load.samples * times))


def first_choice(policy: AutoPolicy, load: Load, most: int = 20) -> Choice | None:
    """What is chosen when the load stays as it is."""
    return next((choice for _ in range(most) if (choice := policy.see(load)) is not None), None)


def settle(policy: AutoPolicy, choice: Choice | None, *loads: Load) -> Choice | None:
    """Carry out a choice, and go on with loads; the first of them only shows the move."""
    assert choice is not None
    policy.moved(choice)
    answers = [policy.see(load) for load in (loads[0], *loads)]
    assert not any(answers[:-1])
    return answers[-1]


@pytest.mark.parametrize(
    ("load", "setting", "why"),
    [
        (LOCKED, Setting(2, 1), "Python functions take 97% of the work and hold the interpreter lock: 1.0 of 2 cores"),
        (replace(LOCKED, held_by="reads over a network"), Setting(2, 1), "reads over a network take 97% of the work"),
        (SLEEPING, Setting(0, MOST_THREADS), "tasks are on a core for 1% of their time"),
        (READING, Setting(0, 32), "tasks are on a core for 10% of their time"),
        (replace(READING, draws=True), Setting(2, 1), "draw from a generator"),
    ],
    ids=["lock", "network", "sleep", "reads", "generators"],
)
def test_a_limit_that_others_would_not_have_moves_the_work(load: Load, setting: Setting, why: str) -> None:
    choice = first_choice(AutoPolicy(2, 2), load)
    assert choice is not None
    assert choice.setting == setting
    assert why in choice.reason


@pytest.mark.parametrize(
    ("load", "cores"),
    [
        (COMPUTING, 2),
        (CALM, 2),
        (LOCKED, 1),
        (replace(LOCKED, task_s=0.3), 2),
        (replace(SLEEPING, samples=0), 2),
        (replace(READING, process_s=0.95), 2),
    ],
    ids=["cores are busy", "nobody waits", "one core", "workers have no work", "nothing came", "the program has the cores"],
)
def test_nothing_moves_where_nothing_is_gained(load: Load, cores: int) -> None:
    assert first_choice(AutoPolicy(cores, cores), load) is None


def test_one_load_is_an_accident_and_moves_nothing() -> None:
    policy = AutoPolicy(2, 2)
    assert [policy.see(load) for load in (LOCKED, COMPUTING, LOCKED, COMPUTING, LOCKED)] == [None] * 5
    assert policy.see(LOCKED) is not None


def test_a_move_that_gains_stays_and_says_what_it_gained() -> None:
    policy = AutoPolicy(2, 2)
    better = faster(replace(COMPUTING, function_s=0.9, process_s=0.02), 1.9)
    assert settle(policy, first_choice(policy, LOCKED), better, better) is None
    assert policy.setting == Setting(2, 1)
    assert policy.reason.endswith("1,900 samples/s instead of 1,000")
    assert policy.settled and first_choice(policy, better) is None


def test_a_move_that_gains_nothing_is_undone_and_the_next_remedy_is_tried() -> None:
    policy = AutoPolicy(2, 2)
    both = replace(LOCKED, cpu_s=0.35, process_s=0.4)  # functions that compute and wait
    back = settle(policy, first_choice(policy, both), *[both] * 6)
    assert back is not None and back.setting == Setting(0, 2)
    assert back.reason == "8 threads gave 1,000 samples/s instead of 1,000"
    policy.moved(back)
    again = first_choice(policy, both)
    assert again is not None and again.setting == Setting(2, 1)


def test_functions_that_compute_and_wait_get_threads_until_the_lock_is_used_up_and_then_processes_of_as_many() -> None:
    policy = AutoPolicy(2, 2)
    both = replace(LOCKED, cpu_s=0.35, process_s=0.4)
    locked = faster(replace(LOCKED, task_s=3.9, function_s=3.8), 1.5)
    assert settle(policy, first_choice(policy, both), locked, locked) is None
    choice = first_choice(policy, locked)
    assert choice is not None and choice.setting == Setting(2, 4)


def test_a_clear_loss_is_undone_at_once_and_a_small_one_is_looked_at_for_longer() -> None:
    policy = AutoPolicy(2, 2)
    back = settle(policy, first_choice(policy, LOCKED), *[faster(LOCKED, 0.5)] * 2)
    assert back is not None and back.reason == "2 processes gave 500 samples/s instead of 1,000"
    policy = AutoPolicy(2, 2)
    loads = [faster(LOCKED, 0.8)] * 2 + [faster(LOCKED, 1.9)]
    assert settle(policy, first_choice(policy, LOCKED), *loads) is None
    assert policy.setting == Setting(2, 1) and policy.settled


def test_what_was_tried_in_vain_is_tried_again_much_later_or_when_the_load_is_another() -> None:
    policy = AutoPolicy(2, 2)
    tried: list[tuple[int, Setting]] = []
    for number in range(600):  # of half a second
        if (choice := policy.see(LOCKED)) is not None:
            policy.moved(choice)
            tried.append((number, choice.setting))
    processes = [number for number, setting in tried if setting.processes]
    assert 0 < len(processes) <= 3, "at once, and after one and two more minutes"
    assert {setting for _, setting in tried} == {Setting(0, 2), Setting(2, 1)}, "more threads would wait for the same lock"
    assert policy.setting == Setting(0, 2)
    assert first_choice(policy, faster(LOCKED, 0.5), 3) is not None, "samples cost twice as much: this is another load"


def test_a_consumer_that_no_longer_waits_ends_the_trial() -> None:
    policy = AutoPolicy(2, 2)
    assert settle(policy, first_choice(policy, LOCKED), CALM) is None
    assert policy.setting == Setting(2, 1)


def test_what_cannot_be_had_is_not_asked_for_again_and_the_reason_is_kept() -> None:
    policy = AutoPolicy(2, 2)
    choice = first_choice(policy, LOCKED)
    assert choice is not None
    policy.refused(choice, "map f cannot be pickled")
    assert first_choice(policy, LOCKED, 1000) is None
    assert policy.reason == "2 processes could not be used: map f cannot be pickled"


def test_threads_beyond_the_cores_go_when_tasks_no_longer_wait() -> None:
    policy = AutoPolicy(2, 2)
    many = faster(replace(SLEEPING, task_s=32.0, cpu_s=0.2), 30)
    assert settle(policy, first_choice(policy, SLEEPING), many, many) is None
    busy = replace(COMPUTING, task_s=32.0)
    choice = first_choice(policy, busy)
    assert choice is not None and choice.setting == Setting(0, 2)


def test_work_comes_home_when_functions_have_become_cheap() -> None:
    policy = AutoPolicy(2, 2)
    better = faster(COMPUTING, 1.9)
    assert settle(policy, first_choice(policy, LOCKED), better, better) is None
    choice = first_choice(policy, replace(better, function_s=0.01))
    assert choice is not None and choice.setting == Setting(0, 2)


def test_processes_whose_tasks_wait_get_more_threads() -> None:
    policy = AutoPolicy(2, 2)
    better = replace(LOCKED, samples=900, cpu_s=0.3, process_s=0.02)
    assert settle(policy, first_choice(policy, LOCKED), better, better) is None
    choice = first_choice(policy, better)
    assert choice is not None and (choice.setting, str(choice.setting)) == (Setting(2, 4), "2 processes of 4 threads")


def test_a_feeder_is_wanted_beside_a_device_and_functions_are_moved_on_from_it() -> None:
    assert AutoPolicy(2, 2, beside_device=True).first() is None, "two cores are too few"
    policy = AutoPolicy(16, 16, beside_device=True)
    feeder = policy.first()
    assert feeder is not None and feeder.setting == Setting(1, 15)
    policy.moved(feeder)
    locked = replace(LOCKED, task_s=7.9, function_s=7.0, process_s=0.2)
    choice = first_choice(policy, locked)
    assert choice is not None and choice.setting == Setting(16, 1)


def test_python_code_of_the_training_loop_makes_room_for_a_feeder() -> None:
    load = replace(COMPUTING, task_s=7.9, cpu_s=3.0, process_s=3.6)
    choice = first_choice(AutoPolicy(16, 16), load)
    assert choice is not None and (choice.setting, str(choice.setting)) == (Setting(1, 16), "1 process of 16 threads")


#: sixteen threads that are busy three quarters of the time, beside a loop that never waits and is slowed by them
SLOWED = Load(0.5, 0.0, 6700, task_s=6.0, cpu_s=5.5, function_s=0.0, process_s=6.0, slowed=0.34)


def test_workers_in_the_way_of_a_loop_that_does_not_wait_leave_it_its_interpreter_and_that_stays_where_the_loop_is_faster() -> (
    None
):
    policy = AutoPolicy(16, 16)
    choice = first_choice(policy, SLOWED)
    assert choice is not None and choice.setting == Setting(1, 15)
    assert choice.reason == "the training loop's steps took 34% longer while workers are busy: it gets an interpreter of its own"
    assert settle(policy, choice, *[replace(SLOWED, samples=8900, slowed=None)] * 6) is None
    assert policy.reason.endswith("17,800 samples/s instead of 13,400") and policy.settled


def test_on_few_cores_fewer_workers_do_the_same_work() -> None:
    policy = AutoPolicy(2, 2)
    choice = first_choice(policy, replace(CALM, task_s=0.3, slowed=0.2))
    assert choice is not None and choice.setting == Setting(0, 1)
    assert choice.reason.endswith("20% longer while workers are busy: 1 worker can do the work")


def test_giving_way_that_makes_the_loop_no_faster_or_wait_is_undone_and_not_tried_again() -> None:
    for after in (SLOWED, replace(SLOWED, waited_s=0.1), faster(SLOWED, 0.6)):
        policy, tried = AutoPolicy(16, 16), []
        load = SLOWED
        for _ in range(200):
            if (choice := policy.see(load)) is not None:
                policy.moved(choice)
                tried.append(choice.setting)
            load = SLOWED if policy.setting == Setting(0, 16) else after
        assert tried == [Setting(1, 15), Setting(0, 16)]
        assert policy.setting == Setting(0, 16)


def test_all_workers_come_back_when_the_loop_waits_for_the_few_and_they_do_not_give_way_again() -> None:
    policy = AutoPolicy(2, 2)
    slowed = replace(CALM, task_s=0.3, slowed=0.2)
    assert settle(policy, first_choice(policy, slowed), *[slowed] * 6) is None, "no faster, and cores are given back"
    assert policy.setting == Setting(0, 1)
    back = first_choice(policy, replace(COMPUTING, task_s=0.49, cpu_s=0.48, process_s=0.5))
    assert back is not None and back.setting == Setting(0, 2) and back.reason == "the training loop waited again for 1 thread"
    policy.moved(back)
    assert first_choice(policy, slowed, 100) is None


@pytest.mark.parametrize("load", [replace(SLOWED, slowed=None), replace(SLOWED, slowed=0.03)], ids=["not known", "hardly"])
def test_workers_that_are_in_nobodys_way_stay(load: Load) -> None:
    assert first_choice(AutoPolicy(16, 16), load) is None


def test_a_consumer_that_is_elsewhere_for_a_while_tells_nothing_of_a_move() -> None:
    policy = AutoPolicy(2, 2)
    choice = first_choice(policy, LOCKED)
    assert choice is not None
    policy.moved(choice)
    away = replace(CALM, samples=10)
    assert [policy.see(load) for load in (LOCKED, away, away)] == [None] * 3
    back = [policy.see(faster(LOCKED, 0.5)) for _ in range(2)][-1]
    assert back is not None and back.setting == Setting(0, 2), "it was slower, and goes back"


def test_a_fixed_number_of_workers_is_threads_or_as_many_processes() -> None:
    choice = first_choice(AutoPolicy(2, 4, fixed=True), replace(LOCKED, task_s=1.96))
    assert choice is not None
    assert choice.setting == Setting(4, 1)
    slowed = replace(CALM, slowed=0.5)
    for load in (COMPUTING, SLEEPING, READING, slowed):
        assert first_choice(AutoPolicy(16, 16, fixed=True), load) is None
