"""The process at home ends: killed, interrupted, terminated or done, its workers end with it, silently and soon."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .fault_lab import Ended, Fault, Scenario

pytestmark = pytest.mark.faults

Often = Callable[[int, int], int]

#: what the workers are at when the end comes
BUSY = {
    "python": "sum(range(30_000))",
    "sleeping": "time.sleep(0.01)",
    "native": "np.sort(np.random.default_rng(1).random(100_000))",
    "stuck": "time.sleep(10**6 if int(sample['cls']) == 200 else 0)",
}

TRAINING = """
def work(sample):
    BUSY
    return sample

samples = stoker.tar(str(DATA / "*.tar")).shuffle(seed=3).map(work).repeat()
loader = samples.batch(4).loader(processes=WORKERS, threads=2, ahead=16)
say("made")
"""

LOOP = """
for number, batch in enumerate(loader):
    if number == 0:
        say("begun")
"""


def training(busy: str, loop: str = LOOP, workers: int = 1) -> str:
    return TRAINING.replace("BUSY", BUSY[busy]).replace("WORKERS", str(workers)) + loop


def soon(seconds: list[float]) -> bool:
    """Most within a second; a busy machine may delay some."""
    return statistics.median(seconds) < 1 and max(seconds) < 20


@pytest.mark.parametrize("busy", BUSY)
def test_when_home_is_killed_all_workers_are_gone(busy: str, lab_data: Path, tmp_path: Path, often: Often) -> None:
    chance, lingered = random.Random(busy), []
    for number in range(often(1, 10)):
        with Scenario(tmp_path / str(number), training(busy, workers=2), data=lab_data) as scenario:
            scenario.hear("made" if number % 3 == 1 else "begun")
            time.sleep(chance.random() * 0.1)
            assert scenario.workers() or number % 3 == 1
            scenario.signal(signal.SIGKILL, group=False)
            ended = scenario.end()
        assert ended.status == -signal.SIGKILL and "Traceback" not in ended.errors
        lingered.append(ended.lingered_s)
    assert soon(lingered), lingered


def test_home_killed_in_the_midst_of_a_message_leaves_no_worker(lab_data: Path, tmp_path: Path) -> None:
    for after in (1, 9):
        fault = Fault("home sends", after=after)
        with Scenario(tmp_path / str(after), training("python"), data=lab_data, fault=fault) as scenario:
            ended = scenario.end()
        assert ended.status == -signal.SIGKILL and ended.errors == ""


def interrupted(ended: Ended) -> None:
    """One KeyboardInterrupt, told once; what a finalizer ignored is Python's own word."""
    assert ended.status == -signal.SIGINT, ended.errors
    assert ended.errors.count("Traceback") == 1 + ended.errors.count("Exception ignored in"), ended.errors
    assert ended.errors.rstrip().endswith("KeyboardInterrupt"), ended.errors


@pytest.mark.parametrize("busy", ["python", "sleeping"])
def test_ctrl_c_is_one_interrupt_and_no_word_of_any_worker(busy: str, lab_data: Path, tmp_path: Path, often: Often) -> None:
    chance, seconds = random.Random(busy), []
    for number in range(often(3, 50)):
        with Scenario(tmp_path / str(number), training(busy, workers=1 + number % 2), data=lab_data) as scenario:
            scenario.hear("made" if number % 3 == 2 else "begun")
            time.sleep(chance.random() * 0.3)
            scenario.signal(signal.SIGINT)
            ended = scenario.end()
        interrupted(ended)
        seconds.append(ended.seconds + ended.lingered_s)
    assert soon(seconds), seconds


