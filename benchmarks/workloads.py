"""Work of several kinds, for benchmarks of executors: functions that compute or sleep, and pipelines whose limit is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import data
import stoker
from measure import SEED, Take, note, pull
from ours import OPS, SIDE, image_pipeline, lead, tar_pipeline

#: what the loops of a millisecond's work count to on a machine of 2.8 GHz; absolute figures do not matter, only ratios do
MS_LOOPS = 14_000
SLEEP_S = 0.005


def compute(milliseconds: float) -> int:
    """Hold the interpreter lock for about so long."""
    total = 0
    for number in range(int(milliseconds * MS_LOOPS)):
        total += number & 3
    return total


def augment(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """5 ms of pure Python, and an image that depends on it."""
    return image ^ np.uint8(compute(5.0) & 1)


def compute_a_little(x: Any) -> Any:
    """2 ms of pure Python."""
    return x + (compute(2.0) & 1)


def retouch(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """About as long in Python as it takes to decode the image."""
    return image ^ np.uint8(compute(0.5) & 1)


def wait(x: Any) -> Any:
    """What a function does that asks a server."""
    time.sleep(SLEEP_S)
    return x


def same(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A new image that costs nothing but its memory."""
    return image.copy()


def numbers(count: int = 1 << 20) -> stoker.Pipeline:
    """Small samples in memory, without end."""
    return stoker.arrays(x=np.arange(count)).shuffle(seed=SEED).repeat()


def pixels(count: int) -> NDArray[np.uint8]:
    """Images in memory."""
    return np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)


def decode_bound(where: str) -> stoker.Pipeline:
    """Native work on every core."""
    return image_pipeline(Path(where), 64)


def python_bound(where: str) -> stoker.Pipeline:
    """A function that holds the interpreter lock."""
    return numbers().map(x=compute_a_little).batch(16)


def sleeping(where: str) -> stoker.Pipeline:
    """A function that waits for somebody else."""
    return numbers().map(x=wait).batch(64)


def tiny_records(where: str) -> stoker.Pipeline:
    """A kilobyte to copy, and nothing else to do."""
    x, y = data.records(20_000)
    return stoker.arrays(x=x, y=y).shuffle(seed=SEED).repeat().batch(256)


def mixed(where: str) -> stoker.Pipeline:
    """Decoding, and a function on every image."""
    files = stoker.files(where, labels=None).shuffle(seed=SEED).repeat()
    return files.image("image", *OPS).map(image=retouch).batch(64)


def over_http(where: str) -> stoker.Pipeline:
    """Shards on a server."""
    return tar_pipeline(where, 64)


#: batches that a loader of each makes ahead
AHEAD = {
    "decode-bound": lead(64),
    "http": lead(64),
    "python-bound": 64,
    "tiny-records": 300,
    "little-memory": lead(64),
    "sleeping": 64,
    "mixed": lead(64),
}
#: what each asks of every loader
GIVEN = {"little-memory": {"memory": "40MB"}}
PIPELINES: dict[str, Callable[[str], stoker.Pipeline]] = {
    "decode-bound": decode_bound,
    "http": over_http,
    "python-bound": python_bound,
    "tiny-records": tiny_records,
    "little-memory": decode_bound,
    "sleeping": sleeping,
    "mixed": mixed,
}


@contextmanager
def fed(name: str, where: str, options: dict[str, Any], first: int = 0) -> Iterator[Take]:
    """One of these pipelines, of a folder or of shards, with some options of the loader.

    The first batches are taken before anything is measured.
    """
    with running(PIPELINES[name](where), options, first) as take:
        yield take


@contextmanager
def running(pipeline: stoker.Pipeline, options: dict[str, Any], first: int = 0) -> Iterator[Take]:
    """A loader of a pipeline without end; what ran the work is noted where it was not asked for."""
    assert pipeline.plan.batch is not None
    with pipeline.loader(**options) as loader:
        take = pull(iter(loader), pipeline.plan.batch.size)
        take(first)
        try:
            yield take
        finally:
            stats = loader.stats()
            if not {"executor", "threads", "processes"} & options.keys():
                note(f"{'':11}auto chose: {stats.executor}")
            over = [moment for moment in stats.history if moment.in_flight > 1 and moment.nbytes > moment.budget]
            if over:
                raise RuntimeError(f"{over[0].nbytes:,} bytes were in flight, and {over[0].budget:,} are allowed")
