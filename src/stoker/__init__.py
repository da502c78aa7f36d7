"""Stoker feeds training: stored samples in, decoded and augmented batches out.

>>> import numpy as np, stoker
>>> pipeline = stoker.arrays(x=np.arange(6), y=np.arange(6) ** 2).batch(3)
>>> for x, y in pipeline:
...     print(x, y)
[0 1 2] [0 1 4]
[3 4 5] [ 9 16 25]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Union

from . import errors
from .errors import StokerError
from .foreign_names import advised, unknown_attribute
from .registry import Registry
from .storage.names import AnyPath as Path

if TYPE_CHECKING:
    from .batch.batch import Batch, Sample
    from .loader.loader import Loader
    from .pack import TarWriter, TfrecordWriter, write_lmdb, write_tar, write_tfrecord
    from .pipeline import Pipeline
    from .source.shards.feature import Feature
    from .storage.cache import Cache
    from .storage.retry import Patience

__version__ = "0.1.0"
__all__ = [
    "Batch", "Cache", "Feature", "Loader", "Patience", "Pipeline", "Sample", "StokerError", "TarWriter", "TfrecordWriter",
    "arrays", "errors", "filelist", "files", "lmdb", "mix", "stream", "table", "tar", "tfrecord", "voc", "write_lmdb",
    "write_tar", "write_tfrecord",
]  # fmt: skip

Paths = Iterable[Path]
Labels = Any
Shards = Union[Path, Sequence[Path]]


@advised
def files(root: Path | Paths, pattern: str = "**/*", labels: Labels = "folder", *, seek: bool = True) -> Pipeline:
    """Images in folders, or on a list of paths: fields `image` (bytes) and `label`.

    The first folder below `root` names the class (`pipeline.classes`, sorted); `labels` may be None (no label), a list of class
    names (with ``labels=train.classes`` validation data have the class numbers of the training data), a dict of folder names to
    labels, or a function of the path. With the default pattern only image files count, by their extension.

    For a list of paths, `labels` may be a list or an array with one label per path; otherwise the class is the name of the file's
    folder. Labels are integers (int64), floats (float32; float64 in arrays of it), rows of numbers, or text, all of one kind.

    Seek indices of the JPEGs, made by ``stoker index --jpeg``, are used unless ``seek=False``. In all sources they affect the
    speed, but no pixel.
    """
    if root is None:
        raise errors.ConfigError("files(None): the first argument must be a folder or a list of paths")
    if not isinstance(root, (str, bytes, PathLike)):
        from .source.files.listed import open_listed

        if pattern != "**/*":
            raise errors.ConfigError(
                f"files([...], pattern={pattern!r}): a pattern chooses files of a folder; omit it for a list"
            )
        return _pipeline(open_listed(root, labels, seek))
    from .source.files.labelled_files import FilesSource

    return _pipeline(FilesSource(root, pattern, labels, seek))


@advised
def filelist(path: Path, root: Path | None = None, labels: Labels = "folder", *, seek: bool = True) -> Pipeline:
    """Images listed in a text file, one path per line: fields `image` (bytes) and `label` (from the parent folder)."""
    from .source.files.filelist import FilelistSource

    return _pipeline(FilelistSource(path, root, labels, seek))


def table(columns: Any, /, *, root: Path | None = None, seek: bool = True, **files: str) -> Pipeline:
    """Rows of a table, a field for each column: a dict of columns (lists, arrays), a data frame, or the path of a CSV file.

    ``table("train.csv", image="path")`` reads the files named in the column ``path`` into the field `image` (bytes), which
    replaces that column; more keywords make more such fields. They come first, then the other columns in their order. Paths are
    relative to `root`, else to the folder of the CSV file, else to the working directory.
    """
    from .source.files.table import TableSource

    return _pipeline(TableSource(columns, files, root, seek))


@advised
def voc(
    path: Path | Paths,
    *,
    images: Path | None = None,
    annotations: Path | Paths | None = None,
    labels: Mapping[str, int] | Sequence[str] | None = None,
    objects: str = "each",
    seek: bool = True,
) -> Pipeline:
    """Images with XML annotations (ImageNet, PASCAL VOC): fields `image`, `label`, `box`.

    `path` is a text file with one path per line, below `images`, or a list of complete paths. `annotations` is the folder of XML
    files, or a list of them; by default they are next to the images.

    One sample per object: `box` is (ymin, xmin, ymax, xmax) in pixels, and an image without objects is one sample with the whole
    image. With ``objects="together"`` one sample per image: `label` holds k numbers and `box` is (k, 4), k may be 0.
    """
    from .source.files.voc import open_voc

    return _pipeline(open_voc(path, images=images, annotations=annotations, labels=labels, objects=objects, seek=seek))


@advised
def arrays(**arrays: Any) -> Pipeline:
    """NumPy arrays or memory maps of one length: a field each."""
    from .source.arrays import ArraysSource

    return _pipeline(ArraysSource(arrays))


@advised
def stream(factory: Callable[[], Iterable[Mapping[str, Any]]]) -> Pipeline:
    """Samples from ``factory()``, an iterable of mappings, called once per epoch; they are numbered in the order they come."""
    from .source.streams.stream import StreamSource

    return _pipeline(StreamSource(factory))


@advised
def tar(
    shards: Shards,
    *,
    index: str = "auto",
    interleave: int | None = None,
    defaults: Mapping[str, Any] | None = None,
    allow_pickle: Collection[str] = (),
    decode: bool = True,
    cache: Cache | str | None = None,
    patience: Patience | None = None,
    seek: bool = True,
) -> Pipeline:
    """Tar shards by WebDataset's conventions: files with the same basename form a sample, their extensions are its fields.

    `shards` is a path or URL (``http(s)://``, ``s3://``, ``gs://``), with braces or globs, a folder, or a list of these; ``"-"``
    is standard input. Plain shards are read in any order through an index, made on first use; ``.tar.gz``, ``.tar.zst``, pipes,
    and everything with ``index="never"`` are read in sequence, `interleave` shards at a time.

    Fields are decoded by extension (``cls`` int, ``json``, ``txt``, ``npy``; pictures stay bytes until `image`); with
    ``decode=False`` all are bytes. `defaults` sets values for fields that some samples lack, which is otherwise an error. Pickles
    are refused, except for the fields named in `allow_pickle`. `cache` keeps remote shards on a local disk; `patience` sets
    network timeouts and retries. Seek indices of JPEGs in the shards' indexes are used unless ``seek=False``.
    """
    from .engine.each import Crew
    from .source.opening import open_tar

    return _pipeline(
        open_tar(
            shards,
            index=index,
            interleave=interleave,
            defaults=defaults,
            allow_pickle=allow_pickle,
            decode=decode,
            cache=cache,
            patience=patience,
            seek=seek,
            crew=Crew,
        )
    )


@advised
def tfrecord(
    shards: Shards,
    features: Any = None,
    *,
    compression: str | None = None,
    interleave: int | None = None,
    cache: Cache | str | None = None,
    patience: Patience | None = None,
    seek: bool = True,
) -> Pipeline:
    """TFRecord files: one field per feature of their tf.train.Examples; both checksums of every record are checked.

    `features` names what to read: ``{"image": bytes, "label": int}``, ``[int]`` for any number of values, ``(float, 128)`` for a
    fixed number, `stoker.Feature` for defaults and raw arrays. Without it names and types are taken from the files. ``"raw"``:
    the single field ``record``, unparsed. `cache`, `patience` and `seek` are as for `tar`.

    Files compressed with gzip or zlib are read in sequence, `interleave` files at a time. `compression` is ``"gzip"`` or
    ``"zlib"`` for all files; by default it is detected from the name (``.gz``, ``.zlib``) or the first bytes of local files.
    """
    from .engine.each import Crew
    from .source.opening import open_tfrecord

    return _pipeline(
        open_tfrecord(
            shards,
            features=features,
            compression=compression,
            interleave=interleave,
            cache=cache,
            patience=patience,
            seek=seek,
            crew=Crew,
        )
    )


@advised
def lmdb(path: Path, fields: Sequence[str] | None = None) -> Pipeline:
    """An LMDB database, in the order of its keys, with the values that `write_lmdb` wrote.

    In tensorpack's databases the components of a datapoint are the fields ``"0"``, ``"1"`` ..., or the names in `fields`; `image`
    accepts a JPEG stored as a uint8 array. In any other database the field ``value`` holds the bytes.
    """
    from .source.shards.lmdb_source import LmdbSource

    return _pipeline(LmdbSource(path, fields))


@advised
def mix(pipelines: Sequence[Pipeline], weights: Sequence[float] | None = None, until: str = "first") -> Pipeline:
    """Samples of several pipelines in exact proportions, with the fields they have in common.

    The pipelines may use `shuffle`, `take`, `skip`, `repeat`, `select`, `rename` and `drop`; everything else comes after. An
    epoch ends when one of them has no sample left, or with ``until="all"`` when all samples have been seen; shorter ones start
    again.
    """
    from .pipeline import mix

    return mix(pipelines, weights, until)


def _pipeline(source: Any) -> Pipeline:
    from .pipeline import Pipeline

    return Pipeline(source)


def __dir__() -> list[str]:
    return sorted({*__all__, *_LATER, "__version__"})


_LATER: Registry[Any] = Registry(
    "name",
    {
        "Batch": ("stoker.batch.batch", "Batch", ""),
        "Sample": ("stoker.batch.batch", "Sample", ""),
        "Pipeline": ("stoker.pipeline", "Pipeline", ""),
        "Loader": ("stoker.loader.loader", "Loader", ""),
        "Cache": ("stoker.storage.cache", "Cache", ""),
        "Feature": ("stoker.source.shards.feature", "Feature", ""),
        "Patience": ("stoker.storage.retry", "Patience", ""),
        "image": ("stoker.image", "", ""),
        "observe": ("stoker.observe", "", ""),
        "ray": ("stoker.ray", "", ""),
        "torch": ("stoker.torch", "", ""),
        **{
            name: ("stoker.pack", name, "")
            for name in ("TarWriter", "TfrecordWriter", "write_lmdb", "write_tar", "write_tfrecord")
        },
    },
)

if not TYPE_CHECKING:  # type checkers know what is there, and what is not

    def __getattr__(name: str) -> Any:
        """What is imported when it is first used, so that `import stoker` stays quick."""
        if name in _LATER:
            return _LATER.get(name, name)
        raise unknown_attribute(sys.modules[__name__], name)
