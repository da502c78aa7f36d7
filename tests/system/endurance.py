"""A million batches, one after another: memory, descriptors, threads and processes are at the end what they were at the start.

    python -m tests.system.endurance --iterations 1000000

`make soak` runs it. Each way to run is a line of JSON; the status is 1 if one of them grows.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import stoker
from stoker import Pipeline
from stoker.engine.process_executor import ProcessExecutor

#: bytes that memory may grow by in 100,000 batches, after the first 40 % of the run
MOST_GROWTH = 1 << 20
LOOKS = 100
#: the looks after which a worker is killed, where workers are killed
KILLS = range(10, 35, 5)

WAYS: dict[str, dict[str, Any]] = {
    "inline": {"executor": "inline"},
    "threads": {"threads": 2},
    "processes": {"processes": 2, "threads": 1},
    "processes that are killed": {"processes": 2, "threads": 1},
    "a function in processes": {"processes": 2, "threads": 1},
}
#: the part of all batches that a slower way does
SHARE = {"a function in processes": 0.1}


@dataclass
class Look:
    """What a run uses at some moment."""

    batches: int
    memory: int
    descriptors: int
    threads: int
    processes: int


def named(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "name": f"{sample['y']:05d}", "more": np.zeros(2000)}


def pipeline(way: str) -> Pipeline:
    """Small batches of small samples; what a function adds to them lies beside the batch's own memory."""
    samples = stoker.arrays(x=np.zeros((4096, 16), np.float32), y=np.arange(4096)).shuffle(seed=1)
    return (samples.map(named) if way.startswith("a function") else samples).batch(8)


def look(batches: int) -> Look:
    gc.collect()
    while True:
        try:
            family = [
                psutil.Process(),
                *(child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE),
            ]
            memory = sum(proportional_size(process.pid) for process in family)
            descriptors = sum(process.num_fds() for process in family)
            return Look(batches, memory, descriptors, sum(process.num_threads() for process in family), len(family))
        except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            pass  # one of them ended while it was looked at


def all_there(executor: object) -> bool:
    """Whether every worker process has begun: one that is still on its way uses less than the one it replaces."""
    return not isinstance(executor, ProcessExecutor) or all(worker.ready for worker in executor._workers)


def proportional_size(pid: int) -> int:
    """The bytes of memory that a process uses, its share of what it shares included."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    return 0


def endure(way: str, iterations: int) -> dict[str, Any]:
    """Run so many batches while all workers are there; what was seen, and what of it grew."""
    looks: list[Look] = []
    every = max(1, iterations // LOOKS)
    done = epochs = kills = 0
    begun = time.monotonic()
    with pipeline(way).loader(**WAYS[way]) as loader:
        while done < iterations:
            for batch in loader:
                assert batch.rows == 8
                del batch
                if not all_there(loader._machinery.executor):
                    continue
                done += 1
                if done % every == 0:
                    looks.append(look(done))
                    if way.endswith("killed") and done // every in KILLS:
                        kills += 1
                        os.kill(psutil.Process().children()[kills % 2].pid, signal.SIGKILL)
            epochs += 1
    late = looks[int(len(looks) * 0.4) :]
    slope = float(np.polyfit([at.batches for at in late], [at.memory for at in late], 1)[0]) * 100_000
    middle = late[: len(late) // 2]
    counts = ("descriptors", "threads", "processes")
    grown = [name for name in counts if getattr(late[-1], name) > max(getattr(at, name) for at in middle)]
    grown += ["memory"] if slope > MOST_GROWTH else []
    return {
        "way": way,
        "batches": done,
        "epochs": epochs,
        "kills": kills,
        "seconds": round(time.monotonic() - begun, 1),
        "memory_growth_per_100000_batches": round(slope),
        "first": asdict(late[0]),
        "last": asdict(late[-1]),
        "grown": grown,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=1_000_000)
    parser.add_argument("--way", choices=WAYS, action="append")
    arguments = parser.parse_args()
    failed = 0
    for way in arguments.way or WAYS:
        found = endure(way, int(arguments.iterations * SHARE.get(way, 1)))
        print(json.dumps(found), flush=True)
        failed |= bool(found["grown"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
