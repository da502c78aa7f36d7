"""What is said and refused before worker processes start, with machines made up and cgroups made of files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.engine.machine import Machine
from stoker.engine.preflight import WORKER_BYTES, preflight
from stoker.errors import ConfigError

GB = 10**9
ROOMY = Machine(
    cores=8,
    memory_limit=16 * GB,
    memory_left=12 * GB,
    files_limit=1024,
    files_open=20,
    tasks_left=500,
    interpreter="/usr/bin/python3",
)


def test_one_line_says_what_was_found() -> None:
    found = preflight(4, 2, memory=2 * GB, machine=ROOMY)
    assert found == (
        "4 processes of 2 threads, each a fresh interpreter; 8 usable cores; 12.0 GB of memory free of the 16.0 GB this "
        "container may take; 1,004 of 1,024 descriptors free"
    )


def test_what_no_limit_is_known_of_is_not_mentioned() -> None:
    found = preflight(1, 16, memory=2 * GB, batch_bytes=GB, machine=Machine(cores=16, interpreter="python"))
    assert found == "1 process of 16 threads, each a fresh interpreter; 16 usable cores"


@pytest.mark.parametrize(
    ("less", "words"),
    [
        ({"interpreter": ""}, "sys.executable is empty.*or omit processes"),
        ({"lacks": "pidfd_open"}, r"pidfd_open\(\).*omit processes"),
        (
            {"files_limit": 64},
            "about 72 open files, 20 of them open already, and this process may have 64; raise the limit.*ulimit -n",
        ),
        ({"tasks_left": 15}, r"threads=2\): needs 16 processes and threads, and this container allows 15 more.*pids-limit"),
        ({"tasks_limit": 12}, "this user may have 12; raise the limit.*ulimit -u"),
        (
            {"memory_limit": GB},
            "2 batches of 500.0 MB need 1.1 GB, and this container may take 1.0 GB; raise its memory limit, or",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_remedy(less: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"loader\(processes=4.*{words}"):
        preflight(4, 2, batch_bytes=GB // 2, machine=replace(ROOMY, **less))


def test_exactly_what_is_needed_is_enough() -> None:
    enough = replace(ROOMY, files_limit=72, tasks_left=16, tasks_limit=16, memory_limit=4 * WORKER_BYTES + GB)
    preflight(4, 2, batch_bytes=GB // 2, machine=enough)


def test_what_may_become_too_little_is_said_and_not_refused() -> None:
    found = preflight(4, 8, memory=2 * GB, machine=replace(ROOMY, memory_left=GB))
    assert found.endswith("; 32 threads for 8 cores; workers and memory='2.0 GB' may take 2.1 GB, more than is free")


def test_memory_that_may_be_locked_is_said_where_a_device_reads_it() -> None:
    limited = replace(ROOMY, locked_limit=8 << 20)
    assert "8.4 MB may be locked (ulimit -l)" in preflight(1, 1, pinned=True, machine=limited)
    assert "locked" not in preflight(1, 1, machine=limited)


def cgroup(tmp_path: Path, own: str, files: dict[str, str]) -> Machine:
    for name, text in {"proc/self/cgroup": own, "proc/meminfo": "MemTotal: 99 kB\nMemAvailable:    4000 kB\n", **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine.read(tmp_path / "cgroup", tmp_path / "proc")


def test_the_tightest_memory_limit_of_cgroup_v2_counts_and_cached_files_do_not(tmp_path: Path) -> None:
    files = {
        "cgroup/pod/box/memory.max": "max\n",
        "cgroup/pod/memory.max": "3000000\n",
        "cgroup/pod/memory.current": "2000000\n",
        "cgroup/pod/memory.stat": "anon 500000\ninactive_file 600000\nactive_file 400000\nshmem 1\n",
        "cgroup/pod/pids.max": "100\n",
        "cgroup/pod/pids.current": "90\n",
    }
    machine = cgroup(tmp_path, "0::/pod/box\n", files)
    assert (machine.memory_limit, machine.memory_left, machine.tasks_left) == (3_000_000, 2_000_000, 10)


def test_cgroup_v1_has_a_hierarchy_for_memory(tmp_path: Path) -> None:
    files = {
        "cgroup/memory/pod/memory.limit_in_bytes": "3000000\n",
        "cgroup/memory/pod/memory.usage_in_bytes": "2000000\n",
        "cgroup/memory/pod/memory.stat": "inactive_file 1\ntotal_inactive_file 600000\n",
        "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "cgroup/pids/pids.max": "max\n",
    }
    machine = cgroup(tmp_path, "4:memory:/pod\n8:pids:/\n1:cpu,cpuacct:/\n0::/\n", files)
    assert (machine.memory_limit, machine.memory_left, machine.tasks_left) == (3_000_000, 1_600_000, None)


def test_without_a_limit_there_is_what_the_machine_has(tmp_path: Path) -> None:
    machine = cgroup(tmp_path, "0::/\n", {"cgroup/memory.max": "max\n", "proc/self/fd/0": "", "proc/self/fd/1": ""})
    assert (machine.memory_limit, machine.memory_left, machine.files_open) == (None, 4_096_000, 2)


def test_this_machine_can_run_a_worker() -> None:
    assert re.match(r"1 process of 1 thread, each a fresh interpreter; \d+ usable cores?; ", preflight(1, 1))


def test_a_loader_looks_before_it_starts_processes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = stoker.arrays(x=np.zeros((8, 1000, 1000, 25))).batch(4)
    monkeypatch.setattr(Machine, "read", lambda: replace(ROOMY, memory_limit=GB))
    with pytest.raises(ConfigError, match=r"2 batches of 800\.0 MB need 1\.6 GB, and this container may take 1\.0 GB"):
        pipeline.loader(processes=1, threads=1)
    monkeypatch.setattr(Machine, "read", lambda: ROOMY)
    with caplog.at_level("DEBUG", "stoker"), pipeline.loader(processes=1, threads=3, memory="1GB"):
        assert "1 process of 3 threads, each a fresh interpreter; 8 usable cores; " in caplog.text
