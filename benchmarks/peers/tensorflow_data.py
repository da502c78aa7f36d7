"""tf.data: image files by its fused decode-and-crop, records in memory, TFRecord files and the Examples in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import paths_of, records
from measure import SEED, Take, pull
from peers.crops import SIDE
from shards import consume, names, use_examples


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


# ---- TFRecord files ----------------------------------------------------------------------------------------------------------

#: how files are read: one after the other; several at once, which tf.data finds the number of; or several at once, their records
#: taken in small batches, so that less happens record by record
READING = ("stream", "reads", "interleave")
#: records that are taken at once by `interleave`
BLOCK = 32


def _records(paths: list[str], reading: str) -> Any:
    import tensorflow as tf

    if reading == "stream":
        return tf.data.TFRecordDataset(paths, buffer_size=8 << 20)
    if reading == "reads":
        return tf.data.TFRecordDataset(paths, num_parallel_reads=len(paths))
    blocks = tf.data.Dataset.from_tensor_slices(paths).interleave(
        lambda path: tf.data.TFRecordDataset(path).batch(BLOCK),
        cycle_length=len(paths),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    return blocks.unbatch()


@contextmanager
def tf_tfrecord(folder: Path, batch: int, window: int, reading: str, hand: str) -> Iterator[Take]:
    """Records as they are: read, shuffled in a buffer, batched.

    `hand` is what the consumer gets: ``"bytes"``, the objects that ``Tensor.numpy`` makes; or ``"tensors"``, which stay where
    they are, and whose lengths and first bytes are asked for by operations of TensorFlow.
    """
    import tensorflow as tf

    data = _records(names(folder, "tfrecord"), reading).repeat().shuffle(window, SEED)
    batches = iter(data.batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE))
    if hand == "bytes":
        yield consume(batches, lambda tensor: tensor.numpy().tolist(), folder)
    else:
        yield consume(batches, lambda tensor: tensor, folder, _touch_tensor)


def _touch_tensor(strings: Any) -> int:
    import tensorflow as tf

    tf.reduce_sum(tf.strings.length(strings))
    tf.strings.substr(strings, 0, 1)
    return int(strings.shape[0])


@contextmanager
def tf_examples(folder: Path, batch: int, window: int, reading: str, arrays: bool) -> Iterator[Take]:
    """Examples with an image of 32 x 32 pixels and a label; see `examples`. Images that stay strings become bytes here."""
    import tensorflow as tf

    batches = iter(examples(folder, batch, window, reading, arrays).prefetch(tf.data.AUTOTUNE))

    def take(count: int) -> int:
        return sum(use_examples(*_as_numpy(next(batches), arrays)) for _ in range(count))

    yield take


def examples(folder: Path, batch: int, window: int, reading: str, arrays: bool) -> Any:
    """Batches of Examples without end, a whole batch parsed by one operation, as its guide advises.

    With `arrays` images become uint8 arrays; otherwise they stay strings. `window` is that of the shuffle, 0 for none.
    """
    import tensorflow as tf

    wanted = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(records: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_example(records, wanted)
        if not arrays:
            return parsed["image"], parsed["label"]
        pixels = tf.io.decode_raw(parsed["image"], tf.uint8, fixed_length=32 * 32 * 3)
        return tf.reshape(pixels, (-1, 32, 32, 3)), parsed["label"]

    data = _records(names(folder, "tfrecord"), reading).repeat()
    if window:
        data = data.shuffle(window, SEED)
    return data.batch(batch, drop_remainder=True).map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def _as_numpy(batch: tuple[Any, Any], arrays: bool) -> tuple[Any, Any]:
    images, labels = batch[0].numpy(), batch[1].numpy()
    return images if arrays else images.tolist(), labels
