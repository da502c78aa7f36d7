"""The kernels are CUDA C++ that NVRTC compiles for real devices, without a warning and without a device."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from stoker.kernel.device_load import KERNELS, OPTIONS, kernel_source
from stoker.kernel.structs import DEVICE_LAUNCH, DEVICE_PICTURE


def nvrtc() -> ctypes.CDLL:
    """NVRTC of NVIDIA's wheels, as torch's CUDA wheels bring it; they may be installed without."""
    for folder in sys.path:
        for path in sorted(Path(folder or ".").glob("nvidia/*/lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(path))
    pytest.skip("NVRTC is not installed (pip install nvidia-cuda-nvrtc-cu12)")


def compiled(source: str, *options: str) -> tuple[int, str, bytes]:
    """What NVRTC answers, its log, and the cubin."""
    library, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"decode_kernels.cu", 0, None, None) == 0
    try:
        told = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        answer = library.nvrtcCompileProgram(program, len(options), told)
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        cubin = ctypes.create_string_buffer(0)
        if answer == 0:
            library.nvrtcGetCUBINSize(program, ctypes.byref(size))
            cubin = ctypes.create_string_buffer(size.value)
            library.nvrtcGetCUBIN(program, cubin)
        return answer, log.value.decode(), cubin.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.mark.parametrize("size", [DEVICE_PICTURE.itemsize, DEVICE_LAUNCH.itemsize])
def test_kernels_whose_structs_the_library_does_not_have_do_not_compile(size: int) -> None:
    answer, log, _ = compiled(kernel_source().replace(f"== {size},", f"== {size + 8},"), *OPTIONS, "--gpu-architecture=sm_90")
    assert answer != 0 and "build the library again" in log


@pytest.mark.parametrize("device", ["sm_80", "sm_90"])
def test_the_kernels_compile_for_a_device_without_a_warning(device: str) -> None:
    answer, log, cubin = compiled(kernel_source(), *OPTIONS, f"--gpu-architecture={device}")
    assert (answer, log.strip()) == (0, "")
    assert cubin.startswith(b"\x7fELF") and all(name.encode() in cubin for name in KERNELS)
