"""`stoker show`: what a data set holds, as text, as pictures in the terminal, or as a page of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..sizes import show_bytes
from ..source.chunk import BYTES, OBJECT, FieldSpec, array_spec
from ..source.shards.codecs import spec_of
from ..source.source import Source
from ..source.streams.sequential import TarStream
from ..source.streams.stream import StreamSource
from ..storage.local import LocalBlob
from ..storage.scratch import Scratch
from ..storage.text_files import write_text
from .classes import read_classes
from .guard import DATA
from .sample_choice import LABELS, ShownSample, fields_of, first_samples, spread_samples, told_value
from .screen import AsJson, check_writable, out, print_json, tell, tell_table
from .sheet import sheet_page
from .sources import SourceName, find_source, open_stored
from .thumbnails import Picture, look

#: classes named in the text
_CLASSES = 12
#: characters of a value in the table, and in a caption
_CELL, _CAPTION = 36, 60


def show(
    source: SourceName,
    count: Annotated[int, typer.Option("-n", "--count", min=1, metavar="N", help="How many samples.")] = 9,
    pictures: Annotated[
        bool, typer.Option("-p", "--pictures", help="Show the pictures, if this is a terminal with colours.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page of thumbnails, complete in itself.", show_default=False),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what is in a data set: fields, classes, some samples.

    The samples are spread evenly over the data set; of a source read in sequence (`-`, `.tar.gz`) they are the first. Pictures
    are decoded, whatever field they are in; a sample that cannot be read or decoded is named, and the exit status is 1.

    Example: `stoker show photos/ -n 48 --html sheet.html`
    """
    check_writable(html)
    images = find_source(source).kind in ("images", "list")
    stored = open_stored(source)
    samples = spread_samples(stored, count) if isinstance(stored, Source) else first_samples(stored, count)
    classes = _classes(stored)
    drawn = pictures and not json and _can_draw()
    looked = [_looked(sample, classes, thumbnails=drawn or html is not None) for sample in samples]
    shown = [picture for of_sample in looked for picture in of_sample]
    fields = fields_of(stored) if isinstance(stored, Source) else _fields_seen(stored, samples)
    counts = _class_counts(stored) if isinstance(stored, Source) else {}
    if html:
        write_text(html, sheet_page(stored.describe(), shown))
    if json:
        print_json(
            _as_json(stored, fields, counts, [picture.facts() for picture in shown] if images else _facts(samples, looked))
        )
    else:
        _tell(stored, fields, counts)
        _tell_images(shown, "label" in fields) if images else _tell_samples(samples, looked, fields)
        if drawn:
            _draw(shown)
        if html:
            tell(f"{html}: {len(shown)} pictures", style="dim")
    _name_bad(samples, shown)


def _classes(source: Source | StreamSource) -> tuple[str, ...]:
    """Class names: the source's own, or those that lie beside its first shard."""
    own = source.classes if isinstance(source, Source) else ()
    blobs = getattr(source, "blobs", ())
    return own or (read_classes(os.fsdecode(blobs[0].path)) if blobs and isinstance(blobs[0], LocalBlob) else ())


def _looked(sample: ShownSample, classes: Sequence[str], thumbnails: bool) -> list[Picture]:
    """The pictures of a sample, decoded; one without any for a sample that has none."""
    label = sample.label
    name = classes[label] if label is not None and 0 <= label < len(classes) else None
    plain = Picture(sample.index, sample.key, label, name, 0, sample.problem, about=sample.about(_CAPTION))
    if sample.problem or not sample.pictures:
        return [plain]
    found = []
    for field in sample.pictures:
        data = sample.values[field]
        picture = Picture(sample.index, sample.key, label, name, len(data), field=field, about=plain.about)
        found.append(look(picture, data, thumbnails))
    return found


def _name_bad(samples: Sequence[ShownSample], shown: Sequence[Picture]) -> None:
    bad = [picture for picture in shown if picture.problem]
    for picture in bad:
        typer.echo(f"bad sample {picture.key}: {picture.problem}", err=True)
    if bad:
        raise typer.Exit(DATA)


