"""`stoker.files`: a folder of image files, a folder a class."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, ReadError, SourceEmpty, SourceNotFound
from ..kernel import native
from ..storage.scratch import Scratch
from .base import Drawing, Rows, Source, digest
from .chunk import BYTES, BytesColumn, Column, FieldSpec, Ints, array_spec
from .labels import Labels, Rule, check_rule, label_folders, label_mapped, label_paths
from .paths import AnyPath, absolute, inside, is_file, is_folder, link_target, printable
from .seekrows import Seeks
from .seeks import SeekTable
from .sidecar import seek_table
from .sniff import seen_at
from .walk import ANY_IMAGE, choose_keep, list_files

_REMEDIES = {
    errno.ENOENT: "put it back, or make the pipeline anew",
    errno.EACCES: "make it readable for this user",
    errno.EISDIR: "a folder stands where a file should: move it away",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class LabelledFiles(Source):
    """Files with at most one label each: what `files` and `filelist` share. With `seek`, a sidecar is looked for."""

    def __init__(self, paths: list[bytes], labelled: Labels | None, seek: bool = True, folder: bytes | None = None) -> None:
        self._paths = native.Paths(paths)
        self._seeks = seek_table(paths, folder) if seek else None
        self._labels = np.empty(0, np.int64)
        self.fields: dict[str, FieldSpec] = {"image": BYTES}
        if labelled is not None:
            self._labels, self.classes = labelled
            self.fields["label"] = array_spec(np.int64)

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        columns: dict[str, Column] = {}
        failed: dict[int, int] = {}
        if "image" in wanted:
            columns["image"], failed = read_column(self._paths, indices, scratch, self._seeks)
        if "label" in wanted:
            columns["label"] = self._label(indices, out)
        return Rows(columns, self._errors(indices, failed))

    def draws(self, field: str) -> bool:
        return field == "image"

    def draw(
        self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch, drawing: Drawing
    ) -> Rows | None:
        seeks = None if self._seeks is None else self._seeks.stored(scratch)
        if seeks is None and self._seeks is not None:
            return None
        pictures, drawing.sought = drawing.pictures, seeks is not None
        bad = pictures.files(self._paths, indices, drawing.epoch, drawing.positions, drawing.out, seeks)
        columns: dict[str, Column] = {"image": drawing.out}
        if "label" in wanted:
            columns["label"] = self._label(indices, out)
        return Rows(columns, self._errors(indices, pictures.errnos()), self._reread(indices, scratch)) if bad else Rows(columns)

    def _label(self, indices: Ints, out: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        labels, into = self._labels[indices], out.get("label")  # not np.take, which lets go of the GIL
        if into is None:
            return labels
        into[...] = labels
        return into

    def _reread(self, indices: Ints, scratch: Scratch) -> Callable[[int], bytes]:
        def encoded(row: int) -> bytes:
            column, failed = read_column(self._paths, indices[row : row + 1], scratch)
            if failed:
                raise self._error(int(indices[row]), failed[0])
            return column[0]

        return encoded

    def _errors(self, indices: Ints, failed: Mapping[int, int]) -> dict[int, Exception]:
        return {row: self._error(int(indices[row]), code) for row, code in failed.items()}

    def origin(self, index: int) -> str:
        return printable(self._paths.path(index))

    def seeks(self, field: str) -> int:
        return self._seeks.count if self._seeks is not None and field == "image" else 0

    def _error(self, index: int, code: int) -> ReadError:
        return read_error(self._paths.path(index), code, self.key(index))

    def _counts(self) -> str:
        return f"{len(self):,} files" + (f", {len(self.classes):,} classes" if self.classes else "")


class FilesSource(LabelledFiles):
    """The files below `root` that match `pattern`, in the order of their paths' bytes.

    Fields: ``image``, the file's bytes, and ``label``. The pattern ``**/*`` means every file with an image's extension
    (`walk.IMAGE_EXTENSIONS`, in capitals or not); any other is a glob by pathlib's rules, and matches whatever it says.
    Names that begin with a dot are never looked at.

    Labels: ``"folder"`` numbers the folders directly below the root by their sorted names; a dict gives the label of
    each such folder (``"."`` stands for the root itself); a function is called once for each full path; None leaves the
    field out.

    The folder is listed once, here. A file that cannot be read later is an error of its sample; an empty file is a
    sample of no bytes. The fingerprint is of relative paths and labels, not of contents. Seek indices of the JPEGs, if
    there are some (`sidecar.py`), are used, unless `seek` is False; they change nothing but speed.

    >>> FilesSource("imagenet/train").classes[:2]  # doctest: +SKIP
    ('n01440764', 'n01443537')
    """

    def __init__(self, root: AnyPath, pattern: str = ANY_IMAGE, labels: Rule = "folder", seek: bool = True) -> None:
        check_rule(labels, ("folder",), "files")
        self._root = _checked_root(root)
        found, looked = list_files(self._root, choose_keep(pattern))
        if not found:
            raise SourceEmpty(_nothing(self._root, pattern, looked))
        labelled = None if labels is None else _label(found, self._root, labels)
        super().__init__([self._root + name for name in found], labelled, seek, self._root)
        self._fingerprint = digest("files", b"\0".join(found), self._labels.tobytes(), *self.classes)

    def key(self, index: int) -> str:
        return printable(self._paths.path(index)[len(self._root) :])

    def fingerprint(self) -> str:
        return self._fingerprint

    def describe(self) -> str:
        return f"files({printable(self._root)}): {self._counts()}"


def read_column(
    paths: native.Paths, which: Ints, scratch: Scratch, seeks: SeekTable | None = None
) -> tuple[BytesColumn, dict[int, int]]:
    """The bytes of some files, in the worker's arena, and the error number of each row that failed."""
    data, offsets, errors = native.read_files(paths, which, scratch.arena)
    failed = {row: int(errors[row]) for row in np.flatnonzero(errors).tolist()}
    sought = None if seeks is None else Seeks((seeks,), which)
    return BytesColumn(data, offsets[:-1], np.diff(offsets), scratch.arena, sought), failed


