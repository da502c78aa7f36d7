"""DDP training whose ranks change: by a restart from a saved state, and without one; started by test_ddp.py.

Three processes; in each period those that are named train together, in a process group of their own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker.loader import Loader

from .ranks import join_group, meeting_place

SAMPLES, SIZE = 50, 3
#: processes of each period, in the order of their ranks, and after how many steps of it the next begins
RESTARTS = (((0, 1), 13), ((0,), 10), ((0, 1, 2), 99))
ELASTIC = (((0, 1), 2), ((0,), 1), ((2, 0, 1), 2), ((1, 2), 99))

Rows = list[tuple[int, int]]  # (epoch, sample)


def main(folder: Path) -> Any:
    import torch.distributed as dist

    dist.destroy_process_group()
    periods = _Periods(folder)
    result = {"restarts": periods.restarts(), "elastic": periods.elastic(), "weights": periods.weights}
    join_group(dist.PrefixStore("end", periods.store), periods.process, 3)
    return result


class _Periods:
    def __init__(self, folder: Path) -> None:
        import torch

        self.process, self.folder, self.store = int(os.environ["RANK"]), folder, meeting_place()
        self.module = torch.nn.Linear(1, 1)
        self.weights: list[list[float]] = []
        self.train = stoker.arrays(x=np.arange(SAMPLES)).shuffle(seed=4).shard(remainder="keep").batch(SIZE)

    def restarts(self) -> Rows:
        """Three epochs; each period has loaders of its own, which load the state that the one before has saved."""
        rows: Rows = []
        for number, (members, steps) in enumerate(RESTARTS):
            if self._join(f"restart {number}", members):
                with self.train.loader(threads=1) as loader:
                    if number:
                        loader.load_state_dict(json.loads((self.folder / f"{number - 1}.state").read_text()))
                    rows += self._epochs(loader, steps, last=3)
                    if members[0] == self.process:
                        (self.folder / f"{number}.state").write_text(json.dumps(loader.state_dict()))
            self._leave(f"restart {number}", members)
        return rows

    def _epochs(self, loader: Loader, steps: int, last: int) -> Rows:
        rows: Rows = []
        for epoch in range(loader.epoch, last):
            for batch in loader:
                rows += self._step(epoch, batch)
                steps -= 1
                if not steps:
                    return rows
        return rows

    def elastic(self) -> Rows:
        """One epoch, with one loader for each process; those who stay keep their iterators."""
        rows: Rows = []
        batches: Any = None
        with self.train.loader(threads=1) as loader:
            for number, (members, steps) in enumerate(ELASTIC):
                if self._join(f"elastic {number}", members):
                    if number and batches is None:
                        loader.load_state_dict(json.loads(self.store.get(f"state {number - 1}")))
                    loader.reshard(members.index(self.process), len(members))
                    batches = batches or iter(loader)
                    for _, batch in zip(range(steps), batches):
                        rows += self._step(0, batch)
                    self.store.set(f"state {number}", json.dumps(loader.state_dict()))
                self._leave(f"elastic {number}", members)
                if self.process not in members:
                    batches = None  # who left and joins again has missed steps
        return rows

    def _join(self, period: str, members: tuple[int, ...]) -> bool:
        import torch
        import torch.distributed as dist

        if self.process not in members:
            return False
        join_group(dist.PrefixStore(period, self.store), members.index(self.process), len(members))
        self.model = torch.nn.parallel.DistributedDataParallel(self.module)  # rank 0's weights for all
        return True

    def _step(self, epoch: int, batch: Any) -> Rows:
        """Train on a batch: a rank with another number of steps would make the others wait until the test fails."""
        import torch

        self.model(torch.from_numpy(batch["x"]).float()[:, None]).square().mean().backward()
        with torch.no_grad():
            for weight in self.module.parameters():
                weight -= 1e-5 * weight.grad
                weight.grad = None
        return [(epoch, int(x)) for x in batch["x"][batch.valid]]

    def _leave(self, period: str, members: tuple[int, ...]) -> None:
        """End the group; who is not in it waits until it has ended."""
        import torch.distributed as dist

        if self.process in members:
            dist.barrier()
            dist.destroy_process_group()
            self.store.set(f"{period} ended", "")
        self.store.wait([f"{period} ended"])
        self.weights.append([float(weight) for weight in self.module.parameters()] if self.process in members else [])
