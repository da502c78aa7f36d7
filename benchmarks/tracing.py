"""What does writing a trace during a run cost, in throughput, and in memory if it is long?

The same loaders with a trace and without one, in turn. And ten million spans, as in a day of training, written one after another:
how long that takes, how large the file gets, and by how much the memory of the process grows.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import data
from measure import BenchmarkParser, Entry, Take, compare, endless, note, pull, ratio, report
from meters import PIPELINES
from ours import lead

#: what a trace may cost, and the memory that ten million spans may take
ASKED, ASKED_MB = 0.95, 100
#: of the pipelines of `meters`
MEASURED = ("decode", "function", "records, 256 in a batch")
#: spans of a task: itself, and its steps
IN_TASK = 4


@contextmanager
def fed(name: str, folder: Path, suffix: str) -> Iterator[Take]:
    """A loader at work, with a trace whose name ends so; "": without."""
    import stoker

    pipeline, rows = PIPELINES[name](folder)
    with tempfile.TemporaryDirectory() as place, pipeline.loader(executor="threads") as loader:
        if suffix:
            stoker.observe.trace(loader, Path(place) / f"trace{suffix}", most="10GB")
        yield pull(endless(loader), rows)


def write_spans(count: int, suffix: str) -> dict[str, Any]:
    """So many spans of four workers, each task a read, an image and a function."""
    import stoker
    from stoker.batch.written_rows import Report
    from stoker.observe.meters import Span, StepName

    steps = [StepName("read", "read"), StepName("image jpg"), StepName("map augment", "function")]
    costs = Report(len(steps))
    costs.seconds, costs.rows = [0.002, 0.011, 0.006], 32
    with tempfile.TemporaryDirectory() as place, stoker.arrays(x=np.arange(8)).batch(4).loader(executor="inline") as loader:
        path = Path(place) / f"trace{suffix}"
        trace = stoker.observe.trace(loader, path, most="100GB")
        begun, begun_cpu = time.monotonic(), time.process_time()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(count // IN_TASK):
            at = begun + number // 4 * 0.02
            trace.task(Span(number % 4, number // 8, number % 8, at, at + 0.0195), steps, costs)
        trace.close()
        seconds, cpu_s = time.monotonic() - begun, time.process_time() - begun_cpu
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return {
            "spans": count,
            "seconds": seconds,
            "core_us_per_span": 1e6 * cpu_s / count,
            "file_mb": path.stat().st_size / 1e6,
            "memory_mb": grown / 1e3,
        }


def on_a_core(name: str, folder: Path, suffix: str, batches: int) -> float:
    """Microseconds of a core for each batch, of all threads: steadier than rates where others use the machine."""
    with fed(name, folder, suffix) as take:
        take(batches // 10 + 1)
        begun = time.process_time()
        take(batches)
        return 1e6 * (time.process_time() - begun) / batches


def cores_compared(name: str, folder: Path, rounds: int, batches: int) -> dict[str, float]:
    """The least of some rounds, with a trace and without."""
    ways = {"traced": ".json", "packed": ".json.gz", "without": ""}
    found: dict[str, list[float]] = {title: [] for title in ways}
    for _ in range(rounds):
        for title, suffix in ways.items():
            found[title].append(on_a_core(name, folder, suffix, batches))
    return {title: min(times) for title, times in found.items()}


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=11)
    data.add_arguments(parser)
    parser.amount("--seconds", 1.0, 0.05, "of a round")
    return parser.parse_args()


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    count = 100_000 if options.quick else 10_000_000
    spans = {}
    for kind, suffix in (("plain", ".json"), ("packed", ".json.gz")):
        note(f"---- {count:,} spans, {kind}")
        spans[kind] = write_spans(count, suffix)
    found: dict[str, Any] = {}
    for name in MEASURED[:1] if options.quick else MEASURED:
        note(f"---- {name}")
        ready = 2 if options.quick else lead(64) if name == "decode" else 64
        entries = [
            Entry(title, fed, (name, folder, suffix), 8, ready, seconds=options.seconds)
            for title, suffix in (("traced", ".json"), ("packed", ".json.gz"), ("without", ""))
        ]
        result = compare(entries, options.rounds)
        over = {kind: ratio(result.rates[kind], result.rates["without"]) for kind in ("traced", "packed")}
        cores = cores_compared(name, folder, options.rounds, 10 if options.quick else 100 if name == "decode" else 2000)
        found[name] = {"rows_per_s": result.medians(), "over_without": over, "core_us_per_batch": cores}
    report("tracing", options, asked=ASKED, asked_mb=ASKED_MB, pipelines=found, written=spans)


if __name__ == "__main__":
    main()
