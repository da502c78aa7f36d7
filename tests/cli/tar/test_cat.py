"""`stoker tar cat`: shards in, one archive out."""

from __future__ import annotations

import gzip
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from ...storage.server import NoRange, Server
from .conftest import ENVIRONMENT, STOKER, keys_of, make_tar, read_tar, some_samples


def test_samples_come_out_as_they_lie(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    done = tar("cat", *shards)
    assert done.code == 0 and done.err == ""
    assert read_tar(done.out) == some_samples(40)
    assert tar("cat", tmp_path / "in-{00..03}.tar").out == tar("cat", tmp_path / "in-*.tar").out == done.out


def test_gnu_tar_sees_the_same_files(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    assert tar("cat", *shards, "-o", out).code == 0
    listed = subprocess.run(["tar", "-tf", out], capture_output=True, text=True, check=True)
    assert listed.stderr == ""
    assert listed.stdout.splitlines() == [f"{key.decode()}.{field}" for key, fields in some_samples(40) for field in fields]
    assert out.with_name("out.tar.stk").exists()


def test_some_can_be_skipped_and_some_taken(tar: Any, shards: list[Path]) -> None:
    assert keys_of(tar("cat", *shards, "--skip", 8, "-c", 4).out) == ["d/00008", "d/00009", "d/00010", "d/00011"]
    assert keys_of(tar("cat", *shards, "-c", 0).out) == []


def test_a_shuffle_is_a_matter_of_its_seed(tar: Any, shards: list[Path]) -> None:
    first = tar("cat", *shards, "--shuffle", 16, "--seed", 1).out
    assert sorted(read_tar(first)) == some_samples(40) != read_tar(first)
    assert tar("cat", *shards, "--shuffle", 16, "--seed", 1).out == first
    assert tar("cat", *shards, "--shuffle", 16, "--seed", 2).out != first


def test_the_buffer_of_a_shuffle_is_bounded_by_bytes_too(tar: Any, shards: list[Path]) -> None:
    done = tar("cat", *shards, "--shuffle", 40, "--memory", "1kB")
    assert sorted(read_tar(done.out)) == some_samples(40)
    assert done.err.count("--memory") == 1
    keys = keys_of(done.out)
    assert all(abs(int(key[2:]) - place) < 8 for place, key in enumerate(keys[:8]))  # nothing came from afar


NAMES = [
    b"plain", b"with space", b"caf\xc3\xa9", b"not-utf8-\xff\xfe", b"back\\slash", b"quote'\"", b"a/b/c/deep", b"-dash",
    b"x" * 90, b"long/" + b"y" * 300, b"tab\there", b"$(touch canary)", b"\xff" * 150,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_every_byte_of_a_name_survives(tar: Any, tmp_path: Path, name: bytes) -> None:
    fields = {"jpg": b"1", "seg.png": b"2", "Upper": b"3", "back\\slash": b"4"}
    make_tar(tmp_path / "in.tar", [(name, fields)])
    done = tar("cat", tmp_path / "in.tar")
    assert done.code == 0, done.err
    assert read_tar(done.out) == [(name, {"jpg": b"1", "seg.png": b"2", "upper": b"3", "back\\slash": b"4"})]


def test_packed_shards_and_standard_input_are_unpacked(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    plain = shards[0].read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "a.tar.zst").write_bytes(zstandard.compress(plain))
    wanted = tar("cat", shards[0]).out
    assert tar("cat", tmp_path / "a.tar.gz").out == tar("cat", tmp_path / "a.tar.zst").out == wanted
    assert tar("cat", input=plain).out == tar("cat", "-", input=gzip.compress(plain)).out == wanted


def test_a_named_pipe_is_read_as_a_shard(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(gzip.compress(shards[0].read_bytes()),))
    writer.start()
    done = tar("cat", fifo, shards[1])
    writer.join(timeout=10)
    assert read_tar(done.out) == some_samples(20)


def test_a_sample_split_over_two_shards_is_not_joined_silently(tar: Any, tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", [(b"k", {"jpg": b"1"})])
    make_tar(tmp_path / "b.tar", [(b"k", {"cls": b"2"})])
    done = tar("cat", tmp_path / "a.tar", tmp_path / "b.tar", "-o", tmp_path / "out.tar")
    assert done.code == 1 and "'k'" in done.err
    assert not (tmp_path / "out.tar").exists()


def test_a_file_that_exists_is_kept_unless_told_otherwise(tar: Any, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    out.write_bytes(b"precious")
    done = tar("cat", *shards, "-o", out)
    assert done.code == 2 and "--overwrite" in done.err and out.read_bytes() == b"precious"
    assert tar("cat", *shards, "-o", out, "--overwrite").code == 0
    assert len(read_tar(out)) == 40


def test_an_archive_is_not_written_to_a_terminal(shards: list[Path]) -> None:
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [*STOKER, "tar", "cat", shards[0]], stdout=theirs, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2 and b"terminal" in done.stderr


def test_a_shard_is_not_appended_to_itself(shards: list[Path]) -> None:
    before = shards[0].read_bytes()
    with shards[0].open("ab") as out:
        done = subprocess.run([*STOKER, "tar", "cat", shards[0]], stdout=out, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 2 and b"read and written at the same time" in done.stderr
    assert shards[0].read_bytes() == before


def test_progress_is_told_on_standard_error_when_asked_for(tar: Any, shards: list[Path]) -> None:
    done = tar("cat", *shards, "--progress")
    assert "40 samples" in done.err and "\x1b" not in done.err
    assert read_tar(done.out) == some_samples(40)


GOOD = make_tar(None, some_samples(3))
BAD = {
    "gzip named tar": (gzip.compress(GOOD), "gzip"),
    "a web page": (b"<!DOCTYPE html><html><body>404 Not Found</body></html>" * 20, "web page"),
    "nothing at all": (b"", "empty"),
    "cut in a header": (GOOD[:700], ""),
    "cut in a file": (GOOD[:600], ""),
    "cut between samples": (GOOD[: 512 * 6], ""),
    "without its end": (GOOD.rstrip(b"\0") + b"\0" * (-len(GOOD.rstrip(b"\0")) % 512), ""),
    "a flipped bit": (bytes([GOOD[0] ^ 1]) + GOOD[1:], "checksum"),
    "leads out of the folder": (make_tar(None, [(b"../../evil", {"txt": b"x"})]), "evil"),
    "is absolute": (make_tar(None, [(b"/etc/evil", {"txt": b"x"})]), "evil"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_named_and_nothing_is_written(tar: Any, tmp_path: Path, kind: str) -> None:
    data, told = BAD[kind]
    (tmp_path / "bad.tar").write_bytes(data)
    done = tar("cat", tmp_path / "bad.tar", "-o", tmp_path / "out.tar")
    assert done.code == 1 and told in done.err and "Traceback" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar"]
    assert (tmp_path / "bad.tar").read_bytes() == data


@pytest.mark.parametrize("name", ["missing.tar", "no-*.tar", "x-{0..999999999}.tar", "pipe:touch canary", "ftp://host/a.tar"])
def test_a_name_that_stands_for_nothing_is_told(tar: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = tar("cat", name, "-o", "out.tar")
    assert done.code in (1, 2) and "Traceback" not in done.err and done.err
    assert list(tmp_path.iterdir()) == []


def test_standard_input_cannot_be_read_twice(tar: Any) -> None:
    assert tar("cat", "-", "-", input=GOOD).code == 2


def test_shards_are_read_over_http(tar: Any, shards: list[Path]) -> None:
    with Server() as server:
        server.put_all(shards, NoRange())
        url = server.origin.replace("http://", "http://user:secret@")
        assert read_tar(tar("cat", url + "/in-{00..01}.tar").out) == some_samples(20)
        assert read_tar(tar("sort", url + "/in-00.tar", "--reverse").out) == some_samples(10)[::-1]
        done = tar("cat", url + "/missing.tar?token=secret")
    assert done.code == 1 and "missing.tar" in done.err and "secret" not in done.err
