"""Do a few slow samples hold up the others?

One sample in a hundred takes a hundred times as long as usual: it sleeps, as a slow object on a server does (`sleeping`), or
computes without the interpreter lock, as the decoder of a huge photograph does (`computing`). Batches come in order, so a slow
sample may hold up its batch and all after it. Two epochs are measured after a first one, in which the loader learns who is slow;
the consumer takes batches as fast as they come. `ideal` is the rate of a thread pool that does the same work in any order, in the
same round. Waits are those for single batches.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stoker
from measure import SEED, BenchmarkParser, available, median, note, report, usable_cores

BATCH, SLOW_SHARE, SLOW_TIMES = 64, 0.01, 100
#: of an image that comes out
SHAPE = (160, 160, 3)
#: workers that sleep need no core
SLEEPERS = 8
#: what a usual sample takes: seconds of sleep, bytes to hash
SLEEP_S, HASHED = 0.001, 1_500_000
#: of the ideal rate; and the 99th percentile of the waits over their median
ASKED_RATE, ASKED_WAIT = 0.95, 2.0


def slow_samples(count: int) -> NDArray[np.bool_]:
    return np.random.default_rng(SEED).random(count) < SLOW_SHARE


class Work:
    """A function that is slow for some samples; made of plain values, so that it can be sent to worker processes."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.slow = kind, slow_samples(count)
        self._data = bytes(HASHED)

    def __call__(self, index: Any) -> NDArray[np.uint8]:
        times = SLOW_TIMES if self.slow[int(index)] else 1
        if self.kind == "sleeping":
            time.sleep(times * SLEEP_S)
        else:
            for _ in range(times):
                hashlib.sha256(self._data)
        return np.full(SHAPE, int(index) & 255, np.uint8)


class Rows:
    """The same work as a torch data set."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __len__(self) -> int:
        return len(self._work.slow)

    def __getitem__(self, index: int) -> Any:
        return self._work(index)


def waits_of(epochs: Iterable[Iterable[Any]]) -> tuple[float, list[float]]:
    """Batches per second over some epochs, and the time that each took to come."""
    waits: list[float] = []
    begun = now = time.perf_counter()
    for epoch in epochs:
        for _ in epoch:
            waits.append(time.perf_counter() - now)
            now = time.perf_counter()
    return len(waits) / (now - begun), waits


def with_stoker(work: Work, workers: int, epochs: int) -> tuple[float, list[float]]:
    count = len(work.slow)
    pipeline = stoker.arrays(x=np.arange(count)).shuffle(seed=SEED).map(x=work).batch(BATCH, drop_last=True)
    with pipeline.loader(threads=workers) as loader:
        for _ in loader:
            pass
        found = waits_of(loader for _ in range(epochs))
        note(f"{'':11}slowest: {[slow.key for slow in loader.stats().slowest[:3]]}")
        return found


def with_torch(work: Work, workers: int, epochs: int) -> tuple[float, list[float]]:
    import torch
    from torch.utils.data import DataLoader

    generator = torch.Generator().manual_seed(SEED)
    loader: Any = DataLoader(
        Rows(work), BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True, generator=generator
    )  # type: ignore[arg-type]
    for _ in loader:
        pass
    return waits_of(loader for _ in range(epochs))


def in_any_order(work: Work, workers: int) -> float:
    """Batches per second of a thread pool to which the order does not matter."""
    count = len(work.slow) // BATCH * BATCH
    with ThreadPoolExecutor(workers) as pool:
        begun = time.perf_counter()
        for _ in pool.map(work, range(count), chunksize=1):
            pass
        return count / BATCH / (time.perf_counter() - begun)


def measure(kind: str, options: argparse.Namespace, peers: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    work, workers = Work(kind, options.samples), SLEEPERS if kind == "sleeping" else usable_cores()
    shares: dict[str, list[float]] = {name: [] for name in peers}
    middle: dict[str, list[float]] = {name: [] for name in peers}
    late: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(options.rounds):
        ideal = in_any_order(work, workers)
        for name, run in list(peers.items())[:: -1 if number % 2 else 1]:
            rate, waits = run(work, workers, options.epochs)
            shares[name].append(rate / ideal)
            middle[name].append(float(np.quantile(waits, 0.5)))
            late[name].append(float(np.quantile(waits, 0.99)))
            note(
                f"round {number + 1}/{options.rounds}  {kind} {name:8} {rate / ideal:6.2f} of the ideal, waits "
                f"{1e3 * middle[name][-1]:.1f} ms (median) {1e3 * late[name][-1]:.1f} ms (p99)"
            )
    return {
        "workers": workers,
        "of_ideal": {name: median(found) for name, found in shares.items()},
        "median_wait_ms": {name: 1e3 * median(found) for name, found in middle.items()},
        "p99_wait_ms": {name: 1e3 * median(found) for name, found in late.items()},
        "p99_over_median": {name: median(a / b for a, b in zip(late[name], middle[name])) for name in peers},
    }


def main() -> None:
    parser = BenchmarkParser(__doc__, rounds=3)
    parser.add_argument("--kinds", default="sleeping,computing", help="which (sleeping,computing)")
    parser.add_argument("--peers", default="torch", help="which beside stoker (torch, none)")
    parser.amount("--samples", 8192, 512, "of an epoch")
    options = parser.parse_args()
    options.epochs = 1 if options.quick else 2
    peers: dict[str, Callable[..., Any]] = {"stoker": with_stoker}
    if options.peers == "torch" and available("torch", ("torch",)):
        peers["torch"] = with_torch
    found = {kind: measure(kind, options, peers) for kind in options.kinds.split(",")}
    targets = {}
    for kind, figures in found.items():
        rate, wait = figures["of_ideal"]["stoker"], figures["p99_over_median"]["stoker"]
        targets[f"rate over the ideal, {kind}"] = (rate, ASKED_RATE, rate >= ASKED_RATE)
        targets[f"p99 over median of the waits, {kind}"] = (wait, ASKED_WAIT, wait <= ASKED_WAIT)
    report("tail", options, samples=options.samples, kinds=found, targets=targets)


if __name__ == "__main__":
    main()
