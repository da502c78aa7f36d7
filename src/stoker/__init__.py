"""Stoker feeds training: stored samples in, decoded and augmented batches out.

>>> import numpy as np, stoker
>>> pipeline = stoker.arrays(x=np.arange(6), y=np.arange(6) ** 2).batch(3)
>>> for x, y in pipeline:
...     print(x, y)
[0 1 2] [0 1 4]
[3 4 5] [ 9 16 25]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Union

from . import errors
from .errors import StokerError
from .pipeline import Pipeline, skip

__version__ = "0.1.0"
__all__ = ["Pipeline", "StokerError", "arrays", "errors", "filelist", "files", "skip", "stream", "voc"]

Path = Union[str, bytes, "PathLike[str]", "PathLike[bytes]"]
Labels = Any


def files(root: Path, pattern: str = "**/*", labels: Labels = "folder") -> Pipeline:
    """Images in folders: fields `image` (bytes) and `label`.

    The first folder below `root` names the class (`pipeline.classes`, sorted); `labels` may be None (no label), a dict of folder
    names to numbers, or a function of the path. With the default pattern only image files count, by their extension.
    """
    from .source.files import FilesSource

    return Pipeline(FilesSource(root, pattern, labels))


def filelist(path: Path, root: Path | None = None, labels: Labels = "folder") -> Pipeline:
    """Images listed in a text file, one path a line: fields `image` (bytes) and `label` (from the parent folder)."""
    from .source.filelist import FilelistSource

    return Pipeline(FilelistSource(path, root, labels))


def voc(path: Path, *, images: Path, annotations: Path, labels: Mapping[str, int] | None = None) -> Pipeline:
    """Images with XML annotations (ImageNet, PASCAL VOC), one sample an object: fields `image`, `label`, `box`.

    `box` is (ymin, xmin, ymax, xmax) in pixels. An image without objects gives one sample with the whole image.
    """
    from .source.voc import VocSource

    return Pipeline(VocSource(path, images=images, annotations=annotations, labels=labels))


def arrays(**arrays: Any) -> Pipeline:
    """NumPy arrays or memory maps of one length: a field each."""
    from .source.arrays import ArraysSource

    return Pipeline(ArraysSource(arrays))


def stream(factory: Callable[[], Iterable[Mapping[str, Any]]]) -> Pipeline:
    """Samples from ``factory()``, an iterable of mappings, called once an epoch; they are numbered as they come."""
    from .source.stream import StreamSource

    return Pipeline(StreamSource(factory))
