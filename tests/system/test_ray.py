"""Stoker on a real Ray cluster of several nodes: the same batches and shards, whoever comes and goes, and nothing left behind.

Ray starts slowly, so all tests share one cluster, and those that end workers again and again are for `make faults` alone.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import stoker
from stoker.engine import ray_executor
from stoker.engine.executor import Task
from stoker.engine.run_task import LONG_S
from stoker.errors import ConfigError, SourceEmpty, WorkerError
from stoker.image import RandomResizedCrop
from stoker.pack.jobs.convert import Conversion
from stoker.pack.jobs.planning import Options
from tests.cli.conftest import stoker as command
from tests.contract.deadly_samples import DEADLY, dies_at_31
from tests.contract.test_executors import LosingExecutorContract, pictures, shelf
from tests.loader.runs import PIPELINES, environment, epochs_of, hash_of, numbers, run_python, sha_of_run
from tests.support import jpeg_bytes, process_ended, process_id, until

ray = pytest.importorskip("ray")
#: Ray's own, of what it does inside
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]

#: fixtures of other files
__all__ = ["command", "pictures", "shelf"]
#: played by `make faults` alone
faults = [pytest.mark.faults, pytest.mark.thorough]
#: seconds that anything may take on a busy machine
DEADLINE_S = 120.0
#: bytes of a node's object store
STORE = 80 << 20
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One node of one core, to which others come; this process is connected to it."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="stoker-test-ray-", dir="/tmp")  # names of sockets must be short
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {**QUIET, "RAY_TMPDIR": folder}.items():
            patch.setenv(name, value)
        Path(folder, "ray").mkdir()  # where Ray notes the address of its latest cluster, and does not make the folder itself
        made = Cluster(initialize_head=True, head_node_args={**node_options(), "temp_dir": folder, "include_dashboard": False})
        stack.callback(made.shutdown)
        stack.callback(ray.shutdown)
        ray.init(address=made.address, logging_level=logging.ERROR, log_to_driver=False)
        yield made


def node_options() -> dict[str, Any]:
    return {"num_cpus": 1, "object_store_memory": STORE}


def slow(x: Any) -> Any:
    time.sleep(0.005)
    return x + 1


def add_name(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "txt": sample["__key__"].upper()}


# ---- batches ----------------------------------------------------------------------------------------------------------------


def test_batches_are_the_same_and_a_node_that_is_removed_changes_nothing(cluster: Any) -> None:
    pipeline = numbers(160).shuffle(seed=3).map(x=slow).batch(8, drop_last=False).map_batch(dict)
    node = cluster.add_node(**node_options())
    epochs: list[list[str]] = []
    removed: set[int] = set()
    with pipeline.loader(executor="ray", processes=2) as loader:
        executor: Any = loader._machinery.executor
        deadline = time.monotonic() + DEADLINE_S
        while not removed or len(epochs) < 2:
            assert time.monotonic() < deadline
            epoch = []
            for batch in loader:
                epoch.append(hash_of(batch))
                if not removed and all(executor.processes):  # both have started, and are at work
                    before = {pid: process_id(pid) for pid in executor.processes}
                    cluster.remove_node(node, allow_graceful=False)
                    until(lambda before=before: any(map(process_ended, before.values())), "one of them to end")
                    removed = {pid for pid, process in before.items() if process_ended(process)}
            epochs.append(epoch)
        assert removed and not removed & set(executor.processes)
        left = [process_id(pid) for pid in executor.processes if pid]
    with pipeline.loader(executor="inline") as inline:
        assert epochs == epochs_of(inline, len(epochs))
    for process in left:
        until(partial(process_ended, process), f"{process} to end")


def test_workers_with_nothing_to_do_are_let_go_and_first_those_that_ask_for_machines(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "_IDLE_S", 0.2)
    monkeypatch.setattr(ray_executor, "_CLUSTER_S", 0.1)
    with numbers(100_000).batch(8).loader(executor="ray", processes=2) as loader:  # on a cluster of one core
        batches, executor = iter(loader), cast(Any, loader._machinery.executor)
        next(batches)
        [placed] = [pid for pid in executor.processes if pid]
        until(lambda: next(batches) is not None and len(executor.processes) == 1)
        for _ in range(20):
            next(batches)
            assert executor.processes == [placed], "the loop does not wait, so none is started again"


def long_or_until_there(path: str, _: Any) -> str:
    """A task that takes long; with a path, it takes until something is there."""
    time.sleep(2 * LONG_S)
    deadline = time.monotonic() + DEADLINE_S
    while path and not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path


def test_a_task_that_took_long_comes_before_the_next_of_its_group_is_done(cluster: Any, tmp_path: Path) -> None:
    with numbers().batch(8).loader(executor="ray", processes=1) as loader:
        channel: Any = loader._machinery.executor.channel(long_or_until_there)
        paths = ["", str(tmp_path / "there"), ""]
        channel.submit([Task(0, number, path) for number, path in enumerate(paths)])
        came: list[str] = []
        until(lambda: came.extend(outcome.result for outcome in channel.collect(0.1)) or came)
        assert came == paths[:1]
        Path(paths[1]).touch()
        until(lambda: came.extend(outcome.result for outcome in channel.collect(0.1)) or len(came) == 3)
        assert came == paths


def test_a_cluster_that_ends_meanwhile_is_named(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: Any, **__: Any) -> None:
        raise OSError("Connection reset by peer")  # as Ray says it

    with numbers(100_000).batch(8).loader(executor="ray", processes=1) as loader:
        next(batches := iter(loader))
        with (
            monkeypatch.context() as gone,
            pytest.raises(ConfigError, match="no longer reachable: Connection reset by peer; loader"),
        ):
            gone.setattr(ray, "wait", wait)
            [*batches]


def test_a_cluster_that_was_there_before_is_used_and_left_as_it_was(cluster: Any) -> None:
    pipeline = PIPELINES["blend behind filter"](7)
    given = {"executor": "ray", "ray_address": cluster.address, "processes": 1}
    assert sha_of_run(pipeline, 1, **given) == sha_of_run(pipeline, 1, executor="inline")
    assert ray.is_initialized()
    with pytest.raises(ConfigError, match=r"connected to the Ray cluster [\d.]+:\d+; call ray.shutdown"):
        numbers().batch(8).loader(executor="ray", ray_address="127.0.0.1:1")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ray_address='a:1'\): only executor='ray' uses a cluster"):
        numbers().batch(8).loader(ray_address="a:1")
    with pytest.raises(ConfigError, match=r"'ray://a:1' is not the address of a Ray cluster.*submit the program as a job"):
        numbers().batch(8).loader(executor="ray", ray_address="ray://a:1")
    with pytest.raises(ConfigError, match=r"'10.0.0.1' is not the address of a Ray cluster.*use host:port"):
        numbers().batch(8).loader(executor="ray", ray_address="10.0.0.1")
    with pytest.raises(ConfigError, match=r"cache\('memory'\) is the memory of one machine"):
        numbers().map(x=slow).cache("memory").batch(8).loader(executor="ray")


@pytest.mark.parametrize("named_by", ["argument", "RAY_ADDRESS"])
def test_a_cluster_where_nobody_listens_is_an_error_at_once(named_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        if named_by == "RAY_ADDRESS":
            monkeypatch.setenv("RAY_ADDRESS", address)
        given = address if named_by == "argument" else None
        run = run_python(f"from tests.loader.runs import *; numbers().batch(8).loader(executor='ray', ray_address={given!r})")
    told = run.stderr.splitlines()[-1]
    assert f"the Ray cluster {address} cannot be reached: " in told and told.endswith("that Ray runs there (`ray start`)")
    assert (f"with RAY_ADDRESS={address}: " in told) == (named_by == "RAY_ADDRESS")


# ---- commands ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve shards of five samples, and a user's module; the working directory."""
    samples = ({"__key__": f"d/{n:05d}", "txt": f"text {n}", "jpg": jpeg_bytes(40, 30, seed=n)} for n in range(60))
    stoker.write_tar(tmp_path / "in-{:04d}.tar", samples, max_samples=5)
    (tmp_path / "user_ray_maps.py").write_text(
        "import time\ndef upper(sample):\n    print('aside')\n    time.sleep(0.002)\n"
        "    return {**sample, 'txt': sample['txt'].upper()}\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shards_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.tar"))}


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".stoker-*")]


