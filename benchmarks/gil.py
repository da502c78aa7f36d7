"""What does the loader's Python cost, and how much of it does the training loop feel?

Workers decode without the GIL and take it between two tasks; the training loop, which is Python that launches kernels, wants it
all the time. Two questions, both about files -> RandomResizedCrop -> flip -> batches with labels:

- How many microseconds of Python are there in a task, in its worker and on the consumer's side, and how often does it release
  the GIL? Measured without threads, with the native work replaced by nothing, for small and for large tasks.
- How much slower is a loop like a training step (a little Python, a few microseconds of native work without the GIL, and so on)
  while the workers produce? The native work of the workers is real or (`--work sleep`) an equally long sleep, so that many
  workers can be tried on few cores: the loop is then slowed by the GIL alone.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import data
import stoker
from measure import SEED, BenchmarkParser, note, report
from ours import OPS
from stoker.engine import feed
from stoker.kernel.library import library

BATCH = 256
#: rows of a task, for the first question
TASK_ROWS = (8, 32)
#: native functions of a task that release the GIL, and which word of their first argument, a struct, is the number of images
WORK = {"read_files": None, "render": 1}
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


def task_cost(folder: Path, rows: int, rounds: int) -> dict[str, float]:
    """Time on a core, the least of many short rounds: what else runs on the machine only adds."""
    calls, tasks = Calls(), 4 * -(-BATCH // rows)
    totals, inside = [], []
    with replaced(calls), cut_into(rows), pipeline(folder).loader(executor="inline") as loader:
        rest = iter(loader)
        for _ in range(3):
            next(rest)
        calls.count = 0
        for _ in range(rounds):
            before, start = loader.stats().cpu_s, time.thread_time()
            for _ in range(4):
                next(rest)
            totals.append((time.thread_time() - start) / tasks * 1e6)
            inside.append((loader.stats().cpu_s - before) / tasks * 1e6)
    return {
        "us_per_task": min(totals),
        "in_worker_us": min(inside),
        "us_per_image": min(totals) / rows,
        "native_calls_per_task": calls.count / (rounds * tasks),
    }


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
            sleep(int(us * ctypes.c_int64.from_address(arguments[0] + 8 * place).value))
            return 0

        return work


class Training:
    """A loop like that of a training step: Python, and native calls of a few microseconds without the GIL."""

    def __init__(self, step_s: float) -> None:
        self._bytes = np.zeros(LAUNCH_BYTES, np.uint8)
        self._address = self._bytes.ctypes.data
        self.launches = 200
        cost = min(self._cpu_s() for _ in range(50))
        self.launches = max(1, int(self.launches * step_s / cost))

    def step(self) -> int:
        launch, place, seen = library().crc32c, self._address, {}
        for number in range(self.launches):
            for name in ("weight", "bias", "grad", "state"):
                seen[name] = (number, name, number * 3 % 7)
            launch(place, LAUNCH_BYTES, 0)
        return len(seen)

    def _cpu_s(self) -> float:
        start = time.thread_time()
        self.step()
        return time.thread_time() - start


@dataclass(slots=True)
class Spent:
    """Where a thread's time went: on a core; ready, but without a core; waiting for somebody (here: for the GIL, or a batch)."""

    cpu_s: float = 0.0
    ready_s: float = 0.0
    waited_s: float = 0.0

    @contextmanager
    def more(self) -> Iterator[None]:
        start, (cpu, ready) = time.perf_counter(), _scheduled()
        yield
        wall, (cpu_then, ready_then) = time.perf_counter() - start, _scheduled()
        self.cpu_s += cpu_then - cpu
        self.ready_s += ready_then - ready
        self.waited_s += max(0.0, wall - (cpu_then - cpu) - (ready_then - ready))


def _scheduled() -> tuple[float, float]:
    """Seconds this thread was on a core, and seconds it waited for one."""
    _, ready, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
    return time.thread_time(), int(ready) * 1e-9


def beside(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The loop alone and beside the workers, in turn. Alone, the workers have all that is ahead made, and wait."""
    training = Training(BATCH / options.rate)
    alone, loop, take = Spent(), Spent(), Spent()
    steps = 0.0
    with pipeline(folder).loader(threads=options.threads) as loader:
        rest = iter(loader)
        for _ in range(10):
            next(rest)
        for number in range(options.rounds):
            time.sleep(8 * BATCH / options.rate)
            for _ in range(options.steps):
                with alone.more():
                    training.step()
            for _ in range(8):
                next(rest)
            start = time.perf_counter()
            for _ in range(options.steps):
                with take.more():
                    batch = next(rest)
                with loop.more():
                    training.step()
                del batch
            steps += time.perf_counter() - start
            note(f"round {number + 1}: {loop.waited_s / (loop.cpu_s + loop.waited_s):.1%} of the loop waits for the GIL")
        stats = loader.stats()
    count = options.rounds * options.steps
    return {
        "images_per_s": BATCH * count / steps,
        "launches": training.launches,
        "step_cpu_ms": loop.cpu_s / count * 1e3,
        "step_waits_ms": loop.waited_s / count * 1e3,
        "next_cpu_ms": take.cpu_s / count * 1e3,
        "next_waits_ms": take.waited_s / count * 1e3,
        "slowed_by_gil": loop.waited_s / loop.cpu_s - alone.waited_s / alone.cpu_s,
        "slowed": (loop.waited_s + take.cpu_s + take.waited_s) / loop.cpu_s - alone.waited_s / alone.cpu_s,
        "without_a_core": loop.ready_s / loop.cpu_s,
        "task_ms_per_image": stats.task_s / stats.worked * 1e3,
    }


def parse() -> argparse.Namespace:
    parser = BenchmarkParser(__doc__, 15)
    data.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=16, help="workers (16)")
    parser.add_argument("--rate", type=float, default=20_000, help="images a second that the loop asks for (20,000)")
    parser.add_argument("--work", choices=("sleep", "real"), default="sleep", help="what workers do without the GIL (sleep)")
    parser.add_argument("--image-us", type=float, default=500, help="how long they sleep for an image (500)")
    parser.amount("--steps", 40, 10, "steps of the loop in a round")
    parser.add_argument("--switch-us", type=float, help="sys.setswitchinterval (the interpreter's own: 5,000)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    folder = data.images_of(options)
    if options.switch_us:
        sys.setswitchinterval(options.switch_us / 1e6)
    tasks = {f"{rows} images": task_cost(folder, rows, 3 if options.quick else 60) for rows in TASK_ROWS}
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
