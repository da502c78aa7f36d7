"""Data of one kind given to the source of another: the error says which source reads them, and advises nothing that destroys."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import ConfigError, CorruptIndex, StokerError
from stoker.source.sniff import kind_of, seen_as

from ..support import jpeg_bytes

SAMPLES = [{"__key__": str(number), "jpg": jpeg_bytes(8, 8), "cls": number} for number in range(3)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One of each: shards with and without an index, folders of them, pictures, a list."""
    root = tmp_path_factory.mktemp("kinds")
    stoker.write_tar(root / "x.tar", SAMPLES)
    stoker.write_tfrecord(root / "x.tfrecord", SAMPLES)
    stoker.write_lmdb(root / "x.lmdb", SAMPLES)
    for name in ("x.tar", "x.tfrecord"):
        (root / f"{name}.gz").write_bytes(gzip.compress((root / name).read_bytes()))
        (root / f"gzipped-{name}").write_bytes(gzip.compress((root / name).read_bytes(), 0))
        shutil.copy(root / name, root / f"plain-{name}.gz")
    for name in ("x.tar", "x.tfrecord"):
        shutil.copy(root / name, root / f"bare-{name}")
        (root / f"folder-{name}").mkdir()
        shutil.copy(root / name, root / f"folder-{name}" / name)
    (root / "photos" / "cat").mkdir(parents=True)
    (root / "photos" / "cat" / "1.jpg").write_bytes(jpeg_bytes(8, 8))
    (root / "list.txt").write_text("photos/cat/1.jpg\n")
    (root / "rows.csv").write_text("path,label\nphotos/cat/1.jpg,1\n")
    (root / "rows.parquet").write_bytes(b"PAR1...PAR1")
    yield root


#: what reads it, by what it is
READ_BY = {
    "x.tar": r"a tar shard.* use stoker\.tar\(",
    "bare-x.tar": r"a tar shard.* use stoker\.tar\(",
    "folder-x.tar": r"a folder of tar shards; use stoker\.tar\(",
    "x.tar.gz": r"a compressed tar shard; use stoker\.tar\(",
    "gzipped-x.tar": r"(a compressed tar shard|a tar shard, not a TFRecord file); use stoker\.tar\(",
    "x.tfrecord": r"a TFRecord file.* use stoker\.tfrecord\(",
    "bare-x.tfrecord": r"a TFRecord file.* use stoker\.tfrecord\(",
    "folder-x.tfrecord": r"a folder of TFRecord files; use stoker\.tfrecord\(",
    "x.tfrecord.gz": r"a (compressed TFRecord file|TFRecord file, not a tar shard); use stoker\.tfrecord\(",
    "gzipped-x.tfrecord": r"a compressed TFRecord file; use stoker\.tfrecord\(",
    "x.lmdb": r"an LMDB database.* use stoker\.lmdb\(",
    "photos": r"a folder of images; use stoker\.files\(",
    "photos/cat/1.jpg": r"a single image; use stoker\.files\(\.\.\.\) with its folder",
    "list.txt": r"a list of images; use stoker\.filelist\(",
    "rows.csv": r"a CSV file; use stoker\.table\(",
    "x.tar.stk": "the index of a shard; name the shard itself",
}


@pytest.mark.parametrize("asked", ["tar", "tfrecord", "lmdb", "files", "filelist", "table"])
def test_the_source_that_reads_it_is_named_and_nothing_is_called_damaged(data: Path, asked: str) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    for name, told in READ_BY.items():
        if f"stoker\\.{asked}\\(" in told and "single" not in told:
            continue
        with pytest.raises(StokerError) as caught:
            next(iter(getattr(stoker, asked)(data / name)))
        assert re.search(told, str(caught.value)), (asked, name, str(caught.value))
        assert not re.search("delete|fetch|again|damaged", str(caught.value)), str(caught.value)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_shard_read_in_sequence_is_known_too(data: Path) -> None:
    with pytest.raises(StokerError, match=r"a TFRecord file, not a tar shard; use stoker\.tfrecord"):
        list(stoker.tar(data / "x.tfrecord", index="never"))


def test_a_parquet_file_is_read_by_another_library(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"a Parquet file, not a CSV file; .* stoker\.table\(frame\)"):
        stoker.table(data / "rows.parquet")


def test_a_folder_given_to_voc_keeps_its_boxes(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"voc\(sorted\(glob\.glob\("):
        stoker.voc(data / "photos" / "cat")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda url: stoker.files(url),
        lambda url: stoker.files(["a.jpg", url], labels=None),
        lambda url: stoker.filelist(url),
        lambda url: stoker.table(url),
        lambda url: stoker.table({"path": [url]}, image="path"),
        lambda url: stoker.voc([url]),
    ],
)
def test_a_url_is_not_taken_for_a_path(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"'https://example\.org/1\.jpg',? is a URL; only local files"):
        wrong("https://example.org/1.jpg")


@pytest.mark.parametrize(
    ("verb", "name", "options", "told"),
    [
        ("tar", "gzipped-x.tar", {}, r"this is gzip data; name it \.tar\.gz"),
        ("tar", "plain-x.tar.gz", {}, r"a tar shard that is not compressed; name it without \.gz"),
        ("tfrecord", "plain-x.tfrecord.gz", {}, r"a TFRecord file that is not compressed; name it without \.gz, or omit"),
        ("tfrecord", "x.tfrecord", {"compression": "gzip"}, "not compressed; .*or omit compression="),
        ("tfrecord", "x.tfrecord.gz", {"compression": "zlib"}, r"gzip data, not zlib; .*compression='gzip'\)"),
    ],
)
def test_a_wrong_compression_is_named_and_nothing_is_called_damaged(
    data: Path, verb: str, name: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(StokerError, match=told) as caught:
        next(iter(getattr(stoker, verb)(data / name, **options)))
    assert not re.search("delete|fetch|again|damaged", str(caught.value)), str(caught.value)


def test_an_index_that_is_really_another_shards_is_made_again_and_not_deleted(data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "x.tar", tmp_path / "y.tar")
    shutil.copy(data / "x.tfrecord.stk", tmp_path / "y.tar.stk")
    with pytest.raises(CorruptIndex, match="stoker index --force") as caught:
        stoker.tar(tmp_path / "y.tar")
    assert "delete" not in str(caught.value)


def test_bytes_that_mean_nothing_are_no_kind() -> None:
    for begin in (b"", b"hello", bytes(512), b"x" * 512):
        assert kind_of(begin) == "" == seen_as("tar", begin)
