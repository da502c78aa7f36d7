"""The commands as programs of real pipes: how they end, what they leave, what memory they take."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from ...support import until
from .conftest import ENVIRONMENT, STOKER, ended, make_tar, pipe, read_tar, some_samples


def test_three_commands_and_gnu_tar(shards: list[Path], tmp_path: Path) -> None:
    programs = pipe(
        ["tar", "pcat", *shards, "--seed", 3],
        ["tar", "proc", "-p", 2, "-f", "txt", "-c", "wc -c < sample.txt > sample.len"],
        ["tar", "sort", "--by", "key", "--reverse"],
        ["/usr/bin/env", "tar", "-tf", "-"],
    )
    codes, out, errors = ended(programs)
    assert codes == [0, 0, 0, 0], errors
    assert "".join(errors) == ""
    names = out.decode().splitlines()
    assert len(names) == 160 and names[0] == "d/00039.jpg" and names[-1] == "d/00000.len"


def test_gnu_tar_in_front(tmp_path: Path) -> None:
    for key, fields in some_samples(5):
        for field, data in fields.items():
            path = tmp_path / f"{key.decode()}.{field}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
    codes, out, _ = ended(pipe(["/usr/bin/env", "tar", "-C", tmp_path, "--sort=name", "-cf", "-", "./d"], ["tar", "cat"]))
    assert codes == [0, 0]
    assert {key: dict(sorted(fields.items())) for key, fields in read_tar(out)} == {
        k: dict(sorted(f.items())) for k, f in some_samples(5)
    }


def test_a_reader_that_has_enough_ends_the_writer_quietly(tmp_path: Path) -> None:
    make_tar(tmp_path / "large.tar", some_samples(20, size=1 << 20))
    for words in (["tar", "cat", tmp_path / "large.tar"], ["tar", "tsv", "-f", "key,jpg", tmp_path / "large.tar"]):
        codes, out, errors = ended(pipe(words, ["/usr/bin/env", "head", "-c", "100"]))
        assert len(out) == 100 and codes == [141, 0]
        assert errors == ["", ""]


def test_an_archive_that_broke_off_upstream_makes_no_file_downstream(shards: list[Path], tmp_path: Path) -> None:
    shards[1].write_bytes(shards[1].read_bytes()[:4000])
    codes, _, errors = ended(pipe(["tar", "cat", *shards], ["tar", "sort", "-o", tmp_path / "out.tar"]))
    assert codes == [1, 1] and "in-01.tar" in errors[0] and "standard input" in errors[1]
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize("words", [["cat"], ["tsv", "-f", "key"]], ids=["cat", "tsv"])
def test_a_full_disk_is_told(shards: list[Path], words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*STOKER, "tar", *words, shards[0]], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60
        )
    assert done.returncode == 74 and b"written" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["cat", "sort"])
def test_ctrl_c_is_one_line_and_leaves_nothing(tmp_path: Path, command: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    words = ["tar", command, "-o", str(out / "x.tar")]
    with subprocess.Popen([*STOKER, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as program:
        assert program.stdin is not None
        program.stdin.write(make_tar(None, some_samples(30))[:20_000])
        program.stdin.flush()
        until(lambda: os.listdir(out))
        program.send_signal(signal.SIGINT)
        errors = program.communicate(timeout=30)[1].decode()
    assert program.returncode == 130 and errors.splitlines()[-1] == "stopped" and "Traceback" not in errors
    assert os.listdir(out) == []


def peak_kb(words: list[str], megabytes: int, tmp_path: Path) -> int:
    """The most memory a command took to pass so much through."""
    head = io.BytesIO()
    with (tmp_path / "out").open("wb") as out:
        program = subprocess.Popen([*STOKER, *words], stdin=subprocess.PIPE, stdout=out, env=ENVIRONMENT)
        assert program.stdin is not None
        for number in range(megabytes):
            member = tarfile.TarInfo(f"{number * 7919 % 100_003:06d}.bin")
            member.size = 1 << 20
            head = io.BytesIO(member.tobuf(tarfile.USTAR_FORMAT))
            program.stdin.write(head.getvalue() + bytes(1 << 20))
        program.stdin.write(bytes(1024))
        program.stdin.close()
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0
    assert (tmp_path / "out").stat().st_size > megabytes << 20
    return usage.ru_maxrss


@pytest.mark.parametrize("words", [["cat", "--shuffle", "8"], ["sort"]], ids=["cat", "sort"])
def test_memory_does_not_grow_with_the_data(tmp_path: Path, words: list[str]) -> None:
    few, many = (peak_kb(["tar", *words], megabytes, tmp_path) for megabytes in (16, 64))
    assert many - few < 16 * 1024
