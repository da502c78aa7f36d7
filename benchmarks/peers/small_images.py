"""Small images with the augmentations of CIFAR training, as others do it: FFCV, NumPy in a torch DataLoader, tf.data.

All of them: reflect-pad by 4, a random crop of the image's size, a flip, a square of 8 x 8 painted over, float32. Each is written
the way that was found to be fastest with its means; what the obvious way would cost is said where it differs.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data import small_images
from measure import SEED, Take, endless, pull
from peers.tensorflow_data import examples

SIDE, PAD, HOLE = 32, 4, 8
#: of CIFAR-10, in levels
MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
FILL = (125, 123, 114)
DEGREES = 10
#: passes over the images in one epoch of a loader: many, so that what an epoch costs to begin does not count against it
PASSES = 100


# ---- FFCV ------------------------------------------------------------------------------------------------------------


@contextmanager
def ffcv_small(count: int, batch: int, threads: int) -> Iterator[Take]:
    """Its own file of raw pixels, in memory; its own transforms, but for the crop, all compiled."""
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import Cutout, NormalizeImage, RandomHorizontalFlip, ToTensor

    with tempfile.TemporaryDirectory() as folder:
        name = str(Path(folder) / "small.beton")
        _write_beton(name, count)
        pixels = [
            SimpleRGBImageDecoder(),
            _reflecting_crop(),
            RandomHorizontalFlip(),
            Cutout(HOLE, FILL),
            NormalizeImage(np.array(MEAN), np.array(STD), np.float32),
            ToTensor(),
        ]
        loader = Loader(
            name,
            batch_size=batch,
            num_workers=threads,
            os_cache=True,
            order=OrderOption.RANDOM,
            seed=SEED,
            drop_last=True,
            indices=np.tile(np.arange(count), PASSES),
            pipelines={"image": pixels, "label": [IntDecoder(), ToTensor()]},
        )
        yield pull(endless(loader), batch)


def _reflecting_crop() -> Any:
    """Pad and crop in one operation: FFCV's own RandomTranslate does not reflect, and takes half of the time of everything."""
    from dataclasses import replace

    from ffcv.pipeline.allocation_query import AllocationQuery
    from ffcv.pipeline.compiler import Compiler
    from ffcv.pipeline.operation import Operation

    class ReflectingCrop(Operation):  # type: ignore[misc]
        def generate_code(self) -> Any:
            span, last = Compiler.get_iterator(), SIDE - 1

            def crop(images: Any, out: Any) -> Any:
                for i in span(images.shape[0]):
                    top, left = np.random.randint(0, 2 * PAD + 1) - PAD, np.random.randint(0, 2 * PAD + 1) - PAD
                    for y in range(SIDE):
                        row = images[i, last - abs(last - abs(y + top))]
                        for x in range(SIDE):
                            column = last - abs(last - abs(x + left))
                            out[i, y, x, 0] = row[column, 0]
                            out[i, y, x, 1] = row[column, 1]
                            out[i, y, x, 2] = row[column, 2]
                return out[: images.shape[0]]

            crop.is_parallel = True  # type: ignore[attr-defined]
            return crop

        def declare_state_and_memory(self, previous_state: Any) -> Any:
            return replace(previous_state, jit_mode=True), AllocationQuery(previous_state.shape, previous_state.dtype)

    return ReflectingCrop()


def _write_beton(name: str, count: int) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    images, labels = small_images(count)

    class Samples:
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return images[index], int(labels[index])

    multiprocessing.set_start_method("fork", force=True)  # what is defined above cannot be sent to a process that is spawned
    fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
    DatasetWriter(name, fields, num_workers=1).from_indexed_dataset(Samples())


# ---- torch and NumPy -------------------------------------------------------------------------------------------------


