"""What is needed to repeat a run: versions, the machine, and the arguments of the loader."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from .bottleneck import workers_in_words
from .stats import Stats

#: packages whose version matters, if they are installed
_PACKAGES = ("numpy", "pillow", "torch")


def run_settings(stats: Stats, arguments: Mapping[str, Any] | None = None, command: str = "") -> dict[str, str]:
    """Names and values, as text. `arguments` are those of the loader, `command` is what was typed."""
    known = {"command": command} if command else {}
    if arguments is not None:
        known["loader"] = ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "as it is by default"
    executor = stats.executor
    known["workers"] = f"{workers_in_words(stats)} ({executor.name}){f': {executor.reason}' if executor.reason else ''}"
    known["stoker"] = package_version("stoker") or "not installed"
    known["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    known |= {name: version for name in _PACKAGES if (version := package_version(name))}
    known["system"] = f"{platform.system()} {platform.release()}, {platform.machine()}"
    known["processor"] = f"{_processor()}; {stats.cores} cores for this process"
    known["host"] = stats.host
    return known


def command_line() -> str:
    """What was typed, for programs whose arguments hold no secrets."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


@cache
def package_version(package: str) -> str:
    """Empty if it is not installed, but run from its sources."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
