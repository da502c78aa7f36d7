"""`AtomicFile`: whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ClosedError, WriteError
from stoker.storage import atomic
from stoker.storage.atomic import AtomicFile, sweep

LEFT = ".stoker-{host}-123-0123456789abcdef.part"


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def left_over(folder: Path, host: str | None = None) -> Path:
    """A file as a dead writer leaves it."""
    path = folder / LEFT.format(host=host or atomic._host().decode())
    path.write_bytes(b"half")
    return path


def test_a_file_appears_when_it_is_complete_and_not_before(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.tar") as file:
        file.write(b"one ")
        file.write(memoryview(b"two"))
        assert not (tmp_path / "a.tar").exists()
        assert not list(tmp_path.glob("*.tar")), "no glob for shards sees the file in the making"
        assert all(name.startswith(".") for name in listing(tmp_path))
    assert (tmp_path / "a.tar").read_bytes() == b"one two"
    assert listing(tmp_path) == ["a.tar"]


def test_after_an_exception_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), AtomicFile(tmp_path / "a") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert listing(tmp_path) == []


def test_an_existing_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(WriteError, match=r"already exists.*overwrite=True"):
        AtomicFile(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"mine"
    assert listing(tmp_path) == ["a"]


def test_a_file_that_came_in_the_meantime_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="already exists"), AtomicFile(tmp_path / "a") as file:
        file.write(b"ours")
        (tmp_path / "a").write_bytes(b"theirs")
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert listing(tmp_path) == ["a"]


def test_overwriting_replaces_the_file_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with AtomicFile(tmp_path / "a", overwrite=True) as file:
        file.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert listing(tmp_path) == ["a"]


def test_overwriting_a_link_replaces_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "a")
    with pytest.raises(WriteError, match="already exists"):
        AtomicFile(tmp_path / "link")
    with AtomicFile(tmp_path / "link", overwrite=True) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "a").read_bytes() == b"new"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_is_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(WriteError, match="is a folder"):
        AtomicFile(tmp_path / "a", overwrite=overwrite)
    assert listing(tmp_path) == ["a"]


def test_without_hard_links_a_rename_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with AtomicFile(tmp_path / "a") as file:
        file.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    with pytest.raises(WriteError, match="already exists"), AtomicFile(tmp_path / "b") as file:
        (tmp_path / "b").write_bytes(b"theirs")
    assert listing(tmp_path) == ["a", "b"]


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with AtomicFile(tmp_path / "a") as file:
            file.write(b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_any_bytes_may_be_the_name(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff " + b"n" * 250
    with AtomicFile(path) as file:
        file.write(b"x")
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff " + b"n" * 250]


def test_nothing_is_written_to_a_file_that_is_done(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a") as file:
        file.write(b"x")
        file.finish()
        with pytest.raises(ClosedError):
            file.write(b"y")
    with pytest.raises(ClosedError):
        file.write(b"y")
    file.abandon()
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.parametrize("ending", [AtomicFile.publish, AtomicFile.abandon])
def test_one_that_is_interrupted_at_its_end_is_closed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: Callable[[AtomicFile], None]
) -> None:
    """Closed again, its number could be another file's by then."""
    closed: list[int] = []

    def interrupted(fd: int) -> None:
        closed.append(fd)
        close(fd)
        raise KeyboardInterrupt

    file = AtomicFile(tmp_path / "a")
    number, close = file.fileno(), os.close
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ending(file)
        file.abandon()
    assert closed == [number]


# ---- what goes wrong ------------------------------------------------------------------------------------------------------


