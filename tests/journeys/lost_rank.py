"""DDP training that loses a rank in the middle of a step, and goes on as docs/howto/elastic.md says; started by test_ddp.py."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

import stoker

from .ranks import join_group, meeting_place

SAMPLES, SIZE, EPOCHS = 60, 3, 2
#: the process that is killed, and in which of its steps: the second of epoch 1
VICTIM, STEP = 1, 8


def main(folder: Path) -> Any:
    import torch
    import torch.distributed as dist

    process, store = int(os.environ["RANK"]), meeting_place()
    module = torch.nn.Linear(1, 1)
    model = torch.nn.parallel.DistributedDataParallel(module)
    rows: list[tuple[int, int, int]] = []  # (epoch, row after it, sample)
    steps = 0
    train = stoker.arrays(x=np.arange(SAMPLES)).shuffle(seed=4).shard(remainder="keep").batch(SIZE)
    with train.loader(threads=1) as batches:
        while batches.epoch < EPOCHS:
            try:
                for batch in batches:
                    steps += 1
                    if (process, steps) == (VICTIM, STEP):
                        (folder / "victim").write_text(json.dumps(rows))
                        os.kill(os.getpid(), signal.SIGKILL)
                    model(torch.from_numpy(batch["x"]).float()[:, None]).square().mean().backward()
                    state = batches.state_dict()
                    rows += [(state["epoch"], state["row"], int(x)) for x in batch["x"][batch.valid]]
            except RuntimeError:
                rank, world = process - (process > VICTIM), 2
                dist.destroy_process_group()
                join_group(dist.PrefixStore("again", store), rank, world)
                model = torch.nn.parallel.DistributedDataParallel(module)
                states = [batches.state_dict(before=True)]
                dist.broadcast_object_list(states)
                batches.load_state_dict(states[0])
                batches.reshard(rank, world)
                place = (states[0]["epoch"], states[0]["row"])
                rows = [row for row in rows if row[:2] <= place]  # a step that rank 0 has not completed is done again
    return {"rows": rows, "rank": str(batches.rank)}
