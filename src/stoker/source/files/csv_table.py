"""Reads a CSV file as columns: a header line with their names, then one row per line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection

import numpy as np

from ...errors import ConfigError, SourceNotFound
from ...sizes import counted
from ..paths import printable
from ..sniff import seen_at
from .plain_file import read_plain
from .typed_columns import Values

#: larger tables are read with pandas, Polars or Arrow, and given as they are
MAX_BYTES = 1 << 30
_LEADING_ZERO, _DIGITS = re.compile(r"\s*[+-]?0\d"), re.compile(r"\s*[+-]?\d+\s*")


class CsvTable:
    """The columns of a CSV file (commas, double quotes, UTF-8 with or without a byte order mark), each by its name.

    A column is int64 or float64 where all its values are such numbers, else text. An empty cell among numbers is NaN, which
    makes the column float64. Numbers that would be changed (``007``, or integers beyond 2**53 among floats) make it text. The
    columns named in `texts` are text in any case. Empty lines, and blanks after a comma, are ignored.
    """

    def __init__(self, path: bytes, texts: Collection[str] = ()) -> None:
        self.path, self.folder = path, path.rpartition(b"/")[0] or b"/"
        reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True, skipinitialspace=True)
        rows, lines = [], []
        try:
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
        except csv.Error as exc:
            raise ConfigError(f"{_line(path, reader.line_num)}: {exc}; correct the line") from exc
        if not rows:
            raise ConfigError(f"{printable(path)} is empty; its first line must hold the names of the columns")
        names = [name.strip() for name in rows.pop(0)]
        if not rows:
            _refuse_other_kinds(path)
        _check_names(path, lines.pop(0), names)
        for row, line in zip(rows, lines):
            if len(row) != len(names):
                raise ConfigError(
                    f"{_line(path, line)}: {counted(len(row), 'value')}, where the header names "
                    f"{counted(len(names), 'column')}; correct the line"
                )
        self._lines = np.array(lines, np.int64)
        self.columns = {
            name: np.array(values, object) if name in texts else _column(values)
            for name, values in ((name, [row[at] for row in rows]) for at, name in enumerate(names))
        }

    def place(self, row: int) -> str:
        """The place of a row, for messages."""
        return _line(self.path, int(self._lines[row]))


def _text(path: bytes) -> str:
    try:
        data = read_plain(path, MAX_BYTES)
    except ConfigError as exc:
        raise ConfigError(f"{exc}; or read the table yourself and pass its columns") from exc
    except OSError as exc:
        raise SourceNotFound(
            f"{printable(path)}: the table cannot be read: {exc.strerror}; {seen_at('table', path) or 'check its path'}"
        ) from exc
    except ValueError as exc:  # a NUL in the path
        raise SourceNotFound(f"{printable(path)}: no file has such a name; check the table's path") from exc
    if b"\0" in data:
        _refuse_other_kinds(path)
        raise ConfigError(f"{_line(path, data.count(10, 0, data.index(0)) + 1)}: a NUL byte; save the table as UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        _refuse_other_kinds(path)
        raise ConfigError(f"{_line(path, data.count(10, 0, exc.start) + 1)}: not UTF-8; save the table as UTF-8 text") from exc


def _refuse_other_kinds(path: bytes) -> None:
    """What is not text, or has no rows, may be something else."""
    if known := seen_at("table", path):
        raise ConfigError(f"{printable(path)}: {known}")


def _line(path: bytes, number: int) -> str:
    return f"line {number} of {printable(path)}"


def _check_names(path: bytes, line: int, names: list[str]) -> None:
    for at, name in enumerate(names):
        if not name:
            raise ConfigError(f"{_line(path, line)}: column {at + 1} has no name; name it (pandas: to_csv(index=False))")
        if name in names[:at]:
            raise ConfigError(f"{_line(path, line)}: two columns are called {name!r}; rename one")


def _column(values: list[str]) -> Values:
    """The values as the narrowest of int64, float64 and text that holds all of them unchanged."""
    whole = "".join(values)
    # Python's numbers may hold underscores and foreign digits; and what begins with a zero is an identifier.
    if whole.isascii() and "_" not in whole and not any(map(_LEADING_ZERO.match, values)):
        try:
            return np.array(list(map(int, values)), np.int64)
        except ValueError:
            pass
        except OverflowError:
            return np.array(values, object)
        try:
            return _floats(values)
        except ValueError:
            pass
    return np.array(values, object)


def _floats(values: list[str]) -> Values:
    """Numbers, NaN for empty cells; ValueError if one is not a number, or does not fit, or all are empty."""
    if not any(map(str.strip, values)):
        raise ValueError("no number")
    if any(map(_DIGITS.fullmatch, values)) and any(abs(int(value)) > 1 << 53 for value in values if _DIGITS.fullmatch(value)):
        raise ValueError("an integer that no float64 holds")
    return np.array([float(value) if value.strip() else np.nan for value in values], np.float64)
