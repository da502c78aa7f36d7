"""Where a loader with worker processes is used: any way to start a program, threads, daemons, forks, test sessions, shutdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from .fault_lab import PREAMBLE, STARTS, Scenario, play
from .lab_oracle import epoch_of
from .test_worker_deaths import rows

pytestmark = pytest.mark.faults

#: functions of the program itself, with names, without, and around values: no module has them
OWN_FUNCTIONS = """
offset = np.arange(3)
def named(sample):
    return {**sample, "cls": sample["cls"] + offset[1]}
def closure(amount):
    return lambda sample: {**sample, "cls": sample["cls"] - amount}
class Callable:
    def __init__(self, amount):
        self.amount = amount
    def __call__(self, sample):
        return {**sample, "cls": sample["cls"] - self.amount}
def run():
    samples = stoker.tar(str(DATA / "*.tar")).shuffle(seed=3).map(named).map(closure(5)).map(Callable(-4))
    with samples.batch(10).loader(processes=1, threads=1) as loader:
        return [taken(loader)]
leave(epochs=run())
"""


@pytest.mark.parametrize("start", STARTS)
def test_functions_of_a_program_reach_the_workers_however_it_was_started(start: str, lab_data: Path, tmp_path: Path) -> None:
    account = play(tmp_path, OWN_FUNCTIONS, data=lab_data, start=start)
    assert rows(account["epochs"]) == [epoch_of(lab_data, 3, 0)]


#: each prints a line for each good thing that it did
PLACES = {
    "a thread": """
def use():
    with pipeline().loader(processes=1) as loader:
        print(len(taken(loader)))
threads = [threading.Thread(target=use) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    "a daemonic process": """
import multiprocessing
def use():
    with pipeline().loader(processes=1) as loader:
        print(len(taken(loader)))
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=use, daemon=True)
        child.start()
        child.join()
        assert child.exitcode == 0
""",
    "a pool of processes": """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
def use(seed):
    with pipeline(seed=seed).loader(processes=1) as loader:
        return len(taken(loader))
if __name__ == "__main__":
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        print(*pool.map(use, [1, 2]), sep="\\n")
""",
    "processes that torch spawned": """
def use(rank):
    with pipeline().loader(processes=1) as loader:
        print(len(taken(loader)), flush=True)
if __name__ == "__main__":
    import torch.multiprocessing
    torch.multiprocessing.spawn(use, nprocs=2)
""",
    "two loaders at once": """
with pipeline().loader(processes=1) as one, pipeline("arrays").loader(processes=1) as two:
    both = [(contents(a), contents(b)) for a, b in zip(one, two)]
assert all(a == b for a, b in both)
print(sum(len(a) for a, _ in both))
print(sum(len(b) for _, b in both))
""",
    "a child that was forked from a loader's home": """
import warnings
warnings.simplefilter("ignore")
loader = pipeline().loader(processes=1)
iterator = iter(loader)
first = contents(next(iterator))
if (child := os.fork()) == 0:
    try:
        next(iterator)
    except stoker.errors.ClosedError as error:
        assert "another process" in str(error), error
        with pipeline().loader(processes=1) as own:
            print(len(taken(own)), flush=True)
        os._exit(0)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(len(first) + len(taken(iterator)))
loader.close()
""",
    "a child that was forked and lives on": """
import warnings
warnings.simplefilter("ignore")
with pipeline().loader(processes=1) as loader:
    first = contents(next(iter(loader)))
    child = os.fork()
    if child == 0:
        signal.pause()  # it holds what it was born with
    alive = workers()
    alive.remove(child)
deadline = time.monotonic() + 20
while [pid for pid in workers() if pid in alive] and time.monotonic() < deadline:
    time.sleep(0.01)
print(500 if not [pid for pid in workers() if pid in alive] else "a worker is left")
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(500)
""",
    "a program without standard streams": """
print(500)
print(500)
sys.stdout.flush()
[os.close(fd) for fd in (0, 1, 2)]
with pipeline().loader(processes=1) as loader:
    assert len(taken(loader)) == 500
""",
    "threads that contend for locks": """
import logging
logging.basicConfig(filename="/dev/null", level=logging.DEBUG)
stop = threading.Event()
def contend():
    while not stop.is_set():
        logging.debug("%s", [bytearray(1000) for _ in range(10)])
threads = [threading.Thread(target=contend) for _ in range(3)]
[thread.start() for thread in threads]
for _ in range(2):
    with pipeline().loader(processes=1) as loader:
        print(len(taken(loader)))
stop.set()
""",
}


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=[pytest.mark.thorough] if "torch" in place else []) for place in PLACES]
)
def test_a_loader_with_worker_processes_works_in(place: str, lab_data: Path, tmp_path: Path) -> None:
    if "torch" in place:
        pytest.importorskip("torch")
    with Scenario(tmp_path, PLACES[place], data=lab_data) as scenario:
        ended = scenario.end()
    assert (ended.status, ended.output, ended.errors) == (0, "500\n500\n", "")


def test_a_loader_made_in_atexit_works_or_says_why_not(lab_data: Path, tmp_path: Path) -> None:
    code = """
import atexit
@atexit.register
def late():
    try:
        with pipeline().loader(processes=1) as loader:
            print(len(taken(loader)))
    except stoker.StokerError as error:
        print("why not:", error)
"""
    with Scenario(tmp_path, code, data=lab_data) as scenario:
        ended = scenario.end()
    assert (ended.status, ended.errors) == (0, "")
    assert ended.output == "500\n" or ended.output.startswith("why not:")


def test_a_parallel_test_session_uses_worker_processes_and_leaves_none(lab_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_program.py").write_text(
        PREAMBLE
        + """
import pytest
kept = []

@pytest.mark.parametrize("number", range(2))
def test_a_batch(number):
    kept.append(pipeline().loader(processes=1))  # which nobody closes
    assert len(taken(kept[-1])) == 500
"""
    )
    code = f"""
import subprocess
arguments = ["-q", "-n", "2", "-p", "xdist", "-p", "no:cacheprovider", "--rootdir={tmp_path}", "--basetemp={tmp_path}/base"]
arguments += ["{tmp_path}/test_program.py"]
done = subprocess.run([sys.executable, "-m", "pytest", *arguments], capture_output=True, text=True)
print(done.stdout, done.stderr)
sys.exit(done.returncode)
"""
    with Scenario(tmp_path / "scene", code, data=lab_data, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="") as scenario:
        ended = scenario.end()
    assert ended.status == 0 and "2 passed" in ended.output, (ended.output, ended.errors)
