"""The kernels of `src/stoker/device/kernels`, compiled for the host, where blocks and threads are loops."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.kernel.device_load import DeviceLoad
from stoker.kernel.library import place
from stoker.kernel.native import Program
from stoker.kernel.render import Input, Renderer

from ..loader.runs import ROOT

#: written around device memory and around rows of the output: whatever writes beyond them shows
GUARD = 64


@cache
def emulation() -> ctypes.CDLL:
    """The library `native/test/emulated_device.c`, compiled once."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler for the kernels")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "emulated_device.so"
        options = ["-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=default"]
        kernels = ROOT / "src/stoker/device/kernels"
        source = ROOT / "native/test/emulated_device.c"
        subprocess.run([compiler, *options, f"-I{kernels}", str(source), "-o", str(path)], check=True, timeout=120)
        library = ctypes.CDLL(str(path))
    library.emulate_launch.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64]
    library.emulate_launch.restype = ctypes.c_int32
    return library


def aligned(size: int) -> NDArray[np.uint8]:
    """Memory as a load wants it."""
    memory = np.empty(size + 64, np.uint8)
    return memory[-place(memory) % 64 :][:size]


def run_load(load: DeviceLoad, out: NDArray[Any]) -> NDArray[np.uint32]:
    """Do what a driver would: returns the error words. Device memory is as large as the load says, and not a byte larger."""
    size = load.device_bytes
    memory = aligned(size + GUARD)
    memory[:] = 0xA5
    at = place(memory)
    for host, offset, length in load.copies():
        ctypes.memmove(at + offset, host, length)
    for offset, length in load.clears:
        memory[offset : offset + length] = 0
    for launch in load.launches(at, place(out), out.strides[0]):
        name, argument = launch.name.encode(), launch.argument
        assert emulation().emulate_launch(name, launch.grid, launch.block, argument, len(argument)) == 0, launch.name
    assert (memory[size:] == 0xA5).all()
    begin, length = load.errors
    return memory[begin : begin + length].view(np.uint32).copy()


class EmulatedDecoding:
    """What a thread does that decodes on a device: fill, launch, wait; and the CPU for what is left."""

    def __init__(self, renderer: Renderer, program: Program, *, bytes: int = 1 << 22, pictures: int = 64) -> None:
        self.renderer, self.program = renderer, program
        self.load = DeviceLoad(aligned(bytes), pictures, 1 << 30, self._launch)
        self.launched = 0
        self.bad: list[int] = []

    def render(self, source: Input, epoch: int, positions: NDArray[np.int64], out: NDArray[Any]) -> NDArray[np.void]:
        """Render to `out`; rows in `bad` have an error word, and are left as they were."""
        self._out = out
        height, width = out.shape[2:] if self.program.planar else out.shape[1:3]
        self._size = height, width
        self.bad.clear()
        self.launched = 0
        self.load.begin(self.program, height, width)
        self.renderer.load = self.load
        self.renderer.begin(epoch, positions, out)
        self.renderer.add(source)
        self._launch()
        return self.renderer.rows

    def _launch(self) -> None:
        if self.load.pictures:
            errors = run_load(self.load, self._out)
            self.bad += self.load.slots[errors != 0].tolist()
        self.launched += self.load.pictures
        self.load.begin(self.program, *self._size)
