"""Worker processes: those that cannot even begin, values that are hard to send, and tasks that nobody wants any more."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.engine.executor import Task
from stoker.engine.process_executor import ProcessExecutor
from stoker.engine.process_line import HomeLine
from stoker.errors import ConfigError, ShardChanged, WorkerError
from stoker.storage.scratch import Scratch
from tests.loader.runs import numbers, run_python


def test_workers_that_end_before_they_have_begun_are_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    false = shutil.which("false")
    assert false is not None
    with pytest.raises(ConfigError, match=r"5 worker .* exited with code 1; .*stderr.*executor='threads'"):
        monkeypatch.setattr(sys, "executable", false)
        with numbers().batch(4).loader(processes=1) as loader:
            list(loader)


def test_a_module_that_ends_every_worker_is_no_samples_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import ends them, before they have seen a sample; there is none to leave out."""
    name = f"deadly_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    os.abort()\ndef same(x):\n    return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    deadly = __import__(name)
    with (
        pytest.raises(ConfigError, match=r"5 worker processes in a row .* \(SIGABRT\).*executor='threads'"),
        numbers().map(x=deadly.same).batch(4).on_error("skip", budget=0.5).loader(processes=1) as loader,
    ):
        list(loader)


def test_a_worker_that_cannot_be_watched_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    started: list[int] = []
    monkeypatch.setattr(os, "pidfd_open", none_left)
    with pytest.raises(ConfigError, match="Too many open files"):
        ProcessExecutor(1, Scratch)
    with pytest.raises(ChildProcessError):
        os.waitpid(started[0], os.WNOHANG)


def test_what_lies_in_the_working_folder_is_not_taken_for_a_module_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.chdir(tmp_path)
    with numbers().batch(60).loader(processes=1) as loader:
        assert len(list(loader)) == 1


# ---- values ----------------------------------------------------------------------------------------------------------------


def arrays_around_a_lambda() -> Iterator[dict[str, Any]]:
    for n in range(8):
        yield {"a": np.full(5000, n), "f": lambda: 0, "z": np.full(5000, 100 + n)}


def firsts(sample: dict[str, Any]) -> dict[str, Any]:
    return {"a": int(sample["a"][0]), "z": int(sample["z"][0])}


def test_arrays_beside_a_value_that_is_hard_to_pickle_stay_in_their_places() -> None:
    with stoker.stream(arrays_around_a_lambda).map(firsts).batch(8).loader(processes=1) as loader:
        [batch] = loader
    assert batch["a"].tolist() == [*range(8)]
    assert batch["z"].tolist() == [*range(100, 108)]


def test_samples_of_a_class_of_the_script_are_known_in_worker_processes() -> None:
    code = """
        import stoker
        class Point:
            def __init__(self, n):
                self.n = n
        def points():
            for n in range(8):
                yield {"point": Point(n)}
        def moved(sample):
            return {"point": Point(sample["point"].n + 1)}
        def number(sample):
            return {"n": sample["point"].n, "same": isinstance(sample["point"], Point)}
        whole = stoker.stream(points).map(moved).filter(lambda sample: sample["point"].n % 2).map(number).batch(4)
        with whole.loader(processes=1) as loader:
            for batch in loader:
                print(*batch["n"].tolist(), batch["same"].all())
        """
    assert run_python(dedent(code)).stdout.split() == ["1", "3", "5", "7", "True"]


