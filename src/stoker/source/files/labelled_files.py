"""`stoker.files`: a folder of image files, with one folder per class."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import SKIP, ConfigError, ReadError, SourceEmpty, SourceNotFound
from ...kernel import native
from ...kernel.file_reads import MAX_FILE_BYTES
from ...kernel.render import FileInput, Renderer
from ...sizes import counted
from ...storage.scratch import Scratch
from ..chunk import BYTES, BytesColumn, Column, FieldSpec, Ints
from ..paths import NOT_PLAIN, AnyPath, absolute, inside, is_file, is_folder, link_target, printable, stamp
from ..shards.seekrows import Seeks
from ..shards.seeks import SeekTable
from ..shards.sidecar import seek_table
from ..sniff import seen_at
from ..source import Located, Rows, Source, Targets, digest, why_no_boxes
from .labels import Labels, Rule, check_rule, label_files
from .typed_columns import Texts, Values, column_digest, column_rows, column_spec, portable_column
from .walk import ANY_IMAGE, choose_keep, list_files

_REASONS = {
    errno.ENXIO: NOT_PLAIN,
    errno.EOPNOTSUPP: NOT_PLAIN,  # sockets, on macOS
    errno.EFBIG: f"has more than the {MAX_FILE_BYTES:,} bytes that a sample's file may have",
    errno.ENOMEM: "there is not enough memory to read it",
}
_REMEDIES = {
    errno.ENXIO: "remove it",
    errno.EOPNOTSUPP: "remove it",
    errno.EFBIG: "split it",
    errno.ENOMEM: "make it smaller",
    errno.ENOENT: "put it back, or create the pipeline again",
    errno.EACCES: "make it readable for this user",
    errno.EISDIR: "it is a folder, not a file: move it away",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class LabelledFiles(Source):
    """Rows of files with further values: what `files`, `filelist` and `table` share. With `seek`, a sidecar is looked for.

    `files` are the absolute paths of each field of files, `columns` the values of the other fields.
    """

    _fingerprint: str

    def __init__(
        self,
        files: Mapping[str, Sequence[bytes]],
        columns: Mapping[str, Values],
        classes: tuple[str, ...] = (),
        seek: bool = True,
        folder: bytes | None = None,
    ) -> None:
        lengths = [*map(len, files.values()), *map(len, columns.values())]
        self._length = lengths[0]  # all of them have as many
        # The paths of all fields, one field after another: number `first` + i is that of sample i.
        paths = [path for field in files.values() for path in field]
        self._paths = native.Paths(paths)
        self._firsts = {name: number * self._length for number, name in enumerate(files)}
        self._seeks = seek_table(paths, folder) if seek else None
        self._columns: dict[str, Any] = dict(columns)  # Values; in another process, also Texts
        self.classes = classes
        self.fields: dict[str, FieldSpec] = dict.fromkeys(files, BYTES)
        self.fields.update({name: column_spec(column) for name, column in columns.items()})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_columns": {name: portable_column(column) for name, column in self._columns.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        columns = {name: column if isinstance(column, Texts) else column.array() for name, column in state["_columns"].items()}
        self.__dict__.update(state, _columns=columns)

    def __len__(self) -> int:
        return self._length

    def fingerprint(self) -> str:
        return self._fingerprint

    def version(self) -> str:
        stamps = [stamp(self._paths.path(number)) for number in range(len(self._paths))]
        return digest("versions", self.fingerprint(), b"\n".join(stamps))

    def read(self, indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]], scratch: Scratch) -> Rows:
        columns, errors = self._read([name for name in self._firsts if name in wanted], indices, scratch)
        self._add_values(columns, indices, wanted, out)
        return Rows(columns, errors)

    def why_not_located(self, field: str, box: str | None = None) -> str | None:
        if field not in self._firsts:
            return f"{field!r} does not hold files"
        return None if box is None else why_no_boxes(self.fields[box], box)

    def locate(
        self, field: str, indices: Ints, wanted: Collection[str], out: Targets, scratch: Scratch, box: str | None = None
    ) -> Located | None:
        files = file_input(self, self._paths, self._seeks, scratch)
        if files is None:
            return None
        first = self._firsts[field]
        which = indices + first if first else indices
        files.tell(which, None if box is None else self._columns[box][indices])
        others = [name for name in self._firsts if name in wanted and name != field] if len(self._firsts) > 1 else []

        def finish(made: Renderer) -> Rows:
            errors = self._errors(which, made.errnos(files)) if made.bad else {}
            columns: dict[str, Column] = {}
            if others:
                columns, unread = self._read(others, indices, scratch)
                # What `encoded` reads may go to the same memory, so these columns must not stay there.
                columns.update({name: column.lasting() for name, column in columns.items() if isinstance(column, BytesColumn)})
                errors = {**unread, **errors}
            self._add_values(columns, indices, wanted, out)
            return Rows(columns, errors, self._reread(which, scratch) if made.bad else None)

        return Located([(files, None)], finish)

    def _read(self, fields: list[str], indices: Ints, scratch: Scratch) -> tuple[dict[str, Column], dict[int, Exception]]:
        """The files of some fields, in one call, and the first error of each row."""
        if not fields:
            return {}, {}
        count = len(indices)
        which = indices if len(self._firsts) == 1 else np.concatenate([self._firsts[name] + indices for name in fields])
        column, failed = read_column(self._paths, which, scratch, self._seeks)
        errors: dict[int, Exception] = {}
        for row, error in self._errors(which, failed).items():
            errors.setdefault(row % count, error)
        if len(fields) == 1:
            return {fields[0]: column}, errors
        return {name: column.take(slice(at * count, (at + 1) * count)) for at, name in enumerate(fields)}, errors

    def _add_values(
        self, columns: dict[str, Column], indices: Ints, wanted: Collection[str], out: Mapping[str, NDArray[Any]]
    ) -> None:
        for name, column in self._columns.items():
            if name in wanted:
                columns[name] = column_rows(column, indices, out.get(name))

    def _reread(self, which: Ints, scratch: Scratch) -> Callable[[int], bytes]:
        def encoded(row: int) -> bytes:
            column, failed = read_column(self._paths, which[row : row + 1], scratch)
            if failed:
                raise self._error(int(which[row]), failed[0])
            return column[0]

        return encoded

    def _errors(self, which: Ints, failed: Mapping[int, int]) -> dict[int, Exception]:
        return {row: self._error(int(which[row]), code) for row, code in failed.items()}

    def origin(self, index: int) -> str:
        return printable(self._paths.path(index)) if self._firsts else self.key(index)

    def paths_of(self, index: int) -> list[bytes]:
        """The files of a sample."""
        return [self._paths.path(first + index) for first in self._firsts.values()]

    def seeks(self, field: str) -> int:
        if self._seeks is None or field not in self._firsts:
            return 0
        return int((self._seeks.lengths[self._firsts[field] :][: self._length] > 0).sum())

    def listed_at(self, index: int) -> str:
        """Where a sample was listed, for messages; empty if nowhere."""
        return ""

    def _error(self, number: int, code: int) -> ReadError:
        """Why a path, by its number, could not be read."""
        index = number % self._length
        return read_error(self._paths.path(number), code, self.key(index), self.listed_at(index))

    def _label_digest(self) -> list[bytes]:
        return column_digest(self._columns["label"]) if "label" in self._columns else [b""]

    def _counts(self) -> str:
        classes = f", {counted(len(self.classes), 'class', 'classes')}" if self.classes else ""
        return f"{counted(len(self), 'file')}{classes}"


class FilesSource(LabelledFiles):
    """The files below `root` that match `pattern`, in the order of their paths' bytes.

    Fields: ``image``, the file's bytes, and ``label``. The pattern ``**/*`` means every file with an image's extension
    (`walk.IMAGE_EXTENSIONS`, in capitals or not); any other is a glob by pathlib's rules, and matches whatever it says.
    Names that begin with a dot are never looked at.

    Labels: ``"folder"`` numbers the folders directly below the root by their sorted names; a list of class names, such as
    the `classes` of another pipeline, numbers them by their places in it; a dict gives the label of each such folder
    (``"."`` stands for the root itself); a function is called once for each full path; None leaves the field out.

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
        super().__init__({"image": [self._root + name for name in found]}, *label_column(labelled), seek, self._root)
        self._fingerprint = digest("files", b"\0".join(found), *self._label_digest(), *self.classes)

    def key(self, index: int) -> str:
        return printable(self._paths.path(index)[len(self._root) :])

    def describe(self) -> str:
        return f"files({printable(self._root)}): {self._counts()}"


