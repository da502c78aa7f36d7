"""Tasks that stand each for itself: every one is told of once, however often its workers end."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.executor import CRASHED, KILLED, NOT_BEGUN, POISON, Channel, Executor, Outcome, Task, TaskWork
from stoker.engine.single_tasks import run_tasks


class DyingExecutor(Executor):
    """Loses each task as often as its losses say, and then runs it; answers in some order."""

    def __init__(self, workers: int, losses: list[list[int]], seed: int) -> None:
        self.workers, self.losses, self.random = workers, losses, random.Random(seed)

    def channel(self, work: TaskWork[Any, Any]) -> Channel[Any, Any]:
        return DyingChannel(self, work)

    def stacks(self, describe: Callable[[Any], str]) -> str:
        return ""

    def close(self) -> None:
        pass


class DyingChannel(Channel[Any, Any]):
    def __init__(self, executor: DyingExecutor, work: TaskWork[Any, Any]) -> None:
        self.executor, self.work = executor, work
        self.losses = [deque(losses) for losses in executor.losses]
        self.tasks: list[Task[Any]] = []

    def submit(self, tasks: list[Task[Any]], *, first: bool = False) -> None:
        self.tasks += tasks
        assert len(tasks) == 1 and len(self.tasks) <= self.executor.workers

    def collect(self, timeout_s: float) -> list[Outcome[Any, Any]]:
        task = self.tasks.pop(self.executor.random.randrange(len(self.tasks)))
        if losses := self.losses[task.number]:
            blame = losses.popleft()
            return [Outcome(task, lost=True, blame=blame, cause=f"blamed {blame}")]
        return [Outcome(task, self.work(task.content, None))]

    def cancel(self) -> None:
        pass


@given(
    st.lists(st.lists(st.sampled_from([NOT_BEGUN, KILLED, CRASHED]), max_size=6), max_size=6),
    st.integers(1, 4),
    st.integers(0, 1000),
)
def test_every_task_ends_once_and_those_that_end_too_many_workers_are_given_up(
    losses: list[list[int]], workers: int, seed: int
) -> None:
    looks: list[int] = []
    executor = DyingExecutor(workers, losses, seed)
    found = {}
    for outcome, causes in run_tasks(executor, lambda content, _: -content, range(len(losses)), lambda: looks.append(1)):
        assert outcome.task.number not in found
        found[outcome.task.number] = outcome, causes
    assert sorted(found) == [*range(len(losses))] and len(looks) >= len(losses)
    for number, (outcome, causes) in found.items():
        blames = [blame for blame in losses[number] if blame]
        sums = [sum(blames[: count + 1]) for count in range(len(blames))]
        deadly = next((count for count, total in enumerate(sums, 1) if total >= POISON), 0)
        assert causes == tuple(f"blamed {blame}" for blame in blames[:deadly])
        assert outcome.lost == bool(deadly) and (outcome.lost or outcome.result == -number)
