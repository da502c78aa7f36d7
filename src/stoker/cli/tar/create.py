"""`stoker tar create`: an archive from a plan, a table that says what goes where."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO

from ...errors import ConfigError, ReadError, SourceEmpty, SourceNotFound
from ...kernel.file_reads import MAX_FILE_BYTES
from ...source.files.plain_file import read_plain
from ...source.paths import joined, printable
from ...source.streams.tar_stream import TarSample
from ..progress import PipeProgress, Progress
from ..screen import argument, option
from .outputs import Output, Overwrite, archive
from .tables import READERS, Row

#: a plan's row as (line, key, field, content): content that is a path is read when its sample is written
Entry = tuple[int, bytes, bytes, bytes, bool]
_LONG = {b"key", b"field", b"path", b"text"}


def create(
    plan: Annotated[str, argument("PLAN", "A .csv or .tsv file; `-` is standard input.", default=True)] = "-",
    folder: Annotated[
        Path, option("DIR", "Folder that paths in the plan are relative to.", "-C", "--folder", default="here")
    ] = Path(),
    format: Annotated[str | None, option("csv|tsv", "Format of the plan.", default="by its name, else tsv")] = None,
    output: Output = "-",
    overwrite: Overwrite = False,
    progress: PipeProgress = None,
) -> None:
    r"""Make an archive from a plan, a table of files and text.

    Nothing in a plan is executed, and only regular files are read. The plan has one of three forms, distinguished by its first
    line:

    `key,field,path,text` as the first line (`path` or `text` may be omitted, in any order): a row for each field. The rows
    of a sample are adjacent. The content is the file at `path` or, if that cell is empty, the `text`.

    `key` or `__key__`, and names of fields, as the first line: a row for each sample, a column for each field. A column named
    `@jpg` holds paths of files for the field `jpg`; any other holds the content itself. This is what `stoker tar tsv` prints.

    Neither: rows of key, field and content. `@path` is a file's content; `@@` at the beginning stands for a text that
    begins with `@`; anything else is the text itself.

    In TSV `\t`, `\n`, `\r`, `\\` stand for tab, newline, carriage return and backslash; CSV has its quotes.

    Example: `printf 'a\tjpg\t@cat.jpg\na\tcls\t3\n' | stoker tar create -o cats.tar`
    """
    kind = format or ("csv" if plan.lower().endswith(".csv") else "tsv")
    if kind not in READERS:
        raise ConfigError(f"--format {kind}: choose csv or tsv")
    base = os.fsencode(folder)
    told = "standard input" if plan == "-" else printable(os.fsencode(plan))
    with (
        archive(output, overwrite) as out,
        Progress("create", shown=progress, stays=True) as meter,
        _open_plan(plan, told) as stream,
    ):
        for sample in meter.watch(_samples(_entries(READERS[kind](stream, told), told), base, told)):
            out.write(sample)
        if not out.samples:
            raise SourceEmpty(f"{told}: the plan lists no samples")


@contextmanager
def _open_plan(plan: str, told: str) -> Iterator[BinaryIO]:
    if plan == "-":
        if sys.stdin.isatty():
            raise ConfigError("no plan was given, and standard input is a terminal; name a .csv or .tsv file, or pipe one in")
        yield sys.stdin.buffer
        return
    try:
        stream = open(plan, "rb")  # noqa: SIM115  closed below
    except FileNotFoundError as error:
        raise SourceNotFound(f"{told}: there is no such file; check the spelling") from error
    except OSError as error:
        raise ReadError(f"{told}: {error.strerror}", origin=told) from error
    with stream:
        yield stream


def _entries(rows: Iterator[tuple[int, Row]], told: str) -> Iterator[Entry]:
    """The fields that a plan names, whatever its form."""
    first = next(rows, None)
    if first is None:
        return
    head = first[1]
    head[0] = head[0].removeprefix(b"\xef\xbb\xbf")  # what some programs put in front of UTF-8
    names = [cell.strip().lower() for cell in head]
    if {b"key", b"field"} <= set(names) <= _LONG and len(set(names)) == len(names):
        yield from _long(names, rows, told)
    elif b"key" in names or b"__key__" in names:
        yield from _wide(names, rows, told)
    else:
        yield from _plain(chain([first], rows), told)


def _long(names: list[bytes], rows: Iterator[tuple[int, Row]], told: str) -> Iterator[Entry]:
    for number, row in rows:
        cells = dict(zip(names, _checked(row, len(names), number, told)))
        path, text = cells.get(b"path", b""), cells.get(b"text", b"")
        if path and text:
            raise ConfigError(f"{told}, line {number}: both a path and a text; leave one cell empty")
        yield number, cells[b"key"], cells[b"field"], path or text, bool(path)


def _wide(names: list[bytes], rows: Iterator[tuple[int, Row]], told: str) -> Iterator[Entry]:
    at = names.index(b"key") if b"key" in names else names.index(b"__key__")
    if len(names) < 2:
        raise ConfigError(f"{told}: has no column except the key; name the fields in its first line")
    for number, row in rows:
        _checked(row, len(names), number, told)
        for column, name in enumerate(names):
            if column != at:
                yield number, row[at], name.removeprefix(b"@"), row[column], name.startswith(b"@")


def _plain(rows: Iterator[tuple[int, Row]], told: str) -> Iterator[Entry]:
    for number, row in rows:
        key, field, content = _checked(row, 3, number, told)
        is_path = content.startswith(b"@") and not content.startswith(b"@@")
        yield number, key, field, content[1:] if content.startswith(b"@") else content, is_path


def _checked(row: Row, width: int, number: int, told: str) -> Row:
    if len(row) != width:
        hint = "quote, or escape, what is not a separator"
        if len(row) == 1:
            hint = "cells are separated by tabs in a .tsv, by commas in a .csv (--format says which)"
        raise ConfigError(f"{told}, line {number}: {len(row)} cells where {width} are expected; {hint}")
    return row


def _samples(entries: Iterator[Entry], folder: bytes, told: str) -> Iterator[TarSample]:
    """Entries of one key that lie together, as a sample; files are read only now."""
    key: bytes | None = None
    fields: dict[str, bytes] = {}
    for number, own, field, content, is_path in entries:
        if own != key:
            if key is not None:
                yield TarSample(key, fields, 0)
            key, fields = own, {}
        name = printable(field.lower())
        if name in fields:
            raise ConfigError(f"{told}, line {number}: the field {name!r} of the sample {printable(own)} appears twice")
        fields[name] = _file(joined(folder, content), f"{told}, line {number}") if is_path else content
    if key is not None:
        yield TarSample(key, fields, 0)


def _file(path: bytes, told: str) -> bytes:
    """The content of a plain file."""
    shown = printable(path)
    try:
        return read_plain(path, MAX_FILE_BYTES)
    except ConfigError as error:
        raise ReadError(f"{told}: {error}", origin=shown) from error
    except FileNotFoundError as error:
        raise SourceNotFound(
            f"{told}: there is no file {shown}; paths are relative to -C DIR, by default the current folder"
        ) from error
    except (OSError, ValueError) as error:
        raise ReadError(f"{told}: {shown}: {getattr(error, 'strerror', None) or error}", origin=shown) from error
