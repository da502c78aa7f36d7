"""How a program ends that leaves loaders open while their workers are busy: with its own status, its own output, and no more.

Each case is a program of its own. Most are put together from four parts: what is loaded (`KINDS`), what holds the loader
(`HOLDERS`), how the program ends (`WAYS`), and how it was started (`STARTS`). The others are programs of their own kind.

The pictures are large and much is asked for ahead, so that workers are in native calls at the end. What is freed is overwritten,
so that a call that still uses it does not get away with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

import stoker

from ..loader.runs import ROOT, environment

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

#: output is buffered, what is freed is overwritten, and all threads of a program are its own or ours
VARIABLES = {"PYTHONUNBUFFERED": "", "MALLOC_PERTURB_": "165", "OPENBLAS_NUM_THREADS": "1"}

PREAMBLE = """
import os, signal, sys, threading, time
import numpy as np, stoker
from stoker.image import RandomResizedCrop
DATA = os.environ["EXIT_DATA"]

def work(x):
    return sum(range(100_000)) + x

def stream():
    x = 0
    while True:
        yield {"x": work(x)}
        x += 1

def load(**arguments):
    return pipeline().loader(**({} if "executor" in arguments else {"threads": 2}), **{"ahead": 32, **arguments})
"""

#: what makes the workers busy
KINDS = {
    "files": "stoker.files(DATA + '/pictures').repeat().image('image', RandomResizedCrop(600)).batch(4)",
    "shard": "stoker.tar(DATA + '/pictures.tar').repeat().image('jpg', RandomResizedCrop(600)).batch(4)",
    "decode": "stoker.files(DATA + '/pictures').repeat().decode('image').batch(2)",
    "map": "stoker.arrays(x=np.arange(100_000)).map(x=work).batch(4)",
    "stream": "stoker.stream(stream).map(x=work).batch(4)",
}

#: what never returns once the first batch is made
STUCK = {
    "a stuck function": "stoker.arrays(x=np.arange(99)).map(x=lambda x: x if x < 4 else threading.Event().wait()).batch(4)",
    "a stuck stream": "stoker.stream(lambda: ({'x': n if n < 99 else threading.Event().wait()} for n in range(999))).batch(4)",
}

#: who holds the loader when the program ends
HOLDERS = {
    "a global": "loader = load(); next(iter(loader))",
    "a list": "kept = [load()]; next(iter(kept[0]))",
    "a cycle": "cycle = [load()]; cycle.append(cycle); next(iter(cycle[0]))",
    "a class": "class Trainer:\n    loader = load()\nnext(iter(Trainer.loader))",
    "a module": "import json; json.loader = load(); next(iter(json.loader))",
    "a traceback": """
def train():
    loader = load()
    next(iter(loader))
    raise LookupError
try:
    train()
except LookupError as error:
    failure = error
""",
    "its iterator": "iterator = iter(load()); next(iterator)",
    "a pipeline's iterator": "iterator = iter(pipeline()); next(iterator)",
    "nobody, after a loop": "for batch in pipeline():\n    break",
    "a generator": """
def batches():
    with load() as loader:
        yield from loader
generator = batches()
next(generator)
""",
    "two globals": "first, second = load(), load(); next(iter(first)); next(iter(second))",
}


@dataclass(frozen=True)
class End:
    """How a program ends, and what is seen of it: its status, and the last line of its traceback where it has one."""

    code: str
    status: int = 0
    traceback: str = ""
    flushes: bool = True  # what was printed before


WAYS = {
    "its last line": End("pass"),
    "an exception": End("raise ValueError('training broke')", 1, "ValueError: training broke"),
    "sys.exit(0)": End("sys.exit(0)"),
    "sys.exit(3)": End("sys.exit(3)", 3),
    "sys.exit in finally": End("try:\n    raise ValueError\nfinally:\n    sys.exit(4)", 4),
    "Ctrl-C": End("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, "KeyboardInterrupt"),
    "SIGTERM": End("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM, flushes=False),
    "SIGTERM handled": End(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", 7
    ),
    "os._exit": End("os._exit(5)", 5, flushes=False),
}

#: the arguments of Python for a program in this file, whose cells these are
STARTS: dict[str, Callable[[Path, list[str]], list[str]]] = {
    "a script": lambda path, cells: [str(path)],
    "python -c": lambda path, cells: ["-c", "\n".join(cells)],
    "runpy": lambda path, cells: ["-c", f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"],
    "cells of a notebook": lambda path, cells: ["-c", f"space = {{}}\nfor cell in {cells!r}:\n    exec(cell, space)"],
}

# Lengths without a common factor: so many cases meet every word of each list, and ever new pairs of them.
CASES = [
    tuple(list(words)[case % len(words)] for words in (KINDS, HOLDERS, WAYS, STARTS))
    for case in range(22)
]  # fmt: skip


@pytest.fixture(scope="session")
def exit_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four large JPEGs, as files and in a shard."""
    root = tmp_path_factory.mktemp("exit")
    folder = root / "pictures" / "noise"
    folder.mkdir(parents=True)
    noise = Image.effect_noise((1500, 1500), 60)
    Image.merge("RGB", [noise, noise, noise]).save(folder / "0.jpg", quality=80)
    data = (folder / "0.jpg").read_bytes()
    for number in range(1, 4):
        (folder / f"{number}.jpg").write_bytes(data)
    stoker.write_tar(root / "pictures.tar", [{"jpg": data} for _ in range(4)])
    return root


