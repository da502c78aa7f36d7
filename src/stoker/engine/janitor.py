"""Cleans up after a command that was killed: ends what it started and removes its folder.

Runs as a separate program, with the folder as its argument. Lines on its standard input, ``+123`` and ``-123``, say which process
groups are alive. When that input ends, the command has ended, for whatever reason: what it left is killed and removed. Nothing of
Stoker is imported here, so it starts at once and cannot fail with Stoker.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


def watch(lines: Iterable[str], folder: str) -> None:
    """Follow the lines to their end, then clean up."""
    groups: set[int] = set()
    for line in lines:
        if line.endswith("\n"):  # else the writer died within it
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        kill_group(group)
    remove_folder(folder)


def kill_group(group: int) -> None:
    """End a process group, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def remove_folder(folder: str) -> None:
    """Remove a folder and its contents, even if a command removed its own permissions; links are not followed."""
    for _ in range(3):  # a process that was just killed may have written one more file
        shutil.rmtree(folder, onerror=_allow)
        if not os.path.lexists(folder):
            return


def _allow(act: Callable[..., Any], path: str, _: Any) -> None:
    """Make the folder of what could not be removed writable, for the next try."""
    for place in (Path(path).parent, Path(path)):
        with suppress(OSError):
            if stat.S_ISDIR(place.lstat().st_mode):
                place.chmod(0o700)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch(sys.stdin, sys.argv[1])
