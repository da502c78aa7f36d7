"""`stoker map`: a user's function over shards, resumable, whole outputs only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker as library
from stoker.cli.map import MapResult, look, pair_up
from stoker.cli.map_worker import Job, ShardMapper, load_function
from stoker.cli.progress import Progress
from stoker.engine.executor import Task
from stoker.engine.task_notes import TaskNote
from stoker.errors import ConfigError

from ..support import process_ended, process_id, until
from .tar.conftest import ENVIRONMENT, STOKER, keys_of, make_tar, read_tar, some_samples


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Three shards of six samples, and a user's module; the working directory."""
    for number in range(3):
        make_tar(tmp_path / f"in-{number:02d}.tar", some_samples(6, 6 * number))
    (tmp_path / "user_maps.py").write_text(
        """
import os, signal, sys, time
from pathlib import Path

def upper(sample):
    assert isinstance(sample["txt"], bytes) and isinstance(sample["__key__"], str)
    return {"txt": sample["txt"].upper(), "cls": 7}

def some(sample):
    return None if sample["__key__"] < "d/00006" or int(sample["cls"]) % 2 else sample

def several(sample):
    for number in range(2):
        yield {"__key__": f"{sample['__key__']}-{number}", "txt": sample["txt"]}

def decoded(sample):
    return {**sample, "cls": sample["cls"] + 1, "txt": sample["txt"] * 2}

def angry(sample):
    if sample["__key__"] == "d/00008":
        raise ValueError("no such luck")
    return sample

def odd(sample):
    return {"d/00002": 5, "d/00008": {"txt": 5.5}, "d/00014": {"__key__": "../up", "txt": b""}}.get(sample["__key__"], sample)

def leaves(sample):
    if sample["__key__"] == "d/00008":
        sys.exit(0)
    return sample

def interrupts(sample):
    if sample["__key__"] == "d/00008":
        raise KeyboardInterrupt
    return sample

def dies(sample):
    if sample["__key__"] == "d/00008":
        os._exit(0)
    return sample

def dies_once(sample):
    if sample["__key__"] == "d/00008" and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return sample

def stuck(sample):
    if sample["__key__"] == "d/00008":
        time.sleep(1000)
    return sample

def slow(sample):
    print("working on", sample["__key__"])
    if sample["__key__"] > "d/00005":
        Path("begun").touch()
        while not Path("go").exists():
            time.sleep(0.01)
    return sample

number = 5
"""
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
    yield tmp_path
    for name in [name for name in sys.modules if "user_maps" in name]:
        del sys.modules[name]


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("out-*.tar"))}


def leftovers(folder: Path) -> list[str]:
    """Everything hidden that lies around."""
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_each_shard_becomes_one_of_the_same_number(stoker: Any, folder: Path) -> None:
    result = stoker("map", "user_maps:upper", "in-{00..02}.tar", "out-{}.tar", "-j", 2)
    assert result.exit_code == 0, result.stderr
    assert "3 of 3 shards made: 18 samples in, 18 out" in result.stdout
    for number in range(3):
        wanted = [(key, {"txt": fields["txt"].upper(), "cls": b"7"}) for key, fields in some_samples(6, 6 * number)]
        assert read_tar(folder / f"out-{number:02d}.tar") == wanted
    assert len(library.tar("out-*.tar")) == 18 and not leftovers(folder)


def test_samples_may_be_left_out_or_become_several(stoker_json: Any, folder: Path) -> None:
    told = stoker_json("map", "user_maps.py:some", "in-*.tar", "some-{}.tar", "-j", 1)
    assert (told["samples"], told["written"], told["dropped"]) == (18, 6, 12)
    assert keys_of(folder / "some-00.tar") == []
    stoker_json("map", "user_maps:several", "in-00.tar", "several.tar")
    assert keys_of(folder / "several.tar")[:3] == ["d/00000-0", "d/00000-1", "d/00001-0"]


def test_fields_are_decoded_when_asked_for(stoker_json: Any, folder: Path) -> None:
    stoker_json("map", "user_maps:decoded", "in-00.tar", "out.tar", "--decode")
    assert read_tar(folder / "out.tar")[3][1] == {"jpg": b"\3" * 300, "cls": b"2", "txt": b"line\t3\nline\t3\n"}


