"""`stoker tar proc`: the user's command on each sample, and nothing left of it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.tar.folders import collect, lay_out, safe_name
from stoker.engine.shell import Workshop
from stoker.source.streams.tar_stream import TarSample

from ...support import until
from .conftest import ENVIRONMENT, STOKER, keys_of, make_tar, read_tar, some_samples


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders are made; looked into afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def test_fields_are_changed_added_and_taken_away_in_order(tar: Any, shards: list[Path], temporary: Path) -> None:
    command = (
        "tr a-z A-Z < sample.txt > new && mv new sample.txt; rm sample.jpg; cat __key__ > sample.name; echo gone > notes.log"
    )
    done = tar("proc", *shards[:2], "-p", 5, "-c", command)
    assert done.code == 0, done.err
    assert read_tar(done.out) == [
        (key, {"cls": fields["cls"], "txt": fields["txt"].upper(), "name": key}) for key, fields in some_samples(20)
    ]
    assert os.listdir(temporary) == []


def test_the_order_stays_however_long_each_takes(tar: Any, shards: list[Path]) -> None:
    done = tar("proc", shards[0], "-p", 4, "-c", "test $(cat sample.cls) -lt 5 || sleep 0.05")
    assert read_tar(done.out) == some_samples(10)


def test_a_sample_may_become_none_or_several(tar: Any, shards: list[Path]) -> None:
    command = "if grep -q 0 sample.cls; then rm sample.*; else cp sample.cls sample-half.cls; mkdir sample.d; fi"
    done = tar("proc", shards[0], "-c", command)
    assert keys_of(done.out)[:4] == ["d/00001", "d/00001-half", "d/00002", "d/00002-half"]
    assert len(keys_of(done.out)) == 18 and "1 sample" in done.err


def test_only_chosen_fields_become_files_and_the_others_stay(tar: Any, shards: list[Path]) -> None:
    done = tar("proc", shards[0], "-f", "cls", "-c", "test ! -e sample.jpg && echo 9 > sample.cls")
    assert read_tar(done.out)[0] == (b"d/00000", {"jpg": bytes(300), "txt": b"line\t0\n", "cls": b"9\n"})
    done = tar("proc", shards[0], "-f", "png", "-c", "true")
    assert done.code == 1 and "png" in done.err


def test_a_command_that_fails_is_told_with_sample_and_last_words(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    command = "grep -q 3 sample.cls || { echo out; echo 'no \033[31mthree' >&2; exit 7; }"
    done = tar("proc", *shards, "-c", command, "-o", tmp_path / "out.tar")
    assert done.code == 1 and "d/00000" in done.err and "status 7" in done.err
    assert "| out" in done.err and "three" in done.err and "\x1b" not in done.err.replace("\x1b[31m\x1b[1merror", "")
    assert not (tmp_path / "out.tar").exists()


def test_it_goes_on_when_told_to_and_says_what_failed(tar: Any, shards: list[Path]) -> None:
    done = tar("proc", shards[0], "--keep-going", "-c", "test $(cat sample.cls) -lt 5 || exit 1")
    assert done.code == 1 and done.err.count("status 1") == 5 and "failed: 5 samples" in done.err
    assert len(read_tar(done.out)) == 5


def test_what_takes_too_long_is_ended_with_all_it_started(tar: Any, shards: list[Path], temporary: Path, tmp_path: Path) -> None:
    command = f"(sleep 60; touch {tmp_path}/survived) & echo $! >> {tmp_path}/pids; sleep 60"
    done = tar("proc", shards[0], "-p", 2, "--timeout", 3, "-c", command)
    assert done.code == 1 and "--timeout" in done.err
    assert_gone(tmp_path / "pids")
    assert os.listdir(temporary) == []


def test_what_a_command_leaves_running_is_ended(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    done = tar("proc", shards[0], "-c", f"sleep 60 & echo $! >> {tmp_path}/pids")
    assert read_tar(done.out) == some_samples(10)
    assert_gone(tmp_path / "pids")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
def test_killed_nothing_is_left(shards: list[Path], temporary: Path, tmp_path: Path, number: int) -> None:
    words = [
        "tar",
        "proc",
        "-p",
        "3",
        "-c",
        f"sleep 60 & echo $! >> {tmp_path}/pids; sleep 60",
        str(shards[0]),
        "-o",
        str(tmp_path / "out.tar"),
    ]
    program = subprocess.Popen([*STOKER, *words], stderr=subprocess.PIPE, env={**ENVIRONMENT, "TMPDIR": str(temporary)})
    until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 3)
    program.send_signal(number)
    errors = program.communicate(timeout=30)[1].decode()
    assert program.returncode == (-9 if number == signal.SIGKILL else 130 if number == signal.SIGINT else 128 + number)
    assert "Traceback" not in errors
    until(lambda: not os.listdir(temporary))
    assert_gone(tmp_path / "pids")
    assert not (tmp_path / "out.tar").exists()


def test_killed_before_it_knows_of_a_command_it_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop("sleep 60", 60)
    monkeypatch.setattr(workshop, "_note", lambda line: None)  # killed as soon as there is a process
    with Path(os.devnull).open("wb") as out:
        process = workshop._start(workshop.folder(), out.fileno())
    assert workshop._janitor.stdin is not None
    workshop._janitor.stdin.close()
    assert process.wait(timeout=30) == -signal.SIGKILL
    assert workshop._janitor.wait(timeout=30) == 0
    assert not Path(workshop.root).exists()


EVIL = ["../up", "a/b", "a b", "é", "x\\xff", "..", "-rf", "$(touch canary)", ";ls", "n" * 300, "a*", "a?", "\\x0a"]


def test_no_name_of_a_file_comes_from_the_data_unchecked(tmp_path: Path) -> None:
    sample = TarSample(b"../../key\n$(id)", {field: field.encode() for field in EVIL}, 0)
    folder = tmp_path / "own"
    folder.mkdir()
    table = lay_out(str(folder), sample, sample.fields)
    names = os.listdir(folder)
    assert len(names) == len(EVIL) + 1
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") and len(name) < 120
        for name in names
    )
    assert collect(str(folder), sample, table) == [sample]  # and what they were comes back


def test_names_that_become_alike_stay_apart() -> None:
    assert [safe_name("a b", {}), safe_name("a*b", {b"a_b": ""})] == ["a_b", "a_b-2"]


def test_a_link_is_not_followed(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    for command in (f"ln -s {tmp_path}/secret sample.leak", "mkfifo sample.leak"):
        done = tar("proc", shards[0], "-c", command, "-o", tmp_path / "out.tar")
        assert done.code == 1 and "sample.leak" in done.err
        assert not (tmp_path / "out.tar").exists()


def test_keys_and_contents_are_never_part_of_the_command(tar: Any, tmp_path: Path) -> None:
    make_tar(tmp_path / "in.tar", [(b"$(touch canary1);`touch canary2`", {"txt": b"$(touch canary3)"})])
    done = tar("proc", tmp_path / "in.tar", "-c", 'cp __key__ sample.key; x="$(cat __key__ sample.txt)"; echo "$x" > sample.all')
    assert done.code == 0, done.err
    assert not list(tmp_path.rglob("canary*"))


def test_folders_that_a_command_locked_are_removed_all_the_same(tar: Any, shards: list[Path], temporary: Path) -> None:
    done = tar("proc", shards[0], "-c", "mkdir -p a/b && touch a/b/c && chmod 000 a/b a")
    assert done.code == 0 and os.listdir(temporary) == []


def assert_gone(pids: Path) -> None:
    """None of the processes lives; one that was just killed may take a moment."""
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: state_of(pid) in ("", "Z"))


def state_of(pid: int) -> str:
    """What the system says of a process: ``"S"`` sleeps, ``"Z"`` has ended; nothing when it is gone, perhaps while we ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
