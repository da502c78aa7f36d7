"""`stoker.table`: rows of a dict of columns, a data frame or a CSV file; some columns hold the paths of files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError, SourceEmpty
from ...sizes import a_type, counted
from ..paths import AnyPath, absolute, printable
from .csv_table import CsvTable
from .listed import ListedFiles, current_folder, given_paths
from .typed_columns import Place, is_list, typed_column

#: name -> values; what else has columns is made one of these
Columns = Mapping[str, Any]


class TableSource(ListedFiles):
    """Rows of columns of equal length, a row per sample.

    `files` maps the name of a field to the column that holds its paths: the field is the files' bytes, and stands in the
    place of that column. Fields of files come first, then the other columns in their order: arrays of numbers as they are,
    lists by their values (int64, float64, rows of numbers, texts).

    Paths are relative to `root`, else to the folder of the CSV file, else to the working directory. A missing file is an
    error of its sample.

    >>> TableSource({"path": ["a.jpg", "b.jpg"], "age": [31, 40]}, {"image": "path"}).describe()
    'table(image, age): 2 files'
    """

    def __init__(
        self, columns: Columns | AnyPath | Any, files: Mapping[str, str], root: AnyPath | None = None, seek: bool = True
    ) -> None:
        for field, name in files.items():
            if not isinstance(name, str):
                raise ConfigError(f"table({field}=...) must be the name of a column of paths, not {a_type(name)}")
        texts = files.values()  # paths may look like numbers
        self._csv = CsvTable(absolute(columns), texts) if isinstance(columns, (str, bytes, os.PathLike)) else None
        given = _named_columns(columns) if self._csv is None else self._csv.columns
        _check_files(files, given)
        folder = current_folder() if self._csv is None else self._csv.folder
        read = {field: given_paths(given[name], f"column {name!r}", self._place(name)) for field, name in files.items()}
        plain = {name: typed_column(given[name], self._place(name)) for name in given if name not in files.values()}
        lengths = {**{files[field]: len(paths) for field, paths in read.items()}, **{name: len(plain[name]) for name in plain}}
        _check_lengths(lengths)
        title = ", ".join((*read, *plain)) if self._csv is None else printable(self._csv.path)
        super().__init__("table", title, folder if root is None else absolute(root), read, plain, (), seek)
        if self._csv is not None:
            self._csv.columns = {}  # what is needed of them is kept in smaller form

    def listed_at(self, index: int) -> str:
        return f" ({self._at(index)})"

    def _at(self, row: int) -> str:
        return f"row {row}" if self._csv is None else self._csv.place(row)

    def _place(self, name: str) -> Place:
        return lambda row: f"table(): {self._at(row)}, column {name!r}"


def _named_columns(columns: Any) -> dict[str, Any]:
    """The columns of a mapping, or of a frame (pandas, Polars, Arrow), by name."""
    names = columns if isinstance(columns, Mapping) else getattr(columns, "column_names", getattr(columns, "columns", None))
    if names is None:
        raise ConfigError(f"table({type(columns).__name__}): use a dict of columns, a data frame, or the path of a CSV file")
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"table(): the name of the column {name!r} is not text; rename it")
    try:
        given = {str(name): columns[name] for name in names}
    except TypeError as exc:
        told = f"table({type(columns).__name__}): its columns cannot be read: {exc}"
        raise ConfigError(f"{told}; use a dict of columns or a data frame (of a Polars LazyFrame: collect())") from exc
    for name, values in given.items():
        if not is_list(values):
            raise ConfigError(f"table(): the column {name!r} cannot be {a_type(values)}; use a list or an array")
    return given


def _check_files(files: Mapping[str, str], columns: Mapping[str, Any]) -> None:
    """Whether the columns of paths are there, and no name is taken twice."""
    if not columns:
        raise ConfigError("table() needs at least one column")
    known = ", ".join(map(repr, columns))
    for field, name in files.items():
        if name not in columns:
            raise ConfigError(f"table({field}={name!r}): there is no column {name!r}; the columns are {known}")
        if field in columns and field not in files.values():
            raise ConfigError(f"table({field}={name!r}): there is a column {field!r} too; choose another name for the field")


def _check_lengths(lengths: Mapping[str, int]) -> None:
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} has {counted(length, 'row')}" for name, length in lengths.items())
        raise ConfigError(f"the columns of table() must have the same length, not {told}")
    if not next(iter(lengths.values())):
        raise SourceEmpty(f"table({', '.join(lengths)}) has no rows")
