"""`stoker tar first` and `stoker tar show`: looking into shards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import ENVIRONMENT, STOKER, keys_of, make_tar, read_tar, some_samples


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ((), "d/00000"),
        (("--key", "d/*7"), "d/00007"),
        (("--key", "*/0001?", "-f", "cls", "--match", "^7$"), "d/00011"),
        (("-f", "cls", "--match", "^3$"), "d/00009"),
        (("--match", r"line\t23"), "d/00023"),
    ],
)
def test_the_first_that_matches_is_an_archive_of_one(tar: Any, shards: list[Path], words: tuple[str, ...], key: str) -> None:
    done = tar("first", *shards, *words)
    assert done.code == 0 and keys_of(done.out) == [key]
    assert read_tar(done.out)[0] in some_samples(40)


def test_a_field_alone_can_be_had(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    assert tar("first", *shards, "--key", "d/00012", "--get", "txt").out == b"line\t12\n"
    assert tar("first", *shards, "--get", "jpg", "-o", tmp_path / "one.jpg").code == 0
    assert (tmp_path / "one.jpg").read_bytes() == some_samples(1)[0][1]["jpg"]
    assert tar("first", *shards, "--get", "jpg", "-o", tmp_path / "one.jpg").code == 2
    assert tar("first", *shards, "--get", "png").code == 1


def test_no_match_is_status_1(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    done = tar("first", *shards, "--key", "nothing", "-o", tmp_path / "out.tar")
    assert done.code == 1 and "no sample matches" in done.err and not (tmp_path / "out.tar").exists()
    assert tar("first", *shards, "--match", "(").code == 2


def test_at_a_terminal_it_is_text(shards: list[Path]) -> None:
    ours, theirs = os.openpty()
    subprocess.run([*STOKER, "tar", "first", shards[0]], stdout=theirs, env=ENVIRONMENT, timeout=60, check=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "d/00000" in shown and "cls" in shown and "\0" not in shown


def test_show_is_a_table_of_keys_fields_sizes_and_texts(tar: Any, shards: list[Path]) -> None:
    done = tar("show", *shards, "-n", 2)
    lines = done.out.decode().splitlines()
    assert lines[0].split() == ["key", "field", "size", "content"]
    assert lines[1].split()[:4] == ["d/00000", "jpg", "300", "B"] and lines[2].split() == ["cls", "1", "B", "0"]
    assert lines[3].endswith(r"line\t0\n")
    assert len(lines) == 7 and "-n 0" in done.err
    assert len(tar("show", *shards, "-n", 0).out.splitlines()) == 1 + 3 * 40


def test_the_number_of_samples_is_n_or_c_everywhere(tar: Any, shards: list[Path]) -> None:
    for command in ("show", "tsv", "cat", "pcat"):
        n, c = (tar(command, shards[0], flag, 2).out for flag in ("-n", "-c"))
        assert n == c != b""


def test_show_as_json(tar: Any, shards: list[Path]) -> None:
    told = json.loads(tar("show", *shards, "-n", 3, "--json").out)
    assert [sample["key"] for sample in told["samples"]] == ["d/00000", "d/00001", "d/00002"]
    assert told["samples"][1]["fields"] == {
        "jpg": {"bytes": 300}, "cls": {"bytes": 1, "text": "7"}, "txt": {"bytes": 7, "text": "line\t1\n"},
    }  # fmt: skip
    assert len(json.loads(tar("show", *shards, "-n", 0, "--json").out)["samples"]) == 40


def test_nothing_in_a_name_or_a_field_reaches_the_terminal_unescaped(tar: Any, tmp_path: Path) -> None:
    make_tar(
        tmp_path / "in.tar",
        [(b"a\x1b[31m\xff", {"txt": b"\x1b]0;title\x07", "x\ny": "é…\u202e".encode(), "cut": "é".encode() * 2000})],
    )
    for words in ((), ("--json",)):
        out = tar("show", tmp_path / "in.tar", *words).out.decode()
        assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out
        assert "a\\x1b" in out.replace("\\\\", "\\")