def test_what_was_made_is_not_made_again(stoker_json: Any, folder: Path) -> None:
    words = ("map", "user_maps:upper", "in-{00..02}.tar", "out-{}.tar", "-j", 1)
    stoker_json(*words)
    before = outputs(folder)
    (folder / "out-01.tar").unlink()
    (folder / "out-02.tar").unlink()
    (folder / "out-02.tar.stk").unlink()
    told = stoker_json(*words)
    assert (told["kept"], told["made"]) == (1, 2) and outputs(folder) == before


def test_what_was_made_otherwise_is_left_alone(stoker: Any, folder: Path) -> None:
    words = ("map", "user_maps:upper", "in-{00..02}.tar", "out-{}.tar", "-j", 1)
    (folder / "out-00.tar").write_bytes(b"precious")
    stoker(*words)
    make_tar(folder / "in-01.tar", some_samples(4))  # the input is another now
    result = stoker(*words)
    assert result.exit_code == 1 and (folder / "out-00.tar").read_bytes() == b"precious"
    assert "out-00.tar" in result.stderr and "--overwrite" in result.stderr
    assert "out-01.tar" in result.stderr and "its input has changed" in result.stderr
    assert len(read_tar(folder / "out-01.tar")) == 6
    assert stoker("map", "user_maps:some", "in-02.tar", "out-02.tar").exit_code == 1  # another function
    assert stoker(*words, "--overwrite").exit_code == 0
    assert [len(read_tar(folder / f"out-{number:02d}.tar")) for number in range(3)] == [6, 4, 6]


@pytest.mark.parametrize("function", ["user_maps:upper", "user_maps.py:upper", "taken:upper"])
def test_what_other_code_made_is_noticed(stoker: Any, folder: Path, function: str) -> None:
    (folder / "taken.py").write_text("from user_maps import upper\n")
    words = ("map", function, "in-{00..02}.tar", "out-{}.tar", "-j", 1)

    def made(*more: str) -> int:
        for name in [name for name in sys.modules if "user_maps" in name or name == "taken"]:
            del sys.modules[name]  # as in a process of its own
        result = stoker(*words, *more, "--json")
        assert "Traceback" not in result.stderr
        return int(json.loads(result.stdout)["made"]) if result.exit_code == 0 else -1

    assert made() == 3 and made() == 0
    before = outputs(folder)
    code = (folder / "user_maps.py").read_text().replace('.upper(), "cls": 7', '.lower(), "cls": 18')
    (folder / "user_maps.py").write_text(code)
    assert made() == -1 and outputs(folder) == before
    make_tar(folder / "out-01.tar", some_samples(1))
    assert made("--overwrite") == 3 and made("--overwrite") == 0
    for number in range(3):
        wanted = [(key, {"txt": fields["txt"].lower(), "cls": b"18"}) for key, fields in some_samples(6, 6 * number)]
        assert read_tar(folder / f"out-{number:02d}.tar") == wanted
    assert made("--force") == 3 and not leftovers(folder)


def test_code_that_changes_while_it_runs_makes_nothing(folder: Path) -> None:
    function, code = load_function("user_maps:upper")
    assert callable(function)
    mapper = ShardMapper(Job("user_maps:upper", f"not {code}"))
    for number in range(2):
        with pytest.raises(ConfigError, match="changed while the command ran"):
            mapper((f"in-{number:02d}.tar", f"out-{number:02d}.tar"))
    assert outputs(folder) == {}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("angry", ["in-01.tar", "d/00008", "ValueError: no such luck", "user_maps.py, line 21"]),
        ("leaves", ["in-01.tar", "d/00008", "SystemExit"]),
        ("interrupts", ["in-01.tar", "d/00008", "KeyboardInterrupt"]),
        ("dies", ["in-01.tar", "d/00008", "exited with code 0, twice"]),
    ],
)
def test_a_shard_that_fails_is_told_and_the_rest_go_on(stoker: Any, folder: Path, function: str, told: list[str]) -> None:
    result = stoker("map", f"user_maps:{function}", "in-{00..02}.tar", "out-{}.tar", "-j", 1)
    assert result.exit_code == 1 and "1 shard failed" in result.stdout
    assert all(text in result.stderr for text in told), result.stderr
    assert sorted(outputs(folder)) == ["out-00.tar", "out-02.tar"] and not leftovers(folder)


