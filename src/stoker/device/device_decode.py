"""Pictures of a batch decoded on a device: what each worker has for it, and what it does in a task.

A task renders its rows as always, in one native call; but what the device takes is only put into a *load*: a descriptor, places
to begin, and the bytes of the file, in pinned memory. Then the load is copied, kernels decode it into the batch's memory on the
device, and the worker waits, without a core. A picture that the device finds fault with is rendered here, so that its error, if
it has one, is the one it always has. Pictures made here are copied to their places on the device, and then the task ends like any
other. So who decodes a picture changes no byte of a batch.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, message_of
from ..kernel.device_load import KERNELS, OPTIONS, DeviceLoad, kernel_source
from ..kernel.native import Program
from ..kernel.render import Renderer
from ..sizes import show_bytes
from ..storage.scratch import Scratch
from .cuda_driver import DeviceStream, open_driver
from .kernel_compiler import load_kernels

Ints = NDArray[np.int64]

#: pictures of a load at most
_PICTURES = 512
#: the share of a worker's device memory that files may take: coefficients and samples of them take the rest
_FILES_SHARE = 8
#: the kernel of MixUp and CutMix, its threads, and the struct it is given (`kernels/mix_kernel.cu`)
_MIX_KERNEL, _MIX_THREADS, _MIX = "stk_mix_rows", 256, struct.Struct("<4q9if")
#: all kernels
NAMES = (*KERNELS, _MIX_KERNEL)
#: the least that a worker needs on the device
_LEAST_BYTES = 16 << 20
#: pinned memory of a worker
_LEAST_PINNED, _MOST_PINNED, _ALIGN = 4 << 20, 64 << 20, 64


class DeviceMemory(Protocol):
    """Who makes memory on a device, and memory that it copies from fast: the one seam to the framework that batches are for."""

    #: the number of the device
    ordinal: int

    def rows(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor on the device that nobody uses, so that any stream may write to it at once."""

    def place(self, tensor: Any) -> int:
        """The address of a tensor on the device."""

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory of the host for copies to and from the device."""

    def taken(self, tensor: Any, rows: Ints) -> Any:
        """These rows of a tensor that is complete, as another tensor that is complete."""


class LoadSize:
    """What each of so many workers may take of a budget on the device, and of pinned memory."""

    def __init__(self, budget: int, workers: int) -> None:
        self.device_bytes = max(_LEAST_BYTES, budget // max(1, workers))
        self.pinned_bytes = min(_MOST_PINNED, max(_LEAST_PINNED, self.device_bytes // _FILES_SHARE))
        self.workers = workers

    def __str__(self) -> str:
        device, pinned = show_bytes(self.device_bytes), show_bytes(self.pinned_bytes)
        return f"{device} of device memory and {pinned} of pinned memory for each of {self.workers} workers"


class DeviceDecoding:
    """Decoding of one field of a loader's batches on a device; shared by all workers.

    `shape` and `dtype` are those of one picture. Raises a DeviceError where the driver, or the compiler, is missing or refuses.
    """

    def __init__(self, memory: DeviceMemory, field: str, shape: tuple[int, ...], dtype: str, size: LoadSize) -> None:
        self.memory, self.field, self.shape, self.size = memory, field, shape, size
        self.dtype = np.dtype(dtype).name
        self.row_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.driver = open_driver(memory.ordinal)
        self.functions = load_kernels(self.driver, all_kernels(), OPTIONS, NAMES)
        #: the share of tasks whose pictures go to the device
        self.share = 1.0
        self._owed = 0.0
        #: streams of those who do something to a whole batch, for whoever comes next
        self.streams: deque[DeviceStream] = deque()

    def batch(self, rows: int) -> DeviceBatch | None:
        """Memory for a batch on the device; None: it is decoded by the CPU alone."""
        if not self.share:
            return None
        try:
            tensor = self.memory.rows((rows, *self.shape), self.dtype)
        except (RuntimeError, MemoryError) as error:  # torch's OutOfMemoryError is one of the former
            told = show_bytes(rows * self.row_bytes)
            raise DeviceError(
                f"there is no memory on the device for another batch ({told}; {message_of(error).splitlines()[0]}); make fewer "
                "ahead, as in loader(ahead=2), use less for decoding, as in loader(device_memory='250MB'), or decode_on='cpu'"
            ) from error
        return DeviceBatch(self, tensor)

    def prepare(self) -> None:
        """Find out whether there is memory for all workers; raises a DeviceError where there is not."""
        total = self.size.device_bytes * self.size.workers
        try:
            self.memory.rows((total,), "uint8")  # what is let go here is what workers get: torch keeps it
        except (RuntimeError, MemoryError) as error:
            raise DeviceError(f"there are no {show_bytes(total)} of memory on the device; use a smaller device_memory") from error

    def take_stream(self) -> DeviceStream:
        """A stream that nobody uses; whoever is done with it adds it to `streams`."""
        try:
            return self.streams.pop()
        except IndexError:
            return self.driver.stream()

    def takes_next(self) -> bool:
        """Whether the task that begins now is for the device: `share` of them are."""
        # Threads may do this at the same time; then one task more or less goes there, and no byte depends on it.
        self._owed += self.share
        if self._owed < 1:
            return False
        self._owed = min(self._owed - 1, 1.0)
        return True

    def __reduce__(self) -> Any:
        raise DeviceError("what decodes on a device cannot be sent to another process; use loader(executor='threads')")


class DeviceBatch:
    """The memory of one batch's pictures on the device."""

    def __init__(self, decoding: DeviceDecoding, tensor: Any) -> None:
        self.tensor, self._decoding = tensor, decoding
        self._place = decoding.memory.place(tensor)

    @contextmanager
    def task(self, first: int, targets: Mapping[str, NDArray[Any]], scratch: Scratch) -> Iterator[DeviceTask]:
        """Let a task begin whose rows are those from `first` on; `targets` are the same rows in the host's memory."""
        decoding = self._decoding
        worker: DeviceWorker = scratch.keep(decoding, lambda: DeviceWorker(decoding))
        place = self._place + first * decoding.row_bytes
        task = DeviceTask(worker, targets[decoding.field], place, decoding.row_bytes, scratch)
        scratch.device = task if decoding.takes_next() else None
        try:
            with decoding.driver.current():
                yield task
        finally:
            scratch.device = None
            task.close()

    def columns(self, rows: int, taken: Ints | None) -> dict[str, DeviceImages]:
        """The field that is on the device, when all tasks have ended."""
        decoding, tensor = self._decoding, self.tensor
        if taken is not None:
            tensor = decoding.memory.taken(tensor, taken)
        return {decoding.field: DeviceImages(decoding, tensor if rows == len(tensor) else tensor[:rows])}

    def __reduce__(self) -> Any:
        return self._decoding.__reduce__()


