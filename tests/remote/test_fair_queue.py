"""Whose turn it is: equal time for all who ask, and nothing done twice."""

from __future__ import annotations

import random

from stoker.remote.fair_queue import FairQueue


def everything(job: object) -> bool:
    return True


def test_each_gets_the_same_time_whatever_its_jobs_take() -> None:
    queue: FairQueue[str] = FairQueue(everything)
    costs = {"quick": 1.0, "slow": 5.0, "greedy": 1.0}
    for name, count in (("quick", 200), ("slow", 200), ("greedy", 5000)):
        for _ in range(count):
            queue.put(name, name)
    had = dict.fromkeys(costs, 0.0)
    for _ in range(300):
        found = queue.next()
        assert found is not None and found[0] == found[1]
        had[found[1]] += costs[found[1]]
        queue.charge(found[0], costs[found[1]])
    assert max(had.values()) - min(had.values()) <= max(costs.values())


def test_who_was_away_gets_no_credit_for_it() -> None:
    queue: FairQueue[str] = FairQueue(everything)
    for _ in range(100):
        queue.put("a", "a")
    queue.put("b", "b")
    for _ in range(60):
        who, _ = queue.next() or ("", "")
        queue.charge(who, 1.0)
    for _ in range(40):
        queue.put("b", "b")
    served = []
    for _ in range(20):
        who, _ = queue.next() or ("", "")
        served.append(who)
        queue.charge(who, 1.0)
    assert served.count("b") in (10, 11)


def test_a_job_that_several_put_is_given_once_and_those_that_leave_are_forgotten() -> None:
    rng, begun = random.Random(3), set[int]()
    queue: FairQueue[int] = FairQueue(lambda job: job not in begun)
    for job in range(50):
        for who in rng.sample("abcd", 3):
            queue.put(who, job, first=rng.random() < 0.3)
    queue.leave("d")
    given = []
    while (found := queue.next()) is not None:
        who, job = found
        assert who != "d"
        begun.add(job)
        given.append(job)
        queue.charge(who, rng.random())
    assert sorted(given) == sorted({*given}) and {*given} == {*range(50)}


def test_urgent_jobs_go_before_the_others_of_who_put_them() -> None:
    queue: FairQueue[str] = FairQueue(everything)
    queue.put("a", "usual")
    queue.put("a", "urgent", first=True)
    assert [job for _, job in (queue.next() or ("", ""), queue.next() or ("", ""))] == ["urgent", "usual"]
    assert queue.next() is None
