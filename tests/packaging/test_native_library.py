"""The native library beside others in a process: only its own functions are visible, and it decodes with its own libjpeg."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import stoker.kernel
from stoker.kernel import native

from ..support import jpeg_bytes
from .wheels import WHEEL


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of the wheel that is given; otherwise the installed one."""
    if not WHEEL:
        return next(found for folder in stoker.kernel.__path__ for found in Path(folder).glob("libstoker.*"))
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(WHEEL) as archive:
        (name,) = [name for name in archive.namelist() if Path(name).name.startswith("libstoker.")]
        return Path(archive.extract(name, folder))


def words_of(*command: str | Path) -> str:
    tool = shutil.which(str(command[0]))
    if tool is None:
        pytest.skip(f"it takes {command[0]}")
    return subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=True, timeout=60).stdout


def test_only_our_own_functions_are_visible(built: Path) -> None:
    names = {line.split()[-1] for line in words_of("nm", "-D", "--defined-only", built).splitlines()}
    assert "stk_render" in names
    assert {name for name in names if not name.startswith("stk_")} == set()


def test_libjpeg_is_inside_where_it_can_be(built: Path) -> None:
    needed = [line for line in words_of("readelf", "-d", built).splitlines() if "(NEEDED)" in line]
    shared = [line for line in needed if "jpeg" in line]
    if shared and not WHEEL:
        pytest.skip("this machine has libjpeg-turbo as a shared library alone")
    assert needed and not shared
    undefined = words_of("nm", "-D", "--undefined-only", built)
    assert " jpeg_" not in undefined


#: functions that every libjpeg has, and that a decoding begins with
STUB = "#include <stdlib.h>\n" + "".join(
    f"void {name}(void) {{ abort(); }}\n" for name in ("jpeg_CreateDecompress", "jpeg_read_header", "jpeg_std_error")
)


def torchvisions(folder: Path) -> list[Path]:
    """The libjpeg that torchvision brings, called libjpeg.so.8."""
    found = importlib.util.find_spec("torchvision")
    theirs = list(Path(str(found.origin)).parents[1].glob("torchvision.libs/libjpeg.*")) if found else []
    return theirs or pytest.skip("it takes torchvision, and a libjpeg in it")


def useless(folder: Path) -> list[Path]:
    """Libraries that end the process when they are called, under the names that a libjpeg has."""
    (folder / "stub.c").write_text(STUB)
    paths = [folder / f"stub{version}.so" for version in (62, 8)]
    for path, version in zip(paths, (62, 8)):
        words_of("cc", "-shared", "-fPIC", f"-Wl,-soname,libjpeg.so.{version}", "-o", path, folder / "stub.c")
    return paths


@pytest.mark.skipif(
    native.build_info().startswith("no libjpeg-turbo"), reason="a build without libjpeg-turbo leaves these to Pillow"
)
@pytest.mark.parametrize("others", [torchvisions, useless])
def test_a_progressive_jpeg_is_decoded_alike_beside_another_libjpeg(others: Any, built: Path, tmp_path: Path) -> None:
    if not WHEEL and "jpeg" in words_of("readelf", "-d", built):
        pytest.skip("this machine has libjpeg-turbo as a shared library alone")
    (tmp_path / "a").mkdir()
    for seed in range(4):
        (tmp_path / "a" / f"{seed}.jpg").write_bytes(jpeg_bytes(90, 70, seed=seed, progressive=True))
    script = f"""
import ctypes, hashlib, pathlib, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
import stoker
from stoker.kernel import library
from stoker.image import RandomResizedCrop
library._library = library.Library(pathlib.Path({str(built)!r}))
(batch,) = stoker.files({str(tmp_path / "a")!r}, labels=None).image("image", RandomResizedCrop(32)).batch(4).loader(threads=1)
print(hashlib.sha256(batch["image"].tobytes()).hexdigest())
"""
    alone, beside = (
        subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, timeout=110, check=False)
        for paths in ([], others(tmp_path))
    )
    assert (alone.returncode, beside.returncode) == (0, 0), alone.stderr + beside.stderr
    assert alone.stdout == beside.stdout
