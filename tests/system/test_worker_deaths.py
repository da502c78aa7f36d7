"""Workers that die: whoever kills them, however and whenever, the same samples come, in the same places, or a sample is named."""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .fault_lab import Fault, Scenario, play
from .lab_oracle import epoch_of, write_shards

pytestmark = pytest.mark.faults

Often = Callable[[int, int], int]


def rows(epochs: list[list[Any]]) -> list[list[tuple[int, str]]]:
    return [[(number, digest) for number, digest in epoch] for epoch in epochs]


def expected(data: Path, epochs: int) -> list[list[tuple[int, str]]]:
    return [epoch_of(data, 3, epoch) for epoch in range(epochs)]


#: strikes before the first batch of an epoch or after the last of it, in turn, and at random times in between
STRIKES = """
kind, seed, epochs, strikes, of, *signals = sys.argv[1:]
killer = Killer(int(seed), tuple(map(int, signals)))

def run():
    with pipeline(kind).loader(processes=2, threads=2) as loader:
        found = []
        for epoch in range(int(epochs)):
            if epoch % 2 == 0:
                killer.strike()
            found.append(taken(killer.harass(loader, int(strikes), int(of))))
            if epoch % 2 == 0:
                killer.strike()
        return found

leave(epochs=run(), sent=killer.sent)
"""


@pytest.mark.parametrize("kind", ["records", "function", "arrays", "filter"])
def test_a_killed_worker_loses_nothing_and_leaves_nothing(kind: str, lab_data: Path, tmp_path: Path, often: Often) -> None:
    epochs = often(2, 20)
    account = play(tmp_path, STRIKES, kind, "1", str(epochs), "2", "50", str(int(signal.SIGKILL)), data=lab_data, deadline_s=240)
    assert rows(account["epochs"]) == expected(lab_data, epochs)
    assert account["sent"] >= epochs * 2, "there was somebody to be hit"