def test_what_a_function_must_not_return_is_told(stoker: Any, folder: Path) -> None:
    result = stoker("map", "user_maps:odd", "in-{00..02}.tar", "out-{}.tar", "-j", 1)
    assert result.exit_code == 1 and outputs(folder) == {}
    assert "d/00002" in result.stderr and "float" in result.stderr and "'../up'" in result.stderr


def test_a_worker_that_is_killed_is_replaced(stoker_json: Any, folder: Path) -> None:
    told = stoker_json("map", "user_maps:dies_once", "in-{00..02}.tar", "out-{}.tar", "-j", 2)
    assert told["made"] == 3 and (folder / "died").exists() and not leftovers(folder)


def test_a_function_that_is_stuck_is_ended(stoker: Any, folder: Path) -> None:
    result = stoker("map", "user_maps:stuck", "in-01.tar", "out.tar", "--timeout", 2)
    assert result.exit_code == 1 and "d/00008" in result.stderr and "--timeout" in result.stderr
    assert not (folder / "out.tar").exists() and not leftovers(folder)


class WatchedExecutor:
    """Tasks that have noted something, so many seconds ago."""

    def __init__(self, *notes: tuple[float, bytes]) -> None:
        now = time.monotonic()
        self.tasks = [(Task(0, number, ""), TaskNote(now - quiet_s, 2, 300, at)) for number, (quiet_s, at) in enumerate(notes)]
        self.replaced: list[int] = []

    def notes(self) -> list[tuple[Task[str], TaskNote]]:
        return self.tasks

    def replace(self, task: Task[str], cause: str) -> None:
        self.replaced.append(task.number)


def test_a_worker_is_ended_when_a_sample_takes_too_long_but_may_take_its_time_before_the_first() -> None:
    executor: Any = WatchedExecutor((50.0, b"a"), (70.0, b"b"), (500.0, b""), (700.0, b""))
    result, meter = MapResult(shards=4), Progress("map", shown=False)
    look(executor, 60.0, result, meter)
    assert executor.replaced == [1, 3] and (meter.samples, meter.bytes) == (8, 1200)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_started_again_the_outputs_are_the_same(folder: Path, number: int) -> None:
    words = [*STOKER, "map", "user_maps:slow", "in-{00..02}.tar", "out-{}.tar", "-j", "2"]
    environment = {**ENVIRONMENT, "PYTHONPATH": os.environ["PYTHONPATH"]}
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    until(lambda: (folder / "begun").exists() and (folder / "out-00.tar").exists())
    workers = [process_id(pid) for pid in children(first.pid)]
    first.send_signal(number)
    out, err = first.communicate(timeout=30)
    assert first.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert out == b"" and b"Traceback" not in err
    until(lambda: all(map(process_ended, workers)))
    assert list(outputs(folder)) == ["out-00.tar"]
    assert not leftovers(folder)
    (folder / "go").touch()
    done = subprocess.run([*words, "--json"], capture_output=True, env=environment, timeout=60, check=True)
    told = json.loads(done.stdout)  # what the function prints is not among it
    assert (told["kept"], told["made"]) == (1, 2)
    assert [sample for number in range(3) for sample in read_tar(folder / f"out-{number:02d}.tar")] == some_samples(18)
    assert not leftovers(folder)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["user_maps:upper", "in-00.tar", "out.tar", "--ray-address", "a:1"], "needs --on ray"),
        (["user_maps:upper", "in-00.tar", "out.tar", "--on", "mars"], "choose local"),
        (["user_maps:nothing", "in-00.tar", "out.tar"], "it has upper, "),
        (["user_maps:number", "in-00.tar", "out.tar"], "no function"),
        (["user_maps", "in-00.tar", "out.tar"], "MODULE:FUNCTION"),
        (["nowhere:f", "in-00.tar", "out.tar"], "nowhere"),
        (["user_maps:upper", "in-{00..02}.tar", "out.tar"], "{}"),
        (["user_maps:upper", "in-00.tar", "out-{}.tar"], "{}"),
        (["user_maps:upper", "in-{00..02}.tar", "in-{}.tar"], "input and an output"),
        (["user_maps:upper", "-", "out.tar"], "standard input"),
        (["user_maps:upper", "in-00.tar", "s3://bucket/out.tar"], "local files"),
        (["user_maps:upper", "in-00.tar", "missing/out.tar"], "missing"),
        (["user_maps:upper", "in-{0..99999999}.tar", "out-{}.tar"], "braces"),
    ],
)
def test_wrong_usage_is_told_before_anything_runs(stoker: Any, folder: Path, words: list[str], told: str) -> None:
    before = sorted(os.listdir(folder))
    result = stoker("map", *words)
    assert result.exit_code == 2 and told in result.stderr and "Traceback" not in result.stderr
    assert sorted(set(os.listdir(folder)) - {"__pycache__"}) == before


