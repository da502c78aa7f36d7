"""Ranks of one run, simulated in one process: they take steps together, and join, leave and change places between steps."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from stoker.loader import Loader

#: (rank, world) -> a loader of its own
MakeRank = Callable[[int, int], Loader]


class RankCrew:
    """Loaders with the iterators they are at work with; rank r is number r."""

    def __init__(self, make: MakeRank, world: int, epoch: int = 0) -> None:
        self._make, self._epoch = make, epoch
        self.members = [self._joined(make(rank, world)) for rank in range(world)]

    def __enter__(self) -> RankCrew:
        return self

    def __exit__(self, *_: object) -> None:
        for loader, _ in self.members:
            loader.close()

    @property
    def world(self) -> int:
        return len(self.members)

    @property
    def row(self) -> int:
        """Rows handed out so far, on which all ranks agree."""
        states = [{**loader.state_dict(before=False), "skipped": None} for loader, _ in self.members]
        assert states == [states[0]] * self.world
        return int(states[0]["row"])

    def step(self) -> list[Any] | None:
        """What every rank gets; None: the epoch has ended, on all of them."""
        batches = [next(iterator, None) for _, iterator in self.members]
        assert batches.count(None) in (0, self.world), "all ranks end together"
        return None if batches[0] is None else batches

    def change(self, rng: random.Random, world: int) -> None:
        """Some leave, those who stay change places, others join: with the state of any rank, in one of the two ways there are."""
        staying = rng.sample(self.members, rng.randint(min(1, world), min(world, self.world)))
        for loader, _ in self.members:
            if all(loader is not other for other, _ in staying):
                loader.close()
        state = json.loads(json.dumps(rng.choice(staying)[0].state_dict()))
        joining = [self._joining(state, rng, world) for _ in range(world - len(staying))]
        self.members = staying + joining
        rng.shuffle(self.members)
        for rank, (loader, _) in enumerate(self.members):
            loader.reshard(rank, world)

    def _joining(self, state: dict[str, Any], rng: random.Random, world: int) -> tuple[Loader, Iterator[Any]]:
        loader = self._make(0, rng.choice((1, world)))
        loader.load_state_dict(state)
        return loader, _LateIterator(loader, self._epoch)

    def _joined(self, loader: Loader) -> tuple[Loader, Iterator[Any]]:
        return loader, iter(loader)


class _LateIterator(Iterator[Any]):
    """What a rank that joined does: a loaded state after which nothing is left in the epoch is the start of the next one."""

    def __init__(self, loader: Loader, epoch: int) -> None:
        self._loader, self._epoch, self._batches = loader, epoch, None

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches: Iterator[Any] | None = iter(self._loader) if self._loader.epoch == self._epoch else iter(())
        return next(self._batches)
