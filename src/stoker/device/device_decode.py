"""Pictures of a batch decoded on a device: what each worker has for it, and what it does in a task.

A task renders its rows as always, in one native call; but what the device takes is only put into a *load*: a descriptor, places
to start, and the bytes of the file, in pinned memory. Then the load is copied, kernels decode it into the batch's memory on the
device, and the worker waits, without a core, while another has its turn. A picture that the device rejects is rendered here, so
that its error, if it has one, is always the same. If effects follow the crop (colours, warps, policies), crops come back and
are finished here. Pictures made here are copied to their places on the device, and then the task ends like any other. So where
a picture is decoded does not change a byte of the batch.
"""

from __future__ import annotations

import logging
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, DeviceError, message_of
from ..kernel.device_load import KERNELS, OPTIONS, DeviceLoad, KeptPictures, kernel_source
from ..kernel.native import Program
from ..kernel.render import Renderer
from ..sizes import counted, show_bytes
from ..storage.scratch import Scratch
from .cuda_driver import DeviceStream, open_driver
from .kernel_compiler import load_kernels

Ints = NDArray[np.int64]

_log = logging.getLogger("stoker")

#: pictures of a load at most
_PICTURES = 1024
#: the share of a load's device memory that files may take: coefficients and samples of them take the rest
_FILES_SHARE = 8
#: the kernel of MixUp and CutMix, its threads, and the struct it is given (`kernels/mix_kernel.cu`)
_MIX_KERNEL, _MIX_THREADS, _MIX = "stk_mix_rows", 256, struct.Struct("<4q9if")
#: all kernels
NAMES = (*KERNELS, _MIX_KERNEL)
#: the least that a load needs on the device
LEAST_BYTES = 16_000_000
#: pinned memory of a worker
_LEAST_PINNED, _MOST_PINNED, _ALIGN = 4 << 20, 64 << 20, 64


class DeviceMemory(Protocol):
    """Makes memory on a device, and host memory that it copies from fast: the one seam to the framework that batches are for."""

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

    def give_back(self) -> None:
        """Return unused pinned memory to the system."""


