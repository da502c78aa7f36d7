"""What does the loader's Python cost, and how much of it does the training loop feel?

Workers decode without the GIL and take it between two tasks; the training loop, which is Python that launches kernels, wants it
all the time. Two questions, both about files -> RandomResizedCrop -> flip -> batches with labels:

- How many microseconds of Python are there in a task, in its worker and on the consumer's side, and how often does it let go of
  the GIL? Measured without threads, with the native work replaced by nothing, for small and for large tasks.
- How much slower is a loop like a training step (a little Python, a few microseconds of native work without the GIL, and so on)
  while the workers produce? The native work of the workers is real, or (`--work sleep`) as long a sleep, so that many workers
  can be tried on few cores: what then slows the loop down is the GIL alone.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import data
import stoker
from measure import SEED, make_parser, median, note, report
from ours import OPS
from stoker.engine import feed
from stoker.kernel.library import library

BATCH = 256
#: rows of a task, for the first question
TASK_ROWS = (8, 32)
#: native functions of a task that release the GIL, and which of their arguments is the number of images
WORK = {"read_files": None, "image_rows": 9, "image_files": 6}
#: bytes whose checksum is as long as launching a kernel
LAUNCH_BYTES = 1 << 15


def pipeline(folder: Path) -> stoker.Pipeline:
    """Shuffled files with a label each, without end."""
    return stoker.files(folder, labels=lambda path: len(path)).shuffle(seed=SEED).repeat().image("image", *OPS).batch(BATCH)


@contextmanager
def replaced(work: Callable[[str, int | None], Any]) -> Iterator[None]:
    """Put ``work(name, place of the count)`` in the place of the native functions of a task."""
    loaded = library()
    before = {name: getattr(loaded, name) for name in WORK if hasattr(loaded, name)}
    try:
        for name in before:
            setattr(loaded, name, work(name, WORK[name]))
        yield
    finally:
        for name, function in before.items():
            setattr(loaded, name, function)


# ---- the cost of a task --------------------------------------------------------------------------------------------------


class Calls:
    """A native function that does nothing but let go of the GIL, and counts how often it is called."""

    def __init__(self) -> None:
        self.count = 0
        self._nothing = ctypes.CDLL(None).getppid

    def __call__(self, name: str, at: int | None) -> Any:
        return self._call

    def _call(self, *_: Any) -> int:
        self.count += 1
        self._nothing()
        return 0


def task_cost(folder: Path, rows: int, batches: int, rounds: int) -> dict[str, float]:
    """The least of several rounds: what else runs on the machine only adds."""
    calls, tasks = Calls(), batches * -(-BATCH // rows)
    best: dict[str, float] = {}
    with replaced(calls), cut_into(rows), pipeline(folder).loader(executor="inline") as loader:
        rest = iter(loader)
        for _ in range(3):
            next(rest)
        for _ in range(rounds):
            before, calls.count = loader.stats().task_s, 0
            start = time.perf_counter()
            for _ in range(batches):
                next(rest)
            total = (time.perf_counter() - start) / tasks * 1e6
            inside = (loader.stats().task_s - before) / tasks * 1e6
            if not best or total < best["us_per_task"]:
                best = {
                    "us_per_task": total,
                    "in_worker_us": inside,
                    "in_consumer_us": total - inside,
                    "us_per_image": total / rows,
                    "releases_per_task": calls.count / tasks,
                }
    return best


@contextmanager
def cut_into(rows: int) -> Iterator[None]:
    """Let every task have so many rows."""
    before = feed.Pace.task_rows
    feed.Pace.task_rows = lambda self, unit_rows: min(rows, unit_rows)  # type: ignore[method-assign]
    try:
        yield
    finally:
        feed.Pace.task_rows = before  # type: ignore[method-assign]


# ---- the training loop beside it -------------------------------------------------------------------------------------------


class Sleep:
    """In place of decoding: a sleep of so many seconds an image, without the GIL."""

    def __init__(self, image_s: float) -> None:
        self._us = image_s * 1e6
        self._sleep = ctypes.CDLL(None).usleep

    def __call__(self, name: str, at: int | None) -> Any:
        if at is None:
            return lambda *arguments: 0
        place, us, sleep = at, self._us, self._sleep

        def work(*arguments: Any) -> int:
            sleep(int(us * arguments[place]))
            return 0

        return work


class Training:
    """A loop like that of a training step: Python, and native calls of a few microseconds without the GIL."""

    def __init__(self, step_s: float) -> None:
        self._bytes = np.zeros(LAUNCH_BYTES, np.uint8)
        self._address = self._bytes.ctypes.data
        self.launches = 100
        for _ in range(5):
            self.launches = max(1, int(self.launches * step_s / min(self._timed() for _ in range(5))))

    def step(self) -> int:
        launch, place, seen = library().crc32c, self._address, {}
        for number in range(self.launches):
            for name in ("weight", "bias", "grad", "state"):
                seen[name] = (number, name, number * 3 % 7)
            launch(place, LAUNCH_BYTES, 0)
        return len(seen)

    def _timed(self) -> float:
        start = time.perf_counter()
        self.step()
        return time.perf_counter() - start


def beside(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The loop alone and beside the workers, in turn."""
    alone, together, waits, rates = [], [], [], []
    training = Training(BATCH / options.rate)
    with pipeline(folder).loader(threads=options.threads) as loader:
        rest = iter(loader)
        for _ in range(6):
            next(rest)
        for number in range(options.rounds):
            time.sleep(8 * BATCH / options.rate)  # what is ahead is made, and the workers have nothing to do
            alone.append(median(training._timed() for _ in range(options.steps)))
            for _ in range(8):
                next(rest)  # what was made ahead is used up
            start = time.perf_counter()
            loops, waited = [], 0.0
            for _ in range(options.steps):
                asked = time.perf_counter()
                batch = next(rest)
                waited += time.perf_counter() - asked
                loops.append(training._timed())
                del batch
            spent = time.perf_counter() - start
            together.append(sum(loops) / len(loops))
            waits.append(waited / options.steps)
            rates.append(BATCH * options.steps / spent)
            note(
                f"round {number + 1}: {alone[-1] * 1e3:.2f} ms alone, {together[-1] * 1e3:.2f} beside, {rates[-1]:,.0f} images/s"
            )
        stats = loader.stats()
        spans = loader._meters.spans
    return {
        "images_per_s": median(rates),
        "of_asked": median(rates) / options.rate,
        "loop_alone_ms": median(alone) * 1e3,
        "loop_beside_ms": median(together) * 1e3,
        "loop_slowed": median(b / a for a, b in zip(alone, together)) - 1,
        "next_ms": median(waits) * 1e3,
        "task_rows": stats.worked / max(1, len(spans)) if len(spans) < loader._meters.MOST_SPANS else None,
        "task_ms": stats.task_s / stats.worked * BATCH,
        "launches": training.launches,
    }


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    data.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=16, help="workers (16)")
    parser.add_argument("--rate", type=float, default=20_000, help="images a second that the loop asks for (20,000)")
    parser.add_argument("--work", choices=("sleep", "real"), default="sleep", help="what workers do without the GIL (sleep)")
    parser.add_argument("--image-us", type=float, default=500, help="how long they sleep for an image (500)")
    parser.add_argument("--steps", type=int, help="steps of the loop in a round (150)")
    parser.add_argument("--switch-us", type=float, help="sys.setswitchinterval (the interpreter's own: 5,000)")
    options = parser.parse_args()
    options.steps = options.steps or (10 if options.quick else 150)
    options.rounds = min(options.rounds, 2) if options.quick else options.rounds
    return options


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    data.warm(data.paths_of(folder))
    if options.switch_us:
        sys.setswitchinterval(options.switch_us / 1e6)
    batches = 3 if options.quick else 40
    tasks = {f"{rows} images": task_cost(folder, rows, batches, options.rounds) for rows in TASK_ROWS}
    if options.work == "sleep":
        with replaced(Sleep(options.image_us / 1e6)):
            training = beside(folder, options)
    else:
        training = beside(folder, options)
    report(
        "gil",
        options,
        tasks=tasks,
        work=options.work,
        threads=options.threads,
        asked_images_per_s=options.rate,
        switch_interval_s=sys.getswitchinterval(),
        training=training,
    )


if __name__ == "__main__":
    main()
