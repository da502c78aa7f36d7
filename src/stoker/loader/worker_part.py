"""The part of a pipeline that one worker of a torch DataLoader runs: every n-th step of its rank."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

from ..plan.deal import Deal, StepTurns
from ..plan.plan import Plan
from ..plan.ranks import Rank, one_of_several, rank_of
from .loader import Loader
from .loader_options import LoaderOptions
from .supply import EpochSteps

_log = logging.getLogger("stoker")


class _Planned(Protocol):
    """A pipeline, which is sent to another process as it was written."""

    @property
    def plan(self) -> Plan: ...


class WorkerPart:
    """One torch worker's share of an epoch; a class, so that it can travel to a spawned process."""

    def __init__(self, pipeline: _Planned, carried: Rank | None = None) -> None:
        self._pipeline, self._carried = pipeline, carried

    def __call__(self, epoch: int, number: int, count: int, batches: str = "tuple", skip: int = 0, run: int = 1) -> Iterator[Any]:
        plan, row = self._pipeline.plan, 0
        if skip and skip % run == 0 and plan.counted:  # turns are counted from the row on
            place = EpochSteps(plan, self.deal)
            place.pass_over(number * run + skip * count)
            row, number, skip = place.row, 0, 0
        # A DataLoader worker is a process of its own and there are as many as the user wants: no threads inside.
        options = LoaderOptions(executor="inline", format="torch", batches=batches, epoch=epoch)
        part = StepTurns(number, count, run)
        with Loader(plan, options, row=row, once=True, part=part, carried=self._carried) as loader:
            yield from itertools.islice(loader, skip, None)

    @property
    def deal(self) -> Deal:
        """How the ranks share batches."""
        plan = self._pipeline.plan
        rank = rank_of(plan.shard, self._carried)
        return plan.deal(rank.rank, rank.world)

    def __reduce__(self) -> Any:
        # A spawned worker has no process group, so the rank of the process with the DataLoader goes along; a forked one has a
        # copy of the group, and finds its rank as usual. "Alone" does not go along: a data set may also be sent to processes
        # that become ranks later.
        rank = rank_of(self._pipeline.plan.shard, self._carried)
        return WorkerPart, (self._pipeline, rank if rank.world > 1 else None)

    def __len__(self) -> int:
        with Loader(self._pipeline.plan, LoaderOptions(executor="inline"), carried=self._carried) as loader:
            return len(loader)

    def warn_unsharded(self) -> None:
        warn_unsharded(self._pipeline.plan)

    @property
    def batched(self) -> bool:
        return self._pipeline.plan.batch is not None

    @property
    def sharded(self) -> bool:
        """Whether this process gets a share of the data only."""
        return rank_of(self._pipeline.plan.shard, self._carried).world > 1


def warn_unsharded(plan: Plan) -> None:
    """Warn of several ranks that all get every sample."""
    if plan.shard is None and (told := one_of_several()):
        _warn_once(
            f"this process is {told}, but its pipeline has no shard(): every rank gets all samples; add .shard(), or "
            ".shard(rank=0, world=1) if that is intended"
        )


@cache
def _warn_once(text: str) -> None:
    """Warn once in a process, however many loaders it makes."""
    _log.warning(text)
