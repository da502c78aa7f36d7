r"""Tables of bytes as text, written and read: TSV and CSV.

TSV: a line per row, a tab between cells. In a cell ``\t``, ``\n``, ``\r`` and ``\\`` stand for tab, newline, carriage return and
backslash; any other byte is itself, and so is a backslash before anything else. CSV: cells that hold a comma, a quote or a line's
end are put in quotes, and a quote in them is doubled (RFC 4180). Bytes that are not UTF-8 survive in both.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from ...errors import ConfigError

#: no cell is longer
MAX_CELL = 1 << 26
_TO = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r"}
_FROM = {escaped: plain for plain, escaped in _TO.items()}

Row = list[bytes]


def tsv_line(cells: Iterable[bytes]) -> bytes:
    """A row as a line of TSV."""
    return b"\t".join(re.sub(rb"[\\\t\n\r]", lambda found: _TO[found[0]], cell) for cell in cells) + b"\n"


def csv_line(cells: Iterable[bytes]) -> bytes:
    """A row as a line of CSV."""
    return b",".join(b'"' + cell.replace(b'"', b'""') + b'"' if re.search(rb'[,"\r\n]', cell) else cell for cell in cells) + b"\n"


def read_tsv(stream: BinaryIO, told: str) -> Iterator[tuple[int, Row]]:
    """The rows of a TSV with the numbers of their lines; empty lines are passed over."""
    for number, line in enumerate(stream, 1):
        if line := line.rstrip(b"\r\n"):
            yield number, [_plain(cell) for cell in line.split(b"\t")]


def read_csv(stream: BinaryIO, told: str) -> Iterator[tuple[int, Row]]:
    """The rows of a CSV with the numbers of their last lines; empty lines are passed over."""
    csv.field_size_limit(MAX_CELL)
    text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="")
    rows = csv.reader(text, strict=True)
    try:
        for row in rows:
            if row:
                yield rows.line_num, [cell.encode("utf-8", "surrogateescape") for cell in row]
    except csv.Error as error:
        raise ConfigError(f"{told}, line {rows.line_num}: not CSV: {error}") from error
    finally:
        text.detach()  # the stream is not ours to close


READERS: dict[str, Callable[[BinaryIO, str], Iterator[tuple[int, Row]]]] = {"tsv": read_tsv, "csv": read_csv}


def _plain(cell: bytes) -> bytes:
    return re.sub(rb"\\[\\tnr]", lambda found: _FROM[found[0]], cell) if b"\\" in cell else cell