class DeviceImages:
    """Pictures of a batch on the device, complete, while something is done to the whole batch; then it is its `tensor`."""

    def __init__(self, decoding: DeviceDecoding, tensor: Any) -> None:
        self.tensor, self._decoding = tensor, decoding
        self.shape, self.ndim, self.dtype = tuple(tensor.shape), tensor.ndim, np.dtype(decoding.dtype)
        self.nbytes = len(tensor) * decoding.row_bytes

    def __len__(self) -> int:
        return len(self.tensor)

    def mix(self, rows: int, share: float, box: tuple[int, int, int, int] | None, planar: bool) -> None:
        """Mix each of the first so many pictures with the one before it, as `kernel.blend_rows` does in the host's memory."""
        decoding, (height, width) = self._decoding, self.shape[2:4] if planar else self.shape[1:3]
        weight = int(share * (1 << 15) + 0.5)
        if rows < 2 or (box is None and self.dtype == np.uint8 and weight == 1 << 15):
            return
        values = decoding.row_bytes // self.dtype.itemsize
        planes, pixel = (height * width, 1) if planar else (values, values // (height * width))
        argument = _MIX.pack(
            decoding.memory.place(self.tensor), rows, values, planes, pixel, width, *(box or (0, 0, 0, 0)),
            self.dtype == np.float32, box is not None, weight, share,
        )  # fmt: skip
        stream = decoding.take_stream()
        with decoding.driver.current(), stream.work():
            stream.launch(decoding.functions[_MIX_KERNEL], -(-values // _MIX_THREADS), _MIX_THREADS, argument)
        decoding.streams.append(stream)


class DeviceWorker:
    """What one worker has for decoding on a device: a stream, a load, and memory on the device."""

    def __init__(self, decoding: DeviceDecoding) -> None:
        size, memory = decoding.size, decoding.memory
        self.functions, self.stream = decoding.functions, decoding.driver.stream()
        try:
            self._buffer = memory.rows((size.device_bytes,), "uint8")
            pinned, words = memory.pinned(size.pinned_bytes + _ALIGN), memory.pinned(4 * _PICTURES)
        except (RuntimeError, MemoryError) as error:
            raise DeviceError(
                f"there is no memory for decoding on the device ({size}; {message_of(error).splitlines()[0]}); use less, as in "
                "loader(device_memory='250MB'), or decode_on='cpu'"
            ) from error
        self.place = memory.place(self._buffer)
        start = -pinned.ctypes.data % _ALIGN
        self.load = DeviceLoad(pinned[start : start + size.pinned_bytes], _PICTURES, size.device_bytes)
        self.errors = words.view(np.uint32)


class DeviceTask:
    """The pictures of one task on their way to the device; `host` is where the kernel writes those it renders itself."""

    def __init__(self, worker: DeviceWorker, host: NDArray[Any], place: int, row_bytes: int, scratch: Scratch) -> None:
        self.host, self._worker, self._scratch = host, worker, scratch
        self._place, self._row_bytes = place, row_bytes
        self._made = np.zeros(len(host), np.bool_)
        self._back: list[int] = []
        self._renderer: Renderer | None = None
        self._program: Program | None = None

    def begin(self, renderer: Renderer, program: Program) -> None:
        """Let a renderer that is about to begin put pictures into the worker's load, from the task's first one on."""
        self._made[:], self._back = False, []
        self._renderer, self._program = renderer, program
        self._empty()
        self._worker.load.when_full = self._flush
        renderer.load = self._worker.load

    def finish(self, renderer: Renderer) -> Ints:
        """Decode what is in the load; returns the rows that the device gave back, of all loads of the task."""
        self._flush()
        self.close()
        if self._back:
            self._scratch.notes.device_refused += len(self._back)
        return np.array(self._back, np.int64)

    def close(self) -> None:
        """Nothing is put into the load any more."""
        if self._renderer is not None:
            self._renderer.load = self._worker.load.when_full = None
            self._renderer = None

    def _empty(self) -> None:
        program = self._program
        assert program is not None
        self._worker.load.begin(program, *(self.host.shape[2:] if program.planar else self.host.shape[1:3]))

    def _flush(self) -> None:
        """Decode what is in the load, wait, and empty it."""
        load, count = self._worker.load, self._worker.load.pictures
        if not count:
            return
        errors, seconds = self._worker.errors[:count], self._run(load, count)
        slots, good = np.array(load.slots[:count]), errors == 0
        self._made[slots[good]] = True
        self._back += slots[~good].tolist()
        notes = self._scratch.notes
        notes.device_images += int(good.sum())
        notes.device_s += seconds
        notes.device_bytes += load.device_bytes
        self._empty()

    def _run(self, load: DeviceLoad, count: int) -> float:
        worker = self._worker
        stream, base = worker.stream, worker.place
        with stream.work() as done:
            for source, offset, nbytes in load.copies():
                stream.upload(base + offset, source, nbytes)
            for offset, nbytes in load.clears:
                stream.clear(base + offset, nbytes)
            for launch in load.launches(base, self._place, self._row_bytes):
                stream.launch(worker.functions[launch.name], launch.grid, launch.block, launch.argument)
            stream.download(worker.errors.ctypes.data, base + load.errors[0], 4 * count)
        return done.seconds

    def end(self, slots: Ints) -> None:
        """Copy the pictures of these rows to the device that were made here."""
        here = slots[~self._made[slots]]
        if not len(here):
            return
        stream, nbytes, start = self._worker.stream, self._row_bytes, self.host.ctypes.data
        with stream.work():
            for run in np.split(here, np.flatnonzero(np.diff(here) != 1) + 1):
                offset = int(run[0]) * nbytes
                stream.upload(self._place + offset, start + offset, len(run) * nbytes)


def all_kernels() -> str:
    """What is compiled: the kernels that decode, and the one that mixes."""
    mixing = (Path(__file__).parent / "kernels" / "mix_kernel.cu").read_text(encoding="utf-8")
    return kernel_source() + mixing.replace('#include "kernel_language.h"\n', "")
