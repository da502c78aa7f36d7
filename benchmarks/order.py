"""What does the order of a billion samples cost, in memory and in time?

Positions are requested as the loader does it, some at a time; one thread.
"""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc
from pathlib import Path

import numpy as np

from measure import SEED, BenchmarkParser, median, note, report
from stoker.plan.nodes import Shuffle
from stoker.plan.order import Order

LENGTH = 10**9
CHUNKS = (4096, 256)
KINDS = {"full": None, "window-10000": 10_000}


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__)
    parser.amount("--positions", 4_000_000, 100_000, "positions in a round")
    return parser.parse_args()


def resolve(order: Order, chunk: int, count: int, first: int) -> None:
    """`count` positions in a row, `chunk` at a time."""
    for start in range(first, first + count, chunk):
        order.resolve(np.arange(start, start + chunk, dtype=np.int64), 0)


def rate(order: Order, chunk: int, count: int, first: int) -> float:
    """Positions/s."""
    start = time.perf_counter()
    resolve(order, chunk, count, first)
    return count / (time.perf_counter() - start)


def memory(window: int | None, count: int) -> dict[str, int]:
    """What an order takes from its making on: the peak by Python's count, and the growth of the process."""
    resolve(Order((Shuffle(SEED, window),), 100_000), CHUNKS[0], 50_000, 0)  # modules are loaded before, not counted
    before = resident()
    tracemalloc.start()
    resolve(Order((Shuffle(SEED, window),), LENGTH), CHUNKS[0], count, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"peak_bytes": peak, "resident_growth_bytes": max(0, resident() - before)}


def resident() -> int:
    """The process's resident memory, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    options = parse()
    taken = {kind: memory(window, options.positions) for kind, window in KINDS.items()}
    orders = {kind: Order((Shuffle(SEED, window),), LENGTH) for kind, window in KINDS.items()}
    rates: dict[str, list[float]] = {f"{kind}, {chunk} at a time": [] for kind in KINDS for chunk in CHUNKS}
    for number in range(options.rounds):
        for kind, order in orders.items():
            for chunk in CHUNKS:
                first = number * options.positions + LENGTH // 2
                rates[f"{kind}, {chunk} at a time"].append(rate(order, chunk, options.positions, first))
        note(f"round {number + 1}/{options.rounds}")
    report(
        "order",
        options,
        samples=LENGTH,
        positions_per_s={name: median(values) for name, values in rates.items()},
        memory=taken,
    )


if __name__ == "__main__":
    main()
