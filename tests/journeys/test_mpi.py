"""Ranks that a real mpirun starts: the variables of Open MPI and MPICH say which they are; no process group and no MPI does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..loader.runs import ROOT, environment

#: a word of ``mpirun --version``, and options that bind a process to a core, or to none, even where there are more processes
KINDS = {
    "Open MPI": ("Open MPI", ["--oversubscribe", "--bind-to", "core:overload-allowed"], ["--oversubscribe", "--bind-to", "none"]),
    "MPICH": ("HYDRA", ["-bind-to", "core"], ["-bind-to", "none"]),
}
#: Open MPI asks twice whether root is meant
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

SAMPLES, STEPS = 40, 3
#: some steps from where a state says, or all
RANK = f"""
import json, os, sys
import numpy as np
import stoker

folder, steps, state = json.loads(sys.argv[1])
pipeline = stoker.arrays(n=np.arange({SAMPLES})).shuffle(seed=1).shard(remainder="keep").batch(4)
with pipeline.loader(epoch=0) as batches:
    if state:
        batches.load_state_dict(state)
    seen = []
    for step, batch in enumerate(batches, 1):
        seen += batch["n"][batch.valid].tolist()
        if step == steps:
            break
    [threads] = [line for line in pipeline.explain().splitlines() if line.startswith("threads")]
    found = seen, batches.state_dict(), threads, len(os.sched_getaffinity(0))
with open(f"{{folder}}/{{batches.rank.rank}}-of-{{batches.rank.world}}", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(params=KINDS)
def mpirun(request: pytest.FixtureRequest) -> tuple[str, list[str], list[str]]:
    """The command, and its options for bound processes and for free ones."""
    word, bound, free = KINDS[request.param]
    for name in ("mpirun", "mpirun.openmpi", "mpirun.mpich"):  # on Debian both may be installed
        command = shutil.which(name)
        if command and word in subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout:
            return command, bound, free
    pytest.skip("needs Open MPI and MPICH: apt-get install openmpi-bin mpich")


def test_two_ranks_and_then_three_see_every_sample_once_with_the_cores_that_they_have(
    mpirun: tuple[str, list[str], list[str]], tmp_path: Path
) -> None:
    command, bound, free = mpirun

    def run(ranks: int, options: list[str], steps: int, state: Any) -> list[Any]:
        """What each rank found."""
        words = [sys.executable, "-c", RANK, json.dumps([str(tmp_path), steps, state])]
        done = subprocess.run(
            [command, *options, "-n", str(ranks), *words], cwd=ROOT, env={**environment(), **AS_ROOT}, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads((tmp_path / f"{rank}-of-{ranks}").read_text()) for rank in range(ranks)]

    two = run(2, bound, STEPS, None)
    assert [len(seen) for seen, *_ in two] == [4 * STEPS] * 2
    for _, _, threads, cores in two:
        assert threads.startswith(f"threads  {cores}: this process may use {cores} core")
    three = run(3, free, 0, two[0][1])
    assert all("cores shared by 3 processes on this machine" in threads for _, _, threads, _ in three)
    assert sorted(n for seen, *_ in two + three for n in seen) == list(range(SAMPLES))
