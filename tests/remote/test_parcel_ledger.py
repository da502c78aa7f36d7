"""Who has which tasks: nothing is lost, nothing is settled twice, and whoever is free takes the next."""

from __future__ import annotations

import random
from typing import Any

from stoker.engine.executor import Task
from stoker.remote.parcel_ledger import OWED_BYTES, SUSPECTS_WAIT_S, Parcel, ParcelLedger


def parcel(unit: int = 0, *, nbytes: int = 100, alone: bool = False, home: bool = False, line: Any = "line") -> Parcel:
    return Parcel(line, [Task(unit, 0, None, alone)], None if home else ["rows"], nbytes)


def sent(ledger: ParcelLedger, now: float = 0.0) -> list[tuple[str, int]]:
    return [(worker.name, parcel.serial) for worker, parcel in ledger.for_workers(now)]


def given(ledger: ParcelLedger) -> list[tuple[str, int]]:
    """Who gets which unit's parcel."""
    return [(worker.name, parcel.tasks[0].unit) for worker, parcel in ledger.for_workers(0.0)]


def filled(count: int, home: int = 1, **options: Any) -> ParcelLedger:
    ledger = ParcelLedger(home, **options)
    for unit in range(count):
        ledger.put(parcel(unit))
    return ledger


def test_home_and_workers_take_from_one_line() -> None:
    ledger = filled(9)
    taken = ledger.for_home()
    assert taken is not None and taken.serial == 0 and ledger.for_home() is None
    ledger.join(b"a", "a", 2, 0.0)
    ledger.join(b"b", "b", 1, 0.0)
    assert sorted(serial for _, serial in sent(ledger)) == [1, 2, 3, 4, 5, 6]  # two for each thread
    assert ledger.threads == 4
    assert ledger.settle(1) is not None and ledger.settle(1) is None
    assert [serial for _, serial in sent(ledger)] == [7]


def test_of_a_worker_it_is_told_what_it_is_at_and_not_all_that_waits_there() -> None:
    ledger = filled(9)
    worker = ledger.join(b"a", "a", 2, 0.0)

    def told() -> str:
        return worker.work_in_words(lambda parcel: f"rows of {parcel.tasks[0].unit}")

    assert told() == "nothing"
    assert len(given(ledger)) == 4
    assert told() == "rows of 0; rows of 1; 2 parcels of tasks after that"
    ledger.settle(0)
    assert told() == "rows of 1; rows of 2; 1 parcel of tasks after that"
    ledger.settle(3)
    assert told() == "rows of 1; rows of 2"


def test_a_shy_home_makes_rows_only_while_nobody_is_there() -> None:
    ledger = filled(3, shy=True)
    worker = ledger.join(b"a", "a", 1, 0.0)
    assert ledger.for_home() is None
    ledger.put(parcel(home=True))
    joining = ledger.for_home()
    assert joining is not None and joining.asked is None
    ledger.home_busy = 0
    ledger.leave(worker, blamed=False)
    assert ledger.for_home() is not None


def test_a_shy_home_helps_only_where_no_worker_can() -> None:
    ledger = filled(1, shy=True)
    slow, free = (ledger.join(name.encode(), name, 1, 0.0) for name in ("slow", "free"))
    assert sent(ledger) == [("slow", 0)]
    [(helper, late)] = ledger.late(9.0)
    assert helper is free and late.holders.keys() == {slow.number, free.number} and not ledger.home_busy
    ledger.settle(0)
    ledger.leave(free, blamed=False)
    ledger.put(parcel())
    assert sent(ledger, 10.0) == [("slow", 1)]
    assert [helper for helper, _ in ledger.late(19.0)] == [None]