def _class_counts(source: Source) -> dict[str, int]:
    """How many samples each class has, in the order of their labels."""
    if not source.classes or "label" not in source.fields:
        return {}
    labels: Any = source.read(np.arange(len(source)), ("label",), {}, Scratch()).columns["label"]
    counts = np.bincount(labels, minlength=len(source.classes))
    return {name: int(count) for name, count in zip(source.classes, counts)}


def _fields_seen(source: StreamSource, samples: Sequence[ShownSample]) -> dict[str, FieldSpec]:
    """Fields of what comes in sequence: those of the samples that came."""
    seen = {name: value for sample in samples for name, value in sample.values.items()}
    return {name: spec_of(name) if isinstance(source, TarStream) else _spec_seen(value) for name, value in seen.items()}


def _spec_seen(value: Any) -> FieldSpec:
    if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, bytes):
        return array_spec(value.dtype, *[None] * value.ndim)
    return BYTES if isinstance(value, bytes) else OBJECT


# ---- what is told -----------------------------------------------------------------------------------------------------------


def _as_json(
    source: Source | StreamSource, fields: Mapping[str, FieldSpec], counts: dict[str, int], shown: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "source": source.describe(),
        "samples": len(source) if isinstance(source, Source) else None,
        "fields": {name: str(spec) for name, spec in fields.items()},
        "classes": counts,
        "shown": shown,
    }


def _facts(samples: Sequence[ShownSample], looked: Sequence[Sequence[Picture]]) -> list[dict[str, Any]]:
    """Samples with what is known of their pictures put where they are."""
    told = []
    for sample, pictures in zip(samples, looked):
        facts = sample.facts()
        for picture in pictures:
            if picture.field:
                names = ("width", "height", "format", "mode", "problem")
                facts["fields"][picture.field] |= {name: getattr(picture, name) for name in names}
            facts["problem"] = facts["problem"] or picture.problem
        told.append(facts)
    return told


def _tell(source: Source | StreamSource, fields: Mapping[str, FieldSpec], counts: dict[str, int]) -> None:
    tell(source.describe(), style="bold")
    tell(f"  fields   {', '.join(f'{name} {spec}' for name, spec in fields.items())}")
    if counts:
        named = ", ".join(f"{name} ({count:,})" for name, count in list(counts.items())[:_CLASSES])
        tell(f"  classes  {named}{f', and {len(counts) - _CLASSES:,} more' if len(counts) > _CLASSES else ''}")
    tell()


def _tell_images(shown: Sequence[Picture], labels: bool) -> None:
    columns = ("index", "key", "pixels", "bytes", "format", *(("label",) if labels else ()))
    rows = []
    for picture in shown:
        label = [picture.told_label] if labels else []
        rows.append([f"{picture.index:,}", picture.key, picture.pixels, show_bytes(picture.size), picture.kind, *label])
    tell_table(columns, rows, right=("index", "pixels", "bytes"))


def _tell_samples(samples: Sequence[ShownSample], looked: Sequence[Sequence[Picture]], fields: Mapping[str, FieldSpec]) -> None:
    """A row per sample, a column per field."""
    rows = []
    for sample, pictures in zip(samples, looked):
        by_field = {picture.field: picture for picture in pictures}
        cells = [_cell(sample, name, by_field.get(name), pictures) for name in fields]
        rows.append([f"{sample.index:,}", sample.key, *cells])
    tell_table(("index", "key", *fields), rows, right=("index",))


def _cell(sample: ShownSample, name: str, picture: Picture | None, pictures: Sequence[Picture]) -> str:
    if name not in sample.values:
        return "bad"
    if picture is None:
        label = next((told.told_label for told in pictures if told.class_name), "")
        return label if label and name in LABELS else told_value(sample.values[name], _CELL)
    told = f"{picture.pixels} {picture.kind}" if not picture.problem else "bad"
    return f"{told}, {show_bytes(picture.size)}"


def _can_draw() -> bool:
    from .halfblocks import can_show

    if can_show(out()):
        return True
    typer.echo("no pictures: standard output is not a terminal with 256 colours; --html FILE makes a page of them", err=True)
    return False


def _draw(shown: Sequence[Picture]) -> None:
    from .halfblocks import show_pictures

    tell()
    show_pictures(out(), [picture for picture in shown if picture.field])
