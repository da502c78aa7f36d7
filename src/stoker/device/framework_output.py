"""The seam a framework fills: what memory slabs are made of, and how a batch is handed over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..batch.batch import Batch
from ..batch.slab import plain_memory


def choose_numpy_output(device: None) -> Output:
    """The hand-over of NumPy's arrays, which are in host memory."""
    return Output()


class Output:
    """NumPy: the slab's own arrays, as they are."""

    #: whether batches go to a device that a training loop of this process drives
    beside_device: bool = False

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory for a slab."""
        return plain_memory(nbytes)[0]

    def adopt(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Memory for a slab that workers in other processes see, made fit for this hand-over."""
        return memory

    def starved(self) -> bool:
        """Whether the training has nothing to do until it gets a batch: so who waits for one loses time."""
        return True

    def hand_over(self, batch: Batch) -> Batch:
        """The batch in the form the user asked for."""
        return batch
