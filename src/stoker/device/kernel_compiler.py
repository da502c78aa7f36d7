"""Compiles CUDA source by NVRTC, which comes with torch's CUDA wheels, and caches the machine code on disk.

A cache entry is found by the SHA-256 of everything it depends on (source, options, architecture, compiler), and begins with the
SHA-256 of the rest of it: an entry that is truncated, damaged or of another version is made again. If the folder cannot be
written to, each process compiles its kernels.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import logging
import os
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import DeviceError, WriteError, message_of
from ..storage.atomic import publish
from ..storage.home import cache_home
from .cuda_driver import Driver, Kernel

_log = logging.getLogger("stoker")

#: where NVRTC may be: in NVIDIA's wheels, by pattern; else wherever the system finds these names
WHEELS = "*/lib/libnvrtc.so.1[0-9]*"
NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")

_MAGIC = b"stoker kernels 1\n"
_DIGEST = hashlib.sha256().digest_size
_OUT = c_void_p
_SIGNATURES: dict[str, list[Any]] = {
    "nvrtcVersion": [_OUT, _OUT],
    "nvrtcGetNumSupportedArchs": [_OUT],
    "nvrtcGetSupportedArchs": [_OUT],
    "nvrtcCreateProgram": [_OUT, c_char_p, c_char_p, c_int, c_void_p, c_void_p],
    "nvrtcCompileProgram": [c_void_p, c_int, c_void_p],
    "nvrtcGetProgramLogSize": [c_void_p, _OUT],
    "nvrtcGetProgramLog": [c_void_p, c_char_p],
    "nvrtcGetCUBINSize": [c_void_p, _OUT],
    "nvrtcGetCUBIN": [c_void_p, c_char_p],
    "nvrtcGetPTXSize": [c_void_p, _OUT],
    "nvrtcGetPTX": [c_void_p, c_char_p],
    "nvrtcDestroyProgram": [_OUT],
}


class Compiler:
    """NVRTC, for a driver of this release of CUDA: an older driver does not accept what a newer release compiles."""

    def __init__(self, release: int) -> None:
        self._library = _load(release)
        major, minor = c_int(), c_int()
        self._call("nvrtcVersion", byref(major), byref(minor))
        self.version = major.value, minor.value

    def target(self, capability: tuple[int, int]) -> str:
        """The architecture to compile for: the device's own, or the newest before it, as text that the driver compiles on."""
        count = c_int()
        self._call("nvrtcGetNumSupportedArchs", byref(count))
        known = (c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", known)
        device = 10 * capability[0] + capability[1]
        if device in known:
            return f"sm_{device}"
        before = [each for each in known if each < device]
        if not before:
            told = ".".join(map(str, self.version))
            raise DeviceError(f"NVRTC {told} does not compile for GPUs of compute capability {device / 10}; use decode_on='cpu'")
        return f"compute_{max(before)}"

    def compile(self, source: str, target: str, options: tuple[str, ...]) -> bytes:
        """Machine code for ``sm_..``, text for ``compute_..``."""
        program = c_void_p()
        self._call("nvrtcCreateProgram", byref(program), source.encode(), b"stoker.cu", 0, None, None)
        try:
            given = [option.encode() for option in (f"--gpu-architecture={target}", *options)]
            if self._library.nvrtcCompileProgram(program, len(given), (c_char_p * len(given))(*given)):
                log = self._text(program, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace").strip()
                raise DeviceError(
                    f"NVRTC {'.'.join(map(str, self.version))} could not compile the kernels for {target}; use decode_on='cpu', "
                    f"and report this: {log[:2000]}"
                )
            return self._text(program, "CUBIN" if target.startswith("sm_") else "PTX")
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _text(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._call(f"nvrtcGet{what}Size", program, byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            told = (self._library.nvrtcGetErrorString(status) or b"").decode("utf-8", "replace")
            raise DeviceError(f"{name}: {told or f'error {status}'}; update NVRTC (it comes with torch), or use decode_on='cpu'")


def compiled(source: str, options: tuple[str, ...], capability: tuple[int, int], release: int, *, again: bool = False) -> bytes:
    """A module for a device of this compute capability: from the cache, or compiled now, which takes some seconds.

    `release` is that of the driver. `again`: what is in the cache was not accepted.
    """
    compiler = Compiler(release)
    target = compiler.target(capability)
    about = repr((target, options, compiler.version, source))
    path = cache_home() / "kernels" / f"{hashlib.sha256(about.encode()).hexdigest()}.bin"
    found = None if again else _read(path)
    if found is None:
        found = compiler.compile(source, target, options)
        _write(path, found)
    return found


def load_kernels(driver: Driver, source: str, options: tuple[str, ...], names: Sequence[str]) -> dict[str, Kernel]:
    """These kernels of a source on a device, compiled at first use; once for each device of a process."""
    found = driver.kernels.get(source)
    if found is None:
        image = compiled(source, options, driver.capability, driver.release)
        try:
            found = driver.functions(image, names)
        except DeviceError:  # perhaps what was kept is of no use with this driver
            found = driver.functions(compiled(source, options, driver.capability, driver.release, again=True), names)
        driver.kernels[source] = found
    return found


def _read(path: Path) -> bytes | None:
    """An entry of the cache; None: there is none that is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST
    image = data[start:]
    whole = data[: len(_MAGIC)] == _MAGIC and hashlib.sha256(image).digest() == data[len(_MAGIC) : start]
    return image if whole and image else None


def _write(path: Path, image: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        publish(os.fsencode(path), _MAGIC, hashlib.sha256(image).digest(), image)
    except (OSError, WriteError) as error:
        _log.info("compiled kernels are not kept, and every process compiles them: %s", message_of(error))


def _load(release: int) -> ctypes.CDLL:
    tried = []
    for name in _candidates(release):
        try:
            library = ctypes.CDLL(name)
            for function, argtypes in _SIGNATURES.items():
                getattr(library, function).argtypes = argtypes
                getattr(library, function).restype = c_int
            library.nvrtcGetErrorString.argtypes, library.nvrtcGetErrorString.restype = [c_int], c_char_p
        except (OSError, AttributeError) as error:  # not there, or older than what is asked of it
            tried.append(str(error))
        else:
            return library
    package = "nvidia-cuda-nvrtc" if release >= 13 else f"nvidia-cuda-nvrtc-cu{release}"
    raise DeviceError(
        f"NVRTC, which compiles the kernels, was not found ({'; '.join(tried[-2:])}); install it with `pip install {package}`, "
        "or a torch for CUDA, which brings it, or use decode_on='cpu'"
    )


def _candidates(release: int) -> Iterator[str]:
    """Libraries to try: those of NVIDIA's wheels, then the system's; of each first the newest that the driver can follow."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        yield from sorted(map(str, Path(folder).glob(WHEELS)), key=partial(_rank, release))
    yield from sorted(NAMES, key=partial(_rank, release))


def _rank(release: int, name: str) -> tuple[int, int]:
    """The lowest is tried first: what the driver can follow, then what is newer, then what does not say its release."""
    suffix = name.rpartition(".so.")[2].partition(".")[0]  # all of CUDA 11 are called libnvrtc.so.11.2
    own = int(suffix) if suffix.isdigit() else 0
    return (0, -own) if 0 < own <= release else (1, own) if own else (2, 0)