class LoadSize:
    """How a budget on the device is divided among several loads at a time, or fewer if it is small.

    Pictures that stay in pinned memory take at most `kept_bytes` of it.
    """

    def __init__(self, budget: int, loads: int, *, kept_bytes: int = 0) -> None:
        self.loads, self.kept_bytes = min(loads, budget // LEAST_BYTES), kept_bytes
        if not self.loads:
            least = show_bytes(LEAST_BYTES)
            raise ConfigError(f"loader(device_memory={budget}): must be at least {least}, the memory for a few pictures")
        self.device_bytes = budget // self.loads
        self.pinned_bytes = min(_MOST_PINNED, max(_LEAST_PINNED, self.device_bytes // _FILES_SHARE))

    def __str__(self) -> str:
        device, pinned = show_bytes(self.device_bytes), show_bytes(self.pinned_bytes)
        return f"{device} of device memory for each of {counted(self.loads, 'load')}, {pinned} of pinned memory for each worker"


class CoreSharing(Protocol):
    """Whose turn it is to use a core (`engine/core_turns.py`)."""

    def aside(self) -> AbstractContextManager[None]:
        """Wait for something, while others have their turn."""


class DeviceDecoding:
    """Decoding of one field of a loader's batches on a device; shared by all workers.

    `shape` and `dtype` are those of one picture; `turns` None: a single thread does everything. `optional`: nothing goes to the
    device before `take`, and if it has no memory for a batch, the CPU decodes. Raises a DeviceError if the driver, or the
    compiler, is missing or fails.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        field: str,
        shape: tuple[int, ...],
        dtype: str,
        size: LoadSize,
        turns: CoreSharing | None = None,
        *,
        optional: bool = False,
    ) -> None:
        self.memory, self.field, self.shape, self.size = memory, field, shape, size
        self.dtype = np.dtype(dtype).name
        self.row_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.driver = open_driver(memory.ordinal)
        self.functions = load_kernels(self.driver, all_kernels(), OPTIONS, NAMES)
        self.kept = KeptPictures(size.kept_bytes, partial(_memory_to_keep, memory)) if size.kept_bytes else None
        self._turns, self.optional = turns, optional
        #: the share of a batch's pictures that go to the device
        self.share = 0.0 if optional else 1.0
        #: why the device is no longer used, where it is optional
        self.refusal = ""
        #: free streams for work on a batch; and rooms for loads, limited in number
        self.streams: deque[DeviceStream] = deque()
        self._rooms: deque[DeviceRoom] = deque(maxlen=size.loads)
        self._batches: weakref.WeakSet[DeviceBatch] = weakref.WeakSet()  # those in the making
        # A single thread needs none: interrupted by Ctrl-C while it takes it, it would wait for ever the next time.
        self._free_rooms = nullcontext() if turns is None else threading.Semaphore(size.loads)

    def batch(self, rows: int) -> DeviceBatch | None:
        """Memory for a batch on the device; None: it is decoded by the CPU alone."""
        if not self.share:
            if not self._batches:
                self._rooms.clear()  # the training may have their memory
            return None
        with self.driver.current():
            try:
                tensor = self.memory.rows((rows, *self.shape), self.dtype)
            except (RuntimeError, MemoryError) as error:  # torch's OutOfMemoryError is one of the former
                why = f"{show_bytes(rows * self.row_bytes)}; {message_of(error).splitlines()[0]}"
                told = f"there is no memory on the device for another batch ({why})"
                if self.optional:
                    self.refuse(told)
                    return None
                raise DeviceError(
                    f"{told}; make fewer ahead, as in loader(ahead=2), use less for decoding, as in "
                    "loader(device_memory='250MB'), or decode_on='cpu'"
                ) from error
        batch = DeviceBatch(self, tensor)
        self._batches.add(batch)
        return batch

    def take(self, share: float) -> None:
        """Let this share of each batch go to the device; raises a DeviceError where there is no memory for all loads."""
        if share and not self.share:
            with self.driver.current():
                self._rooms.extend([DeviceRoom(self) for _ in range(self.size.loads - len(self._rooms))])
        self.share = share

    def refuse(self, why: str) -> None:
        """Leave everything to the CPU from now on."""
        self.share, self.refusal = 0.0, why

    def aside(self) -> AbstractContextManager[None]:
        """Wait for the device, while others use the core."""
        return nullcontext() if self._turns is None else self._turns.aside()

    def take_stream(self) -> DeviceStream:
        """A stream that nobody uses; whoever is done with it adds it to `streams`."""
        try:
            return self.streams.pop()
        except IndexError:
            return self.driver.stream()

    @contextmanager
    def room(self) -> Iterator[DeviceRoom]:
        """Room for a load on the device, once there is some."""
        with self._free_rooms:
            try:
                room = self._rooms.pop()
            except IndexError:
                room = DeviceRoom(self)
            yield room
            self._rooms.append(room)

    def made(self, make: Callable[[], Any]) -> Any:
        """Memory for loads; raises a DeviceError where there is not enough."""
        try:
            # Once more: torch may leave the context of another device in its place, and the caller goes on in this one.
            with self.driver.current():
                return make()
        except (RuntimeError, MemoryError) as error:
            raise DeviceError(
                f"there is not enough memory for decoding on the device ({self.size}; {message_of(error).splitlines()[0]}); "
                "use less, "
                "as in loader(device_memory='250MB'), or decode_on='cpu'"
            ) from error

    def close(self) -> None:
        """Let go of what nobody uses: workers that are still in a task hold what they need, and what they give back goes, too."""
        self._rooms, self.streams = deque(maxlen=0), deque(maxlen=0)
        if self.kept is not None:
            self.kept = None
            with self.driver.current():
                self.memory.give_back()

    def __reduce__(self) -> Any:
        raise DeviceError("a decoder on a device cannot be sent to another process; use loader(executor='threads')")


class DeviceBatch:
    """The memory of one batch's pictures on the device."""

    def __init__(self, decoding: DeviceDecoding, tensor: Any) -> None:
        self.tensor, self._decoding = tensor, decoding
        self._place = decoding.memory.place(tensor)

    def cuts(self, rows: int) -> list[tuple[int, int]]:
        """The tasks of the pictures that go to the device, the first ones: as large as loads can be: small ones waste time."""
        rows = round(self._decoding.share * rows)
        tasks = -(-rows // _PICTURES)
        return [(number * rows // tasks, (number + 1) * rows // tasks) for number in range(tasks)]

    @contextmanager
    def task(
        self, first: int, targets: Mapping[str, NDArray[Any]], scratch: Scratch, *, decodes: bool = True
    ) -> Iterator[DeviceTask]:
        """Let a task begin whose rows are those from `first` on; `targets` are the same rows in the host's memory.

        Unless the device `decodes` its pictures, they are made here and copied.
        """
        decoding = self._decoding
        with decoding.driver.current():
            worker: DeviceWorker = scratch.keep(decoding, lambda: DeviceWorker(decoding))
            place = self._place + first * decoding.row_bytes
            task = DeviceTask(worker, targets[decoding.field], place, decoding.row_bytes, scratch)
            scratch.device = task if decodes and worker.load is not None else None
            try:
                yield task
            finally:
                scratch.device = None
                task.close()

    def columns(self, rows: int, taken: Ints | None) -> dict[str, DeviceImages]:
        """The field that is on the device, when all tasks have ended."""
        decoding, tensor = self._decoding, self.tensor
        if taken is not None:
            with decoding.driver.current():
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
        with decoding.aside(), decoding.driver.current(), stream.work():
            stream.launch(decoding.functions[_MIX_KERNEL], -(-values // _MIX_THREADS), _MIX_THREADS, argument)
        decoding.streams.append(stream)


class DeviceRoom:
    """Space for one load at a time on the device: a stream, memory, and the place of its error words."""

    def __init__(self, decoding: DeviceDecoding) -> None:
        self.stream = decoding.driver.stream()
        self._buffer = decoding.made(lambda: decoding.memory.rows((decoding.size.device_bytes,), "uint8"))
        self.place = decoding.memory.place(self._buffer)
        self.errors = decoding.made(lambda: decoding.memory.pinned(4 * _PICTURES)).view(np.uint32)


class DeviceWorker:
    """What one worker fills for the device: a load in pinned memory; None: there is no such memory, and it is optional."""

    def __init__(self, decoding: DeviceDecoding) -> None:
        size = decoding.size
        self.decoding = decoding
        self.load: DeviceLoad | None = None
        try:
            # Not a byte more for the alignment: torch rounds up to a power of two.
            pinned = decoding.made(lambda: decoding.memory.pinned(size.pinned_bytes))
        except DeviceError as error:
            if not decoding.optional:
                raise
            decoding.refuse(message_of(error))
            return
        memory = pinned[-pinned.ctypes.data % _ALIGN :]
        self.load = DeviceLoad(memory, _PICTURES, size.device_bytes, kept=decoding.kept)


class DeviceTask:
    """The pictures of one task on their way to the device; `host` is where the kernel writes those it renders itself."""

    def __init__(self, worker: DeviceWorker, host: NDArray[Any], place: int, row_bytes: int, scratch: Scratch) -> None:
        self.host, self._worker, self._scratch = host, worker, scratch
        self._place, self._host_place, self._row_bytes = place, host.ctypes.data, row_bytes
        self._made = np.zeros(len(host), np.bool_)
        self._back: list[int] = []
        self._renderer: Renderer | None = None
        self._program: Program | None = None

    def begin(self, renderer: Renderer, program: Program) -> None:
        """Let a renderer that is about to begin put pictures into the worker's load, from the task's first one on."""
        self._made[:], self._back = False, []
        self._renderer, self._program = renderer, program
        self._empty()
        self._load.when_full = self._flush
        renderer.load = self._load

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
            self._renderer.load = self._load.when_full = None
            self._renderer = None

    @property
    def _load(self) -> DeviceLoad:
        load = self._worker.load
        assert load is not None
        return load

    def _empty(self) -> None:
        program = self._program
        assert program is not None
        self._load.begin(program, *(self.host.shape[2:] if program.planar else self.host.shape[1:3]))

    def _flush(self) -> None:
        """Decode what is in the load, wait, and empty it."""
        load, count = self._load, self._load.pictures
        if not count:
            return
        errors, seconds = self._run(load, count)
        slots, good = np.array(load.slots[:count]), errors == 0
        self._back += slots[~good].tolist()
        if load.unfinished:
            assert self._renderer is not None
            self._back += self._renderer.finish(slots[good]).tolist()
        else:
            self._made[slots[good]] = True
        notes = self._scratch.notes
        notes.device_images += int(good.sum())
        notes.device_s += seconds
        notes.device_bytes += load.device_bytes
        self._empty()

    def _run(self, load: DeviceLoad, count: int) -> tuple[NDArray[np.uint32], float]:
        """Decode a load, while others use the core: the error words, and the seconds it took."""
        decoding = self._worker.decoding
        with decoding.aside(), decoding.room() as room:
            stream, base = room.stream, room.place
            with stream.work() as done:
                for source, offset, nbytes in load.copies():
                    stream.upload(base + offset, source, nbytes)
                stream.upload_all(*load.fetches(base))
                for offset, nbytes in load.clears:
                    stream.clear(base + offset, nbytes)
                for launch in load.launches(base, self._place, self._row_bytes):
                    stream.launch(decoding.functions[launch.name], launch.grid, launch.block, launch.argument)
                stream.download(room.errors.ctypes.data, base + load.errors[0], 4 * count)
                if load.unfinished:
                    self._fetch(stream, load.slots)
            return room.errors[:count].copy(), done.seconds

    def _fetch(self, stream: DeviceStream, slots: Ints) -> None:
        """Copy the bytes of these rows back, to the beginning of their rows here."""
        program, nbytes = self._program, self._row_bytes
        assert program is not None
        if program.as_float:
            pixels = nbytes // program.dtype.itemsize
            for slot in slots.tolist():
                stream.download(self._host_place + slot * nbytes, self._place + slot * nbytes, pixels)
        else:
            for offset, size in self._runs(slots):
                stream.download(self._host_place + offset, self._place + offset, size)

    def end(self, slots: Ints) -> None:
        """Copy the pictures of these rows to the device that were made, or finished, here."""
        here = slots[~self._made[slots]]
        if not len(here):
            return
        decoding = self._worker.decoding
        stream = decoding.take_stream()
        with decoding.aside(), stream.work():
            for offset, size in self._runs(here):
                stream.upload(self._place + offset, self._host_place + offset, size)
        decoding.streams.append(stream)

    def _runs(self, slots: Ints) -> Iterator[tuple[int, int]]:
        """Rows that lie side by side, as bytes: where each run of them begins, and its size."""
        for run in np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1):
            yield int(run[0]) * self._row_bytes, len(run) * self._row_bytes


def _memory_to_keep(memory: DeviceMemory, nbytes: int) -> NDArray[np.uint8] | None:
    """Memory for pictures that stay; None: there is no more."""
    try:
        return memory.pinned(nbytes)
    except (RuntimeError, MemoryError) as error:
        why = show_bytes(nbytes), message_of(error).splitlines()[0]
        _log.warning("no further %s of memory could be pinned for pictures (%s); the others are read again in every epoch", *why)
        return None


def all_kernels() -> str:
    """What is compiled: the kernels that decode, and the one that mixes."""
    mixing = (Path(__file__).parent / "kernels" / "mix_kernel.cu").read_text(encoding="utf-8")
    return kernel_source() + mixing.replace('#include "kernel_language.h"\n', "")
