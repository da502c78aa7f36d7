"""GCC silently drops calls of functions that only ask for cache lines: code that asks for them must still do so when compiled."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
#: what CMakeLists.txt gives to the files that need it
FLAGS = ("-O2", "-msse4.2", "-mpclmul", "-mavx512bw", "-mavx512vl", "-mavx512vbmi2", "-mpopcnt")


@pytest.mark.skipif(platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="needs GCC for x86-64")
def test_whatever_asks_for_cache_lines_still_does_so_when_compiled() -> None:
    asking = [file for file in sorted((NATIVE / "src").rglob("*.c")) if "stk_prefetch(" in file.read_text()]
    assert len(asking) >= 5
    for file in asking:
        command = ["gcc", *FLAGS, "-S", "-o", "-", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}", str(file)]
        code = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        assert re.search(r"^\s+prefetch", code, re.MULTILINE), file.name
