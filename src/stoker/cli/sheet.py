"""The page of `stoker show --html`: pictures with labels and boxes, augmentations, sizes, classes, and what other fields hold."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..batch.batch_html import boxes_html, data_url
from ..batch.batch_pictures import BatchPicture
from ..observe.report import page
from ..sizes import counted, show_bytes
from .augmented_rows import AugmentedRow
from .data_survey import DataSurvey
from .sheet_charts import STYLE, ClassSizes, class_bars, histogram, scatter, show_count
from .thumbnails import Picture

#: pixels of a picture in the sheet, and in a row of augmentations
_SIDE, _SMALL = 164, 92
#: classes with a bar of their own
_CLASSES = 20

_STYLE = """
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(178px, 1fr)); gap: 14px; margin: 0 0 16px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
.frame { height: 178px; background: var(--rail); display: flex; align-items: center; justify-content: center; }
.frame.bad { color: var(--main); font-size: 13px; padding: 14px; overflow: auto; overflow-wrap: anywhere; }
.held { position: relative; flex: none; }
.held img { display: block; width: 100%; height: 100%; border-radius: 3px; }
figcaption { padding: 8px 11px 10px; font-size: 12.5px; line-height: 1.4; overflow-wrap: anywhere; }
figcaption .about { opacity: .75; }
figcaption b { display: block; font-weight: 600; }
.row { display: flex; gap: 7px; overflow-x: auto; align-items: flex-end; padding: 2px 0 8px; }
.row .first { min-width: 102px; padding-right: 9px; margin-right: 2px; border-right: 1px solid var(--line); }
.values { overflow-x: auto; }
.values table { margin: 0; font-size: 13px; }
.values th, .values td { text-align: left; padding: 3px 16px 3px 0; vertical-align: top; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True, slots=True)
class Augmented:
    """Pictures as stored, several augmented versions of each, and what made these."""

    recipe: str
    rows: tuple[tuple[Picture, AugmentedRow], ...]


def sheet_page(
    title: str,
    told: str,
    pictures: Sequence[Picture],
    survey: DataSurvey,
    surveyed: str,
    classes: ClassSizes,
    augmented: Augmented,
) -> str:
    """The page, with its images in it; `told` describes the samples, and `surveyed` those of the survey."""
    parts = [
        f'<div class="sheet">{"".join(map(_figure, pictures))}</div>',
        _card("Augmentations", _augmentations(augmented)) if augmented.rows else "",
        _card("Sizes of pictures", _sizes(survey)) if survey.sizes else "",
        _card("Classes", class_bars(classes, _CLASSES)) if classes.counts else "",
        _card("Other fields", _values(survey, surveyed)) if survey.fields else "",
    ]
    return page(title, told, "\n".join(filter(None, parts)), STYLE + _STYLE)


def _card(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _figure(picture: Picture) -> str:
    name = f"<b>{escape(_named(picture))}</b>" if _named(picture) else ""
    size = f"{picture.pixels}, {escape(picture.kind)}, {show_bytes(picture.size)}" if picture.field else "no picture"
    about = f'<div class="about">{escape(picture.about)}</div>' if picture.about else ""
    return (
        f"<figure>{_frame(picture)}<figcaption>{name}{escape(picture.key)}{about}"
        f'<div class="note">#{picture.index:,} · {size}</div></figcaption></figure>'
    )


def _named(picture: Picture) -> str:
    """The label, or how many objects of which classes there are."""
    if picture.told_label or not picture.objects:
        return picture.told_label
    kinds = dict.fromkeys(picture.objects)
    counts = {kind: picture.objects.count(kind) for kind in kinds}
    return ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in counts.items())


def _frame(picture: Picture) -> str:
    if picture.problem:
        return f'<div class="frame bad">{escape(picture.problem)}</div>'
    if not picture.thumbnail:
        return ""
    return f'<div class="frame">{_stored(picture, _SIDE)}</div>'


def _stored(picture: Picture, side: int) -> str:
    data = base64.b64encode(picture.thumbnail).decode("ascii")
    boxes = boxes_html(np.array(picture.boxes).reshape(-1, 4), picture.objects)
    return _held(f"data:image/jpeg;base64,{data}", picture.key, picture.width, picture.height, side, boxes)


def _held(url: str, alt: str, width: int, height: int, side: int, boxes: str) -> str:
    """An image so large that its longer side is `side`, with boxes over it."""
    scale = side / max(1, width, height)
    size = f"width:{max(4, round(width * scale))}px;height:{max(4, round(height * scale))}px"
    return f'<div class="held" style="{size}"><img alt="{escape(alt)}" src="{url}">{boxes}</div>'


def _augmentations(augmented: Augmented) -> str:
    parts = []
    for original, row in augmented.rows:
        first = f'<div class="first">{_stored(original, _SMALL)}</div>' if original.thumbnail else ""
        problem = f'<div class="note">{escape(row.problem)}</div>' if row.problem else ""
        parts.append(f'<div class="row">{first}{"".join(map(_made, row.pictures))}</div>{problem}')
    return f'{"".join(parts)}<div class="note">{escape(augmented.recipe)}</div>'


def _made(picture: BatchPicture) -> str:
    height, width = picture.pixels.shape[:2]
    return _held(data_url(picture.pixels, _SMALL), "augmented", width, height, _SMALL, boxes_html(picture.boxes))


def _sizes(survey: DataSurvey) -> str:
    megapixels = [width * height / 1e6 for width, height in survey.sizes]
    longest = max(survey.sizes, key=lambda size: size[0] * size[1])
    charts = [
        scatter(survey.sizes),
        histogram("Pixels", megapixels, show_count, "megapixels"),
        histogram("Stored size", survey.lengths, show_bytes, "bytes"),
    ]
    widths, heights = zip(*survey.sizes)
    bad = f"; {survey.bad:,} could not be read" if survey.bad else ""
    note = (
        f"{counted(len(survey.sizes), 'picture')}, by their headers{bad}; median {np.median(widths):.0f} x "
        f"{np.median(heights):.0f} and {show_bytes(float(np.median(survey.lengths)))}; the largest {longest[0]} x {longest[1]}"
    )
    return f'<div class="charts">{"".join(charts)}</div><div class="note">{note}</div>'


def _values(survey: DataSurvey, surveyed: str) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("field", "holds", "values", "commonest", "missing"))
    rows = []
    for about in survey.fields.values():
        common = ", ".join(f"{value} ({count:,})" for value, count in about.values.most_common(3) if count > 1)
        cells = (about.name, about.kind, about.told, common, f"{about.missing:,}" if about.missing else "")
        rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    note = f'<div class="note">in {escape(surveyed)}</div>'
    return f'<div class="values"><table><tr>{head}</tr>{"".join(rows)}</table></div>{note}'
