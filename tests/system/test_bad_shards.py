"""Bad input to the readers of shards: each kind is an error that names it, and the user's files are never touched."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import ConfigError, CorruptShard, RecordError, StokerError
from stoker.source.shards import shard_index
from stoker.storage.atomic import publish

from ..loader.runs import run_python
from ..source.making import END, header, member, sample_tar, tar, tfrecord
from ..source.test_codecs import Canary, npy

GOOD = [("a", {"jpg": b"A", "cls": b"1"}), ("b", {"jpg": b"B", "cls": b"2"})]
PAGE = b"<!DOCTYPE html>\n<html><head><title>403 Forbidden</title></head><body>no</body></html>\n" * 20


def hashes(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file of a folder but indexes: its content and time."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".stk"
    }


@pytest.fixture(autouse=True)
def user_files_stay_as_they_are(tmp_path: Path) -> Iterator[None]:
    """Nothing of what a test stores is changed or removed by reading it, and nothing but indexes is added."""
    (tmp_path / "precious.txt").write_text("mine")
    before: dict[str, tuple[str, int]] = {}
    make = Path.write_bytes

    def noting(path: Path, data: Any) -> int:
        count = make(path, data)
        if tmp_path in path.parents:
            before[str(path.relative_to(tmp_path))] = (hashlib.sha256(bytes(data)).hexdigest(), path.stat().st_mtime_ns)
        return count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", noting)
        yield
    after = hashes(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"
    for name, about in before.items():
        if name in after or not name.endswith(".stk"):
            assert after[name] == about, name
    assert set(after) - set(before) <= {"precious.txt"}


def both_ways(path: Path, **options: Any) -> Iterator[Callable[[], list[Any]]]:
    """Reading at random, and in sequence."""
    yield lambda: list(stoker.tar(path, **options))
    yield lambda: list(stoker.tar(path, index="never", **options))


# ---- what is no shard ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("page.tar", PAGE, "a web page"),
        ("page.tar", b"<html>gone</html>", "a web page"),
        ("error.tar", b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>' + b" " * 600, "an XML text"),
        ("error.tar", b'{"error": "no such shard"}', "JSON"),
        ("packed.tar", gzip.compress(sample_tar(GOOD)), r"gzip data; name it \.tar\.gz"),
        ("zip.tar", b"PK\x03\x04" + bytes(600), "zip"),
        ("empty.tar", b"", "is empty"),
        ("short.tar", b"x", "byte"),
        ("zeros.tar", bytes(512), "end|zero"),
        ("text.tar", b"hello world\n" * 100, "checksum"),
        ("page.tar.gz", PAGE, "cannot be unpacked as gzip"),
        ("empty.tar.gz", b"", "is empty"),
        ("plain.tar.gz", sample_tar(GOOD), r"not compressed; name it without \.gz"),
        ("page.tar.zst", PAGE, "zstd"),
    ],
)
def test_what_is_no_tar_says_what_it_seems_to_be(tmp_path: Path, name: str, data: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(data)
    for read in both_ways(tmp_path / name):
        with pytest.raises(CorruptShard, match=match) as caught:
            read()
        assert name in str(caught.value) and str(caught.value.shard).endswith(name)


def test_one_bad_shard_among_good_ones_is_named_before_any_sample_comes(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"s-{number}.tar").write_bytes(PAGE if number == 2 else sample_tar(GOOD))
    with pytest.raises(CorruptShard, match=r"s-2\.tar"):
        stoker.tar(tmp_path)


@pytest.mark.parametrize(("name", "data"), [("page.tfrecord", PAGE), ("empty.tfrecord", b""), ("tar.tfrecord", sample_tar(GOOD))])
def test_what_is_no_tfrecord_is_told(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorruptShard, match=name):
        stoker.tfrecord(tmp_path / name)


@pytest.mark.parametrize(("name", "data"), [("page.lmdb", PAGE), ("empty.lmdb", b""), ("tar.lmdb", sample_tar(GOOD) * 4)])
def test_what_is_no_lmdb_is_told(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorruptShard, match=name):
        stoker.lmdb(tmp_path / name)


# ---- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["a.jpg", "a.jpg", "b.jpg"], "'a.jpg' at byte 1024: its sample has that field already"),
        (["a.jpg", "a.JPG", "b.jpg"], "'a.(JPG|jpg)' at byte 1024"),
        (["a.jpg", "./a.jpg"], "'./a.jpg' at byte 1024"),
        (["a.jpg", "b.jpg", "a.jpg"], "'a' appears twice, at byte 0 and again at byte 2,048"),
        (["a.jpg", "b.jpg", "b.cls", "a.cls"], "at byte 0 and again at byte 3,072"),
        (["a.jpg", "a.cls", "b.jpg", "b.cls", "c.jpg", "c.cls", "./a.jpg", "a.cls"], "at byte 0 and again at byte 6,144"),
    ],
)
def test_a_key_that_comes_twice_is_told_with_both_places(tmp_path: Path, names: list[str], match: str) -> None:
    (tmp_path / "a.tar").write_bytes(tar((name.encode(), b"1") for name in names))
    with pytest.raises(CorruptShard, match=match) as caught:
        stoker.tar(tmp_path / "a.tar")
    assert caught.value.offset is not None and "a.tar" in str(caught.value)


def test_the_same_key_in_two_folders_of_a_shard_is_two_samples(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar([(b"x/a.cls", b"1"), (b"y/a.cls", b"2"), (b"x.y/a.cls", b"3")]))
    assert [sample.key for sample in stoker.tar(tmp_path / "a.tar")] == ["x/a", "y/a", "x.y/a"]


@pytest.mark.parametrize("first", [["jpg"], ["jpg", "cls"]])
def test_a_key_split_between_shards_is_an_error_that_names_both(tmp_path: Path, first: list[str]) -> None:
    (tmp_path / "s-0.tar").write_bytes(sample_tar([*GOOD, ("split", dict.fromkeys(first, b"3"))]))
    (tmp_path / "s-1.tar").write_bytes(sample_tar([("split", {"cls": b"3"}), ("c", {"jpg": b"C", "cls": b"4"})]))
    with pytest.raises(RecordError, match=r"'split' has no '(jpg|cls)'.*s-[01]\.tar has a sample of that key too"):
        list(stoker.tar(tmp_path))
    with pytest.raises(CorruptShard, match="'split'"):
        list(stoker.tar(tmp_path, index="never"))


# ---- headers that lie ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        member(b"a.jpg", b"1") + header(b"b.jpg", 10_000) + b"x" * 600,
        member(b"a.jpg", b"1") + header(b"b.jpg", 10_000) + b"x" * 600 + END,
        header(b"a.jpg", 8**11 - 1) + END,
        header(b"a.jpg", 0, raw_size=b"\x80" + (1 << 62).to_bytes(11, "big")) + END,
        header(b"a.jpg", 0, raw_size=b"\xff" * 12) + END,
        header(b"a.jpg", 0, raw_size=b"\x80" + b"\xff" * 11) + END,
        header(b"a.jpg", 0, raw_size=b"-0000000001\0") + END,
        header(b"a.jpg", 0, raw_size=b"99999999999\0") + END,
        header(b"a.jpg", 0, raw_size=b"1 2        \0") + END,
        member(b"././@LongLink", b"n" * 70_000, b"L") + member(b"a.jpg", b"1") + END,
        header(b"././@LongLink", 1 << 40, b"L") + END,
        header(b"pax", 1 << 40, b"x") + END,
        member(b"pax", b"12 path=a.jp", b"x") + member(b"x", b"1") + END,
        member(b"pax", b"99 path=a.jpg\n", b"x") + member(b"x", b"1") + END,
        member(b"pax", b"17 size=99999999\n", b"x") + member(b"a.jpg", b"1") + END,
        member(b"pax", b"12 size=-12\n", b"x") + member(b"a.jpg", b"1") + END,
        member(b"././@LongLink", b"a.jpg\0", b"L") + END,
    ],
    ids=range(17),
)  # fmt: skip
def test_a_member_larger_than_the_file_or_of_nonsense_is_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    for read in both_ways(tmp_path / "a.tar", decode=False):
        with pytest.raises(CorruptShard, match=r"a\.tar") as caught:
            read()
        assert caught.value.offset is not None


@pytest.mark.parametrize("kind", list("123467SDMNV"))
def test_links_devices_and_the_like_are_refused(tmp_path: Path, kind: str) -> None:
    data = member(b"a.jpg", b"", kind.encode(), link=b"/etc/passwd") + END
    (tmp_path / "a.tar").write_bytes(data)
    for read in both_ways(tmp_path / "a.tar"):
        if kind == "7":  # contiguous: an ordinary file
            assert len(read()) == 1
            continue
        with pytest.raises(StokerError):
            read()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (b"../x.cls", "../x"),
        (b"/etc/passwd.cls", "/etc/passwd"),
        (b"a/../../b.cls", "a/../../b"),
        (b"~root/x.cls", "~root/x"),
        (b"$(touch canary).cls", "$(touch canary)"),
        (b"`touch canary`.cls", "`touch canary`"),
        (b"a\n\x1b[31mred.cls", "a\\x0a\\x1b[31mred"),
        (b"\xff\xfe.cls", "\\xff\\xfe"),
        ("\u202eevil.cls".encode(), "\\xe2\\x80\\xaeevil"),
        (b"a\\xff.cls", "a\\\\xff"),
        (b"C:\\x.cls", "C:\\\\x"),
    ],
)
def test_names_that_would_lead_elsewhere_are_only_names(tmp_path: Path, name: bytes, key: str) -> None:
    (tmp_path / "a.tar").write_bytes(tar([(name, b"7")]))
    for read in both_ways(tmp_path / "a.tar"):
        [sample] = read()
        assert (sample.key, int(sample["cls"])) == (key, 7)
        assert sample.key.isprintable()
    assert not Path("canary").exists()


def test_names_that_cannot_be_are_told(tmp_path: Path) -> None:
    for name in (b"a\0b.cls", b".cls", b"a."):
        (tmp_path / "a.tar").write_bytes(member(name, b"1") + member(b"b.cls", b"2") + END)
        try:
            keys = [sample.key for sample in stoker.tar(tmp_path / "a.tar")]
        except CorruptShard as error:
            assert error.offset == 0
            continue
        assert keys in (["b"], ["a", "b"]), "not a sample, or cut at its end as all tars cut it"


# ---- specs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["{0..999999999}.tar", "{0..99999}{0..99999}.tar", "{a,b}" * 60 + ".tar", "{0..99999999999999999999}.tar"]
)
def test_a_brace_bomb_is_told_at_once(spec: str) -> None:
    for source in (stoker.tar, stoker.tfrecord):
        with pytest.raises(ConfigError, match="at most 1,000,000"):
            source(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "pipe:touch {}",
        "pipe:cat x |",
        "| touch {}",
        "data:x",
        "exec:touch {}",
        "-o/tmp/x",
        "file://elsewhere/x.tar",
        "http:///x.tar",
    ],
)
def test_no_spec_runs_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StokerError):
        stoker.tar(spec.format(tmp_path / "canary"))
    assert not (tmp_path / "canary").exists()


# ---- pickles ---------------------------------------------------------------------------------------------------------


def test_a_pickle_runs_nowhere(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    canary = tmp_path_factory.mktemp("canary") / "canary"
    poison = pickle.dumps(Canary(canary))
    object_array = npy(np.array([Canary(canary)], object), allow_pickle=True)
    endings = [
        "pkl",
        "pickle",
        "pyd",
        "pth",
        "pt",
        "dill",
        "npy",
        "npz",
        "jpg",
        "cls",
        "json",
        "txt",
        "ten",
        "bin",
        "mp",
        "msg",
        "cbor",
    ]
    for number, ending in enumerate(endings):
        for kind, data in (("p", poison), ("n", object_array)):
            path = tmp_path / f"{number}{kind}.tar"
            path.write_bytes(sample_tar([("a", {ending: data, "x.cls": b"1"})]))
            for read in both_ways(path):
                with contextlib.suppress(RecordError):
                    read()
    (tmp_path / "a.tfrecord").write_bytes(tfrecord([poison, object_array]))
    list(stoker.tfrecord(tmp_path / "a.tfrecord"))
    (tmp_path / "b.tar.stk").write_bytes(poison)
    (tmp_path / "b.tar").write_bytes(sample_tar(GOOD))
    with pytest.raises(StokerError):
        stoker.tar(tmp_path / "b.tar")
    assert not canary.exists()


def test_pickles_of_named_fields_are_read_and_no_others(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    canary = tmp_path_factory.mktemp("canary") / "canary"
    (tmp_path / "a.tar").write_bytes(
        sample_tar([("a", {"good.pkl": pickle.dumps([1]), "bad.pkl": pickle.dumps(Canary(canary))})])
    )
    pipeline = stoker.tar(tmp_path / "a.tar", allow_pickle=["good.pkl"])
    assert [sample["good.pkl"] for sample in pipeline.select("good.pkl")] == [[1]]
    with pytest.raises(RecordError, match="allow_pickle"):
        list(pipeline)
    with pytest.raises(RecordError, match="allow_pickle"):
        list(stoker.tar(tmp_path / "a.tar", index="never", allow_pickle=["good.pkl"]))
    for everything in ("*", True, "good.pkl"):
        with pytest.raises((ConfigError, TypeError)):
            stoker.tar(tmp_path / "a.tar", allow_pickle=everything)  # type: ignore[arg-type]
    assert not canary.exists()


# ---- folders that cannot be written to -------------------------------------------------------------------------------


def test_a_read_only_folder_is_read_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_home: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.tar").write_bytes(sample_tar(GOOD))
    (tmp_path / "d" / "a.tfrecord").write_bytes(tfrecord([b"x"]))
    real = publish

    def refused(path: bytes, *parts: bytes) -> None:
        if path.startswith(os.fsencode(tmp_path)):
            raise stoker.errors.WriteError(f"{os.fsdecode(path)}: Read-only file system")
        real(path, *parts)

    monkeypatch.setattr(shard_index, "publish", refused)
    for _ in range(2):
        assert [int(sample["cls"]) for sample in stoker.tar(tmp_path / "d" / "a.tar")] == [1, 2]
        assert [sample["record"] for sample in stoker.tfrecord(tmp_path / "d" / "a.tfrecord")] == [b"x"]
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["a.tar", "a.tfrecord"]
    assert any((cache_home / "stoker" / "index").iterdir())


def test_a_folder_of_somebody_else_is_read_all_the_same() -> None:
    """With real permissions, where this process may become somebody else."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    script = """
