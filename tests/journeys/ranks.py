"""Processes that train together, as torchrun would start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..loader.runs import ROOT, environment

WORLD = 2
_DEADLINE_S = 200.0


def run_ranks(module: str, folder: Path, world: int = WORLD, killed: int = -1) -> list[Any]:
    """Call ``main()`` of a module in `world` processes; what it returned in each of them, but for one that is `killed`.

    They must end in time.
    """
    import torch.distributed as dist

    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # on a port the system chooses
    script = f"from tests.journeys.ranks import be_rank; from {module} import main; be_rank(main)"
    processes = []
    for rank in range(world):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        settings = {
            **place,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": meeting.port,
            "OMP_NUM_THREADS": 1,
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, "-W", "ignore", "-c", script, str(folder)]
        with (folder / f"{rank}.log").open("wb") as log:
            env = {**environment(), **{name: str(value) for name, value in settings.items()}}
            processes.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + _DEADLINE_S
    try:
        codes = [process.wait(max(0.1, deadline - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    wanted = [-signal.SIGKILL if rank == killed else 0 for rank in range(world)]
    assert codes == wanted, "\n".join((folder / f"{rank}.log").read_text() for rank in range(world))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world) if rank != killed]


def be_rank(main: Callable[[Path], Any]) -> None:
    """In such a process: join the others, call `main`, leave its result for the parent."""
    import torch.distributed as dist

    rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
    join_group(meeting_place(), rank, int(os.environ["WORLD_SIZE"]))
    dist.barrier()  # who leaves a group while others are still joining it ends them
    result = main(folder)
    dist.barrier()
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(result))


def meeting_place() -> Any:
    """The store that all processes of a test share."""
    import torch.distributed as dist

    return dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), timeout=timedelta(seconds=_DEADLINE_S / 2))


def join_group(store: Any, rank: int, world: int) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=_DEADLINE_S / 2))
