"""A SOURCE on the command line: its kind is recognised by its name first, then by its first bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import stoker

from ..errors import ConfigError, CorruptShard, SourceNotFound
from ..pipeline import Pipeline
from ..source.files.lines import Lines, split_number
from ..source.files.walk import ANY_IMAGE, choose_keep, is_image, list_files
from ..source.paths import absolute, inside, printable
from ..source.shards.shard_index import SUFFIX
from ..source.shards.shard_source import expand, is_remote
from ..source.sniff import BEGIN, GZIP, LMDB_FILE, TAR_ENDINGS, TFRECORD_ENDINGS, ZSTD, kind_of, seen_as
from ..source.source import Source
from ..source.streams.stream import StreamSource
from ..source.streams.tar_stream import is_compressed
from ..storage.blob import Blob
from ..storage.names import file_url_path, is_file_url
from ..storage.open import open_blob
from .screen import argument

_KNOWN = "this version reads folders of images, .txt lists of images, tar shards, TFRecords and LMDB"
_LMDB_ENDINGS = (".lmdb", ".mdb")
#: kinds of data sets that people will try, by how their names end
_FOREIGN = (".parquet", ".beton", ".zip", ".arrow", ".mds", ".hdf5", ".h5", ".rec")
#: path/to/file.py:train or my_module:train, which other commands take
_PIPELINE = re.compile(r"[\w./-]+:[A-Za-z_]\w*")
_TFRECORD_PART = re.compile(r"\.tfrecords?-")

SourceName = Annotated[
    str,
    argument(
        "SOURCE",
        "A folder of class folders or of images, a .txt list of images, tar shards, TFRecords (paths, `{0000..0147}`, "
        "globs, folders, http(s)://, s3:// or gs:// URLs), an LMDB, or `-` for a tar on standard input.",
    ),
]
ShardNames = Annotated[
    list[str],
    argument("SHARDS", "Tar shards or TFRecords: paths, `{0000..0147}`, globs, folders, http(s)://, s3:// or gs:// URLs."),
]


@dataclass(frozen=True, slots=True)
class Found:
    """A source that is there: its kind (``images``, ``list``, ``tar``, ``tfrecord``, ``lmdb``), and its shards, if any."""

    kind: str
    name: str
    shards: tuple[str, ...] = ()


def find_source(name: str) -> Found:
    """What a SOURCE is. Raises ConfigError when it is not there, or nothing that can be read."""
    if not name:
        raise ConfigError("the source is empty; use a file, a folder, or `-` for standard input")
    if name == "-":
        return Found("tar", name, ("-",))
    here = os.fsdecode(file_url_path(name)) if is_file_url(name) else name
    if is_remote(name) or not os.path.lexists(here):
        return _find_shards(name)
    path = Path(here)
    if path.is_dir():
        return _find_in_folder(path)
    if path.suffix.lower() == ".txt":
        return Found("list", here)
    return _find_shards(name)


def open_source(name: str, *, seek: bool = True) -> Pipeline:
    """A pipeline that starts with this source. Image files have the fields `image` and, if there are classes, `label`."""
    found = find_source(name)
    return _OPENERS[found.kind](found, seek)


def open_stored(name: str) -> Source | StreamSource:
    """The source itself, a tar's fields as their bytes."""
    found = find_source(name)
    pipeline = stoker.tar(list(found.shards), decode=False) if found.kind == "tar" else _OPENERS[found.kind](found, True)
    source = pipeline.plan.source
    assert isinstance(source, (Source, StreamSource))  # all that is opened here is one or the other
    return source


def open_annotated(name: str, annotations: Path | None) -> Source | None:
    """Images with the XML annotations in a folder, one sample per image with all its objects; None if there are none.

    In the layout of PASCAL VOC (`JPEGImages` next to `Annotations`) the annotations are found automatically.
    """
    path = Path(name)
    if annotations is None and (path / "JPEGImages").is_dir() and (path / "Annotations").is_dir():
        path, annotations = path / "JPEGImages", path / "Annotations"
    if annotations is None:
        return None
    beside = annotations.parent / "JPEGImages"
    if path.is_dir():
        listed: Any = list_files(inside(absolute(path)), choose_keep(ANY_IMAGE))[0]
        images = path
    else:
        listed, images = path, beside if beside.is_dir() else path.absolute().parent
    return stored_in(stoker.voc(listed, images=images, annotations=annotations, objects="together"))


