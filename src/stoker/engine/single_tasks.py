"""Independent tasks, such as those of `stoker map`: a few at a time, reported as they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from .executor import Executor, Outcome, Task, TaskWork
from .schedule import Finished, GiveUp, Lost, Offered, Run, RunAlone, Schedule, Window

C = TypeVar("C")
R = TypeVar("R")

#: seconds between two looks
_LOOK_S = 0.2


def run_tasks(
    executor: Executor, work: TaskWork[C, R], contents: Sequence[C], look: Callable[[], None]
) -> Iterator[tuple[Outcome[C, R], tuple[str, ...]]]:
    """The outcome of each task, as they come; for one that is given up because its workers ended, the last, and how they ended.

    Each worker has one task, so that no other is lost with it. Lost tasks run again by the rules of batches: each task is a unit.
    Several times per second `look` is called.
    """
    schedule, channel = Schedule(Window(1, 1)), executor.channel(work)
    offered = [command for number in range(len(contents)) for command in schedule.handle(Offered(number, 1))]
    waiting = deque(command for command in offered if isinstance(command, (Run, RunAlone)))
    running = 0
    try:
        while running or waiting:
            while waiting and running < executor.workers:
                run = waiting.popleft()
                channel.submit([Task(0, run.unit, contents[run.unit], isinstance(run, RunAlone))])
                running += 1
            for outcome in channel.collect(_LOOK_S):
                running -= 1
                number = outcome.task.number
                causes: tuple[str, ...] = ()
                if outcome.lost:
                    [command] = schedule.handle(Lost(number, 0, outcome.blame, outcome.cause))
                    if isinstance(command, (Run, RunAlone)):
                        waiting.appendleft(command)
                        continue
                    assert isinstance(command, GiveUp)
                    causes = command.causes
                schedule.handle(Finished(number, 0))
                yield outcome, causes
            look()
    finally:
        channel.cancel()
