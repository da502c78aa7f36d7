"""NVIDIA DALI on the CPU: its random-crop decoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import paths_of
from measure import SEED, Take
from peers.crops import SIDE


@contextmanager
def dali_images(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """Read, decode the crop, resize, flip; batches stay in DALI's memory."""
    pipeline = _pipeline(paths_of(folder), batch, threads)
    pipeline.build()

    def take(count: int) -> int:
        for _ in range(count):
            pipeline.run()
        return count * batch

    yield take


def _pipeline(paths: list[str], batch: int, threads: int) -> Any:
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def
    def define() -> Any:
        encoded, _ = fn.readers.file(files=paths, random_shuffle=True, seed=SEED)
        images = fn.decoders.image_random_crop(
            encoded, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], seed=SEED
        )
        images = fn.resize(images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR)
        return fn.flip(images, horizontal=fn.random.coin_flip(seed=SEED))

    return define(batch_size=batch, num_threads=threads, device_id=None, prefetch_queue_depth=2)
