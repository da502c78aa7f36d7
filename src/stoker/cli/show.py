"""`stoker show`: what a data set holds, as text, as pictures in the terminal, or as a page of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..errors import ConfigError
from ..sizes import counted, show_bytes
from ..source.chunk import BYTES, OBJECT, FieldSpec, array_spec
from ..source.shards.codecs import spec_of
from ..source.source import Source
from ..source.streams.sequential import TarStream
from ..source.streams.stream import StreamSource
from ..storage.local import LocalBlob
from ..storage.scratch import Scratch
from ..storage.text_files import write_text
from .augmented_rows import RECIPE, AugmentedRow, countable_source, pipeline_rows, usual_row
from .classes import read_classes
from .data_survey import survey_of, survey_source
from .guard import DATA
from .pipelines import load_pipeline
from .sample_boxes import sample_boxes
from .sample_choice import (
    ShownSample,
    as_stored,
    fields_of,
    first_samples,
    is_label,
    samples_at,
    spread_indices,
    spread_samples,
    told_value,
)
from .screen import AsJson, amount, check_writable, flag, option, out, print_json, tell, tell_table
from .sheet import Augmented, sheet_page
from .sheet_charts import ClassSizes
from .sources import SourceName, find_source, open_annotated, open_stored
from .thumbnails import Picture, look

#: classes named in the text
_CLASSES = 12
#: rows of augmentations
_ROWS = 3
#: characters of a value in the table, and in a caption
_CELL, _CAPTION = 36, 60


def show(
    source: SourceName,
    count: Annotated[int | None, amount("Number of samples.", "-n", "--count", default="9; with --html, 24")] = None,
    pictures: Annotated[bool, flag("Show the pictures, if this is a terminal with colours.", "-p", "--pictures")] = False,
    html: Annotated[
        Path | None,
        option("FILE", "Write one self-contained HTML page: pictures, augmentations, sizes, classes, values.", default=False),
    ] = None,
    augment: Annotated[
        str | None,
        option(
            "MODULE:PIPELINE",
            "In the page, show what this pipeline does to its samples in several epochs.",
            default="a random crop and a flip",
        ),
    ] = None,
    annotations: Annotated[
        Path | None, option("FOLDER", "XML annotations of the images, with their boxes.", default="those of a PASCAL VOC folder")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what is in a data set: fields, classes, some samples.

    The samples are spread evenly over the data set; of a source read in sequence (`-`, `.tar.gz`) they are the first. Pictures
    of all fields are decoded; a sample that cannot be read or decoded is reported, and the exit status is 1.

    The page shows boxes over the pictures, and statistics from the headers of up to 2,000 pictures.

    Example: `stoker show photos/ -n 48 --html sheet.html`
    """
    check_writable(html)
    if augment and not html:
        raise ConfigError("--augment needs a page to show it in: add --html FILE")
    annotated = open_annotated(source, annotations)
    images = annotated is None and find_source(source).kind in ("images", "list")
    stored = annotated or open_stored(source)
    count = count or (24 if html else 9)
    samples = spread_samples(stored, count) if isinstance(stored, Source) else first_samples(stored, count)
    classes = _classes(stored)
    drawn = pictures and not json and _can_draw()
    looked = [_looked(sample, classes, thumbnails=drawn or html is not None) for sample in samples]
    shown = [picture for of_sample in looked for picture in of_sample]
    fields = fields_of(stored) if isinstance(stored, Source) else _fields_seen(stored, samples)
    counts = _class_counts(stored) if isinstance(stored, Source) else {}
    if html:
        title = stored.describe() if annotated is None else f"{source}: {stored.describe().partition('): ')[2]}"
        write_text(html, _page(title, stored, samples, looked, counts, augment))
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
            tell(f"{html}: {counted(sum(bool(picture.thumbnail) for picture in shown), 'picture')}", style="dim")
    _name_bad(shown)


def _classes(source: Source | StreamSource) -> tuple[str, ...]:
    """Class names: the source's own, or those that lie beside its first shard."""
    own = source.classes if isinstance(source, Source) else ()
    blobs = getattr(source, "blobs", ())
    return own or (read_classes(os.fsdecode(blobs[0].path)) if blobs and isinstance(blobs[0], LocalBlob) else ())


