"""Functions that hang in a worker process: named with stack and sample, and the worker replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from .fault_lab import Scenario, play
from .lab_oracle import epoch_of
from .test_worker_deaths import rows

pytestmark = pytest.mark.faults

HANGING = """
always = sys.argv[1] == "always"
def the_function_that_hangs(sample):
    if int(sample["cls"]) == 37 and (always or once("hang")):
        HANG
    return sample

def run():
    samples = stoker.tar(str(DATA / "*.tar")).shuffle(seed=3).map(the_function_that_hangs).batch(10, drop_last=False)
    found, errors = [], []
    with samples.loader(processes=2, threads=2, watchdog_s=5) as loader:
        try:
            for batch in loader:
                found += contents(batch)
        except stoker.StokerError as error:
            errors.append(account_of(error))
    return {"found": found, "errors": errors}

leave(**run())
"""
HANGS = {
    "sleeping": "time.sleep(10**6)",
    "in Python": "while True: pass",
    "in a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize(
    "hang", [pytest.param(hang, marks=[pytest.mark.thorough] if hang != "sleeping" else []) for hang in HANGS]
)
def test_a_worker_that_hangs_is_shown_and_replaced_and_nothing_is_lost(hang: str, lab_data: Path, tmp_path: Path) -> None:
    with Scenario(tmp_path, HANGING.replace("HANG", HANGS[hang]), "once", data=lab_data) as scenario:
        ended = scenario.end()
    assert ended.status == 0 and ended.account is not None, ended.errors
    assert ended.account["errors"] == []
    assert rows([ended.account["found"]]) == [epoch_of(lab_data, 3, 0)]
    if hang != "stopped":  # such a one cannot write down where it is
        assert "the_function_that_hangs" in ended.errors
    assert "s000037" in ended.errors or "stuck" in ended.errors


@pytest.mark.thorough
def test_a_sample_that_hangs_in_every_worker_is_named(lab_data: Path, tmp_path: Path) -> None:
    [error] = play(tmp_path, HANGING.replace("HANG", HANGS["sleeping"]), "always", data=lab_data)["errors"]
    assert error["type"] in ("WorkerError", "StallError") and "s000037" in error["text"], error
