"""What does Ray cost, compared with worker processes on the same machine?

The same pipelines with as many Ray actors, on this machine alone, as worker processes, in turn: decoding, a Python function,
records that are only read, and rows of 224x224x3 pixels that are only handed over. And a task that does nothing: how long its
round trip takes, one at a time and many at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import data
from measure import BenchmarkParser, Entry, Take, compare, endless, note, pull, ratio, report, usable_cores
from meters import PIPELINES
from ours import lead

#: pipelines of `meters`, and one of our own
HANDED_OVER = "pixels handed over"
MEASURED = ("decode", "function", "records, 256 in a batch", HANDED_OVER)
#: rows of a batch of pixels
ROWS = 128


def pipeline_of(name: str, folder: Path) -> tuple[Any, int]:
    """A pipeline, and the rows of its batches."""
    if name != HANDED_OVER:
        pipeline, rows = PIPELINES[name](folder)
        return pipeline, rows
    import stoker

    pixels = np.random.default_rng(0).integers(0, 256, (4 * ROWS, 224, 224, 3), dtype=np.uint8)
    return stoker.arrays(image=pixels).shuffle(seed=0).batch(ROWS), ROWS


@contextmanager
def fed(name: str, folder: Path, executor: str, workers: int) -> Iterator[Take]:
    pipeline, rows = pipeline_of(name, folder)
    with pipeline.loader(executor=executor, processes=workers, threads=1) as loader:
        yield pull(endless(loader), rows)


def nothing(content: int, scratch: Any) -> int:
    """The work of a task that does nothing."""
    return content


def empty_tasks(executor: str, workers: int, count: int) -> dict[str, float]:
    """Microseconds for a task that does nothing: alone, there and back, and as one of many."""
    from stoker.engine.executor import Task
    from stoker.engine.executor_names import EXECUTORS

    kind: Any = EXECUTORS.get(executor, executor)
    threads = workers if executor == "processes" else 1  # of all processes together, or of each actor
    with closing(kind(threads, BytesIO, workers)) as made:
        channel = made.channel(nothing)

        def run(tasks: int) -> float:
            begun, got = time.perf_counter(), 0
            for number in range(tasks):
                channel.submit([Task(0, number, number)])
            while got < tasks:
                got += len(channel.collect(1.0))
            return 1e6 * (time.perf_counter() - begun) / tasks

        run(50 * workers)  # all have started
        return {"alone_us": float(np.median([run(1) for _ in range(count)])), "of_many_us": run(10 * count)}


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=7)
    data.add_arguments(parser)
    parser.amount("--seconds", 2.0, 0.1, "of a round")
    parser.amount("--workers", usable_cores(), 1, "worker processes, and actors")
    return parser.parse_args()


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    found: dict[str, Any] = {}
    for name in MEASURED[:1] if options.quick else MEASURED:
        note(f"---- {name}")
        ready = 2 if options.quick else lead(64) if name == "decode" else 64
        entries = [
            Entry(executor, fed, (name, folder, executor, options.workers), 8, ready, seconds=options.seconds)
            for executor in ("processes", "ray")
        ]
        result = compare(entries, options.rounds)
        found[name] = {
            "rows_per_s": result.medians(),
            "ray_over_processes": ratio(result.rates["ray"], result.rates["processes"]),
        }
    tasks = {}
    for executor in ("processes", "ray"):
        note(f"---- tasks that do nothing, {executor}")
        tasks[executor] = empty_tasks(executor, options.workers, 20 if options.quick else 500)
    report("ray_overhead", options, workers=options.workers, pipelines=found, tasks=tasks)


if __name__ == "__main__":
    main()
