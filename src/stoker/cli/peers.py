"""Other loaders that `stoker bench` runs on the same pictures, doing the same work, each as its users would write it.

Datasets are classes at the top of this module, so that worker processes can import them.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from ..errors import ConfigError, MissingExtra
from ..image.pillow import open_image
from ..source.paths import open_plain

#: more samples than any measurement takes
_ENDLESS = 1 << 40
#: samples that WebDataset mixes
_BUFFER = 200


@dataclass(frozen=True, slots=True)
class PeerWork:
    """What another loader is to do: pictures, as files and in tar shards, and what to make of them."""

    paths: Sequence[str]
    shards: Sequence[str]
    extension: str  # of the pictures in the shards
    size: int
    batch: int
    workers: int


@dataclass(frozen=True, slots=True)
class Peer:
    """Another loader: what it is called, what it needs, and what gives its batches without end, until it is closed."""

    title: str
    modules: tuple[str, ...]
    install: str
    batches: Callable[[PeerWork], Generator[Any, None, None]]
    reads_shards: bool = False
    bursts: bool = True  # each of its workers makes whole batches
    #: not among "all": TensorFlow keeps threads, and the others would fork their workers while these run
    when_named: bool = False

    @property
    def installed(self) -> bool:
        return all(importlib.util.find_spec(module) is not None for module in self.modules)


class PillowImages:
    """Decode with Pillow, crop and resize as torchvision's RandomResizedCrop does, flip half of them."""

    def __init__(self, paths: Sequence[str], size: int) -> None:
        self._paths, self._size = list(paths), size

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        with open(self._paths[index], "rb", opener=_open_plain) as file:
            image = open_image(file.read()).convert("RGB")
        return pillow_crop(self._size, image)


class OpenCvImages:
    """Decode with simplejpeg (OpenCV where that is missing, or it is no JPEG), crop and resize with OpenCV, flip half of them.

    `cv2.resize` does not smooth when it shrinks; the others do. This is what its users do, and it is less work.
    """

    def __init__(self, paths: Sequence[str], size: int) -> None:
        self._paths, self._size = list(paths), size
        self._decode = decode_opencv if importlib.util.find_spec("simplejpeg") is None else decode_simplejpeg

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        import cv2
        import numpy as np
        import torch

        with open(self._paths[index], "rb", opener=_open_plain) as file:
            pixels = self._decode(file.read())
        height, width = pixels.shape[:2]
        left, top, right, bottom = random_crop(width, height)
        pixels = cv2.resize(pixels[top:bottom, left:right], (self._size, self._size), interpolation=cv2.INTER_LINEAR)
        if random.random() < 0.5:
            pixels = pixels[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(pixels))


def _open_plain(path: str, flags: int) -> int:
    """For `open`: what became a pipe meanwhile is an error, and is not waited for."""
    return open_plain(os.fsencode(path), flags)


def calm_opencv(number: int) -> None:
    """One thread a worker: there are as many workers as cores, and OpenCV would start more."""
    import cv2

    cv2.setNumThreads(0)


def choose_peers(against: str) -> tuple[dict[str, Peer], dict[str, Peer]]:
    """The peers to run, and those that would have been but are not installed.

    ``"all"`` means those that are installed; a peer that is named must be.
    """
    if against == "none":
        return {}, {}
    if against == "all":
        usual = {name: peer for name, peer in PEERS.items() if not peer.when_named}
        return (
            {name: peer for name, peer in usual.items() if peer.installed},
            {name: peer for name, peer in usual.items() if not peer.installed},
        )
    chosen = {}
    for name in (name.strip() for name in against.split(",")):
        if name not in PEERS:
            raise ConfigError(f"--against {name}: choose from {', '.join(PEERS)}, all, none")
        if not PEERS[name].installed:
            raise MissingExtra(f"--against {name}: {PEERS[name].title} is not installed: {PEERS[name].install}")
        chosen[name] = PEERS[name]
    return chosen, {}


def torch_batches(
    dataset: Callable[[Sequence[str], int], Any], start_worker: Callable[[int], None] | None, work: PeerWork
) -> Generator[Any, None, None]:
    """PyTorch's DataLoader over files."""
    from torch.utils.data import RandomSampler

    images = dataset(work.paths, work.size)
    return _loaded(images, work, start_worker, sampler=RandomSampler(images, num_samples=_ENDLESS))


def webdataset_batches(work: PeerWork) -> Generator[Any, None, None]:
    """WebDataset in PyTorch's DataLoader over tar shards, decoding with Pillow."""
    webdataset: Any = import_module("webdataset")
    shards = webdataset.WebDataset(list(work.shards), resampled=True, shardshuffle=False)
    crop = partial(pillow_crop, work.size)
    images = shards.shuffle(_BUFFER).decode("pilrgb").to_tuple(work.extension).map_tuple(crop).map(_only)
    return _loaded(images, work)


def _only(values: tuple[Any]) -> Any:
    return values[0]


def _loaded(
    dataset: Any, work: PeerWork, start_worker: Callable[[int], None] | None = None, **how: Any
) -> Generator[Any, None, None]:
    """Batches of a DataLoader. Closing the generator ends the worker processes."""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        dataset,
        batch_size=work.batch,
        num_workers=work.workers,
        worker_init_fn=start_worker,
        # What torch itself took on Linux up to Python 3.13; a fork starts in milliseconds and shares what is imported.
        multiprocessing_context="fork" if sys.platform == "linux" else None,
        **how,
    )
    batches = iter(loader)
    try:
        yield from batches
    finally:
        # Its __del__ would do this too, and swallow a Ctrl-C that arrives then.
        batches._shutdown_workers()


def tensorflow_batches(work: PeerWork) -> Generator[Any, None, None]:
    """tf.data over JPEG files, which decodes no more of them than the crop needs."""
    tensorflow: Any = import_module("tensorflow")

    def load(path: Any) -> Any:
        data = tensorflow.io.read_file(path)
        begin, extent, _ = tensorflow.image.sample_distorted_bounding_box(
            tensorflow.image.extract_jpeg_shape(data),
            tensorflow.zeros([1, 0, 4], tensorflow.float32),
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            use_image_if_no_bounding_boxes=True,
        )
        window = tensorflow.stack([begin[0], begin[1], extent[0], extent[1]])
        image = tensorflow.image.decode_and_crop_jpeg(data, window, channels=3)
        image = tensorflow.image.resize(image, (work.size, work.size), antialias=True)
        return tensorflow.cast(tensorflow.image.random_flip_left_right(image), tensorflow.uint8)

    tensorflow.config.set_visible_devices([], "GPU")
    files = tensorflow.data.Dataset.from_tensor_slices(list(work.paths)).shuffle(len(work.paths)).repeat()
    images = files.map(load, num_parallel_calls=work.workers, deterministic=False)
    yield from images.batch(work.batch, drop_remainder=True).prefetch(2).as_numpy_iterator()


def pillow_crop(size: int, image: Any) -> Any:
    """Crop and resize as torchvision's RandomResizedCrop does, flip half of the pictures."""
    import numpy as np
    import torch
    from PIL import Image

    left, top, right, bottom = random_crop(*image.size)
    image = image.crop((left, top, right, bottom)).resize((size, size), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image))


def random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of torchvision's RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3))."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = random.randint(0, width - across), random.randint(0, height - down)
            return left, top, left + across, top + down
    across, down = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def decode_simplejpeg(data: bytes) -> Any:
    """RGB pixels, fast for JPEGs."""
    import simplejpeg

    return simplejpeg.decode_jpeg(data) if simplejpeg.is_jpeg(data) else decode_opencv(data)


def decode_opencv(data: bytes) -> Any:
    """RGB pixels of whatever OpenCV reads."""
    import cv2
    import numpy as np

    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


PEERS = {
    "torch": Peer("torch + Pillow", ("torch", "PIL"), "pip install torch pillow", partial(torch_batches, PillowImages, None)),
    "opencv": Peer(
        "torch + simplejpeg + OpenCV",
        ("torch", "cv2"),
        "pip install torch simplejpeg opencv-python-headless",
        partial(torch_batches, OpenCvImages, calm_opencv),
    ),
    "webdataset": Peer(
        "WebDataset + Pillow",
        ("webdataset", "torch", "PIL"),
        "pip install webdataset torch pillow",
        webdataset_batches,
        reads_shards=True,
    ),
    "tf": Peer("tf.data", ("tensorflow",), "pip install tensorflow", tensorflow_batches, bursts=False, when_named=True),
}