class Sealed:
    """Can be pickled; number 5 cannot be read again."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["n"] == 5:
            raise RuntimeError("the seal is broken")
        self.__dict__.update(state)


def sealed() -> Iterator[dict[str, Any]]:
    for n in range(8):
        yield {"x": Sealed(n)}


def opened(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"].n}


def test_a_sample_that_no_worker_can_read_is_named_or_left_out() -> None:
    whole = stoker.stream(sealed).map(opened).batch(4, drop_last=False)
    with whole.loader(processes=1) as loader, pytest.raises(WorkerError, match=r"'5'.*could not read it: the seal is broken"):
        list(loader)
    with whole.on_error("skip").loader(processes=1) as loader:
        assert [x for batch in loader for x in batch["x"].tolist()] == [0, 1, 2, 3, 4, 6, 7]


def large_numbers(most: int = 8) -> Iterator[dict[str, Any]]:
    for n in range(most):
        yield {"x": np.full(5000, n)}


def test_what_a_function_did_to_its_sample_is_undone_when_its_worker_dies(tmp_path: Path) -> None:
    died = tmp_path / "died"

    def plus_thousand(sample: dict[str, Any]) -> dict[str, Any]:
        sample["x"] += 1000
        if sample["x"][0] == 1005 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": int(sample["x"][0])}

    # Behind a filter samples lie in memory of the worker that looked at them, and are not copied on their way.
    whole = stoker.stream(large_numbers).filter(lambda sample: True).map(plus_thousand).batch(8)
    with whole.loader(processes=1) as loader:
        assert [batch["x"].tolist() for batch in loader] == [[*range(1000, 1008)]]
    assert died.exists()


def test_what_a_function_keeps_of_a_sample_stays_as_it_was() -> None:
    kept: list[Any] = []

    def first_of_all(sample: dict[str, Any]) -> dict[str, Any]:
        kept.append(sample["x"])
        return {"x": int(kept[0][0]), "n": len(kept)}

    whole = stoker.stream(lambda: large_numbers(160)).map(first_of_all).batch(8)
    with whole.loader(processes=1, threads=1) as loader:
        assert {int(x) for batch in loader for x in batch["x"]} == {0}


def refuse_to_be_made() -> Any:
    raise ShardChanged("a.tar: is not the file it was")


class ChangedWork:
    def __reduce__(self) -> Any:
        return refuse_to_be_made, ()

    def __call__(self, content: Any, scratch: Any) -> Any:
        raise AssertionError


def test_an_error_of_ours_in_the_making_of_the_work_is_told_as_it_is() -> None:
    with closing(ProcessExecutor(1, Scratch)) as executor:
        channel = executor.channel(ChangedWork())
        channel.submit([Task(0, 0, None)])
        [outcome] = next(filter(None, (channel.collect(1.0) for _ in range(60))))
        assert outcome.fault is not None
        error = outcome.fault.error()
        assert isinstance(error, ShardChanged)
        assert str(error) == "a.tar: is not the file it was"


# ---- tasks that nobody wants any more --------------------------------------------------------------------------------------


def wait_or_touch(content: tuple[str, Path], scratch: Any) -> None:
    what, path = content
    while what == "wait" and not path.exists():
        time.sleep(0.01)
    if what == "touch":
        path.touch()


def test_a_task_that_waits_for_a_suspect_and_is_cancelled_does_not_run(tmp_path: Path) -> None:
    with closing(ProcessExecutor(2, Scratch)) as executor:
        suspect, cancelled, last = (executor.channel(wait_or_touch) for _ in range(3))
        suspect.submit([Task(0, 0, ("wait", tmp_path / "go"), alone=True)])
        cancelled.submit([Task(0, 0, ("touch", tmp_path / "ran"))])
        cancelled.cancel()
        (tmp_path / "go").touch()
        assert any(suspect.collect(1.0) for _ in range(60))
        for number in range(4):
            last.submit([Task(0, number, ("touch", tmp_path / "last"))])
            assert any(last.collect(1.0) for _ in range(60))
        assert not (tmp_path / "ran").exists()


def test_a_descriptor_that_waits_to_be_sent_stays_what_it_was() -> None:
    own, theirs = socket.socketpair()
    with theirs:
        line = HomeLine(own)
        line.send(bytes(1 << 23))  # more than the socket takes
        sent = os.memfd_create("sent")
        about = os.fstat(sent)
        line.send(b"x", [sent])
        os.close(sent)
        other = os.memfd_create("other")
        came: list[int] = []
        while not came:
            line.flush()
            _, came, _, _ = socket.recv_fds(theirs, 1 << 20, 4)
        assert os.fstat(came[0]).st_ino == about.st_ino
        for fd in (other, *came):
            os.close(fd)
        line.close()


#: a program that somebody imports, with its functions and its loop
IMPORTED = """
import stoker
def three_times(x):
    return 3 * x
print("the loop begins", flush=True)
with stoker.arrays(x=[1, 2, 3, 4]).map(x=three_times).batch(2).loader(processes=1) as loader:
    print(sum(int(batch["x"].sum()) for batch in loader))
"""


@pytest.mark.parametrize("module", ["unguarded", "package.unguarded", "package"])
def test_a_module_whose_loop_runs_while_it_is_imported_is_not_run_again_by_workers(module: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    path = tmp_path / module.replace(".", "/")
    (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).write_text(IMPORTED)
    ended = run_python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {module}")
    assert (ended.stdout, ended.stderr) == ("the loop begins\n30\n", "")


def test_workers_of_a_program_whose_output_is_closed_end_without_a_word() -> None:
    script = "import stoker; list(stoker.arrays(x=[1, 2]).batch(1).loader(processes=1))"
    ended = run_python(f"import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-c', {script!r}])")
    assert (ended.returncode, ended.stderr) == (0, "")