def test_map_and_pack_on_ray_make_the_shards_that_this_machine_makes(cluster: Any, command: Any, folder: Path) -> None:
    for name in ("here", "there"):
        (folder / name).mkdir()
    on_ray = ("-j", 1, "--on", "ray", "--ray-address", cluster.address)
    mapped = ("map", "user_ray_maps.py:upper", "in-{0000..0011}.tar")
    assert command(*mapped, "here/{}.tar").exit_code == 0
    result = command(*mapped, "there/{}.tar", *on_ray, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["made"] == 12
    packing = ("pack", "in-{0000..0011}.tar")
    options = ("--max-samples", 7, "--shuffle", "--resize-max", 20)
    assert command(*packing, "here/p-{:02d}.tar", *options).exit_code == 0
    result = command(*packing, "there/p-{:02d}.tar", *options, *on_ray)
    assert result.exit_code == 0, result.stderr
    assert shards_in(folder / "here") == shards_in(folder / "there") and len(shards_in(folder / "here")) == 12 + 9
    assert leftovers(folder) == []


def test_the_shards_of_a_conversion_can_be_written_elsewhere(folder: Path) -> None:
    """A conversion travels whole: keys, sizes and seek indices, of every kind of source."""
    from stoker.engine.function_wire import pack_work, unpack
    from stoker.source.files.labelled_files import FilesSource

    (folder / "files" / "a").mkdir(parents=True)
    for n in range(5):
        (folder / "files" / "a" / f"{n}.jpg").write_bytes(jpeg_bytes(40, 30, seed=n))
    tar = stoker.tar("in-{0000..0003}.tar")._source
    for name, source in {"tar": tar, "files": FilesSource(folder / "files", "**/*", "folder", True)}.items():
        for kind in ("here", "there"):
            made = Conversion(source, str(folder / f"{name}-{kind}-{{:02d}}.tar"), Options(max_samples=3))
            if kind == "there":
                made = unpack(*pack_work(made, 64))
            for number in range(made.shards):
                made.write(number)
        here, there = ([path.read_bytes() for path in sorted(folder.glob(f"{name}-{kind}-*.tar"))] for kind in ("here", "there"))
        assert here == there and here


# ---- Ray data ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_order(cluster: Any) -> Iterator[None]:
    """Ray hands on blocks in their order, and shows nothing."""
    from ray.data import DataContext

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    yield


def rows_of(pipeline: stoker.Pipeline) -> list[dict[str, Any]]:
    batches = list(pipeline.loader(executor="inline"))
    return [{name: batch[name][row] for name in batch._fields} for batch in batches for row in range(batch.rows)]


@pytest.mark.faults
@pytest.mark.thorough
def test_pipelines_and_ray_data_sets_become_each_other(in_order: None, image_folder: Path) -> None:
    import stoker.ray

    files = stoker.files(image_folder)
    for pipeline in (files.batch(5, drop_last=False), PIPELINES["pad"](7), PIPELINES["filter"](7)):
        data = ray.data.read_datasource(stoker.ray.Datasource(pipeline), override_num_blocks=2)
        wanted, found = rows_of(pipeline), data.take_all()
        assert len(wanted) == len(found)
        for one, other in zip(wanted, found):
            assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    stored = ray.data.read_datasource(stoker.ray.Datasource(files), override_num_blocks=2)
    crops = [
        pipeline.shuffle(seed=1).image("image", RandomResizedCrop(16)).batch(4) for pipeline in (files, stoker.ray.source(stored))
    ]
    assert len(crops[1].plan.source) == 24 and "24 rows in 2 blocks" in crops[1].explain()
    for expected, found in zip(*crops):
        assert np.array_equal(expected["image"], found["image"]) and np.array_equal(expected["label"], found["label"])
    assert sha_of_run(crops[1], 1, executor="ray", processes=1) == sha_of_run(crops[1], 1, executor="inline")
    with pytest.raises(ConfigError, match="blocks of a Ray data set are read by threads of this process, or with executor='ray'"):
        sha_of_run(crops[1], 1, processes=1)
    with pytest.raises(SourceEmpty, match="has no rows"):
        stoker.ray.source(ray.data.from_items([{"x": 1}]).limit(0))


# ---- faults -----------------------------------------------------------------------------------------------------------------


class TestRayContract(LosingExecutorContract):
    """What every executor promises."""

    options = {"executor": "ray", "processes": 1}  # noqa: RUF012
    seeds = range(4)
    die = staticmethod(os.abort)
    deadly = ("small batches made together",)
    pytestmark = faults

    @pytest.fixture(autouse=True)
    def _connected(self, cluster: Any) -> None:
        """All of its loaders run there."""


def stuck_at_31(x: Any) -> Any:
    return time.sleep(1000) if x == 31 else x


class TestFaults:
    pytestmark = faults

    def test_a_sample_that_ends_its_workers_is_named(self, cluster: Any) -> None:
        deadly = DEADLY["batches"](partial(dies_at_31, os.abort))
        named = pytest.raises(WorkerError, match=r"sample '31'.*was killed, or ended by itself, 4 times")
        with deadly.loader(executor="ray", processes=1) as loader, named:
            list(loader)

    def test_workers_that_are_killed_again_and_again_lose_nothing(self, cluster: Any) -> None:
        pipeline = numbers(400).shuffle(seed=3).map(x=slow).batch(8)
        killed: set[int] = set()
        with pipeline.loader(executor="ray", processes=1) as loader:
            executor: Any = loader._machinery.executor
            epochs = []
            deadline = time.monotonic() + DEADLINE_S
            while len(killed) < 3 and time.monotonic() < deadline:
                epoch = []
                for number, batch in enumerate(loader):
                    epoch.append(hash_of(batch))
                    [pid] = executor.processes
                    if number % 10 == 5 and pid and pid not in killed:
                        os.kill(pid, signal.SIGKILL)
                        killed.add(pid)
                epochs.append(epoch)
            assert len(killed) >= 3 and loader.stats().lost > 0
        with pipeline.loader(executor="inline") as inline:
            assert epochs == epochs_of(inline, len(epochs))

    def test_a_worker_that_is_stuck_is_replaced(self, cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
        pipeline = numbers().map(x=stuck_at_31).batch(8).on_error("skip", budget=1)
        with pipeline.loader(executor="ray", processes=1, watchdog_s=15.0) as loader:  # in which a busy machine starts a worker
            assert [int(x) for batch in loader for x in batch["x"]] == [x for x in range(56) if x != 31]
        assert "stuck_at_31" in caplog.text and "did not finish within" in caplog.text

    def test_a_cluster_that_grows_gets_more_workers(self, cluster: Any) -> None:
        with numbers(160).map(x=slow).batch(8).loader(executor="ray") as loader:
            executor: Any = loader._machinery.executor
            assert executor.workers == 1
            node = cluster.add_node(**node_options())
            deadline = time.monotonic() + DEADLINE_S
            while not (len(executor.processes) == 2 and all(executor.processes)):
                assert time.monotonic() < deadline
                list(loader)
            assert executor.workers == 2
            cluster.remove_node(node, allow_graceful=True)
            while executor.workers > 1 or len(executor.processes) > 1:
                assert time.monotonic() < deadline
                list(loader)

    def test_map_and_pack_killed_half_way_and_begun_again_make_the_same_shards(self, cluster: Any, tmp_path: Path) -> None:
        """Over a thousand small shards; what a dead program's workers left is gone, too."""
        samples = ({"__key__": f"d/{n:05d}", "txt": f"text {n}"} for n in range(2000))
        stoker.write_tar(tmp_path / "in-{:04d}.tar", samples, max_samples=2)
        (tmp_path / "user_ray_maps.py").write_text("def upper(sample):\n    return {**sample, 'txt': sample['txt'].upper()}\n")
        (tmp_path / "here").mkdir()
        (tmp_path / "there").mkdir()
        commands = {
            "m": ("map", "user_ray_maps.py:upper", "in-{0000..0999}.tar", "{}/m-{{}}.tar"),
            "p": ("pack", "in-{0000..0999}.tar", "{}/p-{{:04d}}.tar", "--max-samples", "2", "--shuffle"),
        }
        on_ray = ("--on", "ray", "--ray-address", cluster.address)
        for letter, (*words,) in commands.items():
            here = run_stoker(tmp_path, *[word.format("here") if "/" in word and "{}/" in word else word for word in words])
            assert here.wait(DEADLINE_S) == 0
            there = [word.format("there") if "{}/" in word else word for word in words]
            program = run_stoker(tmp_path, *there, *on_ray)
            until(lambda letter=letter: len(list((tmp_path / "there").glob(f"{letter}-*.tar"))) > 300)
            program.kill()
            program.wait()
            assert 300 < len(list((tmp_path / "there").glob(f"{letter}-*.tar"))) < 1000
            again = run_stoker(tmp_path, *there, *on_ray)
            assert again.wait(3 * DEADLINE_S) == 0
        assert shards_in(tmp_path / "here") == shards_in(tmp_path / "there") and len(shards_in(tmp_path / "here")) == 2000
        assert leftovers(tmp_path) == []

    def test_a_ray_that_was_started_here_ends_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With its program, however that ends."""
        for last in ("loader.close()", "os._exit(3)", "os.kill(os.getpid(), 9)", ""):
            with tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as folder:  # names of sockets must be short
                monkeypatch.setenv("TMPDIR", folder)
                ran = run_python(PROGRAM.format(last=last), str(tmp_path / "processes"), timeout_s=DEADLINE_S)
                processes = json.loads((tmp_path / "processes").read_text())
                assert len(processes) > 3, ran.stderr
                for name, process in processes:
                    # After an unexpected end, one of Ray's processes tries for a minute to report it to another that has ended.
                    until(partial(process_ended, process), f"{name} ({process}) to end after {last!r}", 3 * DEADLINE_S)
                left = list(Path(folder).glob("stoker-ray-*"))
                assert bool(left) == last.startswith("os."), last  # of a program that was killed; another begins without it

    def test_a_ray_that_somebody_shuts_down_is_not_started_again(self, tmp_path: Path) -> None:
        ran = run_python(PROGRAM.format(last=SHUT_DOWN), str(tmp_path / "pids"), timeout_s=DEADLINE_S)
        assert "ConfigError loader(executor='ray'): ray.shutdown() was called" in ran.stdout, ran.stderr
        assert "still off" in ran.stdout


SHUT_DOWN = """
import ray
ray.shutdown()
try:
    list(iterator)
except Exception as error:
    print(type(error).__name__, error)
loader.close()
print("on again" if ray.is_initialized() else "still off")
"""
PROGRAM = """
import contextlib, json, os, sys
os.environ["RAY_AUTH_MODE"] = "disabled"
import psutil
from tests.loader.runs import numbers
from tests.support import process_id
loader = numbers().batch(8).loader(executor="ray", processes=1)
iterator = iter(loader)
next(iterator)
found = []
for each in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):
        found.append((each.name(), process_id(each.pid)))
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
{last}
"""


def run_stoker(folder: Path, *words: Any) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "stoker", *map(str, words), "--no-progress"]
    return subprocess.Popen(program, cwd=folder, env={**environment(), **QUIET}, stdout=subprocess.DEVNULL)
