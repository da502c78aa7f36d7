"""Does the verdict name what is wrong, and does its advice bring what it predicts?

Twelve pipelines, each with a planted bottleneck. Each runs unchanged, and reports what limits it and what would help; then the
advice is followed, and its speed-up is compared with the predicted one. Every run has its own process.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import data
import stoker
from measure import SEED, BenchmarkParser, median, note, report, usable_cores
from ours import OPS, image_pipeline, pack
from slow_server import serving
from stoker.device import OUTPUTS
from stoker.device.framework_output import Output
from stoker.observe import Advice
from workloads import compute

#: a prediction may be off by so much
ASKED = 0.25
BATCH = 32
#: samples of the plant with a cache: more than a run can make
CACHED = 4000
#: what a hand-over takes that is slow
HANDED_S = 0.03


@dataclass(frozen=True)
class Trial:
    """A pipeline, how it is loaded, and what is done with each batch."""

    pipeline: stoker.Pipeline
    options: dict[str, Any] = field(default_factory=dict)
    step: Callable[[], object] = lambda: None
    cores: int = 0  # that it may use; 0: all
    epochs_before: int = 0  # that are not measured


@dataclass(frozen=True)
class Plant:
    """A bottleneck: what it is called in verdicts, the run that has it, and the run after the advice is followed."""

    limits: tuple[str, ...]
    make: Callable[[Path, dict[str, str]], Trial]
    follow: Callable[[Trial, str, Path, dict[str, str]], Trial] | None = None  # None: there is nothing to follow
    served: bool = False  # by a web server


def settings(how: str) -> dict[str, Any]:
    """The loader's options in an advice: ``threads=8`` as {"threads": 8}."""
    found = re.findall(r'(\w+)=(?:"(\w+)"|(\d+))', how)
    return {name: text or int(number) for name, text, number in found}


def as_advised(trial: Trial, how: str, folder: Path, servers: dict[str, str]) -> Trial:
    options = {name: value for name, value in trial.options.items() if name not in ("threads", "processes")}
    return replace(trial, options={**(trial.options if "memory=" in how else options), **settings(how)})


# ---- the twelve ----------------------------------------------------------------------------------------------------------


def sleeps(seconds: float) -> Callable[[], object]:
    """A training step that leaves the cores alone, as one on a device does."""
    return lambda: time.sleep(seconds)


def photographs(folder: Path, batch: int = BATCH) -> stoker.Pipeline:
    return image_pipeline(folder, batch)


def records(batch: int = BATCH) -> stoker.Pipeline:
    return stoker.arrays(x=np.arange(1 << 20)).shuffle(seed=SEED).repeat().batch(batch)


def mapped(fn: Callable[[Any], Any], batch: int = BATCH, count: int = 1 << 20) -> stoker.Pipeline:
    return stoker.arrays(x=np.arange(count)).shuffle(seed=SEED).repeat().map(x=fn).batch(batch)


#: seconds after which servers answer
LATENCIES = {"quick": 0.001, "slow": 0.03, "far": 0.1}


def slow_storage(folder: Path, servers: dict[str, str]) -> Trial:
    """Shards on a server that answers after 100 ms."""
    shards = [f"{servers['far']}/{name}" for name in sorted(path.name for path in Path(servers["folder"]).glob("*.tar"))]
    pipeline = stoker.tar(shards).shuffle(seed=SEED).repeat().image("jpg", *OPS).batch(BATCH)
    return Trial(pipeline, {"threads": 1, "memory": "64MB"}, sleeps(0.004))  # too little to hold all of it


