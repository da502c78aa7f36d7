"""DLPack: arrays that every library's `from_dlpack` takes as they are, over the slab's own memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .framework_output import Handed, Output, is_numbers

#: what TensorFlow and XLA compute on; TensorFlow ends the process where an array begins elsewhere
_ALIGN = 64


def choose_dlpack_output(device: Any) -> Output:
    if device is not None:
        raise ConfigError(
            f"loader(format='dlpack', device={device!r}): its arrays are in host memory; omit device, or use format='torch' or "
            "'jax', whose arrays support DLPack too"
        )
    return DlpackOutput()


class DlpackOutput(Output):
    """NumPy arrays that can be exported: an importer keeps the lease until the last of its arrays is dropped."""

    singly = True

    def hand_over(self, batch: Handed) -> Handed:
        return batch.with_values([exportable(column) if is_numbers(column) else column for column in batch])


def exportable(column: Any) -> NDArray[Any]:
    """The numbers as DLPack and its importers want them: native, contiguous, not read-only, and aligned; copied if need be."""
    array = np.asarray(column)
    fit = array.dtype.isnative and array.flags.c_contiguous and array.flags.writeable
    if fit and array.ctypes.data % _ALIGN == 0:
        return array
    memory = np.empty(array.nbytes + _ALIGN, np.uint8)
    start = -memory.ctypes.data % _ALIGN
    aligned: NDArray[Any] = np.ndarray(array.shape, array.dtype.newbyteorder("="), memory, start)
    aligned[...] = array
    return aligned
