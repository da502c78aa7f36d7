"""What does a pool save? Four trainers that need the same crops of JPEGs, fed by one `stoker serve`, compared with one alone.

The figure is the CPU time of the pool and of all trainers together, from the making of the loader to its last batch: of one
trainer without a pool, of one with it, and of four with it. Then three trainers next to a fourth that is stopped or killed in the
middle: how long the three take, compared with three that have the pool to themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import data
from measure import SEED, BenchmarkParser, note, report

if TYPE_CHECKING:
    import stoker

SIDE, BATCH, TRAINERS = 224, 256, 4
_IMAGES, _SAMPLES = "STOKER_BENCH_IMAGES", "STOKER_BENCH_SAMPLES"
_DEADLINE_S = 600.0


def crops() -> stoker.Pipeline:
    """What all trainers want."""
    import stoker
    from stoker.image import HorizontalFlip, RandomResizedCrop

    paths = data.paths_of(Path(os.environ[_IMAGES]))
    many = (paths * (1 + int(os.environ[_SAMPLES]) // len(paths)))[: int(os.environ[_SAMPLES])]
    source = stoker.files(many, labels=list(range(len(many)))).shuffle(seed=SEED)
    return source.image("image", RandomResizedCrop(SIDE), HorizontalFlip()).batch(BATCH, drop_last=False)


def train(at: str) -> None:
    """One epoch; waits to be told to begin, and tells what it took."""
    how: dict[str, Any] = {} if at == "alone" else {"pool": at}
    pipeline = crops()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu, wall, rows = time.process_time(), time.perf_counter(), 0
    with pipeline.loader(**how) as loader:
        for batch in loader:
            rows += len(batch[0])
            if rows == BATCH:
                print("begun", flush=True)
    print(json.dumps({"cpu_s": time.process_time() - cpu, "s": time.perf_counter() - wall, "rows": rows}), flush=True)


@contextmanager
def pool(trainers: int) -> Iterator[tuple[str, int]]:
    """A pool that begins when so many trainers are there: its address, and the number of its process."""
    with tempfile.TemporaryDirectory() as folder:
        at = f"ipc://{folder}/pool"
        command = [sys.executable, "-m", "stoker", "serve", "--at", at, "--wait-for", str(trainers)]
        command += [f"{Path(__file__).resolve()}:crops"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            if "trainers connect" not in told:
                raise RuntimeError(f"the pool did not start: {told}{process.stdout.read()}")
            yield at, process.pid
        finally:
            process.terminate()
            note(process.communicate(timeout=_DEADLINE_S)[0].splitlines()[-1])


def environment() -> dict[str, str]:
    """Modules are kept compiled, as Python does unless it is told otherwise: else every trainer would compile them again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Trainers:
    """Trainers in processes of their own, which begin together."""

    def __init__(self, at: str, count: int) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--train", at]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment()}
        self.running: list[subprocess.Popen[str]] = [subprocess.Popen(command, **pipes) for _ in range(count)]
        for process in self.running:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        for process in self.running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def has_begun(self, number: int) -> None:
        out = self.running[number].stdout
        assert out is not None and out.readline() == "begun\n"

    def results(self) -> list[dict[str, float]]:
        return [json.loads(process.communicate(timeout=_DEADLINE_S)[0].splitlines()[-1]) for process in self.running]

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate(timeout=_DEADLINE_S)


def feed(count: int) -> tuple[float, float]:
    """Time on cores, and by the clock, of so many trainers with a pool; 0: of one without."""
    if not count:
        trainers = Trainers("alone", 1)
        trainers.begin()
        [found] = trainers.results()
        return found["cpu_s"], found["s"]
    with pool(count) as (at, process):
        trainers, before = Trainers(at, count), cpu_of(process)
        trainers.begin()
        found = trainers.results()
        return sum(each["cpu_s"] for each in found) + cpu_of(process) - before, max(each["s"] for each in found)


def beside(how: signal.Signals | None) -> float:
    """The seconds that three trainers take, beside a fourth to which something happens when it has begun; None: there is none."""
    with pool(1) as (at, _):
        trainers = Trainers(at, TRAINERS - 1)
        other = Trainers(at, 1) if how else None
        try:
            if other is not None and how is not None:
                other.begin()
                other.has_begun(0)
                other.running[0].send_signal(how)
            trainers.begin()
            return max(each["s"] for each in trainers.results())
        finally:
            if other is not None:
                other.end()


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=3)
    data.add_arguments(parser)
    parser.amount("--samples", 48_000, 2 * BATCH, "images of the epoch")
    parser.add_argument("--train", metavar="ADDRESS", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.train:
        train(options.train)
        return
    where = data.images_of(options)
    os.environ[_IMAGES], os.environ[_SAMPLES] = str(where), str(options.samples)
    counts, ways = [0, 1, TRAINERS], [None, signal.SIGSTOP, signal.SIGKILL]
    spent: dict[int, list[float]] = {count: [] for count in counts}
    took: dict[str, list[float]] = {"nobody": [], "SIGSTOP": [], "SIGKILL": []}
    for number in range(options.rounds):
        for count in counts if number % 2 == 0 else reversed(counts):
            cpu_s, wall_s = feed(count)
            spent[count].append(cpu_s)
            note(f"round {number + 1}, {count or 'no pool, 1'} of {TRAINERS} trainers: {cpu_s:.2f} s on cores, {wall_s:.2f} s")
        for way in ways if number % 2 == 0 else reversed(ways):
            took["nobody" if way is None else way.name].append(beside(way))
    report(
        "pool",
        options,
        samples=options.samples,
        trainers=TRAINERS,
        cpu_us_per_image={
            name: 1e6 * statistics.median(spent[count]) / options.samples
            for name, count in (("alone", 0), ("one_with_pool", 1), ("four_with_pool", TRAINERS))
        },
        four_of_one=statistics.median(four / one for four, one in zip(spent[TRAINERS], spent[1])),
        four_of_alone=statistics.median(four / alone for four, alone in zip(spent[TRAINERS], spent[0])),
        three_beside={
            name: statistics.median(each / alone for each, alone in zip(took[name], took["nobody"]))
            for name in ("SIGSTOP", "SIGKILL")
        },
        targets={"four_of_one": 1.2, "three_beside": 1.1},
    )


if __name__ == "__main__":
    main()