@pytest.mark.thorough
def test_five_thousand_samples_survive_a_hail_of_kills(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", 5000)
    arguments = ("function", "7", "1", "40", "500", str(int(signal.SIGKILL)))
    account = play(tmp_path / "scene", STRIKES, *arguments, data=tmp_path / "data", deadline_s=240)
    assert rows(account["epochs"]) == expected(tmp_path / "data", 1)


def test_workers_that_are_stopped_and_go_on_change_nothing(lab_data: Path, tmp_path: Path, often: Often) -> None:
    epochs, signals = often(2, 20), [str(int(signal.SIGSTOP)), str(int(signal.SIGCONT))]
    account = play(tmp_path, STRIKES, "function", "2", str(epochs), "5", "50", *signals, data=lab_data, deadline_s=240)
    assert rows(account["epochs"]) == expected(lab_data, epochs)


ENDS = {
    "exit with 0": "import os; os._exit(0)",
    "abort": "import os; os.abort()",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "out of memory": "import os; hoard = bytearray(1 << 26); os.kill(os.getpid(), 9)",
}

#: a function ends its worker at the first and the last sample of an epoch and at some in the middle, in all ways in turn
ENDING = """
import functools
def deadly(fatal, sample):
    number = int(sample["cls"])
    if number in fatal and once(str(number)):
        exec(fatal[number])
    return sample

def run():
    order = [number for number, _ in taken(pipeline("records").loader(executor="inline"))]
    ends = eval(sys.argv[1])
    places = [0, 250, -1] if len(ends) == 1 else [0, 170, 340, -1]
    fatal = {order[place]: ends[number % len(ends)] for number, place in enumerate(places)}
    samples = stoker.tar(str(DATA / "*.tar")).shuffle(seed=3).map(functools.partial(deadly, fatal)).batch(10)
    with samples.loader(processes=2, threads=1) as loader:
        return [taken(loader)]

leave(epochs=run())
"""


@pytest.mark.parametrize("end", ["each way", *(pytest.param(name, marks=pytest.mark.thorough) for name in ENDS)])
def test_a_worker_that_ends_itself_is_replaced_whatever_its_exit_code(end: str, lab_data: Path, tmp_path: Path) -> None:
    ends = [ENDS[end]] if end in ENDS else list(ENDS.values())
    account = play(tmp_path, ENDING, repr(ends), data=lab_data)
    assert rows(account["epochs"]) == expected(lab_data, 1)
    assert len(list((tmp_path / "notes").iterdir())) == (3 if end in ENDS else 4), "it ended as often"


@pytest.mark.parametrize("action", ["kill", pytest.param("exit", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "point", ["worker starts", "worker has read tasks", "worker has done a task", "worker sends", "worker has sent"]
)
def test_a_worker_that_dies_at_any_point_of_its_line_tears_no_sample(
    point: str, action: str, lab_data: Path, tmp_path: Path, often: Often
) -> None:
    code = """
def run():
    with pipeline("arrays").loader(processes=2, threads=1) as loader:
        return [taken(loader) for _ in range(int(sys.argv[1]))]
leave(epochs=run())
"""
    # Whoever exits by itself is blamed for it, and a second time at the same sample is enough: so it may strike only once.
    times = often(1, 3 if point == "worker starts" else 10) if action == "kill" else 1
    fault = Fault(point, action, after=0 if point == "worker starts" else 3, times=times)
    account = play(tmp_path, code, str(epochs := often(1, 4)), data=lab_data, fault=fault, deadline_s=240)
    assert rows(account["epochs"]) == expected(lab_data, epochs)
    assert (tmp_path / "notes" / "faults").stat().st_size >= times, "every fault struck; two workers may be at that point at once"


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group that may have 300 MB of memory; whoever takes more is killed by the system."""
    for root, limit in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        group = root / f"fault-lab-{secrets.token_hex(8)}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(300 << 20))
        except OSError:
            group.rmdir()
            continue
        yield group
        deadline = time.monotonic() + 20
        while True:
            try:
                group.rmdir()
                return
            except OSError:  # its last process is on its way out
                assert time.monotonic() < deadline
                time.sleep(0.05)
    pytest.skip("needs the right to make a control group")


@pytest.mark.thorough
def test_workers_that_the_system_kills_for_want_of_memory_lose_nothing(small_group: Path, lab_data: Path, tmp_path: Path) -> None:
    greedy = f"import os; open('{small_group}/cgroup.procs', 'w').write(str(os.getpid())); hoard = b'x' * (1 << 30)"
    account = play(tmp_path / "once", ENDING, repr([greedy]), data=lab_data)
    assert rows(account["epochs"]) == expected(lab_data, 1)
    assert len(list((tmp_path / "once" / "notes").iterdir())) == 3
    [error] = play(tmp_path / "always", POISON.replace("END", greedy), "raise", data=lab_data)["errors"]
    assert (error["type"], error["key"]) == ("WorkerError", "s000037") and "memory" in error["text"], error


def test_workers_none_of_which_begins_are_told_instead_of_started_for_ever(lab_data: Path, tmp_path: Path) -> None:
    code = """
def run():
    try:
        with pipeline().loader(processes=1) as loader:
            list(loader)
    except stoker.StokerError as error:
        return account_of(error)
leave(error=run())
"""
    error = play(tmp_path, code, data=lab_data, fault=Fault("worker starts", "exit", times=99))["error"]
    assert error["type"] == "ConfigError" and "exited with code 0" in error["text"], error


POISON = """
import ctypes
def deadly(sample):
    if int(sample["cls"]) == 37:
        END
    return sample

def run():
    samples = stoker.tar(str(DATA / "*.tar")).shuffle(seed=3).map(deadly)
    if sys.argv[1] == "skip":
        samples = samples.on_error("skip", budget=3, quarantine=os.environ["FAULT_LAB_NOTES"] + "/bad.jsonl")
    found, errors = [], []
    with samples.batch(10, drop_last=False).loader(processes=2, threads=2) as loader:
        iterator = iter(loader)
        while True:
            try:
                found += contents(next(iterator))
            except StopIteration:
                break
            except stoker.StokerError as error:
                errors.append(account_of(error))
    return {"found": found, "errors": errors}

leave(**run())
"""


@pytest.mark.parametrize(
    "end", ["segfault", *(pytest.param(end, marks=pytest.mark.thorough) for end in ENDS if end != "segfault")]
)
def test_a_sample_that_ends_every_worker_is_named_once(end: str, lab_data: Path, tmp_path: Path) -> None:
    account = play(tmp_path, POISON.replace("END", ENDS[end]), "raise", data=lab_data)
    [error] = account["errors"]
    assert error["type"] == "WorkerError" and error["ours"]
    assert error["key"] == "s000037" in error["text"] and "0000.tar" in error["origin"], error
    order = epoch_of(lab_data, 3, 0)
    at = [number for number, _ in order].index(37)
    assert error["position"] == at
    assert rows([account["found"]]) == [order[: at // 10 * 10]], "all before it came first"


def test_a_sample_that_ends_every_worker_is_left_out_and_listed_where_that_is_allowed(lab_data: Path, tmp_path: Path) -> None:
    account = play(tmp_path, POISON.replace("END", ENDS["segfault"]), "skip", data=lab_data)
    assert account["errors"] == []
    assert rows([account["found"]]) == [[row for row in epoch_of(lab_data, 3, 0) if row[0] != 37]]
    [line] = (tmp_path / "notes" / "bad.jsonl").read_text().splitlines()
    assert "s000037" in line and "0000.tar" in line and json.loads(line)["stage"] == "worker"


def test_one_death_is_told_in_one_warning_with_its_signal(lab_data: Path, tmp_path: Path) -> None:
    code = """
import logging
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
def run():
    killer = Killer(5)
    with pipeline().loader(processes=2, threads=1) as loader:
        return [taken(killer.harass(loader, 1, 40)), taken(loader)]  # whose workers are all needed
leave(epochs=run())
"""
    with Scenario(tmp_path, code, data=lab_data) as scenario:
        ended = scenario.end()
    assert ended.status == 0, ended.errors
    warnings = [line for line in ended.errors.splitlines() if line.startswith("WARNING stoker")]
    assert len(warnings) == 1 and "SIGKILL" in warnings[0], ended.errors


def test_a_sample_that_ends_its_worker_while_it_is_taken_in_is_named(tmp_path: Path) -> None:
    code = """
class Deadly:
    def __init__(self, deadly):
        self.deadly = deadly
    def __setstate__(self, state):
        if state["deadly"]:
            os._exit(0)
        self.__dict__.update(state)
def run():
    samples = [{"__key__": str(n), "x": n, "value": Deadly(n == 5)} for n in range(12)]
    pipeline = stoker.stream(lambda: iter(samples)).map(lambda sample: {"x": sample["x"]}).batch(2)
    with pipeline.loader(processes=1, threads=1) as loader:
        try:
            list(loader)
        except stoker.StokerError as error:
            return [account_of(error)]
leave(errors=run())
"""
    [error] = play(tmp_path, code)["errors"]
    assert (error["type"], error["key"]) == ("WorkerError", "5")
