"""The DataLoader with worker processes: the same batches, and nothing lost, hung or left behind."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, default_collate, get_worker_info

from stoker.errors import ClosedError, ConfigError, FunctionError, WorkerError
from stoker.storage.scratch import Scratch
from stoker.torch import DataLoader
from stoker.torch.fetch_work import FetchTask, FetchWork

from ..loader.runs import run_python
from ..support import process_ended, until
from .datasets import Draws, Fails, Gate, Stream, Workers, Writes, prepare
from .test_data_loader import epochs, plain

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def many_workers() -> Iterator[None]:
    """torch warns of more workers than cores."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


def test_batches_are_the_same_with_any_number_of_workers_and_after_a_resume_with_another() -> None:
    def make(workers: int, **given: Any) -> DataLoader:
        return DataLoader(Draws(), 4, shuffle=True, seed=3, num_workers=workers, **given)

    first, second = epochs(make(0), 2)
    with make(2, executor="processes") as loader:
        assert [plain(batch) for batch in itertools.islice(loader, 3)] == first[:3]
        state = loader.state_dict()
        assert epochs(loader) == [second]
    with make(0) as resumed:
        resumed.load_state_dict(state)
        assert epochs(resumed, 2) == [first[3:], second]


def test_workers_are_prepared_once_and_told_who_they_are() -> None:
    rows = []

    def both_seen() -> bool:  # one may have begun later than the other
        rows.extend(row for batch in loader for row in zip(*map(torch.Tensor.tolist, batch)))
        return len({row[1] for row in rows}) > 1

    with DataLoader(Workers(), 2, num_workers=2, worker_init_fn=prepare) as loader:
        until(both_seen)
    assert [row[0] for row in rows[:16]] == [*range(16)]
    told = {row[1:] for row in rows}
    assert len(told) == 2, "two processes, which stay"
    assert {(prepared, *rest) for _, prepared, *rest in told} == {(100, 0, 2, True), (101, 1, 2, True)}
    assert os.getpid() not in {row[1] for row in rows}
    assert get_worker_info() is None


def test_the_first_batches_are_made_here_by_a_copy_while_workers_start() -> None:
    dataset = Workers(4)
    with DataLoader(dataset, 2, num_workers=1) as loader:
        first = [row for batch in loader for row in zip(*map(torch.Tensor.tolist, batch))]
        assert {row[1] for row in first} == {os.getpid()}
        assert {row[3:] for row in first} == {(0, 1, True)}, "but the data set hears of its worker"
        assert dataset.asked == 0, "and the program's own is as it was"
        until(lambda: {int(pid) for batch in loader for pid in batch[1]} != {os.getpid()})


@pytest.mark.parametrize(("persistent", "expected"), [(False, 5), (True, -1)])
@pytest.mark.thorough
def test_workers_have_the_data_set_as_it_is_when_an_epoch_begins_unless_they_are_persistent(
    persistent: bool, expected: int
) -> None:
    dataset = Workers(4)
    with DataLoader(dataset, 2, num_workers=1, executor="processes", persistent_workers=persistent) as loader:
        [first] = {int(pid) for batch in loader for pid in batch[1]}
        [again] = {int(pid) for batch in loader for pid in batch[1]}
        assert first == again, "nothing has changed, and the worker stays"
        dataset.prepared = 5
        assert {int(prepared) for batch in loader for prepared in batch[2]} == {expected}


@pytest.mark.parametrize("executor", ["threads", pytest.param("processes", marks=pytest.mark.thorough)])
def test_what_items_write_to_in_a_worker_is_its_own(executor: str) -> None:
    dataset = Writes()
    with DataLoader(dataset, 4, num_workers=1, executor=executor) as loader:
        for _ in range(2):
            for _, large, small in loader:
                assert large.tolist() == small.tolist() == [0.0] * 4
    assert dataset.large[0] == 0


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    expected = epochs(DataLoader(Draws(24), 4, seed=1))
    with DataLoader(Gate(tmp_path), 4, seed=1, num_workers=1, executor="processes") as loader:
        found = iter(loader)
        batches = [next(found) for _ in range(2)]
        [at] = until(lambda: list(tmp_path.glob("at-*")))
        os.kill(int(at.name[3:]), signal.SIGKILL)
        (tmp_path / "open").touch()
        batches += found
        assert [plain(batch[0]) for batch in batches] == [batch[1][0] for batch in expected[0]]
        assert [plain(batch[1]) for batch in batches] == [batch[1][1] for batch in expected[0]]
        assert loader.stats().lost == 1


@pytest.mark.thorough
def test_an_item_that_ends_its_worker_is_found_and_the_batches_after_it_come() -> None:
    with DataLoader(Fails(dies=5), 4, num_workers=1, executor="processes") as loader:
        found = iter(loader)
        assert next(found).tolist() == [0, 1, 2, 3]
        with pytest.raises(WorkerError, match=r"index 5 of the data set: .*\(SIGSEGV\), twice"):
            next(found)
        assert next(found).tolist() == [8, 9, 10, 11]


