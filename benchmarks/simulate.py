"""How many data machines feed N GPUs, and what do network and storage have to carry?

A simulation of queues: a task (some rows of a batch) is read from storage, computed on a core and sent to the trainer. Each
of the three has so many servers, and takes tasks in the order of the plan. The trainer takes what is complete, in order, and
so many tasks are under way as its memory allows. What a sample costs is measured first, by a short run of Stoker on
photographs, or given with ``--cost``. The same simulation predicts runs with 1 to 4 workers on this machine, threads and
processes, which are then measured; `measured_over_predicted` says how far it can be trusted here. `measured_over_cores`
leaves out cores that others were using: the same prediction with the cores that the workers really had.

The tables of docs/explanation/scale.md were made with ``--cost 655 --stored 110000 --gpu-rate 4700``.
"""

from __future__ import annotations

import argparse
import heapq
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import data
import stoker
from measure import BenchmarkParser, median, note, ratio, report, usable_cores
from ours import SIDE, image_pipeline

#: rows of a task
TASK_ROWS = 16
#: bytes of a picture as it reaches the trainer
ROW_BYTES = SIDE * SIDE * 3
#: how much faster than needed the data side should be, so that a slow minute does not show
SPARE = 1.1


# ---- the simulation ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """Something that tasks pass through: `servers` at a time, each busy for `seconds`; then `latency_s` on the way."""

    name: str
    servers: int
    seconds: Sequence[float]  # of task 0, 1, ..., and again from the first
    latency_s: float = 0.0


@dataclass(frozen=True)
class Flow:
    """What came out: tasks per second, and how busy each stage was."""

    tasks_per_s: float
    busy: dict[str, float]

    @property
    def limit(self) -> str:
        """The stage that is always at work; "window" where none is."""
        name = max(self.busy, key=lambda name: self.busy[name])
        return name if self.busy[name] > 0.95 else "window"


def simulate(stages: Sequence[Stage], window: int, tasks: int, step_s: float = 0.0) -> Flow:
    """Let tasks flow; at most `window` of them are begun and not yet taken. `step_s`: what the trainer does with a task.

    The rate is that of the last three quarters: the first quarter fills the window.
    """
    free = [[0.0] * stage.servers for stage in stages]
    taken: list[float] = []
    for task in range(tasks):
        now = taken[task - window] if task >= window else 0.0
        for stage, servers in zip(stages, free):
            seconds = stage.seconds[task % len(stage.seconds)]
            now = max(now, heapq.heappop(servers)) + seconds
            heapq.heappush(servers, now)
            now += stage.latency_s
        taken.append(max(now, taken[-1] if taken else 0.0) + step_s)
    begun = tasks // 4
    elapsed = taken[-1] - taken[begun - 1]
    busy = {stage.name: _work(stage, begun, tasks) / (stage.servers * elapsed) for stage in stages}
    return Flow((tasks - begun) / elapsed, {name: min(1.0, share) for name, share in busy.items()})


def _work(stage: Stage, first: int, last: int) -> float:
    return sum(stage.seconds[task % len(stage.seconds)] for task in range(first, last))


# ---- one machine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What a sample takes: of a core, of the trainer's thread, and in storage. `tasks_s` are some tasks, on a core."""

    sample_s: float
    hand_over_s: float
    stored_bytes: float
    tasks_s: tuple[float, ...]


def even_cost(sample_us: float, stored_bytes: float) -> Cost:
    """One that was given: all samples alike."""
    return Cost(sample_us / 1e6, 0.0, stored_bytes, (TASK_ROWS * sample_us / 1e6,))