def test_a_write_that_takes_less_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    with AtomicFile(tmp_path / "a") as file:
        file.write(bytes(range(100)))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, r"disk is full \(.* free\); make room"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EIO, "the disk reported an error"),
    ],
)
def test_what_the_disk_refuses_is_told_with_path_bytes_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    write = os.write

    def limited(fd: int, data: Any) -> int:
        if os.fstat(fd).st_size >= 1000:
            raise OSError(code, os.strerror(code))
        return write(fd, data[: 1000 - os.fstat(fd).st_size])

    monkeypatch.setattr(os, "write", limited)
    with pytest.raises(WriteError, match=remedy) as caught, AtomicFile(tmp_path / "a.tar") as file:
        file.write(bytes(2500))
    assert str(tmp_path / "a.tar") in str(caught.value)
    assert "1.0 kB" in str(caught.value) and "more" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == code
    assert listing(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_failure_at_the_end_leaves_no_trace_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    failures = iter([OSError(errno.EIO, "Input/output error")])
    right = getattr(os, call)

    def once(*args: Any) -> Any:
        for error in failures:
            raise error
        return right(*args)

    monkeypatch.setattr(os, call, once)
    with pytest.raises(WriteError), AtomicFile(tmp_path / "a") as file:
        file.write(b"x")
    assert listing(tmp_path) == []


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="its folder does not exist; make it first"):
        AtomicFile(tmp_path / "no" / "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(WriteError, match="you may not write into this folder"):
            AtomicFile(tmp_path / "a")
    finally:
        tmp_path.chmod(0o755)


def test_a_file_larger_than_allowed_is_told_and_removed(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from stoker.errors import WriteError\n"
        "from stoker.storage.atomic import AtomicFile\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n"
        "    with AtomicFile(sys.argv[1]) as file:\n"
        "        file.write(bytes(20_000))\n"
        "except WriteError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], capture_output=True, text=True, timeout=60)
    assert "10.0 kB" in done.stdout and "ulimit" in done.stdout, done.stderr
    assert listing(tmp_path) == []


# ---- what others left -----------------------------------------------------------------------------------------------------


def test_the_next_writer_removes_what_a_dead_one_left(tmp_path: Path) -> None:
    left_over(tmp_path)
    with AtomicFile(tmp_path / "a") as file:
        assert listing(tmp_path) == [os.path.basename(os.fsdecode(file.temporary))]
    assert listing(tmp_path) == ["a"]


def test_what_a_living_writer_holds_stays(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a") as first:
        first.write(b"one")
        with AtomicFile(tmp_path / "b") as second:
            second.write(b"two")
        assert sweep(os.fsencode(tmp_path), 1 << 62) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"one", "b": b"two"}


def test_what_only_looks_similar_stays(tmp_path: Path) -> None:
    names = [
        ".stoker-notes",
        "stoker-00000000-1-0123456789abcdef.part",
        ".stoker-00000000-1-0123456789ABCDEF.part",
        "x.part",
        ".part",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / LEFT.format(host=atomic._host().decode())).mkdir()
    (tmp_path / LEFT.format(host=atomic._host().decode()).replace("123", "124")).symlink_to(tmp_path / "x.part")
    before = listing(tmp_path)
    assert sweep(os.fsencode(tmp_path), 1 << 62) == 0
    assert listing(tmp_path) == before


def test_what_another_machine_left_stays_for_a_day(tmp_path: Path) -> None:
    other = left_over(tmp_path, "00000000")
    changed = other.stat().st_mtime_ns
    assert sweep(os.fsencode(tmp_path), changed + 3600 * 10**9) == 0
    assert sweep(os.fsencode(tmp_path), changed + 25 * 3600 * 10**9) == 1
    assert listing(tmp_path) == []


def test_a_sweep_that_comes_before_the_lock_costs_only_a_new_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, swept = fcntl.flock, []

    def late(fd: int, how: int) -> None:
        if not swept:
            swept.append(True)
            for name in os.listdir(tmp_path):  # another process sweeps just now
                os.unlink(tmp_path / name)
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with AtomicFile(tmp_path / "a") as file:
        file.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_file_system_without_locks_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    kept = left_over(tmp_path)
    with AtomicFile(tmp_path / "a") as file:
        file.write(b"x")
    assert listing(tmp_path) == [kept.name, "a"]


#: in a process of its own: what is raised while a handler ends may stay the interpreter's current exception
INTERRUPTED = """
import gc, os, sys
from stoker.storage import atomic

def write(path, moment):
    def count(frame, event, argument):
        nonlocal moment
        if frame.f_code.co_filename != atomic.__file__ or frame.f_code.co_name == "_remove":
            return None  # the net itself runs once, and is one system call
        if event == "line":
            moment -= 1
            if moment == 0:
                raise KeyboardInterrupt
        return count

    sys.settrace(count)
    try:
        with atomic.AtomicFile(path, clean=False) as file:
            file.write(b"all of it")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    gc.collect()
    return moment > 0  # nothing came: all moments were tried

folder = sys.argv[1]
for moment in range(1, 1000):
    done = write(os.path.join(folder, "x"), moment)
    if os.listdir(folder) not in ([], ["x"]):
        sys.exit(f"at moment {moment}: {os.listdir(folder)}")
    if done:
        break
    if os.listdir(folder):
        os.unlink(os.path.join(folder, "x"))
print(moment)
"""


def test_a_signal_at_any_moment_leaves_nothing_half_made(tmp_path: Path) -> None:
    """Ctrl-C is an exception between any two lines: here it comes at every one of them in turn."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert 40 < int(done.stdout) < 999
    assert (tmp_path / "x").read_bytes() == b"all of it"