import os, sys
import stoker
list(stoker.tar(sys.argv[2]).loader(threads=1))  # the modules themselves may be out of reach later
os.setgid(65534); os.setuid(65534)
os.environ["XDG_CACHE_HOME"] = "/nonexistent/cache"
print([int(sample["cls"]) for sample in stoker.tar(sys.argv[1])])
"""
    with tempfile.TemporaryDirectory() as name:  # not below pytest's own folder, which only its owner may enter
        folder = Path(name)
        folder.chmod(0o755)
        if not all(parent.stat().st_mode & 0o001 for parent in folder.parents):
            pytest.skip("nobody else may enter the folder for temporary files")
        for shard in ("a.tar", "b.tar"):
            (folder / shard).write_bytes(sample_tar(GOOD))
        done = run_python(script, str(folder / "a.tar"), str(folder / "b.tar"))
        assert done.stdout == "[1, 2]\n", done.stderr
        assert sorted(path.name for path in folder.iterdir()) == ["a.tar", "b.tar", "b.tar.stk"]


# ---- tars of every shape ---------------------------------------------------------------------------------------------


def test_a_tar_that_python_reads_differently_is_told(tmp_path: Path) -> None:
    """What other readers pass over in silence: a hole of zeros, a second archive behind the end, rubbish behind the end."""
    good = sample_tar(GOOD)
    more = sample_tar([("c", {"jpg": b"C", "cls": b"3"})])
    for name, data in {
        "hole": good[:2048] + bytes(512) + good[2048:],
        "larger hole": good[:2048] + bytes(1024) + good[2048:],
        "second archive": good + more,
        "rubbish": good + b"rubbish",
        "no end": good[:-1024],
        "half an end": good[:-512],
    }.items():
        (tmp_path / f"{name}.tar").write_bytes(data)
        for read in both_ways(tmp_path / f"{name}.tar"):
            with pytest.raises(CorruptShard, match=name):
                read()
        with tarfile.open(tmp_path / f"{name}.tar") as other:
            assert len(other.getnames()) <= 4, "Python says nothing"


def test_a_database_with_a_hostile_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "data.mdb").symlink_to("/dev/zero")
    for name in ("link", "d"):
        with pytest.raises(StokerError):
            stoker.lmdb(tmp_path / name)
