"""Torch's CUDA streams as the copy to a device uses them, on a machine without a GPU: memory of the device is the host's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.device import torch_output

from .emulated_gpu import EmulatedMemory, Emulation


class Module(SimpleNamespace):
    """A stand-in for a module: no two of them are the same."""

    __eq__, __hash__ = object.__eq__, object.__hash__


class EmulatedStream:
    """A stream on which everything is done at once."""

    device = SimpleNamespace(index=0)
    cuda_stream = 1

    def __init__(self, device: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def record_event(self) -> EmulatedStream:
        return self

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


class EmulatedCuda:
    """The part of `torch.cuda` that is used."""

    Stream = EmulatedStream

    def stream(self, stream: EmulatedStream) -> AbstractContextManager[None]:
        return nullcontext()

    def current_stream(self, device: Any) -> EmulatedStream:
        return EmulatedStream(device)


class EmulatedTorch:
    """Torch with another `cuda`; memory that nobody has written to yet is seen."""

    def __init__(self, torch: Any) -> None:
        self._torch, self.cuda = torch, EmulatedCuda()

    def empty(self, shape: Any, dtype: Any, device: Any) -> Any:
        return self._torch.full(shape, 99, dtype=dtype, device=device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class EmulatedCudaOutput(torch_output.CudaOutput):
    """Batches on a "device"; it notes how many bytes were sent there."""

    def __init__(self, torch: Any) -> None:
        super().__init__(EmulatedTorch(torch), torch.device("cpu"))
        self._memory, self.sent_bytes = EmulatedMemory(torch), 0

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        return np.empty(nbytes, np.uint8)

    def adopt(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return memory

    def device_memory(self) -> Any:
        return self._memory

    def _sent(self, tensor: Any) -> Any:
        self.sent_bytes += tensor.nbytes
        return tensor.clone()


@pytest.fixture
def recorded(emulated: Emulation, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with a GPU to which ``loader(device="cuda")`` copies batches; addresses of tensors that the user's stream was
    told of."""
    torch = pytest.importorskip("torch")
    addresses: list[int] = []
    monkeypatch.setattr(torch_output, "choose_torch_output", lambda device: EmulatedCudaOutput(torch))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, user: addresses.append(tensor.data_ptr()))
    return addresses
