"""torch: tensors over the slab's own memory, and the copy to a device."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.batch import Batch
from ..batch.tensors import as_tensors
from ..errors import ConfigError
from ..registry import needed
from .framework_output import Output


def choose_torch_output(device: Any) -> Output:
    torch = needed("torch", "torch", "loader(format='torch')")
    try:
        target = None if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        first_line = str(error).partition("\n")[0]
        raise ConfigError(f"loader(device={device!r}): torch has no such device ({first_line})") from error
    if target is None or target.type != "cuda":
        return TorchOutput(torch, target)
    if not torch.cuda.is_available():
        raise ConfigError(f"loader(device={device!r}): torch sees no CUDA device here")
    return CudaOutput(torch, target)


class TorchOutput(Output):
    """Tensors that share the slab's memory and keep its lease: it is not used again while one of them lives."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device

    def hand_over(self, batch: Batch) -> Batch:
        return batch.with_values([as_tensors(self._torch, column, self._moved) for column in batch])

    def _moved(self, tensor: Any) -> Any:
        return tensor if self._device is None else tensor.to(self._device)


class CudaOutput(TorchOutput):
    """Slabs in pinned memory, copied on a stream of their own while the model works on the batch before.

    The consumer's stream waits for the copy, the consumer does not. A batch is kept here until its copy is done, so that its
    slab is not filled again before.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        super().__init__(torch, device)
        self._stream = torch.cuda.Stream(device)
        self._copying: deque[tuple[Any, Batch]] = deque()

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        pinned: NDArray[np.uint8] = self._torch.empty(nbytes, dtype=self._torch.uint8, pin_memory=True).numpy()
        return pinned

    def hand_over(self, batch: Batch) -> Batch:
        torch = self._torch
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
        current = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            copy = partial(self._copy, user=current)
            on_device = batch.with_values([as_tensors(torch, column, copy) for column in batch])
            copied = self._stream.record_event()
        current.wait_event(copied)
        self._copying.append((copied, batch))
        return on_device

    def _copy(self, tensor: Any, user: Any) -> Any:
        tensor = tensor.to(self._device, non_blocking=True)
        tensor.record_stream(user)  # its memory is the user's until the user's stream is done with it
        return tensor
