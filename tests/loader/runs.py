"""Pipelines of every kind, and what the tests of the core ask of a run: a batch as one hash, its ids, a script's output."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import Pipeline
from stoker.batch.batch import Batch, Sample
from stoker.batch.strings import ByteStrings
from stoker.image import CenterCrop, CutMix, HorizontalFlip, MixUp, RandomResizedCrop, Resize
from stoker.loader import Loader

ROOT = Path(__file__).resolve().parents[2]
N = 60


# ---- functions users might write -----------------------------------------------------------------------------------------


def jitter(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"x": sample["x"], "y": sample["y"] + rng.normal(size=sample["y"].shape)}


def add_noise(value: Any, rng: np.random.Generator) -> Any:
    return value + rng.integers(1000)


def tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"], "t": np.arange(int(sample["x"]) % 5 + 1, dtype=np.int32)}


def odd(sample: dict[str, Any]) -> bool:
    return bool(sample["x"] % 2)


def two_of_three(sample: dict[str, Any]) -> bool:
    return bool(sample["x"] % 3)


def expand(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in range(int(sample["x"]) % 4):
        yield {"x": sample["x"], "part": part}


def spread(columns: dict[str, Any]) -> dict[str, Any]:
    return {**columns, "y": columns["y"] - columns["y"].mean(axis=0)}


def backwards_without_first(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: column[:0:-1] for name, column in columns.items()}


def bad_every_seventh(value: Any) -> Any:
    if value % 7 == 3:
        raise ValueError(f"{value} is bad")
    return value


def noise_of(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "noise": rng.random()}


def samples() -> Iterator[dict[str, Any]]:
    for number in range(N):
        yield {"__key__": f"s{number}", "x": number, "y": np.full(3, number, np.float32)}


# ---- pipelines -------------------------------------------------------------------------------------------------------------


def numbers(n: int = N) -> Pipeline:
    return stoker.arrays(x=np.arange(n), y=np.random.default_rng(1).normal(size=(n, 5)).astype(np.float32))


def pictures() -> Pipeline:
    pixels = np.random.default_rng(2).integers(0, 256, (N, 6, 8, 3), dtype=np.uint8)
    return stoker.arrays(image=pixels, label=np.arange(N) % 10, x=np.arange(N))


def mixed(pipeline: Pipeline) -> Pipeline:
    return pipeline.blend(MixUp(0.4, classes=10), CutMix(classes=10, p=0.8))


def groups() -> Pipeline:
    return stoker.arrays(x=np.arange(N).reshape(N // 4, 4), y=np.arange(2.0 * N).reshape(N // 4, 4, 2))


def forgiving(pipeline: Pipeline) -> Pipeline:
    return pipeline.on_error("skip", budget=N)


#: batch size -> pipeline; they need nothing but memory, so every process can make them again
PIPELINES: dict[str, Callable[[int], Pipeline]] = {
    "as stored": lambda size: numbers().batch(size),
    "shuffled": lambda size: numbers().shuffle(seed=3).batch(size),
    "last batch kept": lambda size: numbers().shuffle(seed=3).batch(size, drop_last=False),
    "window": lambda size: numbers().shuffle(seed=5, window=13).batch(size),
    "take and skip": lambda size: numbers().shuffle(seed=5).skip(4).take(41).batch(size),
    "repeat": lambda size: numbers().shuffle(seed=1).repeat(2).batch(size),
    "repeated batches": lambda size: numbers().shuffle(seed=1).batch(size).skip(1).take(5).repeat(2),
    "map with numbers": lambda size: numbers().shuffle(seed=2).map(jitter, rng=True).batch(size),
    "map of fields": lambda size: numbers().shuffle(seed=2).map(x=[add_noise, add_noise], y=add_noise, rng=True).batch(size),
    "map_batch": lambda size: numbers().shuffle(seed=2).batch(size).map_batch(spread).select("y", "x"),
    "blend": lambda size: mixed(pictures().shuffle(seed=2).batch(size, drop_last=False)),
    "blend behind filter": lambda size: mixed(pictures().shuffle(seed=2).filter(two_of_three).batch(size)),
    "blend, bad samples left out": lambda size: mixed(
        forgiving(pictures().shuffle(seed=2).map(x=bad_every_seventh).batch(size, drop_last=False))
    ),
    "pad": lambda size: numbers().shuffle(seed=2).map(tokens).batch(size, pad={"t": -1}),
    "list": lambda size: numbers().map(tokens).batch(size, pad={"t": list}),
    "bad samples left out": lambda size: forgiving(
        numbers().shuffle(seed=2).map(x=bad_every_seventh).batch(size, drop_last=False)
    ),
    "filter": lambda size: numbers().shuffle(seed=4).filter(odd).batch(size, drop_last=False),
    "filter, then map": lambda size: numbers().filter(two_of_three).map(noise_of, rng=True).batch(size),
    "flat_map": lambda size: numbers().shuffle(seed=4).flat_map(expand).map(noise_of, rng=True).batch(size),
    "unbatch": lambda size: groups().shuffle(seed=4).unbatch().batch(size),
    "inner batch": lambda size: numbers().shuffle(seed=4).batch(6).map_batch(backwards_without_first).unbatch().batch(size),
    "inner batch behind filter": lambda size: numbers().filter(odd).batch(7, drop_last=False).unbatch().batch(size),
    "filter, skip, take": lambda size: numbers().filter(two_of_three).skip(3).take(30).batch(size),
    "filter, window": lambda size: numbers().filter(two_of_three).shuffle(seed=6, window=9).batch(size),
    "two segments": lambda size: (
        numbers().map(noise_of, rng=True).filter(odd).take(25).flat_map(expand).map(noise_of, rng=True).batch(size)
    ),
    "filter, bad samples left out": lambda size: forgiving(numbers().map(x=bad_every_seventh).filter(odd).batch(size)),
    "stream": lambda size: stoker.stream(samples).batch(size, drop_last=False),
    "stream, window, filter": lambda size: (
        stoker.stream(samples).shuffle(seed=8, window=14).filter(two_of_three).map(noise_of, rng=True).batch(size)
    ),
}

#: the same without `batch`
SINGLES: dict[str, Callable[[], Pipeline]] = {
    "single": lambda: numbers().shuffle(seed=3),
    "single, bad left out": lambda: forgiving(numbers().shuffle(seed=3).map(x=bad_every_seventh)),
    "single, filter": lambda: numbers().shuffle(seed=3).filter(odd).map(noise_of, rng=True),
    "single, flat_map, bad left out": lambda: forgiving(numbers().map(x=bad_every_seventh).flat_map(expand)),
    "single, sizes vary": lambda: numbers().map(tokens),
    "single stream": lambda: stoker.stream(samples).map(noise_of, rng=True),
}


def image_pipelines(root: Path) -> dict[str, Pipeline]:
    """The same over a folder of images."""
    images = stoker.files(root).shuffle(seed=9)
    return {
        "random crops": images.image("image", RandomResizedCrop(32), HorizontalFlip()).batch(5),
        "one size": images.image("image", Resize((24, 30)), layout="chw", out="float32").batch(5, drop_last=False),
        "short side, centre": images.image("image", Resize(40), CenterCrop(32), color="gray").batch(4),
        "sizes vary": images.image("image", Resize(20)).batch(4),
        "blended": images.image("image", RandomResizedCrop(16), layout="chw", out="float32")
        .batch(5, drop_last=False)
        .blend(MixUp(classes=20), CutMix(classes=20)),
        "upright": images.image("image", Resize((24, 30)), orient=True).batch(5),
        "full size": images.decode("image").batch(4),
        "crops behind a filter": images.filter(lambda s: s["label"] != 1).image("image", RandomResizedCrop(16)).batch(3),
    }


# ---- what a run gave -------------------------------------------------------------------------------------------------------


def feed_hash(sha: Any, value: Any) -> None:
    """Everything about a value: type, shape and contents."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, (list, ByteStrings)):
        sha.update(f"{type(value).__name__} {len(value)};".encode())
        for part in value:
            feed_hash(sha, part)
    elif isinstance(value, np.ndarray):
        sha.update(f"{value.dtype} {value.shape};".encode())
        sha.update(np.ascontiguousarray(value).tobytes())
    else:
        sha.update(f"{type(value).__name__} {value!r};".encode())


