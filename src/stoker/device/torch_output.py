"""torch: tensors over the slab's own memory, and the copy to a device."""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..batch.batch import NamedValues
from ..batch.tensors import as_tensors
from ..errors import ConfigError, DeviceError
from ..registry import needed
from ..sizes import counted
from .framework_output import Handed, Output, PixelFloats

if TYPE_CHECKING:
    from .device_floats import FloatsKernel

_log = logging.getLogger("stoker")

#: smaller slabs share pages of memory with others, and are copied fast enough as they are
_LEAST_PINNED = 64 << 10
#: cudaHostRegisterPortable: pinned for every device
_PORTABLE = 1
_NOT_PINNED = (
    "%d bytes of shared memory could not be pinned for the GPU (CUDA error %d), so batches are copied once more; "
    "raise the limit on locked memory (`ulimit -l`), or use loader(executor='threads')"
)


def choose_torch_output(device: Any) -> Output:
    torch = needed("torch", "torch", "loader(format='torch')")
    try:
        target = None if device is None else torch.device(device)
        if target is None or target.type != "cuda":
            torch.empty(0, device=target)  # it may know the name, and be built without it
            return TorchOutput(torch, target)
    except (RuntimeError, TypeError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
        raise ConfigError(f"loader(device={device!r}): torch has no such device ({first_line})") from error
    if not torch.cuda.is_available():
        known = "check the driver with nvidia-smi, and the variable CUDA_VISIBLE_DEVICES"
        if torch.version.cuda is None:
            known = f"torch {torch.__version__} is built without CUDA, install a build with it"
        raise ConfigError(f"loader(device={device!r}): torch finds no CUDA device; {known}, or omit device")
    count = torch.cuda.device_count()
    # A number for good: the current device is another one for other threads, and after torch.cuda.set_device().
    index = torch.cuda.current_device() if target.index is None else target.index
    if index >= count:
        raise ConfigError(
            f"loader(device={device!r}): torch finds {counted(count, 'CUDA device')}, numbered from 0; choose one of them"
        )
    return CudaOutput(torch, torch.device("cuda", index))


@cache
def _stream_for(purpose: str, torch: Any, device: Any, process: int) -> Any:
    """The stream of a device for one purpose, of all loaders of a process.

    Torch's allocator keeps memory that was freed for the stream that had it: with streams of its own, a loader could not use what
    closed ones have left.
    """
    return torch.cuda.Stream(device)


class TorchOutput(Output):
    """Tensors that share the slab's memory and keep its lease: it is not used again while one of them lives."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device

    def hand_over(self, batch: Handed) -> Handed:
        return batch.with_values([as_tensors(self._torch, column, self._moved) for column in batch])

    def _moved(self, tensor: Any) -> Any:
        return tensor if self._device is None else tensor.to(self._device)


class CudaOutput(TorchOutput):
    """Slabs in pinned memory, copied on a separate stream while the model works on the previous batch.

    The consumer's stream waits for the copy, the consumer does not. A batch is kept here until its copy is done, so that its slab
    is not filled again before.

    Pixels that become floats are copied as bytes, and the floats are made after them on the same stream.

    Slabs shared with worker processes are pinned in place. If the system refuses that, batches go through other pinned memory,
    which takes one more copy.
    """

    beside_device = True

    def __init__(self, torch: Any, device: Any) -> None:
        super().__init__(torch, device)
        self._stream = _stream_for("copies", torch, device, os.getpid())
        self._copying: deque[tuple[Any, NamedValues]] = deque()
        finished = weakref.finalize(self, _finish, self._copying, os.getpid())  # then their memory is anybody's
        finished.atexit = False
        self._staged = False  # whether memory could not be pinned where it lies
        self._floats: dict[str, PixelFloats] = {}  # by field: what becomes of its pixels
        self._kernel: FloatsKernel | None = None  # which does that

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        torch = self._torch  # which may have another default device
        pinned: NDArray[np.uint8] = torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True).numpy()
        return pinned

    def adopt(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if self._staged or memory.nbytes < _LEAST_PINNED:
            return memory
        torch, place = self._torch, memory.ctypes.data
        with torch.cuda.device(self._device):
            cudart = torch.cuda.cudart()
            status = int(cudart.cudaHostRegister(place, memory.nbytes, _PORTABLE))
            if status:
                self._staged = True
                _log.warning(_NOT_PINNED, memory.nbytes, status)
                with suppress(RuntimeError):  # CUDA keeps the error until the next query: make it here, not in the training
                    torch.zeros(1, device=self._device)
                return memory
        # Before the memory is anybody else's: nothing of what holds it outlives this very array.
        unpin = weakref.finalize(memory, cudart.cudaHostUnregister, place)
        unpin.atexit = False
        return memory

    def starved(self) -> bool:
        # The program runs ahead of the device: while that has work in the stream of the model, no time is lost.
        return bool(self._torch.cuda.current_stream(self._device).query())

    def expect_pixels(self, fields: Mapping[str, PixelFloats]) -> bool:
        from .device_floats import FloatsKernel

        self._kernel = FloatsKernel(self._stream.device.index)
        for how in fields.values():
            self._check(self._kernel, how)
        self._floats = dict(fields)
        return True

    def _check(self, kernel: FloatsKernel, how: PixelFloats) -> None:
        """Raise where the device makes other floats than the CPU of any pixel: the kernel was compiled on this very machine."""
        torch = self._torch
        pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 16, 16, 3)
        expected = pixels.astype(np.float32) * np.array(how.scale, np.float32) + np.array(how.bias, np.float32)
        with torch.cuda.stream(self._stream):
            there = torch.from_numpy(pixels).to(self._device)
            floats = torch.empty(how.shape(pixels.shape), dtype=torch.float32, device=self._device)
            kernel.launch(how, pixels.shape, there.data_ptr(), floats.data_ptr(), self._stream.cuda_stream)
            made = floats.cpu().numpy()
        if made.tobytes() != (expected.transpose(0, 3, 1, 2) if how.planar else expected).tobytes():
            raise DeviceError("the GPU computes other floats than the CPU, so its driver or NVRTC cannot be trusted; update them")

    def hand_over(self, batch: Handed) -> Handed:
        torch = self._torch
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
        current = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            copy = partial(self._copy, user=current)
            copies = {name: partial(self._make_floats, how=how, user=current) for name, how in self._floats.items()}
            on_device = batch.with_values(
                [as_tensors(torch, column, copies.get(name, copy)) for name, column in zip(batch._fields, batch)]
            )
            copied = self._stream.record_event()
        current.wait_event(copied)
        self._copying.append((copied, batch))
        return on_device

    def device_memory(self) -> TorchMemory:
        return TorchMemory(self._torch, self._device, self.allocate)

    def _copy(self, tensor: Any, user: Any) -> Any:
        tensor = self._sent(tensor)
        tensor.record_stream(user)  # its memory is the user's until the user's stream is done with it
        return tensor

    def _make_floats(self, tensor: Any, how: PixelFloats, user: Any) -> Any:
        assert self._kernel is not None
        # Memory of this stream, which uses it again only after the kernel; or of the batch, decoded there, which is kept so long.
        pixels = self._sent(tensor)
        floats = self._torch.empty(how.shape(pixels.shape), dtype=self._torch.float32, device=pixels.device)
        self._kernel.launch(how, pixels.shape, pixels.data_ptr(), floats.data_ptr(), self._stream.cuda_stream)
        floats.record_stream(user)
        return floats

    def _sent(self, tensor: Any) -> Any:
        if self._staged:
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)


def _finish(copying: Iterable[tuple[Any, NamedValues]], process: int) -> None:
    """Wait for copies: torch does not know that they read memory that was made of its own. A forked child has none under way."""
    if os.getpid() == process:
        for copied, _ in copying:
            copied.synchronize()


class TorchMemory:
    """Memory on a CUDA device from torch's allocator, which knows when a delivered batch is no longer in use.

    It belongs to a stream on which nothing stays queued, so new memory can be written to at once, by any stream. Tensors are
    ordinary ones, whatever mode the training is in while a later batch is made.
    """

    def __init__(self, torch: Any, device: Any, pinned: Callable[[int], NDArray[np.uint8]]) -> None:
        self._torch, self._device, self.pinned = torch, device, pinned
        self.ordinal: int = device.index
        self._stream = _stream_for("memory", torch, device, os.getpid())

    def rows(self, shape: tuple[int, ...], dtype: str) -> Any:
        torch = self._torch
        with torch.inference_mode(False), torch.cuda.stream(self._stream):
            made = torch.empty(shape, dtype=getattr(torch, dtype), device=self._device)
        # With use_deterministic_algorithms() torch fills it, and with cudaMallocAsync it may be free only later on its stream.
        if not self._stream.query():
            self._stream.synchronize()
        return made

    def place(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    def taken(self, tensor: Any, rows: NDArray[np.int64]) -> Any:
        torch = self._torch
        with torch.inference_mode(False), torch.cuda.stream(self._stream):
            chosen = tensor.index_select(0, torch.from_numpy(rows).to(self._device))
            self._stream.synchronize()
        return chosen

    def give_back(self) -> None:
        torch = self._torch  # which keeps pinned memory until the process ends, unless it is asked
        empty = getattr(getattr(torch, "accelerator", None), "empty_host_cache", None) or getattr(
            torch._C, "_host_emptyCache", None
        )
        if empty is not None:
            empty()
