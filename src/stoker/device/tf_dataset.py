"""A loader as a `tf.data.Dataset`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ..batch.strings import ByteStrings
from ..errors import ConfigError
from ..registry import needed
from .framework_output import is_numbers


class ClosableLoader(Protocol):
    """What is asked of a loader."""

    @property
    def remaining(self) -> int | None:
        """Batches of this epoch that are still to come; None: not known."""

    def __iter__(self) -> Iterator[Any]: ...
    def state_dict(self, *, before: bool | None = None) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any) -> None: ...
    def close(self) -> None: ...


def tf_dataset(
    make: Callable[[], ClosableLoader],
    first: Mapping[str, Any],
    shapes: Mapping[str, tuple[int | None, ...]],
    dicts: bool,
    sharded: bool,
    length: int | None,
) -> Any:
    """A data set whose every iteration is an epoch of the loader that `make` makes when it is first needed.

    An iteration that was left after its first batch does not count: the next one starts the same epoch again. `first` is a batch
    or sample, which shows types and numbers of axes; `shapes` are the known shapes, common to all. `length` is the number of
    batches, if every iteration has the same.
    """
    tensorflow = needed("tensorflow", "tensorflow", "tf_dataset()")
    specs = {name: _spec(tensorflow, name, value, shapes.get(name)) for name, value in first.items()}
    loaders: list[ClosableLoader] = []
    # Where the last iteration began, how many batches it had before it (None: not known), and how many it took.
    start: dict[str, Any] = {}
    left: int | None = None
    taken = 0

    def epoch() -> Iterator[Any]:
        nonlocal start, left, taken
        if not loaders:
            loaders.append(make())
        loader = loaders[0]
        if taken == 1 != left:
            loader.load_state_dict(start)  # the first batch was only looked at, as Keras does before it trains
        steps = iter(loader)
        start, left, taken = loader.state_dict(before=False), loader.remaining, 0
        for step in steps:
            taken += 1
            values = [list(value) if isinstance(value, ByteStrings) else value for value in step]
            yield dict(zip(specs, values)) if dicts else tuple(values)
        taken = 0

    dataset = tensorflow.data.Dataset.from_generator(epoch, output_signature=specs if dicts else tuple(specs.values()))
    if length is not None:
        dataset = dataset.apply(tensorflow.data.experimental.assert_cardinality(length))
    options = tensorflow.data.Options()
    options.experimental_optimization.inject_prefetch = False  # the loader makes batches ahead already
    if sharded:  # each process has its part: TensorFlow would take a part of that
        options.experimental_distribute.auto_shard_policy = tensorflow.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)
    # TensorFlow keeps functions for good. What is made of a data set, and whoever iterates it, keep the data set.
    weakref.finalize(dataset, _close, loaders).atexit = False
    return dataset


def _close(loaders: list[ClosableLoader]) -> None:
    while loaders:
        loaders.pop().close()


def _spec(tensorflow: Any, name: str, value: Any, shape: tuple[int | None, ...] | None) -> Any:
    if isinstance(value, (bool, int, float, complex)):  # of a single sample
        value = np.asarray(value)
    if is_numbers(value) or (isinstance(value, np.ndarray) and value.dtype.kind in "SU"):
        dtype = tensorflow.as_dtype(value.dtype.newbyteorder("=")) if is_numbers(value) else tensorflow.string
        return tensorflow.TensorSpec((None,) * value.ndim if shape is None else shape, dtype)
    texts = list(value) if isinstance(value, (list, ByteStrings)) else [value]
    if texts and all(isinstance(text, (str, bytes)) for text in texts):
        return tensorflow.TensorSpec((None,) if isinstance(value, (list, ByteStrings)) else (), tensorflow.string)
    raise ConfigError(
        f"tf_dataset(): the field {name!r} is a list of values of several shapes, or of a type that TensorFlow does not "
        f"have; pad it with batch(pad={{{name!r}: 0}}), convert it with map(), or drop({name!r})"
    )
