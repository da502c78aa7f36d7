"""Training on several processes, started as PyTorch's tutorials do: every rank gets its part, and no sample is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.observe import Stats, merge

from ..loader.runs import environment
from .changing_ranks import SAMPLES as CHANGING
from .lost_rank import EPOCHS, VICTIM
from .lost_rank import SAMPLES as SURVIVING
from .ranks import run_ranks

pytest.importorskip("torch")

SAMPLES = 14

# The pipeline is written when nobody knows of ranks yet: in the parent, and in both children before they meet.
SPAWNED = f"""
import json, sys

import numpy as np
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

import stoker

train = stoker.arrays(n=np.arange({SAMPLES})).shuffle(seed=1).shard(remainder="keep").batch(3)


def refusal(loader):
    try:
        iter(loader)
    except stoker.StokerError as error:
        return str(error)


def work(rank, folder, handed):
    early, begun = train.loader(threads=1), train.loader(threads=1)
    next(iter(begun))
    dist.init_process_group("gloo", init_method=f"file://{{folder}}/meeting", rank=rank, world_size=2)
    # Workers that are forked, as by default in a process that was not itself spawned: others have to import torch again.
    workers = DataLoader(train.torch_dataset(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    alone = DataLoader(handed, batch_size=None, num_workers=1, multiprocessing_context="fork")
    with early, begun, train.loader(threads=1) as batches:
        found = {{
            "loader": [batch["n"].tolist() for batch in batches],
            "pipeline": [batch["n"].tolist() for batch in train],
            "workers": [batch["n"].tolist() for batch in workers],
            "handed over": [[batch["n"].tolist() for batch in handed] for _ in range(2)],
            "handed over, with a worker": [[batch["n"].tolist() for batch in alone] for _ in range(2)],
            "made early": [batch["n"].tolist() for batch in early],
            "begun early": refusal(begun),
            "explained": train.explain(),
        }}
    with open(f"{{folder}}/{{rank}}.json", "w") as file:
        json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1], train.torch_dataset()), nprocs=2)
"""

# The launcher knows the ranks; torch itself is not needed in them.
LAUNCHED = f"""
import json, os, sys

import numpy as np

import stoker

train = stoker.arrays(n=np.arange({SAMPLES})).shuffle(seed=1).shard(remainder="keep").batch(3)
found = {{"pipeline": [batch["n"].tolist() for batch in train], "explained": train.explain(), "uneven": {{}}}}
for n in (1, 3, 8, 11):  # fewer samples than ranks, and numbers that no batch of two ranks divides
    for remainder in ("pad", "keep"):
        for size in (1, 4):
            batches = list(stoker.arrays(n=np.arange(n)).shard(remainder=remainder).batch(size))
            counted = [int(x) for batch in batches for x in batch["n"][batch.valid]]
            found["uneven"][f"{{n}} {{remainder}} {{size}}"] = [len(batches), counted]
with open(f"{{sys.argv[1]}}/{{os.environ['RANK']}}.json", "w") as file:
    json.dump(found, file)
"""


def run(folder: Path, script: str, *launcher: str) -> list[dict[str, Any]]:
    """What each rank found."""
    (folder / "train.py").write_text(script)
    command = [sys.executable, *launcher, str(folder / "train.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def check_shares(ranks: list[dict[str, Any]], way: str) -> None:
    """Every sample on one rank, and the same number of steps on each."""
    rows = [row for found in ranks for batch in found[way] for row in batch]
    assert sorted(rows) == list(range(SAMPLES)), way
    assert [len(found[way]) for found in ranks] == [3, 3], way


def test_spawned_processes_that_form_a_process_group_share_every_epoch(tmp_path: Path) -> None:
    ranks = run(tmp_path, SPAWNED)
    for way in ("loader", "pipeline", "workers", "made early"):
        check_shares(ranks, way)
    for way in ("handed over", "handed over, with a worker"):
        for epoch in range(2):
            check_shares([{way: found[way][epoch]} for found in ranks], way)
    for rank, found in enumerate(ranks):
        assert f"was alone, and now it is rank {rank} of 2 (torch.distributed)" in found["begun early"]
        assert f"ranks    rank {rank} of 2 (torch.distributed), remainder keep" in found["explained"]


def test_torchrun_gives_each_rank_its_samples_and_its_share_of_the_cores(tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    ranks = run(tmp_path, LAUNCHED, *launcher)
    check_shares(ranks, "pipeline")
    for rank, found in enumerate(ranks):
        assert f"ranks    rank {rank} of 2 (torchrun: RANK and WORLD_SIZE), remainder keep" in found["explained"]
        assert "shared by 2 processes on this machine (LOCAL_WORLD_SIZE)" in found["explained"]
    for case in ranks[0]["uneven"]:
        (steps, first), (others, second) = (found["uneven"][case] for found in ranks)
        assert steps == others > 0, f"{case}: every rank takes the same number of steps"
        assert sorted(first + second) == list(range(int(case.split()[0]))), f"{case}: every sample counts once"


def test_what_all_ranks_measured_is_the_same_on_each(tmp_path: Path) -> None:
    ranks = run_ranks("tests.journeys.rank_meters", tmp_path)
    first, second = (Stats.from_dict(rank["own"]) for rank in ranks)
    assert ranks[0]["both"] == ranks[1]["both"]
    both = Stats.from_dict(ranks[0]["both"])
    assert both == replace(merge([first, second]), cores=first.cores + second.cores)  # each has its share of them
    assert (both.ranks, both.batches, both.samples) == (2, 8, 40)


def test_two_ranks_then_one_then_three_train_on_every_sample_once(tmp_path: Path) -> None:
    """By restarts from a saved state, over three epochs; and without any, by `reshard`, in one epoch of 2, 1, 3 and 2 ranks."""
    ranks = run_ranks("tests.journeys.changing_ranks", tmp_path, 3)
    for way, epochs in (("restarts", 3), ("elastic", 1)):
        rows = sorted(tuple(row) for found in ranks for row in found[way])
        assert rows == [(epoch, x) for epoch in range(epochs) for x in range(CHANGING)], way
        assert all(found[way] for found in ranks), "every process had its share"
    for weights in zip(*(found["weights"] for found in ranks)):
        trained = [each for each in weights if each]
        assert trained == [trained[0]] * len(trained), "those who trained together have the same weights"


@pytest.mark.faults
@pytest.mark.thorough
def test_ranks_that_lose_one_in_the_middle_of_a_step_do_it_again_without_it(tmp_path: Path) -> None:
    survivors = run_ranks("tests.journeys.lost_rank", tmp_path, 3, killed=VICTIM)
    assert [found["rank"] for found in survivors] == ["rank 0 of 2 (as given)", "rank 1 of 2 (as given)"]
    rows = [row for found in survivors for row in found["rows"]] + json.loads((tmp_path / "victim").read_text())
    assert sorted((epoch, x) for epoch, _, x in rows) == [(epoch, x) for epoch in range(EPOCHS) for x in range(SURVIVING)]