def measured_cost(folder: Path, batch: int, batches: int) -> Cost:
    """A run with one worker: time on a core for each sample, and for each batch in the consumer's thread."""
    paths = data.paths_of(folder)
    stored = data.warm(paths) / len(paths)
    pieces = []
    with stoker.files(folder, labels=None).repeat().image("image", *_ops()).batch(TASK_ROWS).loader(executor="inline") as loader:
        tasks = iter(loader)
        next(tasks)
        for _ in range(max(4, batch * batches // TASK_ROWS)):
            begun = time.process_time()
            next(tasks)
            pieces.append(time.process_time() - begun)
    run = measured_run(folder, batch, batches, threads=1)
    scale = run.sample_s * TASK_ROWS / (sum(pieces) / len(pieces))  # engine and worker included
    return Cost(run.sample_s, run.hand_over_s, stored, tuple(scale * piece for piece in pieces))


def _ops() -> Any:
    from ours import OPS

    return OPS


@dataclass(frozen=True)
class Run:
    """What a run showed: samples/s, a core's time for a sample, the consumer's for a sample, and cores that workers had."""

    samples_per_s: float
    sample_s: float
    hand_over_s: float
    cores: float


def measured_run(folder: Path, batch: int, batches: int, **workers: int) -> Run:
    """Take batches as fast as they come, from when workers are at work."""
    with image_pipeline(folder, batch).loader(**workers) as loader:  # type: ignore[arg-type]
        taking = iter(loader)
        for _ in range(3 + batches // 2):
            next(taking)
        before, began = loader.stats(), time.perf_counter()
        here = time.thread_time()
        for _ in range(batches):
            next(taking)
        here, seconds = time.thread_time() - here, time.perf_counter() - began
        part = loader.stats() - before
    computed, samples = sum(step.samples for step in part.steps[-1:]), batches * batch
    on_cores = sum(worker.cpu_s for worker in part.by_worker)
    return Run(samples / seconds, on_cores / max(1, computed), here / samples, on_cores / seconds)


def predict(cost: Cost, workers: int, cores: float, batch: int) -> float:
    """Samples/s of so many workers on so many cores, of which the consumer's thread takes its part."""
    slowed = max(1.0, workers / cores)  # they take turns at the cores
    compute = Stage("cores", workers, [slowed * seconds for seconds in cost.tasks_s])
    window = max(2 * batch, (64 << 20) // ROW_BYTES) // TASK_ROWS
    flow = simulate([compute], window, 2000, TASK_ROWS * cost.hand_over_s)
    return TASK_ROWS * flow.tasks_per_s


def check(cost: Cost, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Predicted and measured, by kind and number of workers; all in turn, round by round."""
    cases = [(kind, count) for kind in options.kinds.split(",") for count in range(1, options.workers + 1)]
    runs: dict[tuple[str, int], list[Run]] = {case: [] for case in cases}
    for number in range(options.rounds):
        for kind, count in cases[:: -1 if number % 2 else 1]:
            run = measured_run(folder, options.batch, options.batches, **{"threads": 1, kind: count})
            runs[kind, count].append(run)
            note(f"round {number + 1}/{options.rounds}  {count} {kind:10} {run.samples_per_s:9,.0f}/s on {run.cores:.2f} cores")
    found: dict[str, Any] = {}
    for (kind, count), each in runs.items():
        rates, cores = [run.samples_per_s for run in each], usable_cores()
        predicted = predict(cost, count, cores, options.batch)
        with_these = [predict(cost, count, min(count, max(0.01, run.cores)), options.batch) for run in each]
        found.setdefault(kind, {})[count] = {
            "predicted_per_s": predicted,
            "measured_per_s": median(rates),
            "measured_over_predicted": median(rates) / predicted,
            "measured_over_cores": ratio(rates, with_these),
            "cores_had": median(run.cores for run in each),
        }
    return found


# ---- many machines -----------------------------------------------------------------------------------------------------


def node_flow(cost: Cost, cores: int, wanted: float, options: argparse.Namespace) -> Flow:
    """One trainer machine that takes `wanted` images/s if it gets them, fed by so many cores of data machines."""
    seconds = TASK_ROWS * cost.stored_bytes * 8 / (options.storage * 1e9)
    storage = Stage("storage", 1, [seconds], options.latency_ms / 1e3)
    compute = Stage("cores", cores, cost.tasks_s)
    network = Stage("network", 1, [TASK_ROWS * ROW_BYTES * 8 / (options.network * 1e9)], options.network_us / 1e6)
    window = int(options.memory * 1e9 / (TASK_ROWS * ROW_BYTES))
    return simulate([storage, compute, network], window, max(4000, 4 * window), TASK_ROWS / wanted)


def cluster(cost: Cost, gpus: int, options: argparse.Namespace) -> dict[str, Any]:
    """What so many GPUs need: cores and machines, and the rates that network and storage have to carry."""
    here = min(gpus, options.gpus_per_node)
    nodes = math.ceil(gpus / here)
    wanted = here * options.gpu_rate
    cores = max(1, math.ceil(SPARE * wanted * cost.sample_s))
    flow = node_flow(cost, cores, wanted, options)
    fed = TASK_ROWS * flow.tasks_per_s / wanted
    beyond = max(0, cores - options.own_cores)
    return {
        "images_per_s": gpus * options.gpu_rate,
        "cores": nodes * cores,
        "data_machines": math.ceil(nodes * beyond / options.machine_cores),
        "storage_gbit_per_s": gpus * options.gpu_rate * cost.stored_bytes * 8 / 1e9,
        "trainer_gbit_per_s": wanted * ROW_BYTES * 8 / 1e9,
        "network_gbit_per_s": gpus * options.gpu_rate * ROW_BYTES * 8 / 1e9,
        "of_wanted": fed,
        "limit": "gpus" if fed > 0.995 else flow.limit,
        "busy": flow.busy,
    }


# ---- the command line --------------------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=3)
    data.add_arguments(parser)
    parser.add_argument("--cost", type=float, help="microseconds of a core for a sample (measured); then nothing is measured")
    parser.add_argument("--stored", type=float, default=110_000, help="with --cost: bytes of a sample in storage (110,000)")
    parser.add_argument("--gpus", default="8,256,4096", help="numbers of GPUs (8,256,4096)")
    parser.add_argument("--gpu-rate", type=float, default=4700, help="images that a GPU trains on per second (4,700)")
    parser.add_argument("--gpus-per-node", type=int, default=8, help="GPUs of a trainer machine (8)")
    parser.add_argument("--own-cores", type=int, default=0, help="cores of a trainer machine that make batches too (0)")
    parser.add_argument("--machine-cores", type=int, default=64, help="cores of a data machine (64)")
    parser.add_argument("--network", type=float, default=100, help="Gbit/s into a trainer machine (100)")
    parser.add_argument("--network-us", type=float, default=100, help="microseconds on the way (100)")
    parser.add_argument("--storage", type=float, default=100, help="Gbit/s from storage, for each trainer machine (100)")
    parser.add_argument("--latency-ms", type=float, default=20, help="milliseconds until storage answers (20)")
    parser.add_argument("--memory", type=float, default=2, help="GB of rows under way for each trainer machine (2)")
    parser.add_argument("--kinds", default="threads,processes", help="kinds of workers to check with (threads,processes)")
    parser.add_argument("--workers", type=int, default=4, help="the most workers to check with (4)")
    parser.amount("--batch", 128, 32, "images in a batch")
    parser.amount("--batches", 16, 4, "batches of a measured run")
    return parser.parse_args()


def main() -> None:
    options = parse()
    checked: dict[str, Any] = {}
    if options.cost is None:
        folder = data.images_of(options)
        cost = measured_cost(folder, options.batch, options.batches)
        note(f"a sample takes {cost.sample_s * 1e6:,.0f} us of a core, {cost.hand_over_s * 1e6:,.1f} us of the trainer's thread")
        checked = check(cost, folder, options)
    else:
        cost = even_cost(options.cost, options.stored)
    report(
        "simulate",
        options,
        cost_us={"core": cost.sample_s * 1e6, "hand_over": cost.hand_over_s * 1e6},
        stored_bytes=cost.stored_bytes,
        check=checked,
        clusters={gpus: cluster(cost, gpus, options) for gpus in map(int, options.gpus.split(","))},
    )


if __name__ == "__main__":
    main()
