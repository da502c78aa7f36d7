"""FFCV: its own file of the same JPEG bytes, or of all pixels as they are, and its random-crop decoder."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from data import paths_of
from measure import SEED, Take, endless, pull
from peers.crops import SIDE

#: passes over the pictures in one epoch of its loader: many, so that what an epoch costs to begin does not count against it
PASSES = 1000


@contextmanager
def ffcv_images(folder: Path, batch: int, threads: int, mode: str) -> Iterator[Take]:
    """Write the file (`mode` is ``"jpg"`` or ``"raw"``), then read it from the page cache."""
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip

    paths = paths_of(folder)
    with tempfile.TemporaryDirectory() as written:
        name = str(Path(written) / "images.beton")
        field = _write(name, paths, mode)
        loader = Loader(
            name,
            batch_size=batch,
            num_workers=threads,
            os_cache=True,
            order=OrderOption.RANDOM,
            seed=SEED,
            indices=np.tile(np.arange(len(paths)), PASSES),
            custom_fields={"image": field},
            pipelines={"image": [RandomResizedCropRGBImageDecoder((SIDE, SIDE)), RandomHorizontalFlip()]},
        )
        yield pull(endless(loader), batch)


def _write(name: str, paths: list[str], mode: str) -> Any:
    """Write all pictures to a file, by one process; returns the type of its field."""
    from ffcv.fields import RGBImageField
    from ffcv.fields.rgb_image import IMAGE_MODES
    from ffcv.writer import DatasetWriter

    class Files:
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> tuple[bytes]:
            return (Path(paths[index]).read_bytes(),)

    class Encoded(RGBImageField):  # type: ignore[misc]
        """Takes files. FFCV's own field would compress the pixels anew: other bytes than everybody else's."""

        def encode(self, destination: Any, encoded: bytes, malloc: Any) -> None:
            import simplejpeg

            if mode == "raw":
                pixels = simplejpeg.decode_jpeg(encoded, colorspace="RGB")
                super().encode(destination, pixels, malloc)
                return
            height, width = simplejpeg.decode_jpeg_header(encoded)[:2]
            destination["mode"], destination["height"], destination["width"] = IMAGE_MODES["jpg"], height, width
            destination["data_ptr"], storage = malloc(len(encoded))
            storage[:] = np.frombuffer(encoded, np.uint8)

    # A contestant's process was spawned, and so would the writer's be; but what is defined above cannot be sent to such a one.
    multiprocessing.set_start_method("fork", force=True)
    DatasetWriter(name, {"image": Encoded(write_mode=mode)}, num_workers=1).from_indexed_dataset(Files())
    return Encoded
