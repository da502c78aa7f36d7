"""Grain: random access by index in worker processes of its own, simplejpeg and OpenCV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data import paths_of
from measure import SEED, Take, pull
from peers.torch_images import with_opencv


@contextmanager
def grain_images(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """Batches are made in the workers: Grain recommends processes for Python. By default 500 batches are read ahead."""
    import grain

    data = grain.MapDataset.source(paths_of(folder)).shuffle(seed=SEED).repeat().map(with_opencv)
    batches = data.batch(batch, drop_remainder=True).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    yield pull(iter(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))), batch)
