"""How programs end: interrupted, killed softly, falling off their end, with a loader in every state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ..loader.runs import run_python
from .fault_lab import Scenario

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

TRAINING = """
import sys, time
import numpy as np, stoker
from tests.loader.runs import numbers, odd, samples

def slowly(x):
    time.sleep(0.002)
    return x

kinds = {
    "threads": lambda: numbers(600).map(x=slowly).batch(4).loader(threads=2),
    "filter": lambda: numbers(600).map(x=slowly).filter(odd).batch(4).loader(threads=2),
    "inline": lambda: numbers(600).map(x=slowly).batch(4).loader(executor="inline"),
    "stream": lambda: stoker.stream(lambda: ({"x": n, "y": slowly(n)} for n in range(10**6))).batch(4).loader(threads=2),
    "pipeline": lambda: numbers(600).map(x=slowly).batch(4),
    "ready": lambda: numbers(600).batch(4).loader(threads=2),
}
"""

LOOP = (
    TRAINING
    + """
loader = kinds[sys.argv[1]]()
say("begun")
while True:
    for batch in loader:
        pass
"""
)


def interrupt(
    folder: Path, script: str, *arguments: str, after_s: float, sig: int = signal.SIGINT, again: bool = False
) -> tuple[int, str]:
    """Start a program in the fault lab, interrupt it, and see how it ends."""
    with Scenario(folder, script, *arguments) as scenario:
        scenario.hear("begun")
        time.sleep(after_s)
        scenario.signal(sig)
        if again:
            time.sleep(0.01)
            scenario.signal(sig)
        try:
            scenario.process.wait(5)
        except subprocess.TimeoutExpired:
            # Python drops an interrupt that comes while a finalizer runs ("Exception ignored in ..."); so ask again.
            scenario.signal(sig)
        ended = scenario.end()
        return ended.status, ended.errors


@pytest.mark.parametrize("kind", ["threads", "filter", "inline", "stream", "pipeline", "ready"])
def test_ctrl_c_ends_the_program_with_one_clean_interrupt(kind: str, tmp_path: Path) -> None:
    chance = random.Random(kind)
    for number in range(2 if kind != "threads" else 3):
        code, errors = interrupt(tmp_path / str(number), LOOP, kind, after_s=chance.random() * 0.2)
        assert code == -signal.SIGINT, errors
        assert errors.count("Traceback") == 1 + errors.count("Exception ignored in"), errors
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors


def test_two_interrupts_end_it_too(tmp_path: Path) -> None:
    for number in range(3):
        code, errors = interrupt(tmp_path / str(number), LOOP, "threads", after_s=0.1, again=True)
        assert code in (-signal.SIGINT, 1), errors
        assert "KeyboardInterrupt" in errors and "Fatal" not in errors


def test_a_state_can_be_saved_when_interrupted(tmp_path: Path) -> None:
    script = (
        TRAINING
        + """
endless = numbers(100_000).map(x=slowly)  # minutes of work: it is interrupted before its end, however late that is
kinds = {
    "threads": lambda: endless.batch(4).loader(threads=2),
    "filter": lambda: endless.filter(odd).batch(4).loader(threads=2),
    "inline": lambda: endless.batch(4).loader(executor="inline"),
}
loader = kinds[sys.argv[1]]()
seen = 0
say("begun")
try:
    for batch in loader:
        seen += len(batch["x"])
        time.sleep(0.001)
except KeyboardInterrupt:
    state = loader.state_dict()
    assert abs(state["row"] - seen) <= 4, (state, seen)
    loader.close()
    sys.stderr.write("saved")
"""
    )
    for kind in ("threads", "filter", "inline"):
        code, errors = interrupt(tmp_path / kind, script, kind, after_s=0.15)
        assert (code, errors) == (0, "saved")


def test_sigterm_ends_the_program_at_once(tmp_path: Path) -> None:
    code, errors = interrupt(tmp_path, LOOP, "threads", after_s=0.1, sig=signal.SIGTERM)
    assert code == -signal.SIGTERM and errors == ""


def test_sigterm_turned_into_an_exit_is_a_clean_one(tmp_path: Path) -> None:
    script = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + LOOP
    for kind in ("threads", "inline", "stream"):
        code, errors = interrupt(tmp_path / kind, script, kind, after_s=0.1, sig=signal.SIGTERM)
        assert (code, errors) == (7, "")


#: what test_exit.py does not have
ENDINGS = {
    "never iterated": "loader = kinds['threads']()",
    "batches still held": "loader = kinds['ready'](); kept = [b for b, _ in zip(loader, range(9))]; del loader",
    "torch tensors still held": "kept = [b['x'] for b, _ in zip(numbers(60).batch(4).loader(format='torch'), range(9))]",
    "closed in atexit": """
