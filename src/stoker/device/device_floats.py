"""Floats made by a device: the pixels of a batch are copied as bytes, and one kernel computes the values that the CPU would."""

from __future__ import annotations

import math
import struct
from functools import cache
from pathlib import Path

from ..kernel.device_load import OPTIONS
from .cuda_driver import open_driver
from .framework_output import PixelFloats
from .kernel_compiler import load_kernels

#: the kernel, its threads, the pixels of a block, and the struct it is given (`kernels/floats_kernel.cu`)
NAME, _THREADS, _PIXELS, _ARGUMENT = "stk_make_floats", 256, 2048, struct.Struct("<3q2i6f")


class FloatsKernel:
    """The kernel on the device of this number. Raises a DeviceError if the driver, or the compiler, is missing or fails."""

    def __init__(self, ordinal: int) -> None:
        self._driver = open_driver(ordinal)
        self._kernel = load_kernels(self._driver, floats_source(), OPTIONS, (NAME,))[NAME]

    def launch(self, how: PixelFloats, shape: tuple[int, ...], pixels: int, floats: int, stream: int) -> None:
        """Queue it on a stream: pixels of this shape from one address to floats at another; both must stay until it is done."""
        rows, height, width, channels = shape
        area = height * width
        argument = _ARGUMENT.pack(pixels, floats, area, channels, how.planar, *how.scale, *how.bias)
        with self._driver.current():
            self._driver.launch(self._kernel, rows * math.ceil(area / _PIXELS), _THREADS, argument, stream)


@cache
def floats_source() -> str:
    """What NVRTC is given."""
    folder, language = Path(__file__).parent / "kernels", "kernel_language.h"
    kernel = (folder / "floats_kernel.cu").read_text(encoding="utf-8")
    return kernel.replace(f'#include "{language}"\n', (folder / language).read_text(encoding="utf-8"))