def test_an_error_in_a_worker_is_the_users_own_with_its_traceback_and_index() -> None:
    class Local(Exception):
        """Of a class that no other module knows."""

    class Raises(Draws):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise Local("lost") from KeyError("why")
            return index

    with DataLoader(Raises(), 4, num_workers=1, executor="processes") as loader:
        found = iter(loader)
        next(found)
        with pytest.raises(Local, match="lost") as caught:
            next(found)
        assert isinstance(caught.value.__cause__, FunctionError)
        told = str(caught.value.__cause__)
        assert "index 5 of the data set failed in worker 0" in told
        assert 'raise Local("lost") from' in told
        assert "KeyError: 'why'" in told
        assert next(found).tolist() == [8, 9, 10, 11]


@pytest.mark.thorough
def test_an_error_that_cannot_be_made_again_here_is_told_in_its_words() -> None:
    loader = DataLoader(Fails(fails=5), 4, num_workers=1, executor="processes")
    with loader, pytest.raises(RuntimeError, match="ItemError: no such picture: 5"):
        list(loader)


def test_an_iterable_data_set_is_one_sequence_which_a_killed_worker_does_not_break() -> None:
    class Told(Stream):
        def __iter__(self) -> Iterator[Any]:
            info = get_worker_info()
            for item in super().__iter__():
                yield *item, info.num_workers, os.getpid()

    whole = epochs(DataLoader(Stream(), 4, seed=1))[0]
    with DataLoader(Told(), 4, num_workers=3, seed=1, prefetch_factor=1) as loader:
        found = iter(loader)
        batches = [next(found)]
        os.kill(int(batches[0][4][0]), signal.SIGKILL)
        batches += found
        assert [plain(batch[:3]) for batch in batches] == whole
        assert {int(count) for batch in batches for count in batch[3]} == {1}
        state = loader.state_dict()
        assert state["epoch"] == 1
        resumed = DataLoader(Stream(), 4, seed=1)
        resumed.load_state_dict({**state, "epoch": 0, "batches": 4})
        assert epochs(resumed)[0] == whole[4:]


@pytest.mark.thorough
def test_a_batch_that_does_not_come_in_time_is_torchs_error(tmp_path: Path) -> None:
    with DataLoader(Gate(tmp_path), 4, num_workers=1, executor="processes", timeout=20) as loader:
        found = iter(loader)
        for _ in range(2):
            next(found)
        loader.timeout = 0.05
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.05 seconds"):
            next(found)
        (tmp_path / "open").touch()
        loader.timeout = 0
        assert next(found)[0].tolist() == [8, 9, 10, 11]


def test_a_data_set_that_cannot_be_sent_is_asked_here_and_that_is_said() -> None:
    dataset = Draws()
    dataset.lock = threading.Lock()  # type: ignore[attr-defined]
    loader = DataLoader(dataset, 4, num_workers=2, seed=1)
    with pytest.warns(RuntimeWarning, match=r"fetched in this process.*cannot pickle '_thread.lock'"):
        found = epochs(loader)
    assert found == epochs(DataLoader(Draws(), 4, seed=1))
    assert "cannot pickle" in loader.explain()
    with pytest.raises(ConfigError, match="cannot pickle"):
        list(DataLoader(dataset, 4, num_workers=2, executor="processes"))


@pytest.mark.parametrize("executor", ["threads", "auto"])
def test_threads_give_the_same_batches(executor: str) -> None:
    with DataLoader(Draws(), 4, shuffle=True, seed=1, num_workers=3, executor=executor) as loader:
        assert epochs(loader, 2) == epochs(DataLoader(Draws(), 4, shuffle=True, seed=1), 2)
        assert "3 threads of this process, each with its own copy" in loader.explain()


class Copies(Workers):
    """Items that say what object makes them, and how often it has."""

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return index, id(self), self.asked, torch.get_num_threads()


def test_each_thread_has_its_own_copy_of_the_data_set() -> None:
    dataset, threads = Copies(16), torch.get_num_threads()
    made: dict[int, list[int]] = {}
    computing = set()

    def both_seen() -> bool:
        for batch in loader:
            for _, copy, asked, with_threads in zip(*map(torch.Tensor.tolist, batch)):
                made.setdefault(copy, []).append(asked)
                computing.add(with_threads)
        return len(made) == 2

    torch.set_num_threads(3)
    try:
        with DataLoader(dataset, 4, num_workers=2, executor="threads") as loader:
            until(both_seen)
            assert torch.get_num_threads() == in_a_thread(torch.get_num_threads) == 3, "the program's stay"
    finally:
        torch.set_num_threads(threads)
    assert id(dataset) not in made
    assert dataset.asked == 0
    for asked in made.values():
        assert sorted(asked) == [*range(1, len(asked) + 1)], "no other thread has changed it"
    assert computing == {1}, "sums of floats depend on it"


