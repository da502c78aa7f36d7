"""Pictures described for a device that decodes them, and the kernels that do it.

A load is memory that `Renderer.add` fills instead of decoding; then it says what to copy, what to clear and what to launch, and
where the error words are. Pictures may be kept between loads (`KeptPictures`). Nothing here talks to a device.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoker.errors import KernelError
from stoker.kernel.library import library, place
from stoker.kernel.native import Program
from stoker.kernel.records import RecordTable
from stoker.kernel.structs import DEVICE_LAUNCH, DEVICE_LOAD, DEVICE_PICTURE, FETCH, KEEP

_FOLDER = Path(__file__).parent.parent / "device" / "kernels"

#: what the compiler is told: without the first, results differ from those of the CPU
OPTIONS = ("--fmad=false", "--std=c++14")

#: most pictures of a load, so that every number of a block of threads fits 32 bits
MOST_PICTURES = 1 << 16


class _Kernel(NamedTuple):
    threads: int
    blocks: Callable[[DeviceLoad], int]


#: by name, in the order in which they run: each needs what those before it made
_KERNELS = {
    "stk_unstuff_ranges": _Kernel(256, lambda load: load.pictures),
    "stk_weigh_axes": _Kernel(128, lambda load: 6 * load.pictures),
    "stk_decode_segments": _Kernel(128, lambda load: load._told("chunks")),
    "stk_transform_blocks": _Kernel(128, lambda load: load._told("tiles")),
    "stk_finish_rows": _Kernel(256, lambda load: load.pictures * -(-load._out_size[0] // 8)),
}
KERNELS = tuple(_KERNELS)


@cache
def kernel_source() -> str:
    """What NVRTC is given: all kernels as one text."""
    seen: set[str] = set()

    def text_of(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (_FOLDER / name).read_text(encoding="utf-8")
        return re.sub(r'^#include "([\w.]+)"\n', lambda found: text_of(found[1]), text, flags=re.MULTILINE)

    sizes = {"stk_device_picture": DEVICE_PICTURE.itemsize, "stk_device_launch": DEVICE_LAUNCH.itemsize}
    # The library writes these structs. What was not built again after a change, or is replaced under a program, must not run.
    checks = [f'static_assert(sizeof({name}) == {size}, "build the library again");\n' for name, size in sizes.items()]
    return text_of("decode_kernels.cu") + "".join(checks)


@dataclass(frozen=True)
class Launch:
    """A kernel by name, how many blocks of how many threads, and its only argument, a struct by value."""

    name: str
    grid: int
    block: int
    argument: bytes


#: memory for kept pictures is made in parts of this size, because making it takes time; and the least that is of use
_KEEP_BYTES, _LEAST_KEEP_BYTES = 256 << 20, 4 << 10


class KeptPictures:
    """Encoded pictures that stay in memory as they were first read, so that a device fetches them from there; for many workers.

    They take at most `budget` bytes of what `make` returns, until it returns None. A load that has these keeps its pictures as
    long as there is room, and later loads do not read them again.
    """

    def __init__(self, budget: int, make: Callable[[int], NDArray[np.uint8] | None]) -> None:
        self._left, self._make = budget, make
        self._lock = threading.Lock()
        self._parts: list[tuple[NDArray[np.void], NDArray[np.uint8]]] = []
        self._notes: dict[int, tuple[RecordTable, NDArray[np.int64]]] = {}

    def room(self) -> int:
        """The address of the struct that says where there is room, 0: nowhere; more memory is made when little is left."""
        if self._short:
            with self._lock:
                if self._short:
                    self._add_part()
        return place(self._parts[-1][0]) if self._parts else 0

    @property
    def _short(self) -> bool:
        if not self._left:
            return False
        return not self._parts or 8 * int(self._parts[-1][0]["used"][0]) > 7 * int(self._parts[-1][0]["capacity"][0])

    def _add_part(self) -> None:
        size = min(_KEEP_BYTES, 1 << self._left.bit_length() - 1)  # torch rounds up to a power of two
        memory = self._make(size) if size >= _LEAST_KEEP_BYTES else None
        if memory is None:
            self._left = 0
            return
        skipped = -place(memory) % 64
        part = np.zeros(1, KEEP)
        part["memory"], part["capacity"] = place(memory) + skipped, size - skipped
        self._left -= size
        self._parts.append((part, memory))

    def notes(self, table: RecordTable) -> int:
        """The address of what is noted of the pictures whose seek indices are in this table, a number each."""
        found = self._notes.get(id(table))
        if found is None:
            with self._lock:
                found = self._notes.setdefault(id(table), (table, np.zeros(len(table), np.int64)))
        return place(found[1])


class DeviceLoad:
    """Room for at most `pictures` pictures in `memory`, which is copied to a device and belongs to the caller.

    What the device needs for them is at most `most_device_bytes`, what is copied included. `when_full` is called when a picture
    finds no room while others are there: it launches the load and calls `begin`. A picture that finds none in an empty load is
    decoded by the CPU. Pictures that are in `kept` are copied from there.
    """

    def __init__(
        self,
        memory: NDArray[np.uint8],
        pictures: int,
        most_device_bytes: int,
        when_full: Callable[[], None] | None = None,
        kept: KeptPictures | None = None,
    ) -> None:
        if memory.dtype != np.uint8 or memory.ndim != 1 or not memory.flags.carray or place(memory) % 64:
            raise KernelError("the memory of a load must be one run of bytes, aligned to 64")
        if not 0 < pictures <= MOST_PICTURES:
            raise KernelError(f"a load has room for 1 to {MOST_PICTURES} pictures, not {pictures}")
        self._memory, self._slots = memory, np.zeros(pictures, np.int64)
        self._struct = np.zeros(1, DEVICE_LOAD)
        self.address = place(self._struct)
        self.when_full, self.kept = when_full, kept
        told = self._struct[0]
        told["memory"], told["capacity"], told["slots"] = place(memory), memory.size, place(self._slots)
        told["most_pictures"], told["most_device_bytes"] = pictures, most_device_bytes
        self._fetches = np.zeros(0 if kept is None else pictures, FETCH)
        told["fetches"] = 0 if kept is None else place(self._fetches)
        self._program: Program | None = None
        self._out_size: tuple[int, int] = (0, 0)
        least = library().load_begin(self.address)
        if least > memory.size:
            raise KernelError(f"a load for {pictures} pictures takes more than {least} bytes of memory, not {memory.size}")

    def begin(self, program: Program, out_height: int, out_width: int) -> None:
        """Empty it, for pictures of `program` that come out in this size."""
        self._program, self._out_size = program, (out_height, out_width)
        if self.kept is not None:
            self._struct["keep"] = self.kept.room()
        library().load_begin(self.address)

    def _told(self, name: str) -> int:
        return int(self._struct[name][0])

    @property
    def pictures(self) -> int:
        """How many it holds."""
        return self._told("pictures")

    @property
    def slots(self) -> NDArray[np.int64]:
        """The rows that its pictures are for, in their order."""
        return self._slots[: self.pictures]

    @property
    def full(self) -> bool:
        """Whether a picture found no room."""
        return bool(self._told("full"))

    @property
    def unfinished(self) -> bool:
        """Whether effects are left to do: its pictures come as bytes, channels last, for `Renderer.finish`."""
        return bool(self._told("unfinished"))

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory that it needs in all."""
        return self._told("device_bytes")

    @property
    def errors(self) -> tuple[int, int]:
        """Offset in device memory and bytes of the error words: a uint32 for each picture, 0 where all is well."""
        return self._told("errors_at"), 4 * self.pictures

    def make_room(self) -> bool:
        """Let `when_full` empty it, if it is full; says whether it was."""
        if not self.full:
            return False
        if self.when_full is None:
            raise KernelError("the load is full, and nobody empties it: give it `when_full`")
        self.when_full()
        if self._told("full"):
            raise KernelError("`when_full` must call `begin`")
        return True

    def copies(self) -> list[tuple[int, int, int]]:
        """What to copy to the device: (host address, offset in device memory, bytes)."""
        at, begin, end = place(self._memory), self._told("data_at"), self._told("data_end")
        return [(at, 0, self.pictures * DEVICE_PICTURE.itemsize), (at + begin, begin, end - begin)]

    def fetches(self, device_memory: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What to copy from where pictures are kept: addresses on the device and of the host, and bytes of each."""
        found, work = self._fetches[: self._told("fetched")], device_memory + self._told("work_at")
        return found["to"] + work, np.ascontiguousarray(found["from"]), np.ascontiguousarray(found["size"])

    @property
    def clears(self) -> list[tuple[int, int]]:
        """What has to be zero before the first launch: (offset in device memory, bytes)."""
        begin = self._told("coefficients_at")
        return [self.errors, (begin, self._told("work_at") - begin)]

    def launches(self, device_memory: int, out: int, out_stride: int) -> list[Launch]:
        """What to launch, in this order, once all is copied and cleared; nothing if the load is empty.

        The picture of row r, finished or not, is written to `out` + r * `out_stride` on the device, unless its error word says
        otherwise.
        """
        program = self._program
        if program is None:
            raise KernelError("the load was not begun")
        struct = np.zeros(1, DEVICE_LAUNCH)
        told = struct[0]
        told["pictures"], told["data"] = device_memory, device_memory + self._told("data_at")
        for name in ("errors", "coefficients", "work"):
            told[name] = device_memory + self._told(f"{name}_at")
        told["out"], told["out_stride"], told["count"] = out, out_stride, self.pictures
        told["out_height"], told["out_width"] = self._out_size
        told["channels"] = program.channels
        if not self.unfinished:
            told["planar"], told["floats"] = program.planar, program.as_float
        told["scale"][: len(program.scale)], told["bias"][: len(program.bias)] = program.scale, program.bias
        argument = struct.tobytes()
        kernels = _KERNELS.items() if self.pictures else ()
        return [Launch(name, kernel.blocks(self), kernel.threads, argument) for name, kernel in kernels]