import atexit
loader = kinds['threads']()
next(iter(loader))
atexit.register(loader.close)""",
    "closed by a destructor": """
class Owner:
    def __del__(self):
        self.loader.close()
owner = Owner()
owner.loader = kinds['threads']()
next(iter(owner.loader))""",
    "in another thread": """
import threading
threading.Thread(target=lambda: [next(iter(kinds['threads']())) for _ in range(3)]).start()""",
    "a function that never returns": """
import threading
loader = numbers().map(x=lambda v: threading.Event().wait()).batch(4).loader(threads=2, watchdog_s=0.3)
try:
    next(iter(loader))
except stoker.errors.StallError:
    pass""",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_ends_quietly_whatever_state_its_loader_is_in(name: str) -> None:
    done = run_python(TRAINING + ENDINGS[name], timeout_s=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_loader_in_a_forked_child_works() -> None:
    script = (
        TRAINING
        + """
import os
pipeline = numbers(60).shuffle(seed=1).batch(4)
with pipeline.loader(threads=2) as loader:
    expected = [b["x"].tolist() for b in loader]
child = os.fork()
if child == 0:
    with pipeline.loader(threads=2) as loader:
        os._exit(0 if [b["x"].tolist() for b in loader] == expected else 9)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""
    )
    done = run_python(script, timeout_s=30)
    assert done.returncode == 0, done.stderr


def test_a_loader_does_not_go_along_into_a_forked_child_and_says_so() -> None:
    script = (
        TRAINING
        + """
import os
loader = kinds["threads"]()
iterator = iter(loader)
next(iterator)
child = os.fork()
if child == 0:
    try:
        next(iterator)
    except stoker.errors.ClosedError as error:
        os._exit(0 if "another process" in str(error) else 8)
    os._exit(9)
_, status = os.waitpid(child, 0)
next(iterator)
loader.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    )
    done = run_python(script, timeout_s=30)
    assert done.returncode == 0, done.stderr


def test_a_child_forked_while_a_thread_awaits_a_batch_is_told_that_the_loader_is_not_its_own() -> None:
    script = (
        TRAINING
        + """
import os, signal, threading
from stoker.loader import loader, one_epoch
loader._TURN_S = one_epoch._TURN_S = 0.01
entered, release = threading.Event(), threading.Event()
def stay(x):
    entered.set()
    release.wait()
    return x
pipeline = numbers().map(x=stay).batch(4)
inline = pipeline.loader(executor="inline")
for shared in (iter(inline), iter(pipeline), one_epoch.OneEpoch(lambda: stay(inline))):
    entered.clear()
    release.clear()
    thread = threading.Thread(target=next, args=(shared, None))
    thread.start()
    entered.wait()
    if (child := os.fork()) == 0:
        signal.alarm(20)
        try:
            next(shared)
        except stoker.errors.ClosedError as error:
            os._exit(0 if "another process" in str(error) else 8)
        os._exit(9)
    assert os.waitpid(child, 0)[1] == 0, shared
    release.set()
    thread.join()
"""
    )
    done = run_python(script, timeout_s=60)
    assert done.returncode == 0, done.stderr


def test_an_exception_in_the_training_loop_is_shown_once() -> None:
    done = run_python(TRAINING + "for batch in kinds['threads'](): raise ValueError('training broke')", timeout_s=30)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1 and done.stderr.rstrip().endswith("ValueError: training broke")


def test_an_error_of_a_worker_is_shown_once_with_its_cause() -> None:
    script = (
        TRAINING
        + """
def the_users_function(x):
    return 1 // (int(x) - 9)
for batch in numbers().map(x=the_users_function).batch(4).loader(threads=4): pass
"""
    )
    done = run_python(script, timeout_s=30)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 2, "the function's, and the loop's that it caused"
    assert "the_users_function" in done.stderr and "FunctionError" in done.stderr.splitlines()[-1]
    assert "sample '9'" in done.stderr


def test_warnings_in_workers_are_not_lost() -> None:
    script = (
        TRAINING
        + """
import warnings
def grumble(x):
    warnings.warn("grumbling", UserWarning)
    return x
list(numbers().map(x=grumble).batch(4))
"""
    )
    done = run_python(script, timeout_s=30)
    assert done.returncode == 0 and done.stderr.count("UserWarning: grumbling") == 1


def test_importing_and_making_a_pipeline_starts_nothing() -> None:
    script = """
import threading, os
before = threading.active_count(), len(os.listdir("/proc/self/fd"))
import stoker, numpy as np
pipeline = stoker.arrays(x=np.arange(9)).shuffle().map(x=abs).batch(2)
len(pipeline), pipeline.explain(), pipeline.fingerprint()
assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr
