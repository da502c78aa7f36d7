"""Worker processes where something is short: memory, descriptors, shared memory, patience. And values of every size and kind."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .fault_lab import Scenario, play

pytestmark = pytest.mark.faults

Often = Callable[[int, int], int]


def cpu_and_memory(often: Often) -> str:
    return f"WATCHED_S = {often(1, 5)}\n"


SLOW_CONSUMER = """
import random
MB = 1 << 20
def grown(x):
    chance = random.Random(int(x))
    return np.zeros(int(10_000 * 1000 ** chance.random()), np.uint8)  # 10 kB to 10 MB

def cpu_s():
    ticks = 0
    for pid in workers():
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")

def at_rest():
    seen, since, deadline = cpu_s(), time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since < 0.5 and time.monotonic() < deadline:
        time.sleep(0.02)
        if (now := cpu_s()) > seen + 0.02:
            seen, since = now, time.monotonic()

def shared_bytes():
    total = 0
    for pid in [os.getpid(), *workers()]:
        for part in Path(f"/proc/{pid}/smaps").read_text().split("VmFlags")[:-1]:
            if "memfd:stoker" in part:
                total += 1024 * int(part.partition("\\nPss:")[2].split()[0])
    return total

def run():
    most, held, used = 0, 0, 0.0
    samples = stoker.arrays(x=np.arange(300)).map(x=grown).batch(4, pad={"x": list})
    with samples.loader(processes=2, threads=2, memory="64MB") as loader:
        for number, batch in enumerate(loader):
            largest = sum(value.nbytes for value in batch["x"])
            most = max(most, loader._machinery.feed._schedule.nbytes - largest)
            if number in (8, 30):
                at_rest()
                before, begun = cpu_s(), time.monotonic()
                time.sleep(WATCHED_S)
                used = max(used, (cpu_s() - before) / (time.monotonic() - begun))
                held = max(held, shared_bytes())
            del batch
    return {"batches": number + 1, "most": most, "held": held, "used": used}
leave(**run())
"""


def test_a_slow_consumer_holds_up_workers_within_memory_and_they_use_no_core(tmp_path: Path, often: Often) -> None:
    account = play(tmp_path, cpu_and_memory(often) + SLOW_CONSUMER)
    megabyte = 1 << 20
    assert account["batches"] == 75
    # A batch of four may take 40 MB; until the first are complete nobody knows. Each of three arenas may keep 32 MB for later.
    assert account["most"] <= (64 + 40) * megabyte, account
    assert account["held"] <= (64 + 40 + 3 * 32) * megabyte, account
    assert account["used"] < often(10, 2) / 100, account


def test_memory_that_processes_share_has_no_name_and_needs_no_dev_shm(lab_data: Path, tmp_path: Path) -> None:
    code = """
def run():
    with pipeline("arrays").loader(processes=2) as loader:
        found = taken(loader)
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in [os.getpid(), *workers()])
        return {"rows": len(found), "shm": "/dev/shm" in maps, "memfd": "memfd:stoker" in maps}
leave(**run())
"""
    account = play(tmp_path, code, data=lab_data)
    assert (account["rows"], account["shm"], account["memfd"]) == (500, False, True)


def may_mount() -> bool:
    unshare = shutil.which("unshare")
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/dev/shm"]
    return unshare is not None and subprocess.run(mount, capture_output=True).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
def test_a_tiny_dev_shm_does_not_matter(lab_data: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner.py"
    inner.write_text(
        "from tests.system.fault_scene import *\n"
        "assert os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize <= 1 << 16\n"
        "with pipeline('arrays').loader(processes=2) as loader:\n    print(len(taken(loader)))\n"
    )
    code = f"""
import subprocess
script = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" "$1"'
sys.exit(subprocess.run(["unshare", "-m", "sh", "-c", script, sys.executable, {str(inner)!r}]).returncode)
"""
    with Scenario(tmp_path / "scene", code, data=lab_data) as scenario:
        ended = scenario.end()
    assert (ended.status, ended.output, ended.errors) == (0, "500\n", "")


ASKED = """
def run():
    counts, errors = [], []
    try:
        with pipeline("arrays").loader(processes=2, threads=2) as loader:
            for _ in range(EPOCHS):
                counts.append(len(taken(loader)))
                counts.append(in_use()["descriptors"])
    except stoker.StokerError as error:
        errors.append(account_of(error))
    return {"counts": counts, "errors": errors}
found = run()
leave(**found)
"""


def test_64_descriptors_are_enough_and_their_number_stays(lab_data: Path, tmp_path: Path, often: Often) -> None:
    epochs = often(4, 20)
    account = play(tmp_path, ASKED.replace("EPOCHS", str(epochs)), data=lab_data, limits={resource.RLIMIT_NOFILE: 64})
    assert not account["errors"]
    assert account["counts"][::2] == [500] * epochs
    assert len(set(account["counts"][3::2])) == 1, account["counts"]


def test_descriptors_do_not_grow_with_what_is_in_flight(tmp_path: Path) -> None:
    code = """
def grown(x):
    return np.zeros(100_000 + 1000 * (int(x) % 50), np.uint8)
def run():
    with stoker.arrays(x=np.arange(600)).map(x=grown).batch(4, pad={"x": list}).loader(processes=2) as loader:
        kept = [batch for batch in loader]
        return {"kept": len(kept), "descriptors": in_use()["descriptors"]}
leave(**run())
"""
    account = play(tmp_path, code, limits={resource.RLIMIT_NOFILE: 100})
    assert account["kept"] == 150 and account["descriptors"] < 64


def test_too_few_descriptors_are_told_with_a_remedy_and_nothing_is_left(lab_data: Path, tmp_path: Path) -> None:
    code = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (BASELINE['descriptors'] + 6,) * 2)\n"
    account = play(tmp_path, code + ASKED.replace("EPOCHS", "1"), data=lab_data)
    [error] = account["errors"]
    assert error["type"] == "ConfigError" and "ulimit -n" in error["text"], error


def test_a_process_that_cannot_be_started_is_told_and_those_before_it_end(lab_data: Path, tmp_path: Path) -> None:
    code = """
import subprocess
start, started = subprocess.Popen, []
def limited(*arguments, **options):
    if len(started) == 1:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    started.append(1)
    return start(*arguments, **options)
subprocess.Popen = limited
"""
    account = play(tmp_path, code + ASKED.replace("EPOCHS", "1"), data=lab_data)
    [error] = account["errors"]
    assert error["type"] == "ConfigError" and "Resource temporarily unavailable" in error["text"] and "fewer" in error["text"]


SIZES = """
def sized(x):
    return np.full(int(x), 7, np.uint8)

def run(sizes):
    samples = stoker.arrays(x=np.array(sizes)).map(lambda sample: {"n": int(sample["x"]), "a": sized(sample["x"])})
    with samples.batch(2, drop_last=False, pad={"a": list}).loader(processes=1, memory="64MB", ahead=1) as loader:
        for batch in loader:
            for n, a in zip(batch["n"], batch["a"]):
                assert len(a) == n and (n == 0 or (a[0], a[-1], a[n // 2]) == (7, 7, 7)), n
                yield int(n)
sizes = eval(sys.argv[1])
assert list(run(sizes)) == sizes
leave()
"""


def test_values_of_any_size_come_back_whole(tmp_path: Path, often: Often) -> None:
    sizes = [0, 1, 4095, 4096, 4097, 2**16 - 1, 2**16, 2**16 + 1, 2**18 + 3, 3 * 2**20 + 1, 2**27 + 5, 0]
    roomy = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 15 << 30
    large = [2**31 - 1, 2**31 + 1] if roomy and often(0, 1) else []
    play(tmp_path, SIZES, repr(sizes + large), deadline_s=600)


def test_a_worker_short_of_memory_names_the_sample_and_goes_on(tmp_path: Path) -> None:
    code = """
import resource
def greedy(x):
    if int(x) == 30:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
        try:
            return int(np.ones(1 << 28, np.uint8)[0])
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    return int(x)
def run():
    errors = []
    samples = stoker.arrays(x=np.arange(60)).map(x=greedy)
    with samples.batch(10).loader(processes=1) as loader:
        try:
            list(loader)
        except stoker.StokerError as error:
            errors.append(account_of(error))
    with samples.on_error("skip", budget=1).batch(10).loader(processes=1) as loader:
        return {"errors": errors, "found": [x for batch in loader for x in batch["x"].tolist()]}
leave(**run())
"""
    account = play(tmp_path, code)
    [error] = account["errors"]
    assert (error["type"], error["key"], error["cause"]) == ("FunctionError", "30", "MemoryError")
    assert account["found"] == [x for x in range(60) if x != 30]


def test_batches_that_are_kept_stay_as_they_were_and_may_be_written_to(lab_data: Path, tmp_path: Path) -> None:
    code = """
def run():
    with pipeline("arrays").loader(processes=2, threads=2) as loader:
        kept = [batch for _ in range(4) for batch in loader]
        before = [contents(batch) for batch in kept]
        for batch in loader:
            batch["cls"][...] = -1
            for value in batch["bin"]:
                value[...] = 0
        killer = Killer(1)
        while killer.strike():
            if killer.sent == 2:
                break
        assert [contents(batch) for batch in kept] == before, "nor by the death of who made them"
        again = taken(loader)
    assert [contents(batch) for batch in kept] == before, "nor by the end"
    return {"batches": len(kept), "again": len(again)}
leave(**run())
"""
    account = play(tmp_path, code, data=lab_data)
    assert (account["batches"], account["again"]) == (200, 500)


def test_whatever_a_function_raises_in_a_process_is_named_with_its_sample(tmp_path: Path) -> None:
    code = """
import io, json, urllib.error
class Needs(Exception):
    def __init__(self, a, b, c):
        super().__init__(f"{a}{b}{c}")
class Stubborn(Exception):
    def __reduce__(self):
        raise RuntimeError("not me")
def circle():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one
def with_lambda():
    error = ValueError("with a lambda")
    error.function = lambda: 1
    return error
RAISED = [
    lambda: Needs(1, 2, 3), lambda: Stubborn("stubborn"), with_lambda, circle,
    lambda: urllib.error.HTTPError("http://x", 404, "nowhere", {}, io.BytesIO(b"")),
    lambda: ValueError("m" * 10_000_000), lambda: SystemExit(3), lambda: KeyboardInterrupt(), lambda: StopIteration(),
]
def failing(x):
    if x % 2:
        raise RAISED[int(x) // 2]()
    return x
def run():
    samples = stoker.arrays(x=np.arange(2 * len(RAISED))).map(x=failing)
    found, errors = [], []
    with samples.batch(1).loader(processes=1, threads=2) as loader:
        for epoch in range(2):
            try:
                list(loader)
            except stoker.StokerError as error:
                errors.append(account_of(error))
    bad = Path(os.environ["FAULT_LAB_NOTES"]) / "bad.jsonl"
    with samples.on_error("skip", budget=99, quarantine=str(bad)).batch(2).loader(processes=1, threads=2) as loader:
        found = [x for batch in loader for x in batch["x"].tolist()]
    lines = [json.loads(line) for line in bad.read_text().splitlines()]
    return {"found": found, "errors": errors, "listed": [(line["key"], line["reason"][:300]) for line in lines]}
leave(**run())
"""
    account = play(tmp_path, code)
    names = ["Needs", "Stubborn", "ValueError", "ValueError", "HTTPError", "ValueError", "SystemExit", "KeyboardInterrupt"]
    assert account["found"] == list(range(0, 18, 2))
    assert [error["type"] for error in account["errors"]] == ["FunctionError"] * 2, "once in each epoch"
    assert all(error["key"] == "1" and "Needs" in error["text"] for error in account["errors"])
    assert [key for key, _ in account["listed"]] == [str(x) for x in range(1, 18, 2)]
    assert all(name in reason for name, (_, reason) in zip([*names, "StopIteration"], account["listed"]))


def test_a_sample_whose_value_cannot_be_sent_is_named_or_left_out(tmp_path: Path) -> None:
    code = """
class Needs(Exception):  # it can be sent, and not be read
    def __init__(self, a, b):
        super().__init__(a + b)
def unsendable(make, sample):
    return {"x": sample["x"], "odd": make() if sample["x"] == 5 else None}
def run(make):
    samples = stoker.arrays(x=np.arange(12)).map(lambda sample: unsendable(make, sample))
    errors = []
    with samples.batch(4, pad={"odd": list}).loader(processes=1, threads=1) as loader:
        try:
            list(loader)
        except stoker.StokerError as error:
            errors.append(account_of(error))
    with samples.on_error("skip", budget=1).batch(4, pad={"odd": list}).loader(processes=1, threads=1) as loader:
        return errors, [x for batch in loader for x in batch["x"].tolist()]
leave(runs=[run(lambda: (n for n in range(3))), run(lambda: [lambda: 1, threading.Lock()]), run(lambda: Needs(1, 2))])
"""
    runs = play(tmp_path, code)["runs"]
    assert len(runs) == 3
    for [error], found in runs:
        assert (error["type"], error["key"], error["position"]) == ("FunctionError", "5", 5)
        assert "field 'odd' cannot be sent" in error["text"] and "arrays, numbers, text" in error["text"], error
        assert found == [x for x in range(12) if x != 5]


def test_what_cannot_be_sent_is_bad_as_what_raises_is_bad(tmp_path: Path) -> None:
    code = """
def fails():
    raise ValueError("no such thing")
def odd(make, sample):
    return {"x": sample["x"], "odd": make() if sample["x"] % 8 == 5 else np.zeros(int(sample["x"]))}
def twice(make, sample):
    return [{"x": -sample["x"], "odd": None}, *([] if make is fails and sample["x"] % 8 == 5 else [odd(make, sample)])]
def late(make, columns):
    return {**columns, "late": [make(), 1] if 9 in columns["x"] else [1, 2]}
numbers, loose = stoker.arrays(x=np.arange(40)), {"pad": {"odd": list}}
PIPELINES = {
    "strict": lambda make: numbers.filter(lambda sample: sample["x"] > 2).map(partial(odd, make)).batch(2, **loose),
    "skip": lambda make: numbers.map(partial(odd, make)).on_error("skip", budget=9, fill="repeat").batch(4, **loose),
    "flat_map": lambda make: numbers.flat_map(partial(twice, make)).on_error("skip", budget=9).batch(4, **loose),
    "map_batch": lambda make: numbers.batch(2).map_batch(partial(late, make)).on_error("skip", budget=9),
}
def run(samples, **options):
    found, errors = [], []
    with samples.loader(**options) as loader:
        try:
            for batch in loader:
                found.append(repr(dict(batch.items())))
        except stoker.StokerError as error:
            errors.append(account_of(error))
        return found, errors, loader.stats().skipped
from functools import partial
wanted = {kind: run(make(fails), executor="inline") for kind, make in PIPELINES.items()}
found = {kind: run(make(threading.Lock), processes=1, threads=2) for kind, make in PIPELINES.items()}
def from_home():
    yield from ({"n": n, "odd": threading.Lock() if n == 5 else None} for n in range(12))
given = stoker.stream(from_home).filter(lambda sample: sample["n"] < 9).on_error("skip", budget=9).batch(4, **loose)
leave(
    same=[kind for kind in PIPELINES if found[kind][0] == wanted[kind][0]],
    skipped=[found[kind][2] for kind in PIPELINES],
    errors={kind: found[kind][1] for kind in PIPELINES},
    given=run(given, processes=1),
)
"""
    account = play(tmp_path, code)
    rows = "".join(account["given"][0])
    assert account["given"][1:] == [[], 1] and "array([4, 6, 7, 8])" in rows, "of what a generator gives, too"
    errors = account["errors"]
    assert account["same"] == list(errors) == ["strict", "skip", "flat_map", "map_batch"]
    assert account["skipped"] == [0, 5, 5, 0] and not errors["skip"] and not errors["flat_map"]
    [strict], [of_batch] = errors["strict"], errors["map_batch"]
    assert strict["key"] == "5" and "sample '5': its field 'odd' cannot be sent" in strict["text"]
    assert of_batch["key"] == "" and "field 'late' of the batch of 2 that starts with sample '8'" in of_batch["text"]


def test_a_mapped_file_that_shrinks_ends_a_worker_and_not_the_program(tmp_path: Path) -> None:
    code = """
def run():
    path = Path(os.environ["FAULT_LAB_NOTES"]) / "a.npy"
    np.save(path, np.arange(1 << 16))
    mapped = np.load(path, mmap_mode="r")
    errors, found = [], []
    with stoker.arrays(x=mapped).batch(1 << 6).loader(processes=1, ahead=2) as loader:
        iterator = iter(loader)
        found.append(next(iterator)["x"])
        os.truncate(path, 1 << 12)
        try:
            found += [batch["x"] for batch in iterator]
        except stoker.StokerError as error:
            errors.append(account_of(error))
    found = np.concatenate(found)
    return {"errors": errors, "whole": len(found) == len(mapped), "right": bool((found == np.arange(len(found))).all())}
leave(**run())
"""
    account = play(tmp_path, code)
    assert account["right"]
    if not account["whole"]:
        [error] = account["errors"]
        assert error["ours"] and ("SIGBUS" in error["text"] or "a.npy" in error["text"]), error


def test_a_clock_that_is_set_makes_no_difference(lab_data: Path, tmp_path: Path) -> None:
    code = """
import random
def astray(sample):
    time.time = lambda: time.monotonic() + random.choice([-3600, 3600, 10**8])
    return sample
def run():
    astray({})
    samples = stoker.tar(str(DATA / "*.tar")).map(astray).batch(10)
    with samples.loader(processes=2, watchdog_s=20) as loader:
        return len(taken(loader))
leave(found=run())
"""
    assert play(tmp_path, code, data=lab_data)["found"] == 500


def test_warnings_and_output_of_workers_are_not_lost(tmp_path: Path) -> None:
    code = """
import warnings
def chatty(x):
    if x == 7:
        print("the function prints")
        warnings.warn("the function warns", UserWarning)
    return x
def run():
    with stoker.arrays(x=np.arange(40)).map(x=chatty).batch(4).loader(processes=1) as loader:
        return len(list(loader))
leave(found=run())
"""
    with Scenario(tmp_path, code) as scenario:
        ended = scenario.end()
    # For later epochs as well; lines of two threads may be mixed.
    assert (ended.status, ended.output.replace("the function prints", "").strip()) == (0, "") and "prints" in ended.output
    assert ended.errors.count("UserWarning: the function warns") == 1