def cells_of(kind: str, *rest: str) -> list[str]:
    pipeline = {**KINDS, **STUCK}[kind]
    return [PREAMBLE, f"def pipeline():\n    return {pipeline}\n", *rest]


def run(data: Path, arguments: list[str], **variables: str) -> tuple[int, str, str]:
    """Status, output and errors of a Python of its own."""
    done = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**environment(), "EXIT_DATA": str(data), **VARIABLES, **variables},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("kind", "holder", "way", "start"), CASES)
def test_a_program_that_leaves_a_loader_open_ends_as_it_would_without(
    kind: str, holder: str, way: str, start: str, exit_data: Path, tmp_path: Path
) -> None:
    end = WAYS[way]
    cells = cells_of(kind, HOLDERS[holder], "print('the last words')", end.code)
    script = tmp_path / "program.py"
    script.write_text("\n".join(cells))
    status, output, errors = run(exit_data, STARTS[start](script, cells))
    assert (status, output) == (end.status, "the last words\n" if end.flushes else ""), errors
    assert errors.count("Traceback") == bool(end.traceback) and errors.rstrip().rpartition("\n")[2] == end.traceback


@dataclass(frozen=True)
class Program:
    """A program of its own kind, what it prints, what it loads, and what comes before everything else."""

    code: str
    prints: str
    kinds: tuple[str, ...] = ("files",)
    before: str = ""


