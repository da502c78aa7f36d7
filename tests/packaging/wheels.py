"""Distributions made of this tree, as tests look at them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: the wheel that `make check-wheel` is about
WHEEL = os.environ.get("STOKER_WHEEL", "")

_HOOK = "import sys, scikit_build_core.build as b; getattr(b, sys.argv[1])(sys.argv[2], {'wheel.cmake': 'false'})"


def build(kind: str, folder: Path) -> Path:
    """Make a distribution of this tree: "sdist", or "wheel" without the native library, which takes the most time."""
    pytest.importorskip("scikit_build_core", reason="the build backend")
    done = subprocess.run(
        [sys.executable, "-c", _HOOK, f"build_{kind}", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    return made


def names_in(distribution: Path) -> set[str]:
    """Files of a distribution; those of an sdist without its top folder."""
    if distribution.suffix == ".whl":
        with zipfile.ZipFile(distribution) as archive:
            return {name for name in archive.namelist() if not name.endswith("/")}
    with tarfile.open(distribution) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def text_in(wheel: Path, ending: str) -> str:
    """The one file of a wheel whose name ends so."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(ending)]
        return archive.read(name).decode()


def sources() -> set[str]:
    """Files of the package, as git knows them; where there is no git, as they lie there."""
    listed = None
    if shutil.which("git"):
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed and listed.returncode == 0 and listed.stdout:
        return {name for name in listed.stdout.split() if (ROOT / name).exists()}
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".so"}