def test_a_worker_owes_no_more_bytes_than_it_may() -> None:
    ledger = ParcelLedger(1)
    worker = ledger.join(b"a", "a", 64, 0.0)
    for unit in range(8):
        ledger.put(parcel(unit, nbytes=OWED_BYTES // 3))
    assert len(sent(ledger)) == 3 and worker.owed <= OWED_BYTES
    ledger.put(parcel(9, nbytes=9 * OWED_BYTES))
    other = ledger.join(b"b", "b", 1, 0.0)
    assert len(sent(ledger)) >= 1 and other.held


def test_what_a_lost_worker_had_waits_again_before_others() -> None:
    ledger = filled(6)
    worker = ledger.join(b"a", "a", 2, 0.0)
    assert [serial for _, serial in sent(ledger)] == [0, 1, 2, 3]
    assert ledger.leave(worker, blamed=False) == []
    other = ledger.join(b"b", "b", 2, 0.0)
    assert [unit for _, unit in given(ledger)] == [0, 1, 2, 3]
    assert not {*other.held} & {0, 1, 2, 3}, "what the first may still send is not taken for an answer of the other"


def test_what_a_worker_had_when_it_ended_is_tried_one_by_one_until_the_guilty_is_found() -> None:
    ledger = filled(3)
    worker = ledger.join(b"a", "a", 1, 0.0)
    assert [serial for _, serial in sent(ledger)] == [0, 1]
    assert ledger.leave(worker, blamed=True) == []
    again, other = ledger.join(b"b", "b", 1, 0.0), ledger.join(b"c", "c", 1, 0.0)
    assert sorted(given(ledger)) == [("b", 0), ("c", 1)] and sent(ledger) == []
    assert list(ledger.late(99.0)) == [], "nobody else is given what may end him"
    assert ledger.settle(next(iter(again.held))) is not None
    assert [guilty.tasks[0].unit for guilty in ledger.leave(other, blamed=True)] == [1]
    assert sent(ledger) == [("b", 2)] and list(again.held) == [2] and {*ledger.open} == {2}


def test_home_does_what_ended_the_last_worker_only_after_a_while() -> None:
    ledger = filled(2)
    worker = ledger.join(b"a", "a", 1, 0.0)
    sent(ledger)
    ledger.leave(worker, blamed=True, now=100.0)
    assert ledger.for_home(101.0) is None
    taken = ledger.for_home(100.0 + SUSPECTS_WAIT_S)
    assert taken is not None and taken.tainted


def test_a_suspect_runs_with_nothing_beside_it() -> None:
    ledger = filled(2)
    first = ledger.join(b"a", "a", 1, 0.0)
    sent(ledger)
    ledger.put(parcel(7, alone=True))
    ledger.put(parcel(8))
    assert sent(ledger) == []  # until the worker has nothing else
    ledger.settle(0)
    ledger.settle(1)
    assert [serial for _, serial in sent(ledger)] == [2]
    assert [p.suspect for p in first.held.values()] == [True]
    ledger.settle(2)
    assert [serial for _, serial in sent(ledger)] == [3]


def test_who_is_late_is_helped_when_nothing_waits() -> None:
    ledger = filled(2, home=1)
    slow, fast = ledger.join(b"a", "a", 1, 0.0), ledger.join(b"b", "b", 1, 0.0)
    sent(ledger)
    assert list(ledger.late(0.1)) == []
    ledger.settle(next(iter(fast.held)))
    helped = list(ledger.late(5.0))
    assert [worker for worker, _ in helped] == [None] and ledger.hedged == 1  # home, which is free
    assert list(ledger.late(9.0)) == []  # once is enough
    late = helped[0][1]
    settled = ledger.settle(late.serial)
    assert settled is not None and settled[1] == [slow] and not slow.held and ledger.settle(late.serial) is None


def test_what_is_dropped_is_forgotten_wherever_it_is() -> None:
    ledger = filled(8)
    ledger.join(b"a", "a", 1, 0.0)
    sent(ledger)
    ledger.put(parcel(line="other"))
    assert ledger.drop("line") == {b"a": [0, 1]}
    assert [p.line for p in ledger.open.values()] == ["other"]
    assert [serial for _, serial in sent(ledger)] == [8]


def test_whatever_happens_each_parcel_is_settled_once() -> None:
    for seed in range(60):
        dice, settled = random.Random(seed), list[int]()
        ledger = filled(40, home=dice.choice([1, 3]), shy=dice.random() < 0.3)
        names, now, at_home = iter(range(1000)), 0.0, list[Parcel]()
        while ledger.open:
            now += dice.random()
            workers = list(ledger.workers.values())
            event = dice.randrange(7)
            if event == 0 and len(workers) < 4:
                ledger.join((name := next(names)), str(name), dice.randrange(1, 3), now)
            elif event == 1 and workers:
                for blamed in ledger.leave(dice.choice(workers), blamed=dice.random() < 0.3):
                    ledger.put(Parcel("line", [Task(blamed.tasks[0].unit, 0, None, True)], ["rows"], 1))
            elif event == 2 and workers:
                worker = dice.choice(workers)
                ledger.give_back(worker, list(worker.held)[worker.threads :])
                ledger.leave(worker, blamed=False)
            elif event == 3 and at_home:
                done = at_home.pop(dice.randrange(len(at_home)))
                ledger.home_busy -= 1
                if ledger.settle(done.serial):
                    settled.append(done.tasks[0].unit)
            elif workers and (held := list((worker := dice.choice(workers)).held)):
                serial = dice.choice(held)
                unit = worker.held[serial].tasks[0].unit
                assert ledger.settle(serial)
                settled.append(unit)
            list(ledger.for_workers(now))
            at_home += [late for worker, late in ledger.late(now) if worker is None]
            while (taken := ledger.for_home()) is not None:
                at_home.append(taken)
        assert sorted(settled) == list(range(40)), seed