IN_A_DAEMON = """
seen = threading.Event()
def train(loader):
    for batch in loader:
        seen.set()
def begin():
    thread.start()
    seen.wait(60)
thread = threading.Thread(target=lambda: train(load()), daemon=True)
"""
PROGRAMS = {
    "a thread that is still training": Program(
        """
iterator = iter(load())
next(iterator)
def train():
    threading.main_thread().join()
    print(sum(next(iterator).rows for _ in range(4)))
threading.Thread(target=train).start()
""",
        "16\n",
        ("shard", "stream"),
    ),
    "a daemon thread that is still training": Program(IN_A_DAEMON + "begin()", "", ("files", "map", "stream")),
    "a daemon thread that trains inline": Program(
        IN_A_DAEMON
        + """
loader = load(executor="inline")
thread = threading.Thread(target=train, args=(loader,), daemon=True)
begin()
""",
        "",
    ),
    "a daemon thread that is waited for": Program(
        IN_A_DAEMON
        + """
import atexit
atexit.register(lambda: (thread.join(60), print("ended" if not thread.is_alive() else "waits")))
begin()
""",
        "ended\n",
        ("decode", "stream"),
    ),
    "a pool of threads": Program(
        """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
loader = load()
batches = pool.map(next, [iter(loader), iter(pipeline())])
print([batch.rows for batch in batches])
""",
        "[4, 4]\n",
        ("shard",),
    ),
    "batches read by an exit callback": Program(
        """
import atexit
iterator = iter(load())
next(iterator)
atexit.register(lambda: print(sum(next(iterator).rows for _ in range(3))))
""",
        "12\n",
        ("files", "stream"),
    ),
    "an exit callback that comes after the end of the workers": Program(
        "iterator = iter(load()); next(iterator)",
        "ClosedError: the program is ending\nClosedError: the program is ending\n4\nConfigError: worker thread 1 of 2\n",
        ("shard", "stream"),
        before="""
import atexit
@atexit.register
def late():
    for use in (
        lambda: next(iterator),
        lambda: next(iter(iterator._loader)),
        lambda: print(next(iter(load(executor="inline"))).rows),
        lambda: load(),
    ):
        try:
            use()
        except stoker.StokerError as error:
            print(type(error).__name__, str(error).partition(" and ")[0].partition(" could")[0], sep=": ")
""",
    ),
    "a loader made by an exit callback": Program(
        """
import atexit
@atexit.register
def late():
    global loader
    try:
        loader = load()
        next(iter(loader))
    except stoker.errors.ConfigError:
        pass  # no thread can be started by then, from Python 3.12 on
    print("late")
""",
        "late\n",
        ("files", "stream"),
    ),
    "workers that are not waited for": Program(
        """
import stoker.engine.daemons
stoker.engine.daemons._EXIT_S = stoker.engine.daemons._BUSY_S = 0.0
class Last:  # goes when all else is gone, and gives the workers time to finish what they are at
    def __del__(self, sleep=time.sleep):
        sleep(0.5)
loader = load()
next(iter(loader))
last = Last()
""",
        "",
        ("files", "shard", "decode"),
    ),
    "a function at work in torch, whose C++ does not bear being ended": Program(
        """
import numpy as np, torch
def feature(x):
    end = time.thread_time() + (0.8 if x >= 4 else 0)
    while time.thread_time() < end:
        torch.tanh(torch.randn(400, 400) @ torch.randn(400, 400))
    return x
loader = stoker.arrays(x=np.arange(40)).map(x=feature).batch(4).loader(threads=2)
next(iter(loader))
""",
        "",
        ("files",),
    ),
    "a worker that never returns": Program("loader = load(); next(iter(loader)); print('seen')", "seen\n", tuple(STUCK)),
    "Ctrl-C while workers are waited for": Program(
        """
join = threading.Thread.join
def interrupted(thread, timeout=None):
    os.kill(os.getpid(), signal.SIGINT)
    join(thread, timeout)
loader = load()
next(iter(loader))
threading.Thread.join = interrupted
""",
        "",
        ("a stuck function",),
    ),
    "a forked child": Program(
        """
import warnings
warnings.simplefilter("ignore")  # about a fork beside threads
loader = load()
next(iter(loader))
child = os.fork()
if child == 0:
    mine = load()
    next(iter(mine))
    sys.exit(6)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
""",
        "6\n",
        ("map", "stream"),
    ),
    "children of multiprocessing": Program(
        """
import multiprocessing
def train():
    global loader
    loader = load()
    next(iter(loader))
    sys.exit(3)
if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    loader = load()
    next(iter(loader))
    for method in ("spawn", "fork"):
        child = multiprocessing.get_context(method).Process(target=train)
        child.start()
        child.join(60)
        print(child.exitcode)
""",
        "3\n3\n",
        ("map",),
    ),
    "workers of a torch DataLoader": Program(
        """
import torch
loader = torch.utils.data.DataLoader(pipeline().torch_dataset(), batch_size=None, num_workers=1)
iterator = iter(loader)
print(len(next(iterator)["image"]))
""",
        "4\n",
    ),
    "a file that is not closed": Program(
        """
report = open(sys.argv[0] + ".report", "w")
report.write("step 1\\n")
loader = load()
next(iter(loader))
print("x" * 100_000)
""",
        "x" * 100_000 + "\n",
        ("decode",),
    ),
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, program in PROGRAMS.items() for kind in program.kinds])
def test_a_program_ends_quietly_with_all_it_printed(name: str, kind: str, exit_data: Path, tmp_path: Path) -> None:
    if "torch" in name:
        pytest.importorskip("torch")
    program = PROGRAMS[name]
    script = tmp_path / "program.py"
    script.write_text("\n".join([program.before, *cells_of(kind, program.code)]))
    assert run(exit_data, [str(script)]) == (0, program.prints, "")
    if (report := tmp_path / "program.py.report").exists():
        assert report.read_text() == "step 1\n"


def test_an_interactive_session_ends_with_its_input(exit_data: Path, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("\n".join(cells_of("files", HOLDERS["a global"])))
    status, output, errors = run(exit_data, ["-i", str(script)])
    assert (status, output, errors.strip()) == (0, "", ">>>")


def test_a_test_session_passes_whose_fixture_closes_nothing(exit_data: Path, tmp_path: Path) -> None:
    (tmp_path / "test_program.py").write_text(
        "\n".join(cells_of("shard"))
        + """
import pytest

kept = []

@pytest.fixture
def loader():
    kept.append(load())
    return kept[0]

def test_a_batch(loader):
    assert next(iter(loader)).rows == 4
"""
    )
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    status, output, errors = run(exit_data, arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="")
    assert (status, errors) == (0, ""), output
    assert "1 passed" in output
