"""A GPU that every machine has: Stoker's own driver library (`emulated_driver.c`) runs the kernels on the processor.

Torch's tensors on the device are stood in for by its tensors in the host's memory; nothing else is replaced.
"""

from __future__ import annotations

import ctypes
import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.device import cuda_driver, kernel_compiler, torch_output

from ..loader.runs import ROOT

HERE = Path(__file__).parent
KERNELS = ROOT / "src" / "stoker" / "device" / "kernels"


class Counts(NamedTuple):
    """What the driver has been asked for so far, and what of it is still there."""

    streams: int
    events: int
    programs: int
    launches: int
    uploads: int
    compilations: int
    modules: int
    fetches: int
    broken_captures: int


class Emulation:
    """The driver library, as tests see it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))

    def counts(self) -> Counts:
        numbers = (ctypes.c_int64 * len(Counts._fields))()
        self._library.emulated_counts(numbers)
        return Counts(*numbers)

    def arm(self, function: str, code: int, after: int = 0) -> None:
        """Let a function of the driver fail, when it was called `after` times from now on."""
        self._library.emulated_arm(function.encode(), code, after)

    def blame(self, every: int) -> None:
        """Let the device find fault with one of so many pictures of each load; 0: with none that is as it should be."""
        self._library.emulated_blame(every)

    def capture(self, on: bool) -> None:
        """Let some thread capture a graph, in global mode, as torch does."""
        self._library.emulated_capture(on)

    def unsafe(self) -> None:
        """What allocates: it fails while a graph is captured, unless the calling thread's mode is another."""
        if self._library.emulated_unsafe():
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    @property
    def mode(self) -> int:
        """How the calling thread heeds captures; 0: as all do."""
        return int(self._library.emulated_mode())

    @property
    def depth(self) -> int:
        """Contexts that the calling thread has not popped."""
        return int(self._library.emulated_depth())


class EmulatedMemory:
    """Memory of a device that is the host's."""

    ordinal = 0

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def rows(self, shape: tuple[int, ...], dtype: str) -> Any:
        kind = getattr(self._torch, dtype)
        if len(shape) == 1:
            return self._torch.empty(shape, dtype=kind)  # a worker's own, as large as it may be
        return self._torch.full(shape, 99, dtype=kind)  # what nobody writes is seen

    def place(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        return np.empty(nbytes, np.uint8)

    def taken(self, tensor: Any, rows: NDArray[np.int64]) -> Any:
        return tensor.index_select(0, self._torch.from_numpy(rows))

    def give_back(self) -> None:
        pass


class EmulatedOutput(torch_output.TorchOutput):
    """Batches as tensors, those of the "device" among them."""

    def device_memory(self) -> Any:
        return EmulatedMemory(self._torch)


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Emulation:
    path = tmp_path_factory.mktemp("driver") / "libemulated.so"
    options = [
        "-O2",
        f"-I{ROOT / 'native' / 'test'}",
        "-std=c11",
        "-D_GNU_SOURCE",
        "-fPIC",
        "-shared",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
    ]
    subprocess.run(["cc", *options, f"-I{KERNELS}", str(HERE / "emulated_driver.c"), "-o", str(path)], check=True)
    return Emulation(path)


@pytest.fixture
def emulated(driver_library: Emulation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Emulation]:
    """A machine with a GPU, without kernels that were compiled before, and with ``device="cuda"``."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(cuda_driver, "LIBRARY", str(driver_library.path))
    monkeypatch.setattr(cuda_driver, "_drivers", {})
    monkeypatch.setattr(kernel_compiler, "WHEELS", "none")
    monkeypatch.setattr(kernel_compiler, "NAMES", (str(driver_library.path),))
    monkeypatch.setattr(torch_output, "choose_torch_output", lambda device: EmulatedOutput(torch, None))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kernel-cache"))
    driver_library.arm("", 0)
    driver_library.blame(0)
    driver_library.capture(False)
    gc.collect()  # what failed before may still hold streams
    yield driver_library
    driver_library.arm("", 0)
    driver_library.blame(0)
    driver_library.capture(False)
