"""The seam a framework fills: which memory slabs use, and how a batch is handed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..batch.batch import NamedValues
from ..batch.slab import plain_memory

if TYPE_CHECKING:
    from .device_decode import DeviceMemory

#: a batch; with `singly` a sample, too
Handed = TypeVar("Handed", bound=NamedValues)


def choose_numpy_output(device: None) -> Output:
    """The hand-over of NumPy's arrays, which are in host memory."""
    return Output()


def is_numbers(value: Any) -> bool:
    """Whether a value is an array of numbers, or one of a single sample; text, bytes and lists are not."""
    return isinstance(value, (np.ndarray, np.generic)) and (value.dtype.kind in "biufc" or is_added(value.dtype))


def is_added(dtype: np.dtype[Any]) -> bool:
    """Whether a library has added this type to NumPy's own, as JAX's and TensorFlow's bfloat16 is."""
    return dtype.isbuiltin == 2


@dataclass(frozen=True, slots=True)
class PixelFloats:
    """What becomes of pixels (rows, height, width, channels): ``pixel * scale + bias`` by channel, in planes if `planar`."""

    planar: bool
    scale: tuple[float, ...]
    bias: tuple[float, ...]

    def shape(self, pixels: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the floats that pixels of this shape become."""
        rows, height, width, channels = pixels
        return (rows, channels, height, width) if self.planar else pixels


class Output:
    """NumPy: the slab's own arrays, unchanged."""

    #: whether batches go to a device that a training loop of this process drives
    beside_device: bool = False
    #: whether batches that are made together, and single samples, are handed over one by one: parts of arrays would be copies
    singly: bool = False
    #: whether the next batch is handed over while the training works on this one, where it is ready; it needs `singly`
    looks_ahead: bool = False
    #: whether the batches of several processes are parts of one array, so that they must all have the same number of rows
    joins_ranks: bool = False

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory for a slab."""
        return plain_memory(nbytes)[0]

    def adopt(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Memory for a slab that workers in other processes see, made fit for this hand-over."""
        return memory

    def starved(self) -> bool:
        """Whether the training has nothing to do until it gets a batch, so that waiting for one loses time."""
        return True

    def device_memory(self) -> DeviceMemory | None:
        """The maker of memory on the device that batches go to, for decoding there; None: that is not possible."""
        return None

    def expect_pixels(self, fields: Mapping[str, PixelFloats]) -> bool:
        """Whether these fields of a batch may come as pixels, uint8 with channels last, to be handed over as these floats.

        If so, they do from now on. Raises a DeviceError if the device cannot make floats; then nothing changes.
        """
        return False

    def hand_over(self, batch: Handed) -> Handed:
        """The batch in the form the user asked for."""
        return batch