def slow_decode(folder: Path, servers: dict[str, str]) -> Trial:
    """Photographs, and half of the cores."""
    return Trial(photographs(folder), cores=max(1, usable_cores() // 2))


def more_cores(trial: Trial, how: str, folder: Path, servers: dict[str, str]) -> Trial:
    return replace(trial, cores=2 * trial.cores)


def holds_the_lock(x: Any) -> Any:
    return x + (compute(2.0) & 1)


def locked(folder: Path, servers: dict[str, str]) -> Trial:
    """A function in pure Python, in threads."""
    return Trial(mapped(holds_the_lock), {"threads": usable_cores()})


def slow_model(folder: Path, servers: dict[str, str]) -> Trial:
    return Trial(photographs(folder, 8), step=sleeps(0.05))


def tiny_memory(folder: Path, servers: dict[str, str]) -> Trial:
    """Room for one batch, so that either the loop works or the workers do."""
    return Trial(photographs(folder), {"memory": "6MB", "threads": usable_cores()}, sleeps(0.02))


class SlowOutput(Output):
    def hand_over(self, batch: Any) -> Any:
        time.sleep(HANDED_S)
        return batch


def choose_slow_output(device: None) -> Output:
    return SlowOutput()


def slow_handover(folder: Path, servers: dict[str, str]) -> Trial:
    OUTPUTS.add("slow", (__name__, "choose_slow_output", ""))
    pixels = np.zeros((256, 224, 224, 3), np.uint8)
    return Trial(stoker.arrays(x=pixels).repeat().batch(BATCH), {"format": "slow"}, sleeps(0.02))


def quick_handover(trial: Trial, how: str, folder: Path, servers: dict[str, str]) -> Trial:
    return replace(trial, options={})


def one_slow_shard(folder: Path, servers: dict[str, str], slow: str = "far") -> Trial:
    """Four shards in sequence, one of them far away."""
    names = sorted(path.name for path in Path(servers["folder"]).glob("*.tar"))
    shards = [f"{servers[slow if name == names[1] else 'quick']}/{name}" for name in names]
    pipeline = stoker.tar(shards).repeat().image("jpg", *OPS).batch(8)
    return Trial(pipeline, {"threads": 4, "memory": "12MB"})  # too little to read blocks ahead


def all_shards_near(trial: Trial, how: str, folder: Path, servers: dict[str, str]) -> Trial:
    return one_slow_shard(folder, servers, "quick")


def sometimes_slow(x: Any) -> Any:
    time.sleep(0.2 if x % 100 == 0 else 0.002)
    return x


def never_slow(x: Any) -> Any:
    time.sleep(0.002)
    return x


def heavy_tail(folder: Path, servers: dict[str, str]) -> Trial:
    """One sample in a hundred takes a hundred times as long."""
    return Trial(mapped(sometimes_slow), {"threads": 8})


def no_tail(trial: Trial, how: str, folder: Path, servers: dict[str, str]) -> Trial:
    return replace(trial, pipeline=mapped(never_slow))


def few_threads(folder: Path, servers: dict[str, str]) -> Trial:
    return Trial(photographs(folder), {"threads": 1})


def many_threads(folder: Path, servers: dict[str, str]) -> Trial:
    """Sixteen threads or more beside a loop in pure Python, which hardly keep up with it."""
    cores = usable_cores()
    return Trial(photographs(folder, 16 * max(1, cores - 1)), {"threads": max(16, 2 * cores)}, lambda: compute(12.0))


def costs_much(x: Any) -> Any:
    time.sleep(0.01)
    return x


def cold_cache(folder: Path, servers: dict[str, str]) -> Trial:
    """The first epoch, which fills the cache."""
    numbers = stoker.arrays(x=np.arange(CACHED)).shuffle(seed=SEED).map(x=costs_much)
    return Trial(numbers.cache("memory").repeat().batch(BATCH), {"threads": 8}, sleeps(0.005))


def warm_cache(trial: Trial, how: str, folder: Path, servers: dict[str, str]) -> Trial:
    return replace(trial, epochs_before=1)


def nothing_wrong(folder: Path, servers: dict[str, str]) -> Trial:
    return Trial(records(256), step=sleeps(0.01))


PLANTS: dict[str, Plant] = {
    "slow storage": Plant(("server", "network", "storage"), slow_storage, as_advised, served=True),
    "slow decode": Plant(("decode",), slow_decode, more_cores),
    "GIL-bound map": Plant(("python",), locked, as_advised),
    "slow model": Plant(("loop",), slow_model),
    "tiny memory": Plant(("memory",), tiny_memory, as_advised),
    "slow hand-over": Plant(("handover",), slow_handover, quick_handover),
    "one slow shard": Plant(("shard",), one_slow_shard, all_shards_near, served=True),
    "heavy-tailed samples": Plant(("tail",), heavy_tail, no_tail),
    "too few threads": Plant(("workers",), few_threads, as_advised),
    "too many threads": Plant(("slowed",), many_threads, as_advised),
    "cold cache": Plant(("cold",), cold_cache, warm_cache),
    "nothing wrong": Plant(("loop",), nothing_wrong),
}


# ---- a run ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What a run gave: its rate and its verdict."""

    rate: float
    limit: str
    text: str
    advice: tuple[Advice, ...]

    def best(self, settable: bool) -> Advice | None:
        """The first advice that predicts something; with `settable`, one that is an option of the loader."""
        return next((each for each in self.advice if each.gain is not None and (settings(each.how) or not settable)), None)


def run(name: str, how: str | None, folder: Path, servers: dict[str, str], seconds: float) -> Ran:
    """One of the twelve for some seconds, as planted, or with an advice followed."""
    plant = PLANTS[name]
    trial = plant.make(folder, servers)
    if how is not None:
        assert plant.follow is not None
        trial = plant.follow(trial, how, folder, servers)
    if trial.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: trial.cores])
    with trial.pipeline.loader(**trial.options) as loader:
        batches = iter(loader)
        for _ in range(trial.epochs_before * CACHED // BATCH):
            next(batches)
        before = loader.stats()
        begun = time.monotonic()
        while time.monotonic() < begun + seconds:
            next(batches)
            trial.step()
        measured = loader.stats() - before if trial.epochs_before else loader.stats()
        why = loader.why()
    return Ran(measured.samples_per_s, why.limit, str(why), why.advice)


def apart(*arguments: Any) -> Ran:
    """`run` in a process of its own."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(run, *arguments).result()


@contextmanager
def served(folder: Path, plants: list[str]) -> Iterator[dict[str, str]]:
    """The photographs as shards, on quick servers and slow ones, where a plant needs them."""
    if not any(PLANTS[name].served for name in plants):
        yield {}
        return
    with ExitStack() as stack:
        shards = Path(tempfile.mkdtemp())
        stack.callback(shutil.rmtree, shards)
        pack(folder, shards)
        servers = {name: stack.enter_context(serving(shards, seconds)) for name, seconds in LATENCIES.items()}
        yield {"folder": str(shards), **servers}


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, rounds=3)
    data.add_arguments(parser)
    parser.add_argument("--plants", default=",".join(PLANTS), help=f"which ({', '.join(PLANTS)})")
    parser.amount("--seconds", 4.0, 0.3, "of a run")
    return parser.parse_args()


def measure(name: str, folder: Path, servers: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Planted and named, predicted and measured."""
    plant = PLANTS[name]
    first = apart(name, None, folder, servers, options.seconds)
    found: dict[str, Any] = {"named": first.limit, "right": first.limit in plant.limits, "verdict": first.text}
    note(f"{name:22} named {first.limit}: {first.text}")
    best = first.best(plant.follow is as_advised)
    if plant.follow is None or best is None or not found["right"]:
        return found
    ratios = []
    for _ in range(options.rounds):
        before = apart(name, None, folder, servers, options.seconds)
        after = apart(name, best.how, folder, servers, options.seconds)
        ratios.append(after.rate / before.rate)
    found |= {"advice": best.what, "predicted": best.gain, "measured": median(ratios), "runs": ratios}
    note(f"{'':22} {best.what}: predicted {best.gain:.2f}x, measured {median(ratios):.2f}x")
    return found


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    plants = options.plants.split(",")
    with served(folder, plants) as servers:
        found = {name: measure(name, folder, servers, options) for name in plants}
    named = sum(each["right"] for each in found.values())
    targets: dict[str, Any] = {"named": (named, len(found), named == len(found))}
    for name, each in found.items():
        if "measured" in each:
            off = abs(each["predicted"] / each["measured"] - 1)
            targets[f"prediction, {name}"] = (off, ASKED, off <= ASKED)
    report("verdicts", options, plants=found, targets=targets)


if __name__ == "__main__":
    main()
