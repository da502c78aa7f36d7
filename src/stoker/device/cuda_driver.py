"""The CUDA driver by ctypes: modules, launches, copies and events on streams of the lowest priority, in the context torch uses.

Every call's status is checked in one place; an error has the driver's own name for it and says what to do. Memory is not
allocated here, but by the hand-over (`torch_output.py`).

Calls that only queue something keep the GIL: getting it back would take longer than the call. Calls that wait, or queue
hundreds of things, release it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, message_of

_log = logging.getLogger("stoker")

Ints = NDArray[np.int64]

#: the driver's library, which comes with the driver and not with torch
LIBRARY = "libcuda.so.1"

_OUT = c_void_p  # where an answer is written
#: a function that the device runs
Kernel = c_void_p
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [_OUT],
    "cuDeviceGet": [_OUT, c_int],
    "cuDeviceGetAttribute": [_OUT, c_int, c_int],
    "cuDevicePrimaryCtxRetain": [_OUT, c_int],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [_OUT],
    "cuCtxGetStreamPriorityRange": [_OUT, _OUT],
    "cuThreadExchangeStreamCaptureMode": [_OUT],
    "cuModuleLoadData": [_OUT, c_char_p],
    "cuModuleGetFunction": [_OUT, c_void_p, c_char_p],
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemsetD8Async": [c_uint64, c_ubyte, c_size_t, c_void_p],
    "cuStreamCreateWithPriority": [_OUT, c_uint, c_int],
    "cuStreamDestroy_v2": [c_void_p],
    "cuEventCreate": [_OUT, c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [_OUT, c_void_p, c_void_p],
    "cuEventDestroy_v2": [c_void_p],
}

#: of drivers since CUDA 12.8: many copies by one call
_BATCH_COPY = "cuMemcpyBatchAsync"
_BATCH_SIGNATURE = [*[c_void_p] * 3, c_size_t, *[c_void_p] * 2, c_size_t, c_void_p, c_void_p]
#: what it is told of all copies: sources are read in the order of the stream (CU_MEMCPY_SRC_ACCESS_ORDER_STREAM); and no hints
_IN_ORDER = struct.pack("6i", 1, 0, 0, 0, 0, 0)

#: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_MAJOR, _MINOR = 75, 76
#: CU_STREAM_NON_BLOCKING; CU_EVENT_BLOCKING_SYNC: a waiting thread gives up its core
_NON_BLOCKING, _BLOCKING_SYNC = 1, 1

#: CU_STREAM_CAPTURE_MODE_RELAXED
_RELAXED = 2

_OUT_OF_MEMORY = 2
#: what to do about an error, by its number
_REMEDIES = {
    _OUT_OF_MEMORY: "the GPU's memory is full; use less, as in loader(device_memory='250MB'), or decode_on='cpu'",
    3: "CUDA does not work in a forked process; start processes with 'spawn', or make the loader before the fork",
    100: "the driver sees no GPU here; use decode_on='cpu'",
    101: "there is no GPU of this number; check loader(device=...)",
    200: "the driver does not accept the compiled kernels; update the driver, or use decode_on='cpu'",
    209: "the driver does not accept the compiled kernels; update the driver, or use decode_on='cpu'",
    221: "the driver's own compiler is missing (libnvidia-ptxjitcompiler); install it, or a newer NVRTC, or use decode_on='cpu'",
    222: "the driver is older than the compiler; update the driver, or use decode_on='cpu'",
    801: "update the driver, or use decode_on='cpu'",
    803: "driver and kernel module differ; restart the machine after an update of the driver",
}
_BROKEN = "the GPU cannot be used any more in this process; start it again with decode_on='cpu', and report what you find"


class Driver:
    """The driver with one device of it, in its primary context, which is torch's, too."""

    def __init__(self, ordinal: int) -> None:
        self._brief, self._waiting = _load()
        #: whether many copies can be queued by one call
        self.copies_batches = hasattr(self._waiting, _BATCH_COPY)
        self._call("cuInit", 0)
        version, device, context = c_int(), c_int(), c_void_p()
        self._call("cuDriverGetVersion", byref(version))
        #: the release of CUDA that it is of, as in 12
        self.release = version.value // 1000
        self._call("cuDeviceGet", byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._context, self._device = context, device
        #: its compute capability, as in (9, 0)
        self.capability = self._attribute(_MAJOR), self._attribute(_MINOR)
        with self.current():
            least, greatest = c_int(), c_int()
            self._call("cuCtxGetStreamPriorityRange", byref(least), byref(greatest))
        self._least = least.value  # numbers of higher priority are lower
        #: what was loaded by `functions`, for later callers, by source
        self.kernels: dict[str, dict[str, Kernel]] = {}
        #: whether what it decodes was compared with what the CPU does (`device_check.py`)
        self.checked = False

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this device's context the calling thread's, and in the end what was before.

        While any thread captures a CUDA graph, calls that allocate or wait fail in all threads, and end the capture. Within this
        they do neither: what is done here has nothing to do with streams that are captured.
        """
        self._call("cuCtxPushCurrent_v2", self._context)
        mode = c_int(_RELAXED)
        try:
            self._call("cuThreadExchangeStreamCaptureMode", byref(mode))
            try:
                yield
            finally:
                self._call("cuThreadExchangeStreamCaptureMode", byref(mode))
        finally:
            self._call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def functions(self, image: bytes, names: Sequence[str]) -> dict[str, Kernel]:
        """The kernels of a compiled module, by name."""
        module, found = c_void_p(), {}
        with self.current():
            self._call("cuModuleLoadData", byref(module), image)
            for name in names:
                found[name] = c_void_p()
                self._call("cuModuleGetFunction", byref(found[name]), module, name.encode())
        return found

    def launch(self, function: Kernel, grid: int, block: int, argument: bytes, stream: c_void_p | int) -> None:
        """Queue a kernel that takes one struct on a stream, this device's or torch's; its context must be the current one."""
        held = ctypes.create_string_buffer(argument, len(argument))
        parameters = (c_void_p * 1)(ctypes.addressof(held))  # copied before the call returns
        self._call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, stream, parameters, None)

    def stream(self) -> DeviceStream:
        """A new stream of the lowest priority, which torch's default stream has too: nothing goes below that."""
        return DeviceStream(self)

    def _attribute(self, which: int) -> int:
        number = c_int()
        self._call("cuDeviceGetAttribute", byref(number), which, self._device)
        return number.value

    def _call(self, name: str, *arguments: Any, wait: bool = False) -> None:
        """Call a function of the driver; raises a DeviceError unless it succeeds."""
        status = getattr(self._waiting if wait else self._brief, name)(*arguments)
        if status:
            raise self._error(name, status)

    def _error(self, name: str, status: int) -> DeviceError:
        told = []
        for tell in (self._brief.cuGetErrorName, self._brief.cuGetErrorString):
            text = c_char_p()
            told.append((text.value or b"").decode() if not tell(status, byref(text)) else "")
        known = f"{told[0] or f'error {status}'}{f' ({told[1]})' if told[1] else ''}"
        return DeviceError(f"{name}: {known}; {_REMEDIES.get(status, _BROKEN)}")


@dataclass(slots=True)
class DeviceWork:
    """What was queued on a stream; when it is done, how many seconds it was under way by the device's clock."""

    seconds: float = 0.0


class DeviceStream:
    """Work in order, for one thread. Destroyed when it is no longer referenced."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._stream, self._begun, self._ended = c_void_p(), c_void_p(), c_void_p()
        finalizer = weakref.finalize(self, _destroy, driver, self._stream, (self._begun, self._ended), os.getpid())
        finalizer.atexit = False
        with driver.current():
            driver._call("cuStreamCreateWithPriority", byref(self._stream), _NON_BLOCKING, driver._least)
            for event in (self._begun, self._ended):
                driver._call("cuEventCreate", byref(event), _BLOCKING_SYNC)

    @contextmanager
    def work(self) -> Iterator[DeviceWork]:
        """Queue something; in the end it is waited for, without using a core, also after an error: memory it names is in use."""
        work = DeviceWork()
        self._driver._call("cuEventRecord", self._begun, self._stream)
        try:
            yield work
            work.seconds = self._wait()
        except BaseException:  # among them Ctrl-C, before it was waited for
            with suppress(DeviceError):  # the first error is the one to tell
                self._wait()
            raise

    def upload(self, to: int, source: int, nbytes: int) -> None:
        """Copy host memory to the device; it must be pinned, and must not change until the work is done."""
        self._driver._call("cuMemcpyHtoDAsync_v2", to, source, nbytes, self._stream)

    def upload_all(self, to: Ints, sources: Ints, sizes: Ints) -> None:
        """The same for many pieces: addresses on the device and of the host, and bytes of each."""
        driver = self._driver
        if driver.copies_batches and len(to):
            pieces, first, failed = (to.ctypes.data, sources.ctypes.data, sizes.ctypes.data, len(to)), c_size_t(0), c_size_t()
            try:
                driver._call(_BATCH_COPY, *pieces, _IN_ORDER, byref(first), 1, byref(failed), self._stream, wait=True)
            except DeviceError as error:  # if the device is at fault, the next copy says so, too
                driver.copies_batches = False
                _log.info("pictures that stay in pinned memory are copied one by one (%s)", message_of(error))
        if not driver.copies_batches:
            for piece in zip(to.tolist(), sources.tolist(), sizes.tolist()):
                self.upload(*piece)

    def download(self, to: int, source: int, nbytes: int) -> None:
        """Copy the device's memory to pinned host memory; it is there when the work is done."""
        self._driver._call("cuMemcpyDtoHAsync_v2", to, source, nbytes, self._stream)

    def clear(self, at: int, nbytes: int) -> None:
        """Fill the device's memory with zeros."""
        self._driver._call("cuMemsetD8Async", at, 0, nbytes, self._stream)

    def launch(self, function: Kernel, grid: int, block: int, argument: bytes) -> None:
        """Run a kernel that takes one struct."""
        self._driver.launch(function, grid, block, argument, self._stream)

    def _wait(self) -> float:
        driver, spent_ms = self._driver, c_float()
        driver._call("cuEventRecord", self._ended, self._stream)
        driver._call("cuEventSynchronize", self._ended, wait=True)
        driver._call("cuEventElapsedTime", byref(spent_ms), self._begun, self._ended)
        return spent_ms.value * 1e-3


def _destroy(driver: Driver, stream: c_void_p, events: Iterable[c_void_p], process: int) -> None:
    """Let a stream go; what the driver says of that concerns nobody. A forked child leaves its parent's alone."""
    if os.getpid() != process:
        return
    with suppress(DeviceError), driver.current():
        if stream:
            driver._brief.cuStreamDestroy_v2(stream)
        for event in filter(None, events):
            driver._brief.cuEventDestroy_v2(event)


_drivers: dict[tuple[int, int], Driver] = {}


def open_driver(ordinal: int) -> Driver:
    """The driver for a device of this number; one for all loaders of a process."""
    key = os.getpid(), ordinal  # a forked child has none of its parent's, and would wait for ever for a lock that was held
    return _drivers.get(key) or _drivers.setdefault(key, Driver(ordinal))


def _load() -> tuple[ctypes.PyDLL, ctypes.CDLL]:
    """The library twice: for calls that keep the interpreter lock, and for those that let it go."""
    try:
        brief, waiting = ctypes.PyDLL(LIBRARY), ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(
            f"the CUDA driver library cannot be loaded ({error}); install NVIDIA's driver, or use decode_on='cpu'"
        ) from error
    for library in (brief, waiting):
        for name, argtypes in _SIGNATURES.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise DeviceError(
                    f"the CUDA driver has no {name}, so it is older than CUDA 11; update the driver, or use decode_on='cpu'"
                ) from error
            function.argtypes, function.restype = argtypes, c_int
        if hasattr(library, _BATCH_COPY):
            getattr(library, _BATCH_COPY).argtypes = _BATCH_SIGNATURE
        for name in ("cuGetErrorName", "cuGetErrorString"):
            function = getattr(library, name)
            function.argtypes, function.restype = [c_int, _OUT], c_int
    return brief, waiting
