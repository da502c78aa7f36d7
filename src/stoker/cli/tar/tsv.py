"""`stoker tar tsv`: fields as a table."""

from __future__ import annotations

import os
import re
import sys
from itertools import islice
from typing import Annotated

from ...errors import ConfigError, RecordError
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ..progress import PipeProgress, Progress
from ..screen import flag, option
from .cat import Count
from .inputs import Shards, samples_of, shard_names
from .tables import csv_line, tsv_line


def tsv(
    shards: Shards = None,
    fields: Annotated[
        str, option("NAMES", "The columns, such as `key,cls,txt`; `key` is the sample's key.", "-f", "--fields")
    ] = "key",
    csv: Annotated[bool, flag("Write CSV instead of TSV.", "--csv")] = False,
    missing: Annotated[str | None, option("TEXT", "Text for a field that a sample does not have.", default="an error")] = None,
    strip: Annotated[bool, flag("Remove leading and trailing whitespace from cells.", "--strip")] = False,
    header: Annotated[bool, flag("Print the names of the columns first.", "--header/--no-header")] = True,
    count: Count = None,
    progress: PipeProgress = None,
) -> None:
    r"""Print fields as a table, one row per sample.

    TSV has a tab between cells; in a cell `\t`, `\n`, `\r` and `\\` mean tab, newline, carriage return and backslash, and every
    other byte is unchanged. With `--csv`, cells are quoted where necessary. `stoker tar create` reads both.

    Example: `stoker tar tsv 'train-*.tar' -f key,cls --strip | sort -n -k 2`
    """
    columns = [name for name in re.split(r"[,\s]+", fields) if name]
    if not columns:
        raise ConfigError("--fields is empty; use names, as in -f key,cls,txt")
    line = csv_line if csv else tsv_line
    names = shard_names(shards)
    out = sys.stdout.buffer
    with Progress("tsv", shown=progress, stays=True, text=True) as meter:
        if header:
            out.write(line(map(os.fsencode, columns)))
        for sample in meter.watch(islice(samples_of(names), count)):
            cells = (_cell(sample, name, missing) for name in columns)
            out.write(line(cell.strip() for cell in cells) if strip else line(cells))
        out.flush()


def _cell(sample: TarSample, name: str, missing: str | None) -> bytes:
    if name in ("key", "__key__"):
        return sample.key
    data = sample.fields.get(name.lower())
    if data is not None:
        return data
    if missing is None:
        key = printable(sample.key)
        raise RecordError(
            f"the sample {key} has no field {name!r}; it has {', '.join(sample.fields)}. --missing '' leaves such cells empty",
            key=key,
        )
    return os.fsencode(missing)
