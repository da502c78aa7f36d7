"""`stoker.filelist`: image files named in a text file, one path per line."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ConfigError
from ..chunk import fits
from ..paths import AnyPath, absolute, joined, parent_name, printable
from ..source import digest
from .labelled_files import LabelledFiles, label_column
from .labels import Labels, Rule, as_label, check_rule, label_files
from .lines import Lines, split_number


class FilelistSource(LabelledFiles):
    """The files a list names, in the list's order.

    Fields: ``image``, the file's bytes, and ``label``. Paths are relative to `root`, or else to the folder the list is
    in; absolute paths stand as they are. A line may end in blanks and an integer, as in ImageNet's lists; that is not
    part of the path. (A file whose very name ends so is listed with one more integer after it.)

    Labels: ``"folder"`` numbers the names of the folders the files lie in, sorted; a list of class names numbers them by
    their places in it; a dict gives the label of each such name; ``"line"`` takes the integer at the end of the line; a
    function is called once for each full path; None leaves the field out.

    The key is the line, so a line that stands twice is two samples of one key. Only the list is read here: a file that
    is missing is an error of its sample, which names the list and the line.

    >>> FilelistSource("train.txt", root="/data/imagenet", labels="line")  # doctest: +SKIP
    """

    def __init__(self, list_file: AnyPath, root: AnyPath | None = None, labels: Rule = "folder", seek: bool = True) -> None:
        check_rule(labels, ("folder", "line"), "filelist")
        self._lines = Lines(absolute(list_file))
        folder = self._lines.path.rpartition(b"/")[0] if root is None else absolute(root)
        named = [split_number(line) for line in self._lines]
        paths = [joined(folder, path) for path, _ in named]
        labelled = None if labels is None else _label(self._lines, named, paths, labels)
        super().__init__({"image": paths}, *label_column(labelled), seek)
        self._fingerprint = digest("filelist", b"\n".join(self._lines), *self._label_digest(), *self.classes)

    def key(self, index: int) -> str:
        return printable(self._lines[index])

    def describe(self) -> str:
        return f"filelist({printable(self._lines.path)}): {self._counts()}"

    def listed_at(self, index: int) -> str:
        return f" ({self._lines.place(index)})"


def _label(lines: Lines, named: list[tuple[bytes, bytes | None]], paths: list[bytes], rule: Any) -> Labels:
    if isinstance(rule, str) and rule == "line":
        return np.array([_line_label(lines, at, number) for at, (_, number) in enumerate(named)], np.int64), ()
    folders = [] if callable(rule) else [parent_name(path) for path, _ in named]
    if b"" in folders:
        at = folders.index(b"")
        raise ConfigError(
            f"{lines.place(at)} names no folder, so its file has no label: {printable(lines[at])!r}; "
            "write 'folder/file', or use labels='line', None, or a function of the path"
        )
    return label_files(rule, paths, folders, "filelist")


def _line_label(lines: Lines, at: int, number: bytes | None) -> int:
    if number is None:
        told = f"{lines.place(at)} ends in no integer: {printable(lines[at])!r}"
        raise ConfigError(f"{told}; labels='line' needs 'path 12' on every line")
    label = int(number)
    return label if fits(label) else as_label(label, lines.place(at))  # the place costs a look at all lines before
