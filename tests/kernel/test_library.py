"""A native library that cannot be loaded: a KernelError with a remedy, wherever it is first used."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import KernelError
from stoker.kernel import library
from stoker.kernel.structs import STRUCTS


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the library is looked for, and not loaded yet."""
    monkeypatch.setattr(sys.modules["stoker.kernel"], "__path__", [str(tmp_path)])
    monkeypatch.setattr(library, "_library", None)
    yield tmp_path / ("libstoker.dylib" if sys.platform == "darwin" else "libstoker.so")


def ours() -> bytes:
    """The library as it was built."""
    folders = [Path(folder) for folder in sys.modules["stoker.kernel"].__path__]
    return next(path for folder in folders for path in folder.glob("libstoker.*")).read_bytes()


BAD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "of another machine": (lambda built: built[:18] + b"\xb7\x00" + built[20:], "install Stoker again"),
    "not a library": (lambda built: b"<html>not found</html>" * 100, "install Stoker again"),
    "empty": (lambda built: b"", "install Stoker again"),
    "of an earlier version": (lambda built: built.replace(b"stk_cutmix\0", b"stk_cutmax\0"), "stk_cutmix.*install Stoker again"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="changes bytes of an ELF file")
@pytest.mark.parametrize("name", BAD)
def test_a_library_that_is_not_this_ones_says_what_to_do(name: str, request: pytest.FixtureRequest) -> None:
    make, told = BAD[name]
    built = ours()
    request.getfixturevalue("place").write_bytes(make(built))
    for _ in range(2):  # and again: nothing half-loaded is kept
        with pytest.raises(KernelError, match=rf"the native library cannot be loaded \(.*libstoker.*{told}"):
            list(stoker.arrays(x=np.arange(8)).shuffle(seed=1).batch(2))


def test_a_library_that_cannot_be_mapped_asks_for_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: Any) -> ctypes.CDLL:
        raise OSError(f"{path}: failed to map segment from shared object")

    place.touch()
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(KernelError, match=r"failed to map segment.*free memory, or raise `ulimit -v`"):
        library.library()


def test_a_library_that_is_missing_is_named(place: Path) -> None:
    with pytest.raises(KernelError, match=rf"the native library is not built: {place.name} is not in {place.parent}"):
        library.library()


@pytest.mark.parametrize("change", ["moved", "size", "gone"])
def test_a_struct_that_is_laid_out_otherwise_is_named(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = STRUCTS["stk_input"]
    fields = [(name, np.int64) for name in told.names or ()]
    monkeypatch.setattr(library, "_library", None)
    if change == "moved":
        fields[1:3] = fields[2:0:-1]
    elif change == "size":
        fields.append(("more", np.int64))
    monkeypatch.setitem(STRUCTS, "stk_inputs" if change == "gone" else "stk_input", np.dtype(fields))
    with pytest.raises(KernelError, match=r"its struct stk_inputs? differs.*build it again with `pip install \.`"):
        library.library()