def test_bad_shards_are_named_and_the_rest_are_made(stoker: Any, folder: Path) -> None:
    (folder / "in-00.tar").write_bytes(b"<!DOCTYPE html>" * 100)
    (folder / "in-01.tar").write_bytes((folder / "in-01.tar").read_bytes()[:2000])
    result = stoker("map", "user_maps:upper", "in-{00..03}.tar", "out-{}.tar", "-j", 1)
    assert result.exit_code == 1 and sorted(outputs(folder)) == ["out-02.tar"]
    assert "web page" in result.stderr and "in-01.tar" in result.stderr and "in-03.tar" in result.stderr


def test_what_stands_for_the_braces(folder: Path) -> None:
    assert pair_up("in-{00..01}.tar", "o/{}-x.tar") == [("in-00.tar", "o/00-x.tar"), ("in-01.tar", "o/01-x.tar")]
    assert pair_up("s3://b/{train,val}-{0..1}.tar", "{}.tar")[2] == ("s3://b/val-0.tar", "val-0.tar")
    assert pair_up("in-0?.tar", "o-{}.tar")[1] == ("in-01.tar", "o-01.tar") or pair_up("in-0?.tar", "o-{}.tar")[1][1] == "o-1.tar"
    with pytest.raises(ConfigError):
        pair_up("in-{00,00}.tar", "o-{}.tar")


def children(pid: int) -> list[int]:
    """The processes that have this one as their parent."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


#: maps a shard again and again, killed before another of the steps that make, move and remove files each time
KILLED_AT_EVERY_STEP = """
import os, sys
from stoker.cli.map_worker import Job, ShardMapper, load_function
from stoker.storage.atomic import sweep

out = os.path.abspath("out.tar")
steps = {"open", "os.link", "os.rename", "os.remove"}
left = -1

def die(event, details):
    global left
    if left > 0 and event in steps and out.split("/")[-2] in str(details[0]) and (event != "open" or details[2] & os.O_CREAT):
        left -= 1
        if not left:
            os._exit(9)

sys.addaudithook(die)
mapper = ShardMapper(Job("user_maps:upper", load_function("user_maps:upper")[1]))
for step in range(1, 100):
    child = os.fork()
    if not child:
        left = step
        mapper(("in-00.tar", out))
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    mapper(("in-00.tar", out))
    sweep(os.getcwdb(), 0)  # as the pool does when all is done
    found = sorted(name for name in os.listdir() if "out.tar" in name or name[0] == ".")
    assert found == ["out.tar", "out.tar.stk"], (step, found)
    assert mapper(("in-00.tar", out))["kept"]
    content = open(out, "rb").read()
    assert step == 1 or content == before, step
    before = content
    os.unlink(out)
    if step % 2:
        os.unlink(out + ".stk")
print(step)
"""


def test_killed_at_any_step_the_next_run_makes_the_same(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_AT_EVERY_STEP], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5