def in_a_thread(function: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join(DEADLINE_S)
    return found[0]


def test_threads_have_the_data_set_as_it_is_when_an_epoch_begins() -> None:
    dataset = Workers(4)
    with DataLoader(dataset, 2, num_workers=1, executor="threads") as loader:
        for expected in (-1, 5):
            assert {int(prepared) for batch in loader for prepared in batch[2]} == {expected}
            dataset.prepared = 5


def test_what_cannot_be_copied_for_threads_is_refused_or_done_here() -> None:
    dataset = Draws()
    dataset.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="cannot pickle"):
        list(DataLoader(dataset, 4, num_workers=2, executor="threads"))
    with pytest.warns(RuntimeWarning, match="cannot pickle"):
        list(DataLoader(dataset, 4, num_workers=2, executor="auto"))


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        pytest.param(Draws(16), "items draw from generators", id="draws"),
        pytest.param(Workers(), "the data set asks get_worker_info", id="asks", marks=pytest.mark.thorough),
    ],
)
def test_items_that_draw_or_ask_for_their_worker_move_to_processes(dataset: Any, why: str) -> None:
    with DataLoader(dataset, 2, num_workers=1, executor="auto", seed=1) as loader:
        assert "nothing was measured yet" in loader.explain()

        def moved() -> bool:
            assert [int(index) for batch in loader for index in batch[0]] == [*range(16)]
            return why in loader.why()

        until(moved)
        assert loader.stats().executor.processes == 1
        assert f"1 worker process, each with its own copy of the data set: {why}" in loader.explain()


@pytest.mark.parametrize(
    "given", [{"dataset": Stream()}, {"dataset": Workers(), "worker_init_fn": prepare}], ids=["iterable", "worker_init_fn"]
)
def test_what_means_a_process_is_not_tried_in_threads(given: dict[str, Any]) -> None:
    assert "worker process" in DataLoader(**given, num_workers=1, executor="auto").explain()


@pytest.mark.thorough
def test_a_forked_child_starts_workers_of_its_own() -> None:
    with DataLoader(Draws(8), 4, num_workers=1, executor="processes", seed=1) as loader:
        found = iter(loader)
        next(found)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            try:
                said = []
                try:
                    next(found)
                except ClosedError:
                    said = [batch[0].tolist() for batch in loader]
                    loader.close()
                os.write(write, json.dumps(said).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert json.loads(os.read(read, 4096)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert next(found)[0].tolist() == [4, 5, 6, 7], "and the parent's go on"
        for end in (read, write):
            os.close(end)


EXIT = """
import os, sys
from torch.utils.data import Dataset
from stoker.torch import DataLoader
from tests.support import process_id

class Squares(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return scale(index), os.getpid()

scale = lambda index: index * index
loader = DataLoader(Squares(), 4, num_workers=1, executor="processes")
found = iter(loader)
squares, pids = next(found)
assert squares.tolist() == [0, 1, 4, 9]
print(*map(process_id, loader._workers.executor.processes), flush=True)
{end}
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        pytest.param("raise KeyboardInterrupt", marks=pytest.mark.thorough),
        pytest.param("os._exit(0)", marks=pytest.mark.thorough),
    ],
    ids=["falls off", "interrupt", "_exit"],
)
def test_a_script_that_never_closes_its_loader_ends_and_leaves_nothing(end: str) -> None:
    done = run_python(EXIT.format(end=end))
    workers = done.stdout.split()
    assert len(workers) == 1, done.stderr
    assert (done.returncode == 0) == ("Keyboard" not in end), done.stderr
    until(lambda: all(map(process_ended, workers)))


class CrowdedScratch(Scratch):
    """That of a thread which waits for a core whenever it fetches an item."""

    had_s = 0.0

    def weight(self, kind: Any) -> int:
        return 1

    def queued_s(self, now: float | None = None) -> float:
        return self.had_s


class Crowded(Dataset[int]):
    def __init__(self, scratch: CrowdedScratch) -> None:
        self.scratch = scratch

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        self.scratch.had_s += 0.25
        return index


def test_items_that_have_no_core_do_not_count_as_waiting_for_something_else() -> None:
    scratch = CrowdedScratch()
    fetched = FetchWork(Crowded(scratch), default_collate, None, 0, 0, True)(FetchTask(0, 0, [0, 1], [0, 1]), scratch)
    scratch.close()
    assert fetched is not None and fetched.value.tolist() == [0, 1]
    assert fetched.report.queued_s == 0.5
    assert fetched.report.lock_s >= 0, "and how long the interpreter lock takes to get is tried"
