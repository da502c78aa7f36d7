"""Before a GPU decodes or makes floats, it is compared with the CPU."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.device.cuda_driver import Driver
from stoker.errors import DeviceError
from stoker.image import Normalize, RandomResizedCrop

from .emulated_cuda import recorded as recorded
from .emulated_gpu import Emulation
from .emulated_gpu import driver_library as driver_library
from .emulated_gpu import emulated as emulated
from .test_device_decode import crops, epochs, expected
from .test_device_decode import photos as photos

pytest.importorskip("torch")


def break_kernel(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a kernel do nothing."""
    idle, functions, launch = ctypes.c_void_p(1), Driver.functions, Driver.launch

    def found(driver: Driver, image: bytes, names: Any) -> dict[str, Any]:
        return {each: idle if each == name else function for each, function in functions(driver, image, names).items()}

    def launched(driver: Driver, function: Any, *arguments: Any) -> None:
        if function is not idle:
            launch(driver, function, *arguments)

    monkeypatch.setattr(Driver, "functions", found)
    monkeypatch.setattr(Driver, "launch", launched)


@pytest.mark.parametrize("kernel", ["stk_weigh_axes", "stk_transform_blocks", "stk_finish_rows"])
def test_a_gpu_that_decodes_otherwise_is_refused_before_it_sees_a_picture(
    emulated: Emulation, photos: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    break_kernel(monkeypatch, kernel)
    told = r"made-up pictures that the GPU decoded for a check, \d+ have different pixels than on the CPU"
    with pytest.raises(DeviceError, match=told):
        crops(photos).loader(device="cuda", decode_on="cuda")
    with crops(photos).loader(device="cuda", decode_on="auto", threads=2) as loader:
        assert epochs(loader, 1) == expected(crops(photos), 1)
        assert "so its driver or NVRTC cannot be trusted" in loader.stats().decode_reason


def test_a_gpu_that_gives_pictures_back_is_only_slow(emulated: Emulation, photos: Path) -> None:
    emulated.blame(1)
    with crops(photos).loader(device="cuda", decode_on="cuda", threads=2) as loader:
        assert epochs(loader, 1) == expected(crops(photos), 1)
        assert not loader.stats().device_images


def test_a_device_is_compared_once(emulated: Emulation, photos: Path) -> None:
    with crops(photos).loader(device="cuda", decode_on="cuda"):
        before = emulated.counts().launches
    with crops(photos).loader(device="cuda", decode_on="cuda"):
        assert emulated.counts().launches == before


def test_where_floats_come_out_otherwise_the_cpu_makes_them(
    recorded: list[int], photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_kernel(monkeypatch, "stk_make_floats")
    pipeline = stoker.files(photos).image("image", RandomResizedCrop(40), Normalize((0.5,) * 3, (0.2,) * 3)).batch(7)
    with caplog.at_level(logging.INFO, "stoker"), pipeline.loader(device="cuda", threads=2) as loader:
        assert epochs(loader, 1) == expected(pipeline, 1)
        assert "on the CPU, because the GPU computes other floats than the CPU" in loader._machinery.floats.told
