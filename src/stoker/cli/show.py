"""`stoker show`: what a data set holds, as text or as a page of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..source.base import Source
from ..storage.scratch import Scratch
from ..units import show_bytes
from .guard import DATA
from .pictures import Picture, look
from .screen import AsJson, check_writable, out, print_json, tell
from .sheet import sheet_page
from .sources import SourceName, open_source, stored_in

#: classes named in the text
_CLASSES = 12


def show(
    source: SourceName,
    count: Annotated[int, typer.Option("-n", "--count", min=1, metavar="N", help="How many samples.")] = 9,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page of thumbnails, complete in itself.", show_default=False),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what is in a data set: fields, classes, and some samples from all over it.

    The samples are spread evenly, so that every part of the data set is seen. Each is decoded; one that cannot be is named,
    and the exit status is 1.

    Example: `stoker show photos/ -n 48 --html sheet.html`
    """
    check_writable(html)
    stored = stored_in(open_source(source))
    pictures = read_pictures(stored, count, thumbnails=html is not None)
    counts = _class_counts(stored)
    if html:
        html.write_text(sheet_page(stored.describe(), pictures), encoding="utf-8")
    if json:
        print_json(_as_json(stored, counts, pictures))
    else:
        _tell(stored, counts, pictures)
        if html:
            tell(f"{html}: {len(pictures)} pictures", style="dim")
    bad = [picture for picture in pictures if picture.problem]
    for picture in bad:
        typer.echo(f"bad sample {picture.key}: {picture.problem}", err=True)
    if bad:
        raise typer.Exit(DATA)


def read_pictures(source: Source, count: int, thumbnails: bool) -> list[Picture]:
    """Some samples, spread evenly over the source, decoded."""
    indices = np.unique(np.linspace(0, len(source) - 1, min(count, len(source))).astype(np.int64))
    rows = source.read(indices, tuple(source.fields), {}, Scratch())
    labels: Any = rows.columns.get("label")
    pictures = []
    for row, index in enumerate(indices.tolist()):
        label = None if labels is None else int(labels[row])
        name = source.classes[label] if label is not None and 0 <= label < len(source.classes) else None
        data = b"" if row in rows.errors else rows.columns["image"][row]
        problem = str(rows.errors[row]) if row in rows.errors else ""
        pictures.append(look(Picture(index, source.key(index), label, name, len(data), problem), data, thumbnails))
    return pictures


def _class_counts(source: Source) -> dict[str, int]:
    """How many samples each class has, in the order of their labels."""
    if not source.classes:
        return {}
    labels: Any = source.read(np.arange(len(source)), ("label",), {}, Scratch()).columns["label"]
    counts = np.bincount(labels, minlength=len(source.classes))
    return {name: int(count) for name, count in zip(source.classes, counts)}


def _as_json(source: Source, counts: dict[str, int], pictures: Sequence[Picture]) -> dict[str, Any]:
    return {
        "source": source.describe(),
        "samples": len(source),
        "fields": {name: str(spec) for name, spec in source.fields.items()},
        "classes": counts,
        "shown": [picture.facts() for picture in pictures],
    }


def _tell(source: Source, counts: dict[str, int], pictures: Sequence[Picture]) -> None:
    from rich.table import Table

    tell(source.describe(), style="bold")
    tell(f"  fields   {', '.join(f'{name} {spec}' for name, spec in source.fields.items())}")
    if counts:
        named = ", ".join(f"{name} ({count:,})" for name, count in list(counts.items())[:_CLASSES])
        tell(f"  classes  {named}{f', and {len(counts) - _CLASSES:,} more' if len(counts) > _CLASSES else ''}")
    tell()
    table = Table(box=None, header_style="dim")
    table.add_column("index", justify="right")
    table.add_column("key", overflow="fold")
    for name in ("pixels", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("format", no_wrap=True)
    if "label" in source.fields:
        table.add_column("label")
    for picture in pictures:
        label = [picture.told_label] if "label" in source.fields else []
        table.add_row(f"{picture.index:,}", picture.key, picture.pixels, show_bytes(picture.size), picture.kind, *label)
    out().print(table)
