"""MosaicML Streaming: JPEG bytes in its own shards (MDS) on the local disk, in a torch DataLoader; simplejpeg and OpenCV."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import paths_of
from measure import SEED, Take, endless, pull
from peers.torch_images import PASSES, pixels_with_opencv


@contextmanager
def streaming_images(folder: Path, batch: int, workers: int) -> Iterator[Take]:
    """One epoch is many passes over the shards, so that the pause between epochs does not count."""
    import torch
    from streaming import MDSWriter, Stream, StreamingDataset

    class Images(StreamingDataset):
        def __getitem__(self, at: int) -> Any:
            return torch.from_numpy(pixels_with_opencv(super().__getitem__(at)["jpg"]))

    with tempfile.TemporaryDirectory() as shards:
        with MDSWriter(out=shards, columns={"jpg": "bytes"}) as writer:
            for path in paths_of(folder):
                writer.write({"jpg": Path(path).read_bytes()})
        streams = [Stream(local=shards, repeat=PASSES)]
        data = Images(streams=streams, shuffle=True, shuffle_seed=SEED, batch_size=batch, num_canonical_nodes=1)
        options = {"num_workers": workers, "persistent_workers": True, "multiprocessing_context": "fork"}
        loader = torch.utils.data.DataLoader(data, batch, drop_last=True, **options)
        yield pull(endless(loader), batch)