def stored_in(pipeline: Pipeline) -> Source:
    """The source itself, to look into."""
    source = pipeline.plan.source
    if isinstance(source, StreamSource):
        raise ConfigError(f"{source.title} can only be read in sequence; decompress it, or convert it with `stoker pack`")
    assert isinstance(source, Source)  # all that `open_source` opens is one or the other
    return source


def shard_list(names: Sequence[str], *, folders: bool = False) -> list[tuple[str, str]]:
    """The shards that some names refer to, each with its kind: ``tar``, ``tfrecord``, or with `folders` also ``images``."""
    shards: list[tuple[str, str]] = []
    for name in names:
        found = find_source(name)
        if found.kind == "images" and folders:
            shards.append((found.name, found.kind))
            continue
        if found.kind == "list" and folders:
            raise ConfigError(f"{name}: this is a list of images; use their folder, where their seek indices are kept")
        if found.kind not in ("tar", "tfrecord"):
            raise ConfigError(
                f"{name}: this is not a shard of records, but {_TOLD[found.kind]}; only tar shards and TFRecords have an index"
            )
        if "-" in found.shards:
            raise ConfigError("standard input has no index: it is read once, from its beginning")
        shards += [(shard, found.kind) for shard in found.shards]
    return shards


def local_bytes(shards: Collection[str]) -> int | None:
    """The size of shards in bytes, if cheap to find; else None: remote, a pipe, compressed, or a folder of images."""
    if not shards or any(is_remote(shard) or is_compressed(shard) or not Path(shard).is_file() for shard in shards):
        return None
    return sum(os.stat(shard).st_size for shard in shards)  # noqa: PTH116  names may be any bytes


_TOLD = {
    "images": "a folder of images (`--jpeg` makes seek indices of those)",
    "list": "a list of images",
    "lmdb": "an LMDB database, which contains its own index",
}


# ---- looking ----------------------------------------------------------------------------------------------------------------


def _find_in_folder(path: Path) -> Found:
    """Images that lie in the folder itself have no class; then shards; without either its folders are the classes."""
    names = _names_in(path)
    texts = [os.fsdecode(name) for name in names]
    if LMDB_FILE in texts:
        return Found("lmdb", str(path))
    if any(is_image(name) for name in names):
        return Found("images", str(path))
    tars = [name for name in texts if name.lower().endswith(TAR_ENDINGS)]
    records = [name for name in texts if _is_tfrecord_name(name)]
    if tars and records:
        raise ConfigError(
            f"{path} holds tar shards ({tars[0]}) and TFRecords ({records[0]}); choose one kind, as in '{path}/*.tar'"
        )
    if tars or records:
        shards = tuple(os.path.join(path, name) for name in tars or records)  # noqa: PTH118  names may be any bytes
        return Found("tar" if tars else "tfrecord", str(path), shards)
    foreign = [name for name in texts if name.lower().endswith(_FOREIGN)]
    if foreign:
        raise ConfigError(f"{path} holds {foreign[0]}, which cannot be read; {_KNOWN}")
    return _find_nameless(path, texts) or Found("images", str(path))


def _find_nameless(path: Path, names: Sequence[str]) -> Found | None:
    """Shards whose names say nothing (``train-00003-of-01024``): what the first file holds; None where that is no record."""
    files = [os.path.join(path, name) for name in names if not name.endswith((SUFFIX, ".json", ".txt"))]  # noqa: PTH118
    if not files or any(map(os.path.isdir, files)):
        return None
    kind = kind_of(_first_bytes(open_blob(os.fsencode(files[0]))))
    return Found(kind, str(path), tuple(files)) if kind in ("tar", "tfrecord") else None


