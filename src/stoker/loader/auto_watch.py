"""Moves work between executors: reads the meters at intervals, asks the policy, and carries out its decisions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..engine.auto_executor import AutoExecutor
from ..engine.auto_policy import AutoPolicy, Choice, Load
from ..errors import message_of
from ..observe.meters import Meters
from ..observe.stats import ExecutorStats, LoopStats, Stats, StepStats

_log = logging.getLogger("stoker")

#: a load covers at least this many seconds, and this many batches
_LOAD_S, _LOAD_BATCHES = 0.5, 4
#: how many steps next to busy workers, and next to calm ones, are enough to compare them
_STEPS = 8
#: steps that Pillow may do
_PILLOW = ("image", "decode")


class AutoWatch:
    """Follows one loader. Called by the consumer's thread, some times per second while batches are handed out."""

    def __init__(
        self, policy: AutoPolicy, executor: AutoExecutor, before_move: Callable[[], None] = lambda: None, remote: bool = False
    ) -> None:
        """`before_move` is called right before memory comes from other workers."""
        self._policy, self._executor, self._before_move, self._remote = policy, executor, before_move, remote
        #: called when work has moved: what tasks took before says little from then on
        self.on_moved: Callable[[], None] = lambda: None
        self._last = Stats()
        self._moves = 0
        self._due = 0.0  # nothing is to be seen before
        self._loop = LoopStats()  # as it was when work last moved
        self._choice: Choice | None = None
        self._ask(policy.first())
        executor.may_move = not policy.settled

    def look(self, meters: Meters, now: float) -> None:
        if now < self._due and self._choice is None:
            return
        stats = meters.snapshot(look=False)
        self._executor.tidy()
        if self._choice is not None and self._carry_out(self._choice, meters, stats):
            return
        last = self._last
        if not last.batches or not self._executor.alone:
            self._last = stats  # where loads begin: what functions import, and what others end, does not count
            return
        if stats.elapsed_s - last.elapsed_s < _LOAD_S or stats.batches - last.batches < _LOAD_BATCHES:
            return
        self._last, self._due = stats, now + _LOAD_S
        if self._choice is None:
            self._ask(self._policy.see(load_between(last, stats, self._loop, self._remote)))
            self._tell(meters, stats.executor.since)

    def insist(self, choice: Choice) -> bool:
        """Move there, whatever was measured; not while work is about to move already."""
        if self._choice is not None:
            return False
        self._ask(choice)
        return True

    @property
    def _undecided(self) -> bool:
        return not self._policy.settled or self._policy.doubts or self._choice is not None

    def _ask(self, choice: Choice | None) -> None:
        self._choice = choice
        if choice is not None:
            self._executor.ask_for(choice.setting)

    def _carry_out(self, choice: Choice, meters: Meters, stats: Stats) -> bool:
        """Whether work runs as was chosen from now on, or cannot."""
        policy, since = self._policy, stats.executor.since
        try:
            if not self._executor.arrived(self._before_move):
                return False
        except Exception as error:  # noqa: BLE001  whatever it is, the work continues where it was, and the user can ask why
            policy.refused(choice, message_of(error))
            _log.info("work stays where it is: %s", policy.reason)
        else:
            policy.moved(choice)
            self.on_moved()
            _log.info("work moves to %s: %s", choice.setting, choice.reason)
            since, self._moves, self._loop = stats.batches, self._moves + 1, stats.loop
        self._choice = None
        self._last = stats
        self._tell(meters, since)
        return True

    def _tell(self, meters: Meters, since: int) -> None:
        executor, setting = self._executor, self._policy.setting
        executor.may_move = self._undecided
        name = "processes" if setting.processes else "threads"
        meters.moved(
            executor.workers,
            ExecutorStats(name, setting.processes, setting.threads, since, self._policy.reason, self._moves),
        )


def slowed(before: LoopStats, after: LoopStats) -> float | None:
    """How much longer steps took next to busy workers; None: too few were compared."""
    busy, calm = after.busy_steps - before.busy_steps, after.calm_steps - before.calm_steps
    if min(busy, calm) < _STEPS:
        return None
    calm_s = (after.calm_step_s - before.calm_step_s) / calm
    return (after.busy_step_s - before.busy_step_s) / busy / calm_s - 1 if calm_s > 0 else None


def load_between(before: Stats, after: Stats, loop: LoopStats | None = None, remote: bool = False) -> Load:
    """What happened between two snapshots; steps beside busy workers and calm ones are compared since `loop`.

    What is read from a `remote` place is read by Python code, which needs the interpreter while it does not wait for the network.
    """
    worked, pillow = after.worked - before.worked, after.pillow - before.pillow
    earlier = {step.name: step for step in before.steps}
    python = dict.fromkeys(("Python functions", "images that Pillow decodes", "reads over a network"), 0.0)
    for step in after.steps:
        was = earlier.get(step.name, StepStats(step.name))
        took_s = step.wall_s - was.wall_s
        if step.kind == "function":
            python["Python functions"] += took_s
        elif step.kind == "read" and remote:
            python["reads over a network"] += took_s - (step.wait_s - was.wait_s)
        elif step.name.startswith(_PILLOW):
            python["images that Pillow decodes"] += took_s * pillow / max(1, worked)
    return Load(
        elapsed_s=after.elapsed_s - before.elapsed_s,
        waited_s=after.waited_s - before.waited_s,
        samples=after.samples - before.samples,
        task_s=after.task_s - before.task_s,
        cpu_s=after.cpu_s - before.cpu_s,
        function_s=sum(python.values()),
        held_by=max(python, key=lambda name: python[name]),
        process_s=after.process_s - before.process_s,
        queued_s=sum(step.queued_s for step in after.steps) - sum(step.queued_s for step in before.steps),
        draws=after.draws > before.draws,
        slowed=None if loop is None else slowed(loop, after.loop),
    )
