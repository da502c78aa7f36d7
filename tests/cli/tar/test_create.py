"""`stoker tar create`: plans in three forms."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import make_tar, read_tar, some_samples

WANTED = [(b"a/1", {"jpg": b"picture", "txt": b"hello"}), (b"b", {"jpg": b"picture", "txt": b""})]
PLANS = {
    "long.csv": b"key,field,path,text\na/1,jpg,pic.jpg,\na/1,txt,,hello\nb,jpg,pic.jpg,\nb,txt,,\n",
    "other order.tsv": b"text\tkey\tfield\tpath\n\ta/1\tjpg\tpic.jpg\nhello\ta/1\ttxt\t\n\tb\tjpg\tpic.jpg\n\tb\ttxt\t\n",
    "wide.tsv": b"__key__\t@jpg\ttxt\na/1\tpic.jpg\thello\nb\tpic.jpg\t\n",
    "wide.csv": b"\xef\xbb\xbfkey,@jpg,txt\r\na/1,pic.jpg,hello\r\nb,pic.jpg,\r\n",
    "plain.tsv": b"a/1\tjpg\t@pic.jpg\na/1\ttxt\thello\n\nb\tjpg\t@pic.jpg\nb\ttxt\t\n",
    "plain.csv": b'a/1,jpg,@pic.jpg\n"a/1",txt,hello\nb,jpg,@pic.jpg\nb,txt,\n',
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pic.jpg").write_bytes(b"picture")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_in_any_form_gives_the_same(tar: Any, folder: Path, name: str) -> None:
    (folder / name).write_bytes(PLANS[name])
    done = tar("create", name, "-o", "out.tar")
    assert done.code == 0, done.err
    assert read_tar(folder / "out.tar") == WANTED


def test_paths_begin_in_a_folder_and_the_plan_may_come_through_a_pipe(tar: Any, folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "x").write_bytes(b"deep")
    done = tar("create", "-C", "deep", input=b"k\tbin\t@x\nk\ttxt\t@@at\nk\tabs\t@" + os.fsencode(folder / "pic.jpg") + b"\n")
    assert read_tar(done.out) == [(b"k", {"bin": b"deep", "txt": b"@at", "abs": b"picture"})]
    assert read_tar(tar("create", "-", "--format", "csv", input=b"k,txt,a\tb\n").out) == [(b"k", {"txt": b"a\tb"})]


def test_what_tsv_prints_is_read_back(tar: Any, folder: Path) -> None:
    make_tar(folder / "in.tar", some_samples(5))
    table = tar("tsv", "in.tar", "-f", "key,jpg,cls,txt").out
    assert read_tar(tar("create", input=table).out) == some_samples(5)
    table = tar("tsv", "in.tar", "-f", "key,cls,txt", "--csv").out
    texts = [(key, {name: fields[name] for name in ("cls", "txt")}) for key, fields in some_samples(5)]
    assert read_tar(tar("create", "--format", "csv", input=table).out) == texts


BAD = {
    "a missing file": (b"k\tjpg\t@nowhere.jpg\n", "line 1"),
    "a folder": (b"k\tjpg\t@.\n", "Is a directory"),
    "a huge file": (b"k\tjpg\t@huge\n", "huge: has 1,099,511,627,776 bytes"),
    "a pipe": (b"k\tjpg\t@fifo\n", "plain file"),
    "a NUL": (b"k\tjpg\t@a\0b\n", "line 1"),
    "too few cells": (b"k\tjpg\n", "line 1"),
    "commas in a tsv": (b"k,jpg,@pic.jpg\n", "--format"),
    "a field twice": (b"k\tjpg\t1\nk\tJPG\t2\n", "line 2"),
    "path and text": (b"key\tfield\tpath\ttext\nk\tjpg\tpic.jpg\tboth\n", "line 2"),
    "rows of a sample apart": (b"k\tjpg\t1\nl\tjpg\t1\nk\ttxt\t1\n", "'k'"),
    "leads out": (b"../evil\ttxt\tx\n", "evil"),
    "absolute": (b"/tmp/evil\ttxt\tx\n", "evil"),
    "a dot in the key": (b"a.b\ttxt\tx\n", "a.b"),
    "a slash in the field": (b"a\t../../txt\tx\n", "txt"),
    "an empty key": (b"\ttxt\tx\n", "empty"),
    "no sample": (b"key\tfield\ttext\n", "no sample"),
    "nothing": (b"", "no sample"),
    "only keys": (b"key\nx\n", "column"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_plan_that_cannot_be_followed_is_named_and_nothing_is_written(tar: Any, folder: Path, kind: str) -> None:
    plan, told = BAD[kind]
    os.mkfifo(folder / "fifo")
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "plan.tsv").write_bytes(plan)
    before = sorted(os.listdir(folder))
    done = tar("create", "plan.tsv", "-o", "out.tar")
    assert done.code in (1, 2) and told in done.err and "Traceback" not in done.err
    assert sorted(os.listdir(folder)) == before


def test_csv_that_is_none_is_wrong_usage(tar: Any) -> None:
    assert tar("create", "--format", "csv", input=b'k,txt,"open').code == 2
    assert tar("create", "--format", "xml", input=b"").code == 2
    assert tar("create", "nowhere.csv").code == 1
