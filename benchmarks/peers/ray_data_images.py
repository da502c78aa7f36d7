"""Ray Data on this machine: blocks of decoded pictures through its object store; simplejpeg and OpenCV."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from data import paths_of
from measure import SEED, Take, pull
from peers.crops import SIDE
from peers.torch_images import with_opencv

#: pictures in a task, and tasks in an epoch
BLOCK, BLOCKS = 128, 1000
#: batches that its blocks may take in the object store
HELD = 8


@contextmanager
def ray_data_images(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """A task decodes a block, drawn from all files; the cluster has a core for each worker."""
    import ray
    import ray.data
    from ray.data import ExecutionResources

    paths = paths_of(folder)

    def decode(rows: dict[str, Any]) -> dict[str, Any]:
        drawn = np.random.default_rng((SEED, int(rows["id"][0]))).choice(len(paths), len(rows["id"]))
        return {"image": np.stack([with_opencv(paths[at]) for at in drawn])}

    ray.init(num_cpus=workers, include_dashboard=False, logging_level="error")
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.resource_limits = ExecutionResources(object_store_memory=HELD * batch * SIDE * SIDE * 3)
        data = ray.data.range(BLOCK * BLOCKS, override_num_blocks=BLOCKS).map_batches(decode, batch_size=BLOCK)
        with closing(_epochs(data, batch)) as batches:  # ends what runs ahead: Ray's end would take it by surprise
            yield pull(batches, batch)
    finally:
        ray.shutdown()


def _epochs(data: Any, batch: int) -> Generator[Any, None, None]:
    while True:
        yield from data.iter_batches(batch_size=batch, prefetch_batches=2, drop_last=True)
