"""A SOURCE on the command line: what kind it is, found by looking."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import stoker

from ..errors import ConfigError
from ..pipeline import Pipeline
from ..source.base import Source
from ..source.lines import Lines, split_number
from ..source.walk import is_image

_KNOWN = "this version knows a folder of class folders, a folder of images, and a .txt list of image files"
#: kinds of data sets that people will try, by how their names end
_SHARDS = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tfrecord", ".tfrecords", ".mdb", ".lmdb", ".parquet", ".beton", ".zip")

SourceName = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of class folders, a folder of images, or a .txt file that lists images, one path a line.",
        show_default=False,
    ),
]


def open_source(name: str) -> Pipeline:
    """The pipeline that begins with this source: fields `image` and, where there are classes, `label`."""
    path = Path(name)
    if "://" in name or name.lower().endswith(_SHARDS):
        raise ConfigError(f"{name}: this kind of source cannot be read yet; {_KNOWN}")
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise ConfigError(f"{name}: there is no such file or folder")
    if path.suffix.lower() == ".txt":
        return stoker.filelist(path, labels=_list_labels(path))
    hint = f"; for its folder: {path.absolute().parent}" if is_image(os.fsencode(path.name)) else ""
    raise ConfigError(f"{name}: this is a single file, and no list; {_KNOWN}{hint}")


def stored_in(pipeline: Pipeline) -> Source:
    """The source itself, to look into."""
    source = pipeline.plan.source
    assert isinstance(source, Source)  # all that `open_source` opens has numbered samples
    return source


def _open_folder(path: Path) -> Pipeline:
    """Images that lie in the folder itself have no class; without such, its folders are the classes."""
    names = [entry.name for entry in os.scandir(os.fsencode(path)) if not entry.name.startswith(b".")]
    if any(is_image(name) for name in names):
        return stoker.files(path, labels=None)
    shards = sorted(os.fsdecode(name) for name in names if os.fsdecode(name).lower().endswith(_SHARDS))
    if shards:
        raise ConfigError(f"{path} holds {shards[0]}, and this kind of source cannot be read yet; {_KNOWN}")
    return stoker.files(path)


def _list_labels(path: Path) -> str:
    """A number at the end of every line is the label, as in ImageNet's lists; else the folder's name is the class."""
    lines = Lines(os.fsencode(path.absolute()))
    return "line" if all(split_number(line)[1] is not None for line in lines) else "folder"
