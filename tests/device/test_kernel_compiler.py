"""Kernels are compiled once for a device, and kept on disk; what is kept is used only where it is whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from stoker.device import cuda_driver, kernel_compiler
from stoker.device.device_decode import NAMES, all_kernels
from stoker.device.device_floats import NAME, floats_source
from stoker.device.kernel_compiler import Compiler, compiled
from stoker.errors import DeviceError
from stoker.kernel.device_load import OPTIONS

from .emulated_gpu import Emulation
from .emulated_gpu import driver_library as driver_library
from .emulated_gpu import emulated as emulated

HOPPER = (9, 0)
RELEASE = 12


def kept() -> list[Path]:
    return sorted((kernel_compiler.cache_home() / "kernels").iterdir())


def made(source: str = "text", options: tuple[str, ...] = ("--fmad=false",), capability: tuple[int, int] = HOPPER) -> bytes:
    return compiled(source, options, capability, RELEASE)


def test_a_kernel_is_compiled_once_and_then_found(emulated: Emulation) -> None:
    before = emulated.counts().compilations
    first = made()
    assert made() == first and emulated.counts().compilations == before + 1
    assert len(kept()) == 1 and emulated.counts().programs == 0


def test_another_source_option_device_or_compiler_is_compiled_for_itself(
    emulated: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {made(), made("other"), made(options=("--std=c++14",)), made(capability=(8, 0))}
    assert len(found) == 4 and len(kept()) == 4
    version = Compiler.__init__

    def later(self: Compiler, release: int) -> None:
        version(self, release)
        self.version = 12, 9

    monkeypatch.setattr(Compiler, "__init__", later)
    made()
    assert len(kept()) == 5


@pytest.mark.parametrize("change", ["cut", "empty", "a bit", "another version", "longer", "gone"])
def test_what_is_not_whole_is_compiled_again(emulated: Emulation, change: str) -> None:
    good = made()
    (path,) = kept()
    data = path.read_bytes()
    changes = {
        "cut": data[:-1],
        "empty": b"",
        "a bit": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        "another version": data.replace(b"kernels 1", b"kernels 0"),
        "longer": data + b"x",
    }
    before = emulated.counts().compilations
    path.unlink() if change == "gone" else path.write_bytes(changes[change])
    assert made() == good and emulated.counts().compilations == before + 1
    assert made() == good and emulated.counts().compilations == before + 1, "and is whole again"
    assert [each.read_bytes() for each in kept()] == [data]


def test_what_is_whole_and_the_driver_does_not_accept_is_compiled_again(emulated: Emulation) -> None:
    made(floats_source(), OPTIONS)
    (path,) = kept()
    good, other = path.read_bytes(), b"made for another driver"
    path.write_bytes(kernel_compiler._MAGIC + hashlib.sha256(other).digest() + other)
    assert kernel_compiler.load_kernels(cuda_driver.open_driver(0), floats_source(), OPTIONS, (NAME,)).keys() == {NAME}
    assert path.read_bytes() == good


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_costs_only_time(emulated: Emulation, tmp_path: Path) -> None:
    home = tmp_path / "kernel-cache"
    home.mkdir(mode=0o500)
    assert made() == made()
    assert emulated.counts().programs == 0 and not any(home.iterdir())


def test_a_file_where_the_folder_should_be_costs_only_time(emulated: Emulation, tmp_path: Path) -> None:
    (tmp_path / "kernel-cache").write_bytes(b"in the way")
    before = emulated.counts().compilations
    assert made() == made() and emulated.counts().compilations == before + 2


def test_a_user_without_a_home_compiles_each_time_and_leaves_no_folder(
    emulated: Emulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = emulated.counts().compilations
    assert made() == made() and emulated.counts().compilations == before + 2
    assert not any((tmp_path / "here").iterdir())


def test_a_device_that_is_newer_than_the_compiler_gets_text_that_its_driver_compiles(emulated: Emulation) -> None:
    assert Compiler(RELEASE).target((9, 0)) == "sm_90"
    assert Compiler(RELEASE).target((12, 0)) == "compute_90"
    with pytest.raises(
        DeviceError, match=r"NVRTC 12\.8 does not compile for GPUs of compute capability 7\.0; use decode_on='cpu'"
    ):
        Compiler(RELEASE).target((7, 0))


def test_a_source_with_a_mistake_shows_the_compilers_words(emulated: Emulation) -> None:
    with pytest.raises(DeviceError, match=r"could not compile the kernels for sm_90.*stoker\.cu\(1\): error: #error"):
        made("#error")
    assert emulated.counts().programs == 0


def test_a_compiler_that_is_not_there_is_named_with_what_to_install(emulated: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_compiler, "NAMES", ("libnothing.so",))
    for release, package in ((12, "nvidia-cuda-nvrtc-cu12"), (13, "nvidia-cuda-nvrtc")):
        with pytest.raises(DeviceError, match=rf"NVRTC, which compiles the kernels, was not found .*`pip install {package}`"):
            Compiler(release)


@pytest.mark.parametrize(
    ("release", "order"),
    [
        (11, ["11.2", "12", "13", ""]),
        (12, ["12", "11.2", "13", ""]),
        (13, ["13", "12", "11.2", ""]),
        (14, ["13", "12", "11.2", ""]),
    ],
)
def test_a_compiler_that_is_newer_than_the_driver_is_the_second_choice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: int, order: list[str]
) -> None:
    for name in ("cuda_nvrtc/lib/libnvrtc.so.11.2", "cuda_nvrtc/lib/libnvrtc.so.12", "cu13/lib/libnvrtc.so.13"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    nvidia = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: nvidia)
    found = [name.rpartition("libnvrtc.so")[2].lstrip(".") for name in kernel_compiler._candidates(release)]
    assert found == order[:3] + order


@pytest.mark.parametrize("capability", [(6, 0), (6, 1), (7, 0), (7, 5), (8, 0), (9, 0), (12, 0)], ids=str)
def test_the_kernels_compile_for_real_devices(capability: tuple[int, int]) -> None:
    """With NVIDIA's compiler, which needs no device; where it is installed (`pip install nvidia-cuda-nvrtc-cu12`)."""
    try:
        compiler = Compiler(RELEASE)
        target = compiler.target(capability)
    except DeviceError as error:
        pytest.skip(str(error))
    if target.startswith("compute_"):
        pytest.skip(f"this NVRTC does not know GPUs of compute capability {capability}")
    for source, names in ((all_kernels(), NAMES), (floats_source(), (NAME,))):
        image = compiler.compile(source, target, OPTIONS)
        assert image.startswith(b"\x7fELF")
        assert all(name.encode() in image for name in names)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs NVIDIA's compiler, and no GPU")
@pytest.mark.parametrize("source", [all_kernels, floats_source])
def test_kernels_compile_without_a_warning_and_each_operation_is_rounded(source: Callable[[], str], tmp_path: Path) -> None:
    text, made = tmp_path / "stoker.cu", tmp_path / "stoker.ptx"
    text.write_text(source())
    options = ["--ptx", "--gpu-architecture=compute_80", "-Werror=all-warnings", *OPTIONS]
    done = subprocess.run(["nvcc", *options, str(text), "-o", str(made)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ".entry stk_" in made.read_text() and "fma.rn" not in made.read_text()