def read_error(path: bytes, code: int, key: str, place: str = "") -> ReadError:
    """Why a file could not be read, and what helps; `place` says where it was listed."""
    told = printable(path)
    error = ReadError(f"{told}: {os.strerror(code)}{place}; {_remedy(path, code)}", key=key, origin=told)
    error.errno = code
    return error


def _remedy(path: bytes, code: int) -> str:
    target = link_target(path) if code == errno.ENOENT else None
    known = _REMEDIES.get(code, "check the disk and the path")
    told = known if target is None else f"it is a link to {printable(target)}, which is not there: put that back"
    return f"{told}, or use on_error(skip(...))"


def _checked_root(root: AnyPath) -> bytes:
    path = absolute(root)
    told = printable(path)
    if is_file(path):
        known = seen_at("files", path) or "this is a file; for a list of paths use stoker.filelist(...)"
        raise ConfigError(f"{told}: files() takes a folder, and {known}")
    if not is_folder(path):
        raise SourceNotFound(f"{told}: there is no such folder; check the spelling, and that the disk is mounted")
    return inside(path)


def _nothing(root: bytes, pattern: str, looked: int) -> str:
    told = f"{printable(root)}: of {looked:,} files looked at, none"
    if pattern == ANY_IMAGE and (known := seen_at("files", root)):
        return f"{printable(root)}: {known}"
    if pattern == ANY_IMAGE:
        return f"{told} has an image's extension (pattern {pattern!r}); name yours, as in pattern='**/*.ext'"
    return f"{told} matches the pattern {pattern!r}; '**/' in front of it looks into all folders, and capitals count"


def _label(found: list[bytes], root: bytes, rule: Any) -> Labels:
    if callable(rule):
        return label_paths((root + name for name in found), rule, "files")
    folders = [name[: name.find(b"/") + 1][:-1] or b"." for name in found]
    if b"." in folders and (rule == "folder" or "." not in rule):
        raise ConfigError(_stray(root + found[folders.index(b".")]))
    return label_folders(folders) if rule == "folder" else label_mapped(folders, rule, "files")


def _stray(path: bytes) -> str:
    return (
        f"{printable(path)} lies in no class folder, so it has no label; move it into one, or use labels=None, "
        "a dict in which '.' stands for the root, or a function of the path"
    )
