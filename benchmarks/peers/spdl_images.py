"""SPDL: FFmpeg decodes whole batches in the threads of its pipeline, and crops, scales and flips in its filter graph."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import paths_of
from measure import SEED, Take, pull
from peers.crops import SIDE, random_crop

#: batches that wait for the consumer
READY = 2


@contextmanager
def spdl_images(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """A thread takes the paths of a batch at a time, so that little happens image by image in Python."""
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(_batches(paths_of(folder), batch))
    pipeline = builder.pipe(_decode, concurrency=threads).add_sink(READY).build(num_threads=threads)
    with pipeline.auto_stop():
        yield pull(iter(pipeline), batch)


def _batches(paths: list[str], batch: int) -> Iterator[list[str]]:
    rng = random.Random(SEED)
    waiting: list[str] = []
    while True:
        while len(waiting) < batch:
            waiting += rng.sample(paths, len(paths))
        yield waiting[:batch]
        waiting = waiting[batch:]


def _decode(paths: list[str]) -> Any:
    import spdl.io

    return spdl.io.to_numpy(spdl.io.convert_frames([_frame(path) for path in paths]))


def _frame(path: str) -> Any:
    """Decode all, crop, scale (bilinear, which antialiases), flip, and only then make RGB."""
    import spdl.io

    packets = spdl.io.demux_image(path)
    left, top, right, bottom = random_crop(packets.codec.width, packets.codec.height)
    steps = [f"crop={right - left}:{bottom - top}:{left}:{top}", f"scale={SIDE}:{SIDE}:flags=bilinear"]
    steps += ["hflip"] if random.random() < 0.5 else []
    return spdl.io.decode_packets(packets, filter_desc=",".join([*steps, "format=pix_fmts=rgb24"]))
