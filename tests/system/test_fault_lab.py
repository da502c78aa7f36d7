"""The fault lab itself: it notices every kind of thing that a scenario may leave, and lets pass what leaves nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from .fault_lab import SHARED_MEMORY, STARTS, Broken, Scenario, play
from .lab_oracle import epoch_of, write_shards

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")

#: what it leaves -> what the lab says of it
LEFT = {
    "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\nleave(deadline_s=0)": "H2: .*sleep 60",
    "if os.fork() == 0:\n    os.setsid()\n    os.fork()\n    signal.pause()": "H2: processes are left",
    "open(os.environ['TMPDIR'] + '/half', 'w').close()": "H3: .*tmp/half",
    "open('core', 'w').close()": "H3: .*work/core",
    "kept = open('/dev/null')\nleave(deadline_s=0)": "H4: .*'descriptors': 1.*/dev/null",
    "threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\nleave(deadline_s=0)": "H4: .*'threads': 1",
}


@pytest.mark.parametrize("code", LEFT)
def test_what_a_scenario_leaves_is_noticed_and_ended(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.fault_lab.PATIENCE_S", 0.1)
    with Scenario(tmp_path, code) as scenario, pytest.raises(Broken, match=f"(?s){LEFT[code]}"):
        scenario.end()
    assert scenario.workers() == [] and scenario.process.returncode is not None


def test_a_scenario_that_does_not_end_shows_its_stacks(tmp_path: Path) -> None:
    code = "def asleep():\n    say('asleep')\n    time.sleep(60)\nasleep()"
    with Scenario(tmp_path, code) as scenario:
        scenario.hear("asleep")
        scenario.until = 0
        with pytest.raises(Broken, match=r"(?s)H1: not ended in time.*in asleep"):
            scenario.end()


def test_shared_memory_that_nobody_uses_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.fault_lab.PATIENCE_S", 0.1)
    name = SHARED_MEMORY / f"fault-lab-{os.getpid()}"
    try:
        with Scenario(tmp_path / "a", f"open({str(name)!r}, 'w').close()") as scenario, pytest.raises(Broken, match="H3: shared"):
            scenario.end()
        name.unlink()
        with Scenario(tmp_path / "b", "say('started')\nsys.stdin.read()") as scenario, name.open("w"):
            scenario.end()  # another process has it open: that is its own business
    finally:
        name.unlink(missing_ok=True)


def test_a_signal_is_seen_in_the_status_and_stacks_are_the_programs_own(tmp_path: Path) -> None:
    with Scenario(tmp_path, "say('ready', pid=os.getpid())\nsignal.pause()") as scenario:
        assert scenario.hear("ready") == {"pid": scenario.process.pid}
        scenario.signal(signal.SIGTERM)
        ended = scenario.end()
    assert (ended.status, ended.output, ended.errors, ended.account) == (-signal.SIGTERM, "", "", None)
    assert time.monotonic() > ended.seconds >= 0 <= ended.lingered_s


@pytest.mark.parametrize("start", STARTS)
def test_a_scenario_without_a_fault_gives_what_the_oracle_reads(start: str, tmp_path: Path) -> None:
    write_shards(tmp_path / "data", 60)
    code = """
def run():
    with pipeline().loader(threads=2) as loader:
        return [taken(loader) for _ in range(2)]
leave(epochs=run())
"""
    account = play(tmp_path / "scene", code, data=tmp_path / "data", start=start)
    assert [list(map(tuple, epoch)) for epoch in account["epochs"]] == [epoch_of(tmp_path / "data", 3, at) for at in range(2)]
