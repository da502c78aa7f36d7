"""How many cores there are for this process, with cgroups made of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.engine.resources import idle_seconds, machine_cores, queued_seconds, usable_cores


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def cgroup(tmp_path: Path, own: str, **files: str) -> int:
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    own_group = tmp_path / "self"
    own_group.write_text(own)
    return usable_cores(root, own_group)


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", 16),
        ("400000 100000", 4),
        ("150000 100000", 2),
        ("5000 100000", 1),
        ("3200000 100000", 16),
        ("", 16),
        ("junk", 16),
    ],
)
def test_a_quota_of_cgroup_v2_is_kept_and_rounded_up(tmp_path: Path, quota: str, cores: int) -> None:
    assert cgroup(tmp_path, "0::/\n", cpu_DOT_max=quota) == cores


@pytest.mark.usefixtures("many_cores")
def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {"pod__box__cpu_DOT_max": "max 100000", "pod__cpu_DOT_max": "300000 100000", "cpu_DOT_max": "800000 100000"}
    assert cgroup(tmp_path, "0::/pod/box\n", **files) == 3


@pytest.mark.usefixtures("many_cores")
def test_a_quota_of_another_branch_does_not_count(tmp_path: Path) -> None:
    assert cgroup(tmp_path, "0::/mine\n", mine__cpu_DOT_max="max 100000", other__cpu_DOT_max="100000 100000") == 16


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize(("quota", "cores"), [("200000", 2), ("-1", 16), ("50000", 1), ("", 16)])
def test_a_quota_of_cgroup_v1_is_kept(tmp_path: Path, quota: str, cores: int) -> None:
    files = {"cpu__cpu_DOT_cfs_quota_us": quota, "cpu__cpu_DOT_cfs_period_us": "100000"}
    assert cgroup(tmp_path, "4:cpu,cpuacct:/docker/abc\n", **files) == cores


@pytest.mark.usefixtures("many_cores")
def test_without_cgroups_affinity_says_it(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path / "nothing") == 16


def test_affinity_is_honoured_before_the_machines_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 7, 8}, raising=False)
    assert usable_cores(tmp_path, tmp_path / "nothing") == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert usable_cores(tmp_path, tmp_path / "nothing") == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path, tmp_path / "nothing") == 1


def test_this_very_process_may_use_at_least_one_core() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_a_machine_has_its_cores_or_the_quota_whatever_a_process_is_bound_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert machine_cores(tmp_path, tmp_path / "nothing") == 4
    (tmp_path / "cpu.max").write_text("300000 100000")
    assert machine_cores(tmp_path, tmp_path / "nothing") == 3


def test_the_time_threads_were_without_a_core_is_added_up(tmp_path: Path) -> None:
    for name, text in {"1": "900 1500000000 3\n", "2": "7 500000000 1\n", "3": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    assert queued_seconds(tmp_path) == 2.0
    assert queued_seconds(tmp_path / "3") is None and queued_seconds(tmp_path / "none") is None
    assert (queued_seconds() or 0) >= 0


def test_idle_cores_are_those_that_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2})
    tick = os.sysconf("SC_CLK_TCK")
    counters = tmp_path / "stat"
    lines = [f"cpu{number} 1 2 3 {4 * tick} {tick} 6 7 0 0 0" for number in range(3)]
    counters.write_text("\n".join([f"cpu 3 6 9 {12 * tick} {3 * tick} 18 21 0 0 0", *lines, "intr 5"]))
    assert idle_seconds(counters) == 10.0
    assert idle_seconds(tmp_path / "none") is None
