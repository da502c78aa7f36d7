"""tensorpack: worker processes that send pictures by ZeroMQ, which are joined here; simplejpeg and OpenCV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data import paths_of
from measure import Take, pull
from peers.torch_images import with_opencv


@contextmanager
def tensorpack_images(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """Its tutorial's way for pictures that are decoded and augmented in Python."""
    from tensorpack.dataflow import BatchData, DataFromList, MapData, MultiProcessRunnerZMQ, RepeatedData

    paths = RepeatedData(DataFromList([[path] for path in paths_of(folder)], shuffle=True), -1)
    pictures = MultiProcessRunnerZMQ(MapData(paths, _decode), workers)
    data = BatchData(pictures, batch)
    data.reset_state()
    yield pull(iter(data), batch)


def _decode(point: list[str]) -> list[NDArray[np.uint8]]:
    return [with_opencv(point[0])]