def hash_of(batch: Batch | Sample) -> str:
    """One hash over a batch's fields, keys and mask, or over a sample."""
    sha = hashlib.sha256()
    for name, value in batch.items():
        sha.update(f"{name}:".encode())
        feed_hash(sha, value)
    if isinstance(batch, Batch):
        sha.update(repr(batch.sample_keys).encode())
        feed_hash(sha, batch.valid)
    else:
        sha.update(batch.key.encode())
    return sha.hexdigest()


def epochs_of(loader: Loader, count: int) -> list[list[str]]:
    """The hashes of all batches, epoch by epoch."""
    return [[hash_of(batch) for batch in loader] for _ in range(count)]


def rest_of(loader: Loader, epoch: int = 0) -> list[Any]:
    """What is left of an epoch after a state was loaded: a state with nothing after it is the start of the next epoch."""
    return list(loader) if loader.epoch == epoch else []


def sha_of_run(pipeline: Pipeline, epochs: int = 3, **arguments: Any) -> str:
    """One SHA-256 over all batches of some epochs."""
    with pipeline.loader(**arguments) as loader:
        return hashlib.sha256(repr(epochs_of(loader, epochs)).encode()).hexdigest()


def real_ids(batch: Batch, field: str = "x") -> list[int]:
    """The ids of the rows that do not only pad."""
    return [int(value) for value in np.asarray(batch[field])[batch.valid]]


def workers() -> list[str]:
    """The names of our threads that are alive in this process."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stoker")]


def no_workers(deadline_s: float = 20.0) -> bool:
    """Whether all of them are gone, soon."""
    deadline = time.monotonic() + deadline_s
    while workers() and time.monotonic() < deadline:
        time.sleep(0.005)
    return not workers()


def run_python(script: str, *arguments: str, timeout_s: float = 60.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process that finds Stoker and the tests; it must end in time."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        env=environment(),
        **options,
    )


def environment() -> dict[str, str]:
    """For new processes: this one's, and the paths that lead to Stoker and the tests."""
    import os

    paths = [str(Path(stoker.__file__).parents[1]), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
