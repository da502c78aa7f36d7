"""Pipes, devices, sockets, folders and files of absurd sizes among images: errors of their samples, which nobody waits for."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import AnnotationError, ConfigError, ReadError, SourceNotFound
from stoker.image import Resize
from stoker.kernel.file_reads import MAX_FILE_BYTES

from ..support import jpeg_bytes

pytestmark = pytest.mark.timeout(60)
GOOD = ["a.jpg", "c.jpg", "d.jpg"]
BAD = "b.jpg"


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's name must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS: dict[str, tuple[Callable[[Path], Any], int, str]] = {
    "pipe": (os.mkfifo, errno.ENXIO, "not a plain file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), errno.ENXIO, "not a plain file"),
    "socket": (make_socket, errno.ENXIO, "not a plain file"),
    "folder": (Path.mkdir, errno.EISDIR, "directory"),
    "sparse": (make_sparse, errno.EFBIG, f"{MAX_FILE_BYTES:,} bytes"),
}
ANNOTATION = "<annotation><object><name>cat</name><bndbox>{}</bndbox></object></annotation>".format(
    "<ymin>1</ymin><xmin>1</xmin><ymax>9</ymax><xmax>9</xmax>"
)


def files(folder: Path) -> stoker.Pipeline:
    return stoker.files(sorted(folder.glob("*.jpg")), labels=None)


def folder_of_files(folder: Path) -> stoker.Pipeline:
    return stoker.files(folder, labels=None)


def filelist(folder: Path) -> stoker.Pipeline:
    (folder / "list.txt").write_text("\n".join(path.name for path in sorted(folder.glob("*.jpg"))))
    return stoker.filelist(folder / "list.txt", labels=None)


def table(folder: Path) -> stoker.Pipeline:
    return stoker.table({"path": [str(path) for path in sorted(folder.glob("*.jpg"))]}, image="path")


def voc(folder: Path) -> stoker.Pipeline:
    (folder / "xml").mkdir(exist_ok=True)
    names = [path.name for path in sorted(folder.glob("*.jpg"))]
    for name in names:
        (folder / "xml" / name).with_suffix(".xml").write_text(ANNOTATION)
    (folder / "list.txt").write_text("\n".join(names))
    return stoker.voc(folder / "list.txt", images=folder, annotations=folder / "xml")


STAGES: dict[str, Callable[[stoker.Pipeline], stoker.Pipeline]] = {
    "read and decoded in one call": lambda pipeline: pipeline.image("image", Resize((8, 8))),
    "read": lambda pipeline: pipeline.select("image"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [files, folder_of_files, filelist, table, voc])
def test_only_plain_files_of_sensible_size_are_read(tmp_path: Path, source: Any, kind: str) -> None:
    make, code, told = KINDS[kind]
    if source is folder_of_files and kind == "folder":
        return  # is looked into
    for name in GOOD:
        (tmp_path / name).write_bytes(jpeg_bytes(16, 16))
    make(tmp_path / BAD)
    for stages in STAGES.values():
        pipeline = stages(source(tmp_path)).select("image").batch(4, drop_last=False)
        with pytest.raises(ReadError, match=told) as caught:
            list(pipeline)
        assert caught.value.errno == code and BAD in str(caught.value) and caught.value.origin.endswith(BAD)
        [batch] = pipeline.on_error("skip", budget=1)
        assert len(batch["image"]) == len(GOOD)


def test_annotations_and_tables_are_plain_files(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg_bytes(16, 16))
    os.mkfifo(tmp_path / "a.xml")
    os.mkfifo(tmp_path / "table.csv")
    with pytest.raises(AnnotationError, match=r"a\.xml: not a plain file"):
        stoker.voc([tmp_path / "a.jpg"], annotations=tmp_path)
    with pytest.raises(ConfigError, match=r"table\.csv: not a plain file"):
        stoker.table(tmp_path / "table.csv", image="path")


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_shards_are_plain_files(tmp_path: Path, kind: str) -> None:
    KINDS[kind][0](tmp_path / "shard")
    for read in (stoker.tar, lambda path: stoker.tar(path, index="never"), stoker.tfrecord, stoker.lmdb):
        with pytest.raises((ReadError, SourceNotFound), match=r"shard: .*not a (plain )?file"):
            list(read(tmp_path / "shard"))