def test_a_state_can_be_saved_when_workers_are_interrupted_too(lab_data: Path, tmp_path: Path, often: Often) -> None:
    loop = """
seen = 0
try:
    for number, batch in enumerate(loader):
        seen += batch.rows
        if number == 0:
            say("begun")
        time.sleep(0.001)
except KeyboardInterrupt:
    state = loader.state_dict()
    loader.close()
    say("state", state=state, seen=seen)
"""
    chance = random.Random(1)
    for number in range(often(2, 20)):
        with Scenario(tmp_path / str(number), training("python", loop), data=lab_data) as scenario:
            scenario.hear("begun")
            time.sleep(chance.random() * 0.3)
            scenario.signal(signal.SIGINT)
            said = scenario.hear("state")
            ended = scenario.end()
        assert (ended.status, ended.errors) == (0, "")
        assert abs(said["state"]["row"] - said["seen"]) <= 4


def test_two_interrupts_leave_no_worker_either(lab_data: Path, tmp_path: Path) -> None:
    for number in range(2):
        with Scenario(tmp_path / str(number), training("python"), data=lab_data) as scenario:
            scenario.hear("begun")
            scenario.signal(signal.SIGINT)
            time.sleep(0.02 * number)
            scenario.signal(signal.SIGINT)
            ended = scenario.end()
        assert ended.status in (-signal.SIGINT, 1) and "KeyboardInterrupt" in ended.errors and "Fatal" not in ended.errors


def test_sigterm_to_all_is_the_end_of_home_and_with_it_of_all(lab_data: Path, tmp_path: Path) -> None:
    with Scenario(tmp_path / "a", training("python"), data=lab_data) as scenario:
        scenario.hear("begun")
        scenario.signal(signal.SIGTERM)
        ended = scenario.end()
    assert (ended.status, ended.errors) == (-signal.SIGTERM, "")
    handled = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    with Scenario(tmp_path / "b", handled + training("python"), data=lab_data) as scenario:
        scenario.hear("begun")
        scenario.signal(signal.SIGTERM)
        ended = scenario.end()
    assert (ended.status, ended.errors) == (7, "")


def test_workers_ignore_signals_that_are_homes_to_decide_on(lab_data: Path, tmp_path: Path) -> None:
    loop = """
import psutil
def run():
    with loader:
        iterator = iter(loader)
        next(iterator)
        before = workers()
        for pid in before:
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
        for _ in range(200):
            next(iterator)
        return before == workers() and len(before) == 2
same = run()
del loader
leave(same=same)
"""
    with Scenario(tmp_path, training("python", loop, workers=2), data=lab_data) as scenario:
        ended = scenario.end()
    assert ended.status == 0 and ended.account is not None and ended.account["same"], ended.errors


ENDINGS = {
    "without close": "next(iter(loader))",
    "never iterated": "pass",
    "with the iterator alone": "iterator = iter(loader)\nnext(iterator)\ndel loader",
    "sys.exit in the middle": "for batch in loader: sys.exit(0)",
    "batches still held": "kept = [batch for batch, _ in zip(loader, range(9))]\ndel loader\nkept[0]['cls'][...] = 1",
    "closed in atexit": "import atexit\nnext(iter(loader))\natexit.register(loader.close)",
    "used in atexit": "import atexit\nit = iter(loader)\nnext(it)\natexit.register(lambda: (next(it), loader.close()))",
    "in another thread": "thread = threading.Thread(target=lambda: next(iter(loader)))\nthread.start()",
    "in a daemon thread": "thread = threading.Thread(target=lambda: list(loader), daemon=True)\nthread.start()\ntime.sleep(0.3)",
    "in a cycle": "cycle = [loader]\ncycle.append(cycle)\nnext(iter(loader))\ndel loader",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_with_worker_processes_ends_quietly_in_any_state(name: str, lab_data: Path, tmp_path: Path) -> None:
    with Scenario(tmp_path, training("python", ENDINGS[name]), data=lab_data) as scenario:
        ended = scenario.end()
    assert (ended.status, ended.output, ended.errors) == (0, "", "")


def test_os_exit_leaves_no_worker(lab_data: Path, tmp_path: Path) -> None:
    with Scenario(tmp_path, training("stuck", "next(iter(loader))\nos._exit(5)"), data=lab_data) as scenario:
        ended = scenario.end()
    assert (ended.status, ended.errors) == (5, "")
