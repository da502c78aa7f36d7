"""`stoker.files([...])`: image files listed by a program, with a label each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, SourceEmpty
from ...sizes import a_type, counted
from ..paths import inside, joined, parent_name, printable, refuse_url
from ..source import digest
from .labelled_files import LabelledFiles, label_column
from .labels import Labels, check_rule, label_files, label_values
from .typed_columns import Place, Values, as_list, column_digest, is_list


class ListedFiles(LabelledFiles):
    """Files by paths that a user gave, relative to `root` or absolute, with further values: a row per sample.

    The key is the path of the first field as it was given, so a path that is given twice is two samples of one key; without
    files it is the number of the row. The fingerprint covers the paths as given and all values, not the files' contents.
    """

    def __init__(
        self,
        kind: str,
        title: str,
        root: bytes,
        files: Mapping[str, Sequence[bytes]],
        columns: Mapping[str, Values],
        classes: tuple[str, ...] = (),
        seek: bool = True,
    ) -> None:
        super().__init__({name: [joined(root, path) for path in given] for name, given in files.items()}, columns, classes, seek)
        self._kind, self._title, self._root = kind, title, inside(root)
        first = next(iter(files.values()), ())
        self._relative = np.fromiter((path[:1] != b"/" for path in first), np.bool_, len(first))
        parts: list[bytes | str] = []
        for name, given in files.items():
            parts += [name, b"\0".join(given)]
        for name, column in columns.items():
            parts += [name, *column_digest(column)]
        self._fingerprint = digest(kind, *parts, *classes)

    def key(self, index: int) -> str:
        if not self._firsts:
            return str(index)
        path = self._paths.path(index)
        return printable(path[len(self._root) :] if self._relative[index] else path)

    def describe(self) -> str:
        counts = self._counts() if self._firsts else counted(len(self), "row")
        return f"{self._kind}({self._title}): {counts}"


def open_listed(given: Any, labels: Any = "folder", seek: bool = True) -> ListedFiles:
    """The files on a list of paths, in its order.

    Fields: ``image``, the file's bytes, and ``label``. Relative paths are relative to the working directory, as it is now.

    Labels: a list or an array with one for each path (numbers, texts, or rows of numbers); ``"folder"`` numbers the names
    of the folders the files lie in, sorted; a dict gives the label of each such name; a function is called once for each
    full path; None leaves the field out. A missing file is an error of its sample.

    >>> open_listed(["a/1.jpg", "b/2.jpg"], labels=[0.5, 2.0]).fields["label"].dtype
    '<f4'
    """
    check_rule(labels, ("folder",), "files", "a list with a label for each path")
    paths = given_paths(given, "files([...])", lambda at: f"files([...]): path {at}")
    if not paths:
        raise SourceEmpty("files([...]) got an empty list of paths")
    root = current_folder()
    labelled = None if labels is None else _label(paths, root, labels)
    files, (columns, classes) = {"image": paths}, label_column(labelled)
    return ListedFiles("files", f"a list of {counted(len(paths), 'path')}", root, files, columns, classes, seek)


def given_paths(given: Any, what: str, place: Place) -> list[bytes]:
    """A user's paths as bytes; one that cannot be a path is named."""
    values = as_list(given, what)
    try:
        paths = list(map(os.fsencode, values))
    except TypeError:
        at = next(at for at, value in enumerate(values) if not isinstance(value, (str, bytes, os.PathLike)))
        raise ConfigError(f"{place(at)} is {values[at]!r}, {a_type(values[at])}; paths are str, bytes or PathLike") from None
    for at, path in enumerate(paths):
        if b"://" in path:
            refuse_url(values[at], f"{place(at)}, {values[at]!r},")
        if not path or b"\0" in path:
            raise ConfigError(f"{place(at)} is {printable(path)!r}, and no file has such a name; correct it, or omit the row")
    return paths


def current_folder() -> bytes:
    """The working directory."""
    return os.fsencode(Path.cwd())


def _label(paths: list[bytes], root: bytes, rule: Any) -> Labels:
    if is_list(rule):
        if len(rule) != len(paths):
            raise ConfigError(
                f"files([...], labels=[...]): {counted(len(paths), 'path')} and {counted(len(rule), 'label')}; "
                "give one for each path"
            )
        return label_values(rule, lambda at: f"label {at}, of {printable(paths[at])}"), ()
    folders = [] if callable(rule) else [parent_name(path) for path in paths]
    if b"" in folders:
        raise ConfigError(
            f"{printable(paths[folders.index(b'')])} names no folder, so it has no label; "
            "use labels=[...] with one for each path, None, or a function of the path"
        )
    return label_files(rule, [joined(root, path) for path in paths] if callable(rule) else (), folders, "files")
