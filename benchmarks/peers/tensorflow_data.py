"""tf.data: image files by its fused decode-and-crop, and records in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import paths_of, records
from measure import SEED, Take, pull
from peers.crops import SIDE


@contextmanager
def tf_images(folder: Path, batch: int, threads: int) -> Iterator[Take]:
    """Only the crop is decoded (``decode_and_crop_jpeg``), as TensorFlow's own ImageNet pipelines do."""
    import tensorflow as tf

    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    paths = paths_of(folder)
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), SEED).repeat()
    data = data.map(_crop, num_parallel_calls=threads).batch(batch, drop_remainder=True).prefetch(2)
    yield pull(iter(data.with_options(options)), batch)


def _crop(path: Any) -> Any:
    import tensorflow as tf

    encoded = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(encoded),
        tf.zeros([1, 0, 4]),
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    top, left, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    image = tf.io.decode_and_crop_jpeg(encoded, tf.stack([top, left, height, width]), channels=3)
    image = tf.image.resize(image, (SIDE, SIDE), "bilinear")
    return tf.cast(tf.image.random_flip_left_right(image), tf.uint8)


@contextmanager
def tf_records(count: int, batch: int) -> Iterator[Take]:
    """Slices, shuffled, batched, prefetched."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(records(count)).shuffle(count, SEED).repeat()
    yield pull(iter(data.batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)), batch)