@contextmanager
def torch_numpy(count: int, batch: int, workers: int, rotated: bool) -> Iterator[Take]:
    """A batch at a time by hand: the whole data set padded beforehand, crops as one indexing of a view of all of them."""
    import torch
    from torch.utils.data import DataLoader

    if workers:
        torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    more: Any = {"num_workers": workers, "persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    batches = Batches(*small_images(count), rotated)
    loader = DataLoader(batches, batch, shuffle=True, drop_last=True, generator=generator, collate_fn=_as_it_is, **more)
    yield pull(endless(loader), batch)


def _as_it_is(batch: Any) -> Any:
    return batch


class Batches:
    """A map-style data set that makes batches."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64], rotated: bool) -> None:
        padded = np.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), "reflect")
        image, row, pixel, _ = padded.strides
        places, columns = 2 * PAD + 1, 3 * SIDE
        # crop (n, top, left) as rows of bytes, which is what can be copied fastest
        self._crops = np.lib.stride_tricks.as_strided(
            padded, (len(padded), places, places, SIDE, columns), (image, row, pixel, row, 1), writeable=False
        )
        self._labels, self._rotated, self._rng = labels, rotated, np.random.default_rng(SEED)
        # for all pixels of an image: NumPy takes four times as long to multiply by three numbers again and again
        scale, bias = 1 / np.float32(STD), -np.float32(MEAN) / np.float32(STD)
        self._scale, self._bias = np.tile(scale, SIDE * SIDE), np.tile(bias, SIDE * SIDE)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitems__(self, indices: list[int]) -> Any:
        import torch

        index, rng = np.array(indices), self._rng
        count = len(index)
        top, left = rng.integers(0, 2 * PAD + 1, (2, count))
        pixels = self._crops[index, top, left].reshape(count, SIDE, SIDE, 3)
        flipped = rng.random(count) < 0.5
        pixels[flipped] = pixels[flipped, :, ::-1]
        if self._rotated:
            pixels = _rotate(pixels, rng)
        floats = pixels.reshape(count, -1) * self._scale
        floats += self._bias
        floats = floats.reshape(count, SIDE, SIDE, 3)
        for image, (y, x) in zip(floats, rng.integers(-HOLE // 2, SIDE - HOLE // 2, (count, 2)).tolist()):
            image[max(0, y) : y + HOLE, max(0, x) : x + HOLE] = 0
        return torch.from_numpy(floats), torch.from_numpy(self._labels[index])


def _rotate(pixels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """By torch's sampler, all images of the batch at once: there is nothing as fast in NumPy."""
    import torch

    angles = torch.from_numpy(np.deg2rad(rng.uniform(-DEGREES, DEGREES, len(pixels)).astype(np.float32)))
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    matrices = torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], 1)
    planes = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    grid = torch.nn.functional.affine_grid(matrices, list(planes.shape), align_corners=False)
    turned = torch.nn.functional.grid_sample(planes, grid, align_corners=False)
    made: NDArray[np.uint8] = turned.permute(0, 2, 3, 1).round_().byte().contiguous().numpy()
    return made


# ---- tf.data ---------------------------------------------------------------------------------------------------------


@contextmanager
def tf_small(count: int, batch: int, folder: Path | None, rotated: bool) -> Iterator[Take]:
    """Vectorised: every operation works on a batch, as many batches at once as AUTOTUNE finds best.

    From arrays; or, given a folder, from the TFRecord files there, shuffled in a buffer of all of them.
    """
    import tensorflow as tf

    if folder is None:
        data = tf.data.Dataset.from_tensor_slices(small_images(count)).shuffle(count, SEED).repeat()
        data = data.batch(batch, drop_remainder=True)
    else:
        data = examples(folder, batch, count, "interleave", True)
    data = data.map(lambda images, labels: (_tf_augment(images, batch, rotated), labels), num_parallel_calls=tf.data.AUTOTUNE)
    yield pull(iter(data.prefetch(tf.data.AUTOTUNE)), batch)


def _tf_augment(images: Any, batch: int, rotated: bool) -> Any:
    """Borders, crop and flip as places to gather pixels from: its own padding takes three times as long as all of this."""
    import tensorflow as tf

    def places() -> Any:
        place, last = tf.range(SIDE) - PAD + tf.random.uniform([batch, 1], 0, 2 * PAD + 1, tf.int32), SIDE - 1
        return last - tf.abs(last - tf.abs(place))

    rows, columns = places(), places()
    columns = tf.where(tf.random.uniform([batch, 1]) < 0.5, columns[:, ::-1], columns)
    pixels = tf.gather(images, rows, axis=1, batch_dims=1)
    pixels = tf.ensure_shape(tf.gather(pixels, columns, axis=2, batch_dims=1), (batch, SIDE, SIDE, 3))
    if rotated:
        pixels = _tf_rotate(pixels, batch)
    mean, scale = (tf.constant(np.tile(np.float32(values), SIDE)) for values in (MEAN, 1 / np.float32(STD)))
    floats = (tf.cast(tf.reshape(pixels, (batch, SIDE, 3 * SIDE)), tf.float32) - mean) * scale
    y, x = (tf.abs(tf.range(SIDE) - tf.random.uniform([batch, 1], 0, SIDE, tf.int32)) < HOLE // 2 for _ in range(2))
    hole = tf.logical_and(y[:, :, None], tf.repeat(x, 3, axis=1)[:, None, :])
    floats *= tf.cast(tf.logical_not(hole), tf.float32)
    return tf.reshape(floats, (batch, SIDE, SIDE, 3))


def _tf_rotate(pixels: Any, batch: int) -> Any:
    import tensorflow as tf

    angles = tf.random.uniform([batch], -DEGREES, DEGREES) * (np.pi / 180)
    cos, sin, zero, middle = tf.cos(angles), tf.sin(angles), tf.zeros([batch]), (SIDE - 1) / 2
    x, y = middle - cos * middle + sin * middle, middle - sin * middle - cos * middle
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=pixels,
        transforms=tf.stack([cos, -sin, x, sin, cos, y, zero, zero], 1),
        output_shape=[SIDE, SIDE],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )
