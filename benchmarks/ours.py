"""Stoker's image loader as the benchmarks run it, and its kernel alone: the same pictures, the same crops, no engine."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stoker
from data import paths_of
from measure import SEED, Take, note, pull
from stoker.image import HorizontalFlip, RandomResizedCrop
from stoker.image.lower import lower
from stoker.kernel import native
from stoker.kernel.render import SpanInput, render
from stoker.plan.nodes import Image
from stoker.plan.random_streams import streams_of

SIDE = 224
OPS = (RandomResizedCrop(SIDE), HorizontalFlip())
#: numbers of classes, where there are labels
CLASSES = 1000
#: images in one call of the kernel
CHUNK = 8
#: what the loader fills ahead
AHEAD_BYTES = 64 << 20


def lead(batch: int, threads: int = 1) -> int:
    """Batches that the loader may hold ready, and one."""
    return 3 + max(threads // 6, AHEAD_BYTES // (batch * SIDE * SIDE * 3))


def image_pipeline(folder: Path, batch: int) -> stoker.Pipeline:
    """Files -> RandomResizedCrop(224) -> flip -> uint8 batches, without end."""
    files = stoker.files(folder, labels=None)
    return files.shuffle(seed=SEED).repeat().image("image", *OPS).batch(batch)


def tar_pipeline(shards: str, batch: int) -> stoker.Pipeline:
    """The same from tar shards."""
    return stoker.tar(shards).shuffle(seed=SEED).repeat().image("jpg", *OPS).batch(batch)


def pack(folder: Path, to: Path, *, seek: bool = False, labels: bool = False) -> str:
    """Write the pictures of a folder to a few tar shards, in the order of their names; returns what they are called.

    With `seek` the shards' indices hold a seek index of every JPEG. With `labels` a picture's number is its class.
    """
    paths = paths_of(folder)
    to.mkdir(exist_ok=True)
    samples = (
        {"__key__": f"{number:06}", "jpg": Path(path).read_bytes(), **({"cls": number % CLASSES} if labels else {})}
        for number, path in enumerate(paths)
    )
    more = {"seek": seek} if can_pack_seeks() else {}
    stoker.write_tar(to / "{}.tar", samples, max_samples=-(-len(paths) // 4), **more)
    return str(to / "*.tar")


def pack_indexed(folder: Path, to: Path, *, labels: bool = False) -> str | None:
    """Shards with seek indices; None, with a note, where this Stoker writes none."""
    if can_pack_seeks():
        return pack(folder, to, seek=True, labels=labels)
    note("stoker-tar-indexed: left out, this Stoker writes no seek indices")
    return None


def can_pack_seeks() -> bool:
    """Whether this Stoker writes seek indices."""
    return "seek" in inspect.signature(stoker.write_tar).parameters


@contextmanager
def stoker_tar(shards: str, batch: int, threads: int) -> Iterator[Take]:
    """The loader, reading tar shards."""
    with tar_pipeline(shards, batch).loader(threads=threads) as loader:
        yield pull(iter(loader), batch)


@contextmanager
def stoker_images(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """The loader."""
    with image_pipeline(folder, batch).loader(threads=threads) as loader:
        yield pull(iter(loader), batch)


@contextmanager
def kernel_alone(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """The kernel, called from plain threads: what an engine without any cost would reach."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        hands = [stack.enter_context(Hand(folder, batch)) for _ in range(threads)]
        yield Kernel(image_pipeline(folder, batch), batch, pool, hands).take


class Kernel:
    """The same positions in the same order as the loader, into memory that is used again and again."""

    def __init__(self, pipeline: stoker.Pipeline, batch: int, pool: ThreadPoolExecutor, hands: list[Hand]) -> None:
        assert pipeline.plan.order is not None
        self._order, self._batch, self._pool, self._hands = pipeline.plan.order, batch, pool, hands
        self.out = np.empty((2 * batch, SIDE, SIDE, 3), np.uint8)  # the loader has two batches in the making, too
        self._next = 0

    def take(self, count: int) -> int:
        """Make so many batches."""
        positions = np.arange(self._next, self._next + count * self._batch, dtype=np.int64)
        self._next += len(positions)
        indices = self._order.resolve(positions, 0)
        starts = iter(range(0, len(positions), CHUNK))  # shared by the threads: next() is atomic
        for done in [self._pool.submit(hand.run, starts, positions, indices, self.out) for hand in self._hands]:
            done.result()
        return len(positions)


class Hand:
    """One thread's share of the kernel: its memory for files, and its decoder."""

    def __init__(self, folder: Path, batch: int) -> None:
        if batch % CHUNK:
            raise ValueError(f"batches of {batch} are not made of chunks of {CHUNK}")
        self._paths = native.Paths([os.fsencode(path) for path in paths_of(folder)])
        [streams] = streams_of([Image("image", OPS)])  # those of `image_pipeline`
        self._program = lower(OPS, seed=SEED, streams=streams)
        self._arena, self._decoder = native.Arena(), native.Decoder()

    def run(self, starts: Iterator[int], positions: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]) -> None:
        """Make chunks until none is left; row i goes to ``out[i % len(out)]``."""
        for start in starts:
            at = start % len(out)
            chunk = slice(start, start + CHUNK)
            self.rows(positions[chunk], indices[chunk], out[at : at + CHUNK])

    def rows(self, positions: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]) -> None:
        """One chunk: read, decode, crop, resize, flip."""
        data, offsets, errors = native.read_files(self._paths, indices, self._arena)
        lengths = np.diff(offsets)
        images = SpanInput().tell(native.Spans(data, offsets[:-1], lengths))
        rows = render(self._decoder, self._program, images, 0, positions, out)
        if errors.any() or rows["status"].any():
            raise RuntimeError("the kernel alone cannot read all of these files; give a folder of plain JPEG files")

    def __enter__(self) -> Hand:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoder.close()
