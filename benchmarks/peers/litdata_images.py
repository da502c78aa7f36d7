"""LitData: JPEG bytes in its own chunks on the local disk, read by its own DataLoader; simplejpeg and OpenCV."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import paths_of
from measure import SEED, Take, endless, pull
from peers.torch_images import pixels_with_opencv

#: copies of every picture in the chunks: a data set cannot be repeated within an epoch, and each epoch begins with a pause
COPIES = 10


@contextmanager
def litdata_images(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """Chunks of 64 MB, as its documentation has them, shuffled."""
    import torch
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    class Images(StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            return torch.from_numpy(pixels_with_opencv(super().__getitem__(at)))

    with tempfile.TemporaryDirectory() as chunks:
        optimize(_read, paths_of(folder) * COPIES, chunks, chunk_bytes="64MB", num_workers=workers)
        data = Images(chunks, shuffle=True, seed=SEED, drop_last=True)
        options = {"num_workers": workers, "persistent_workers": True, "multiprocessing_context": "fork"}
        loader = StreamingDataLoader(data, batch_size=batch, drop_last=True, **options)
        yield pull(endless(loader), batch)


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