def _looked(sample: ShownSample, classes: Sequence[str], thumbnails: bool) -> list[Picture]:
    """The pictures of a sample, decoded; one without any for a sample that has none."""
    label = sample.label
    name = _named(label, classes) if label is not None else None
    plain = Picture(sample.index, sample.key, label, name, 0, sample.problem, about=sample.about(_CAPTION))
    if sample.problem or not sample.pictures:
        return [plain]
    found = []
    for field in sample.pictures:
        data = sample.values[field]
        picture = Picture(sample.index, sample.key, label, name, len(data), field=field, about=plain.about)
        found.append(_with_boxes(look(picture, data, thumbnails), sample, classes))
    return found


def _named(label: int, classes: Sequence[str]) -> str | None:
    return classes[label] if 0 <= label < len(classes) else None


def _with_boxes(picture: Picture, sample: ShownSample, classes: Sequence[str]) -> Picture:
    boxes = sample_boxes(sample.values, picture.width, picture.height) if picture.thumbnail else ()
    if not len(boxes):
        return picture
    labels = [_named(label, classes) or str(label) for label in sample.labels]
    objects = tuple(labels) if len(labels) == len(boxes) else ()
    return replace(picture, boxes=tuple((top, left, bottom, right) for top, left, bottom, right in boxes), objects=objects)


def _name_bad(shown: Sequence[Picture]) -> None:
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
    labels = np.concatenate(labels) if isinstance(labels, list) else labels  # those of all objects of an image
    counts = np.bincount(labels[labels >= 0], minlength=len(source.classes))
    return {name: int(count) for name, count in zip(source.classes, counts)}


def _page(
    title: str,
    source: Source | StreamSource,
    samples: Sequence[ShownSample],
    looked: Sequence[Sequence[Picture]],
    counts: Mapping[str, int],
    augment: str | None,
) -> str:
    """The page of `--html`."""
    opaque = samples[0].opaque if samples else ()
    survey = survey_source(source, opaque) if isinstance(source, Source) else survey_of(samples)
    surveyed = _among(survey.samples, source)
    among = "" if counts else surveyed
    if not counts:
        classes = _classes(source)
        counts = {f"{label} {_named(label, classes) or ''}".strip(): count for label, count in sorted(survey.labels.items())}
    rows = _augmented(samples, looked) if augment is None else _augmented_by(augment)
    objects = isinstance(source, Source) and "label" in source.fields and bool(source.fields["label"].shape)
    sizes = ClassSizes(counts, among, "object" if objects else "sample")
    shown = [picture for pictures in looked for picture in pictures]
    return sheet_page(title, _among(len(samples), source), shown, survey, surveyed, sizes, rows)


def _among(count: int, source: Source | StreamSource) -> str:
    """So many samples, and where in the source they are."""
    many = counted(count, "sample")
    if not isinstance(source, Source):
        return f"the first {many}"
    return f"all {many}" if count == len(source) else f"{many} of {len(source):,}, spread evenly"


def _augmented(samples: Sequence[ShownSample], looked: Sequence[Sequence[Picture]]) -> Augmented:
    """The usual recipe, for the first pictures of those that are shown."""
    shown = [(sample, pictures[0]) for sample, pictures in zip(samples, looked) if pictures[0].thumbnail][:_ROWS]
    recipe = f"{RECIPE}; --augment MODULE:PIPELINE shows what your pipeline does"
    return Augmented(recipe, tuple((picture, _usual(sample, picture, row)) for row, (sample, picture) in enumerate(shown)))


def _augmented_by(name: str) -> Augmented:
    """What a pipeline makes of some of its samples; beside them the pictures as they are stored."""
    pipeline = load_pipeline(name)
    source = countable_source(pipeline, name)
    indices = spread_indices(len(source), _ROWS)
    originals = [_looked(sample, pipeline.classes, True)[0] for sample in samples_at(as_stored(source), indices)]
    recipe, rows = pipeline_rows(pipeline, name, indices.tolist())
    return Augmented(f"{name}, epoch after epoch: {recipe}", tuple(zip(originals, rows)))


def _usual(sample: ShownSample, picture: Picture, row: int) -> AugmentedRow:
    height, width = picture.height, picture.width
    boxes = np.array(picture.boxes, np.float32).reshape(-1, 4) * np.array([height, width, height, width], np.float32)
    return usual_row(sample.values[picture.field], boxes if len(boxes) else None, row)


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
        return label if label and is_label(name) else told_value(sample.values[name], _CELL)
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
