"""How many cores this process may use (affinity and the container's quota, not what the machine has), and how many it gets."""

from __future__ import annotations

import math
import os
from pathlib import Path

#: where cgroups are, and where those of this process are named
_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores(cgroup_root: Path = _ROOT, own_group: Path = _OWN) -> int:
    """Cores available to this process, at least 1."""
    return _within_quota(_allowed(), cgroup_root, own_group)


def machine_cores(cgroup_root: Path = _ROOT, own_group: Path = _OWN) -> int:
    """Cores available to all processes of this machine or container, no matter to which of them this one is bound; at least 1."""
    return _within_quota(os.cpu_count() or 1, cgroup_root, own_group)


def _within_quota(cores: int, cgroup_root: Path, own_group: Path) -> int:
    quota = _quota(cgroup_root, own_group)
    return max(1, min(cores, math.ceil(quota))) if quota else max(1, cores)


def _allowed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def queued_seconds(tasks: Path = Path("/proc/self/task")) -> float | None:
    """How long the threads of this process were ready to run and had no core; None if the system does not report it."""
    delays = [words[1] for task in _entries(tasks) if len(words := text_of(task / "schedstat").split()) == 3]
    return sum(map(int, delays)) / 1e9 if delays else None


def idle_seconds(counters: Path = Path("/proc/stat")) -> float | None:
    """The total idle time of the cores that this process may use; None if the system does not report it."""
    lines = [line.split() for line in text_of(counters).splitlines() if line.startswith("cpu")]
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
    ticks = [int(words[4]) + int(words[5]) for words in lines if words[0] in allowed and len(words) > 5]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _quota(root: Path, own_group: Path) -> float | None:
    """The tightest CPU quota on the way from this process's cgroup to the root, in cores."""
    quotas = [quota for folder in groups_of(root, own_group) if (quota := _quota_v2(folder)) is not None]
    if not quotas and (quota := _quota_v1(root / "cpu")) is not None:
        quotas.append(quota)
    return min(quotas, default=None)


def groups_of(root: Path, own_group: Path, controller: str = "") -> list[Path]:
    """The folders of this process's cgroup and of those it is in; of cgroup v1, in the hierarchy of a controller."""
    name = ""
    for line in text_of(own_group).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            name = path.strip().lstrip("/")
    folder = root / name
    return [folder, *(parent for parent in folder.parents if parent == root or root in parent.parents)]


def _quota_v2(folder: Path) -> float | None:
    words = text_of(folder / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = text_of(folder / "cpu.cfs_quota_us").strip(), text_of(folder / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(quota) > 0 else None


def text_of(path: Path) -> str:
    """The contents of a file; empty if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def out_of_memory_kills() -> int:
    """How many processes the system has ever killed because it was out of memory; 0 if that is not counted."""
    lines = text_of(Path("/proc/vmstat")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
