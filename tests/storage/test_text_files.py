"""Reports and lists of bad samples: whole or not at all, and every failure is a WriteError."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import WriteError
from stoker.storage import text_files
from stoker.storage.text_files import append_lines, tail_lines, write_text


def full_after(count: int) -> Callable[[int, Any], int]:
    """`os.write` of a disk that has room for so many bytes more."""
    real, left = os.write, [count]

    def write(fd: int, data: Any) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(fd, memoryview(data)[: left[0]])
        left[0] -= done
        return done

    return write


def test_a_text_replaces_what_was_there_also_behind_a_link(tmp_path: Path) -> None:
    place, link = tmp_path / "report.html", tmp_path / "link"
    link.symlink_to(place)
    for text in ("first", "second: caf\u00e9", "third: \udcff"):
        write_text(link, text)
        assert place.read_text(encoding="utf-8") == text.replace("\udcff", "\\udcff")
    assert link.is_symlink() and sorted(tmp_path.iterdir()) == [link, place]


def test_on_a_full_disk_the_old_text_stays_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "report.html"
    write_text(place, "old")
    monkeypatch.setattr(os, "write", full_after(5))
    with pytest.raises(
        WriteError, match=r"report\.html: cannot be written after 5 B, .*: the disk is full .*; make room, or write elsewhere"
    ):
        write_text(place, "new and longer")
    monkeypatch.undo()
    assert place.read_text() == "old" and list(tmp_path.iterdir()) == [place]


def test_on_a_full_disk_no_part_of_a_line_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "bad.jsonl"
    append_lines(place, ["one", "two"])
    monkeypatch.setattr(os, "write", full_after(5))
    with pytest.raises(WriteError, match="the disk is full"):
        append_lines(place, ["three", "four"])
    monkeypatch.undo()
    assert place.read_text() == "one\ntwo\n"
    append_lines(place, ["three"])
    assert place.read_text() == "one\ntwo\nthree\n"


def test_what_another_process_added_meanwhile_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, write = tmp_path / "bad.jsonl", full_after(4)

    def beside(fd: int, data: Any) -> int:
        try:
            return write(fd, data)
        except OSError:
            with place.open("a") as other:
                other.write("other\n")
            raise

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", beside)
        with pytest.raises(WriteError, match="the disk is full"):
            append_lines(place, ["one", "two"])
    assert place.read_text() == "one\nother\n"


@pytest.mark.parametrize("write", [lambda path: write_text(path, "x"), lambda path: append_lines(path, ["x"])])
def test_devices_folders_and_places_that_are_not_there_are_named(tmp_path: Path, write: Callable[[Any], None]) -> None:
    write("/dev/null")
    for path, why in {
        Path("/dev/full"): "the disk is full",
        tmp_path: "it is a folder",
        tmp_path / "no" / "file": "its folder does not exist",
        tmp_path / ("n" * 300): "the name is too long",
    }.items():
        with pytest.raises(WriteError, match=f"{path.name}: cannot be written.*: {why}"):
            write(path)
    assert not list(tmp_path.iterdir())


def test_a_descriptor_is_written_to_where_it_stands(tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.write_text("before\n")
    with place.open("ab") as log:
        os.write(log.fileno(), b"more\n")
        for name in (f"/dev/fd/{log.fileno()}", f"/proc/self/fd/{log.fileno()}"):
            write_text(name, "text\n")
        append_lines(f"/dev/fd/{log.fileno()}", ["line"])
        os.write(log.fileno(), b"after\n")
    assert place.read_text() == "before\nmore\ntext\ntext\nline\nafter\n" and list(tmp_path.iterdir()) == [place]
    script = "print('first', flush=True); write_text('/dev/stdout', 'text'); print(' last')"
    with place.open("wb") as out:
        command = [sys.executable, "-c", f"from stoker.storage.text_files import write_text; {script}"]
        subprocess.run(command, stdout=out, check=True, timeout=60)
    assert place.read_text() == "first\ntext last\n"


def test_a_text_keeps_the_mode_of_the_file_it_replaces(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    place.touch()
    for mode in (0o600, 0o664):
        place.chmod(mode)
        write_text(place, "text")
        assert stat.S_IMODE(place.stat().st_mode) == mode


def test_a_file_that_cannot_be_replaced_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: bytes, *parts: bytes, mode: int | None) -> None:
        raise WriteError("refused") from PermissionError(errno.EACCES, "refused")  # as a folder does, though not to root

    monkeypatch.setattr(text_files, "publish", refuse)
    place = tmp_path / "report.html"
    with pytest.raises(WriteError, match="refused"):
        write_text(place, "new")
    place.write_text("old and longer")
    write_text(place, "new")
    assert place.read_text() == "new"


def test_lines_of_many_writers_are_whole(tmp_path: Path) -> None:
    place, lines = tmp_path / "log", [f"{writer}:{'x' * 9000}:{writer}" for writer in range(8)]
    writers = [
        threading.Thread(target=lambda line=line: [append_lines(place, [line, line]) for _ in range(20)]) for line in lines
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(place.read_text().splitlines()) == sorted(lines * 40)


def test_of_a_large_file_the_last_whole_lines_are_read_and_nothing_of_what_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "log"
    append_lines(place, [f"line {number}" for number in range(1000)])
    assert [*tail_lines(place)] == [f"line {number}\n".encode() for number in range(1000)]
    monkeypatch.setattr(text_files, "_TAIL", 25)
    assert [*tail_lines(place)] == [b"line 998\n", b"line 999\n"]
    for other in (tmp_path, tmp_path / "none", "/dev/stdout", "/dev/null"):
        assert [*tail_lines(other)] == []
