"""What this process may use of the machine: cores, memory, descriptors, processes, within the limits of system and container."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .resources import groups_of, text_of, usable_cores

#: a limit of cgroup v1 from here on means that there is no limit
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits of this process. None: there is none, or the system does not say."""

    cores: int
    memory_limit: int | None = None  # bytes, of the tightest container
    memory_left: int | None = None  # bytes that may still be taken, there and on the whole machine
    files_limit: int | None = None  # descriptors of this process
    files_open: int = 0
    tasks_limit: int | None = None  # processes and threads of this user
    tasks_left: int | None = None  # more of them that the container allows
    locked_limit: int | None = None  # bytes of memory that may be locked
    interpreter: str = ""  # the Python that is running; "": not known, as in a program that embeds Python
    lacks: str = ""  # a call that worker processes need and this system has not

    @classmethod
    def read(cls, cgroup_root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> Machine:
        """The present state of this machine."""
        own = proc / "self/cgroup"
        limits = [*_memory_v2(cgroup_root, own), *_memory_v1(cgroup_root, own)]
        free = _available(proc)
        return cls(
            cores=usable_cores(cgroup_root, own),
            memory_limit=min((limit for limit, _ in limits), default=None),
            memory_left=min([*(max(0, limit - used) for limit, used in limits), *free], default=None),
            files_limit=_limit("RLIMIT_NOFILE"),
            files_open=_count(proc / "self/fd"),
            tasks_limit=None if os.geteuid() == 0 else _limit("RLIMIT_NPROC"),  # no limit for root
            tasks_left=min(_tasks_left(cgroup_root, own), default=None),
            locked_limit=_limit("RLIMIT_MEMLOCK"),
            interpreter=sys.executable or "",
            lacks=next((name for name in ("memfd_create", "pidfd_open") if not hasattr(os, name)), ""),
        )


def _memory_v2(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each cgroup this process is in. What is used to cache files is given back when needed."""
    for folder in groups_of(root, own):
        limit = text_of(folder / "memory.max").strip()
        if limit.isdigit():
            used = _number(folder / "memory.current") - _cached(folder / "memory.stat", "inactive_file", "active_file")
            yield int(limit), max(0, used)


def _memory_v1(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    for folder in groups_of(root / "memory", own, "memory"):
        limit = text_of(folder / "memory.limit_in_bytes").strip()
        if limit.isdigit() and int(limit) < _UNLIMITED:
            cached = _cached(folder / "memory.stat", "total_inactive_file", "total_active_file")
            yield int(limit), max(0, _number(folder / "memory.usage_in_bytes") - cached)


def _tasks_left(root: Path, own: Path) -> Iterator[int]:
    for folder in (*groups_of(root, own), *groups_of(root / "pids", own, "pids")):
        limit = text_of(folder / "pids.max").strip()
        if limit.isdigit():
            yield max(0, int(limit) - _number(folder / "pids.current"))


def _available(proc: Path) -> list[int]:
    """Memory of the machine that programs can have without swapping."""
    for line in text_of(proc / "meminfo").splitlines():
        words = line.split()
        if words[:1] == ["MemAvailable:"] and len(words) > 1 and words[1].isdigit():
            return [int(words[1]) << 10]
    return []


def _cached(path: Path, *names: str) -> int:
    pairs = (line.split() for line in text_of(path).splitlines())
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in names and pair[1].isdigit())


def _number(path: Path) -> int:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else 0


def _limit(name: str) -> int | None:
    if not hasattr(resource, name):
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0
