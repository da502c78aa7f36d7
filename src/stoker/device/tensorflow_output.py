"""TensorFlow: eager tensors over the slab's own memory, by DLPack."""

from __future__ import annotations

from typing import Any

from ..errors import BatchError, ConfigError
from ..registry import needed
from .dlpack_output import exportable
from .framework_output import Handed, Output, is_added, is_numbers


def choose_tensorflow_output(device: Any) -> Output:
    tensorflow = needed("tensorflow", "tensorflow", "loader(format='tensorflow')")
    return TensorflowOutput(tensorflow, None if device is None else _device_name(tensorflow, device))


def _device_name(tensorflow: Any, device: Any) -> str:
    """The full name of a device that is there; TensorFlow itself would take the CPU instead of one that is not."""
    names = [each.name for each in tensorflow.config.list_logical_devices()]
    wanted = str(device).upper().removeprefix("/").removeprefix("DEVICE:")
    for name in names:
        kind, _, number = name.removeprefix("/device:").partition(":")
        if wanted in (f"{kind}:{number}", kind):
            return str(name)
    raise ConfigError(
        f"loader(device={device!r}): TensorFlow has no such device here; it has {', '.join(names)}, written as 'GPU:0'"
    )


class TensorflowOutput(Output):
    """Tensors that keep the slab's lease: TensorFlow drops it with the last tensor, view or operation that needs the memory."""

    singly = True

    def __init__(self, tensorflow: Any, device: str | None) -> None:
        self._tensorflow, self._device = tensorflow, device
        self.beside_device = device is not None and "CPU" not in device

    def hand_over(self, batch: Handed) -> Handed:
        return batch.with_values([self._tensor(column) if is_numbers(column) else column for column in batch])

    def _tensor(self, column: Any) -> Any:
        tensorflow = self._tensorflow
        try:
            if is_added(column.dtype):
                tensor = tensorflow.constant(column)  # NumPy does not export these
            else:
                tensor = tensorflow.experimental.dlpack.from_dlpack(exportable(column).__dlpack__())
        except (TypeError, BufferError, tensorflow.errors.InvalidArgumentError) as error:
            raise BatchError(
                f"TensorFlow has no tensors of {column.dtype}: {error}; convert the field with map_batch()"
            ) from error
        if self._device is None:
            return tensor
        with tensorflow.device(self._device):
            return tensorflow.identity(tensor)