def label_column(labelled: Labels | None) -> tuple[dict[str, Values], tuple[str, ...]]:
    """Labels as a column next to the files, and the classes; neither without labels."""
    return ({}, ()) if labelled is None else ({"label": labelled[0]}, labelled[1])


def file_input(owner: Source, paths: native.Paths, seeks: SeekTable | None, scratch: Scratch) -> FileInput | None:
    """These files as a worker renders them; None where their seek indices have to be read beforehand."""
    stored = None if seeks is None else seeks.stored(scratch)
    if stored is None and seeks is not None:
        return None
    files: FileInput = scratch.keep((owner, FileInput), lambda: FileInput(paths, scratch.arena, stored))
    return files


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
    error = ReadError(f"{told}: {_REASONS.get(code) or os.strerror(code)}{place}; {_remedy(path, code)}", key=key, origin=told)
    error.errno = code
    return error


def _remedy(path: bytes, code: int) -> str:
    target = link_target(path) if code == errno.ENOENT else None
    known = _REMEDIES.get(code, "check the disk and the path")
    told = known if target is None else f"it is a link to {printable(target)}, which does not exist: restore it"
    return f"{told}, or {SKIP}"


def _checked_root(root: AnyPath) -> bytes:
    path = absolute(root)
    told = printable(path)
    if is_file(path):
        known = seen_at("files", path) or "this is a file; for a text file of paths use stoker.filelist(...)"
        raise ConfigError(f"{told}: files() takes a folder or a list of paths, and {known}")
    if not is_folder(path):
        known = "check the spelling, and that the disk is mounted"
        if set(told) & set("*?["):
            known = "to choose files of a folder by name, use files(FOLDER, pattern='**/*.jpg')"
        raise SourceNotFound(f"{told}: there is no such folder; {known}")
    return inside(path)


def _nothing(root: bytes, pattern: str, looked: int) -> str:
    if not looked:
        return f"{printable(root)}: there are no files in this folder; check the path, and that the disk is mounted"
    told = f"{printable(root)}: of {counted(looked, 'file')} looked at, none"
    if pattern == ANY_IMAGE and (known := seen_at("files", root)):
        return f"{printable(root)}: {known}"
    if pattern == ANY_IMAGE:
        return f"{told} has an image's extension (pattern {pattern!r}); name yours, as in pattern='**/*.ext'"
    return f"{told} matches the pattern {pattern!r}; '**/' in front of it looks into all folders, and capitals count"


def _label(found: list[bytes], root: bytes, rule: Any) -> Labels:
    folders = [] if callable(rule) else [name[: name.find(b"/") + 1][:-1] or b"." for name in found]
    if b"." in folders and (isinstance(rule, str) or "." not in rule):
        raise ConfigError(
            f"{printable(root + found[folders.index(b'.')])} is not in a class folder, so it has no label; move it into one, or "
            "use labels=None, a dict in which '.' stands for the root, or a function of the path"
        )
    return label_files(rule, [root + name for name in found] if callable(rule) else (), folders, "files")