def _find_shards(name: str) -> Found:
    """Files by a pattern or a name. The first says what all of them are."""
    try:
        shards = expand(name, "SOURCE", (*TAR_ENDINGS, *TFRECORD_ENDINGS))
    except SourceNotFound as error:
        raise ConfigError(str(error)) from error
    for shard in shards:
        if not is_remote(shard) and not os.path.lexists(shard):
            many = f" (one of the {len(shards):,} that {name} stands for)" if len(shards) > 1 else ""
            pipeline = "; for a pipeline use `stoker run` or `stoker explain`" if _PIPELINE.fullmatch(name) else ""
            raise ConfigError(f"{printable(os.fsencode(shard))}: there is no such file or folder{many}{pipeline}")
    kind = _kind_of(shards[0])
    if kind == "lmdb" and len(shards) > 1:
        raise ConfigError(f"{name}: several databases; choose one")
    return Found(kind, name, tuple(shards) if kind != "lmdb" else ())


def _kind_of(shard: str) -> str:
    lower = shard.partition("?")[0].lower() if is_remote(shard) else shard.lower()
    if lower.endswith(TAR_ENDINGS):
        return "tar"
    if _is_tfrecord_name(lower.rpartition("/")[2]):
        return "tfrecord"
    if lower.endswith(_LMDB_ENDINGS):
        return "lmdb"
    if lower.endswith(_FOREIGN):
        raise ConfigError(f"{shard}: this kind of source cannot be read; {_KNOWN}")
    return _kind_by_content(shard)


def _is_tfrecord_name(name: str) -> bool:
    """Also ``train.tfrecord-00003-of-01024``, as TensorFlow's tools write it."""
    lower = name.lower()
    return lower.endswith(TFRECORD_ENDINGS) or (bool(_TFRECORD_PART.search(lower)) and not lower.endswith(SUFFIX))


def _kind_by_content(shard: str) -> str:
    blob = open_blob(shard)
    data = _first_bytes(blob)
    kind = kind_of(data)
    if kind in ("tar", "tfrecord") or (kind == "lmdb" and not is_remote(shard)):
        return kind
    if data.startswith((GZIP, ZSTD)):
        packed = "gzip" if data.startswith(GZIP) else "zstd"
        raise ConfigError(
            f"{blob.url}: is compressed ({packed}); rename it to .tar.gz, .tar.zst or .tfrecord.gz, according to its contents"
        )
    if is_remote(shard) and (known := seen_as("tar", data)):
        raise CorruptShard(f"{blob.url}: {known}", shard=blob.url, offset=0)
    hint = f"; for its folder: {Path(shard).absolute().parent}" if is_image(os.fsencode(shard)) else ""
    raise ConfigError(f"{blob.url}: this file is neither a list nor a shard; {_KNOWN}{hint}")


def _first_bytes(blob: Blob) -> bytes:
    begin = bytearray(min(BEGIN, blob.stat().size))
    blob.read_into(0, memoryview(begin))
    blob.close()
    return bytes(begin)


# ---- images -----------------------------------------------------------------------------------------------------------------


def _open_images(found: Found, seek: bool) -> Pipeline:
    """Images that lie in the folder itself have no class; otherwise its folders are the classes."""
    return stoker.files(found.name, labels=None if any(map(is_image, _names_in(Path(found.name)))) else "folder", seek=seek)


def _names_in(path: Path) -> list[bytes]:
    return sorted(name for name in os.listdir(os.fsencode(path)) if not name.startswith(b"."))  # noqa: PTH208


def _list_labels(path: Path) -> str:
    """A number at the end of every line is the label, as in ImageNet's lists; else the folder's name is the class."""
    lines = Lines(os.fsencode(path.absolute()))
    return "line" if all(split_number(line)[1] is not None for line in lines) else "folder"


#: what opens each kind of source
_OPENERS: dict[str, Callable[[Found, bool], Pipeline]] = {
    "images": _open_images,
    "list": lambda found, seek: stoker.filelist(found.name, labels=_list_labels(Path(found.name)), seek=seek),
    "tar": lambda found, seek: stoker.tar(list(found.shards), seek=seek),
    "tfrecord": lambda found, seek: stoker.tfrecord(list(found.shards), seek=seek),
    "lmdb": lambda found, seek: stoker.lmdb(found.name),
}
