"""A batch in a notebook: its fields, and its first pictures with labels and boxes; with inline styles, which notebooks keep."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sizes import counted
from .batch_pictures import BatchPicture, batch_pictures, shrunk

#: longest side of a picture, in pixels, and how large a small one is shown at least
_SIDE, _SHOWN = 128, 96
_CELL = "text-align:left;padding:2px 14px 2px 0;border:0;vertical-align:top"
_BOX = "position:absolute;box-sizing:border-box;border:2px solid #ff9f1c;outline:1px solid rgba(0,0,0,.55);border-radius:2px"


def batch_html(title: str, columns: Mapping[str, Any], plain: str) -> str:
    """A table of the fields, then pictures, if there are any.

    If that fails, because a field holds values of an unexpected kind, the result is the plain text.
    """
    try:
        return _table_and_pictures(title, columns)
    except Exception:  # noqa: BLE001  values may be of any library, and on any device; looking at them must not stop a notebook
        return f"<pre>{escape(plain)}</pre>"


def _table_and_pictures(title: str, columns: Mapping[str, Any]) -> str:
    rows = "".join(_row(name, value) for name, value in columns.items())
    head = "".join(
        f'<th style="{_CELL};font-weight:600;opacity:.65">{name}</th>' for name in ("field", "shape", "dtype", "values")
    )
    table = f'<table style="border-collapse:collapse;border:0;margin:4px 0;font-size:13px"><tr>{head}</tr>{rows}</table>'
    return f'<div style="font-size:13px"><div style="font-weight:650">{escape(title)}</div>{table}{_pictures(columns)}</div>'


def _row(name: str, value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        told = [counted(len(value), "row") if isinstance(value, Sequence) else "", type(value).__name__]
    else:
        device = getattr(value, "device", None)
        there = f" on {device}" if device is not None and str(device) != "cpu" else ""
        told = [" x ".join(map(str, shape)) or "one number", f"{dtype}{there}"]
    cells = [f"<b>{escape(name)}</b>", *map(escape, told), f'<span style="opacity:.75">{escape(_first_values(value))}</span>']
    return f"<tr>{''.join(f'<td style={_CELL!r}>{cell}</td>' for cell in cells)}</tr>"


def _first_values(value: Any) -> str:
    """The first values of a field of single numbers or texts; nothing of others."""
    flat = len(getattr(value, "shape", ())) == 1
    if not flat and not (isinstance(value, list) and value and isinstance(value[0], (str, int, float))):
        return ""
    first = [getattr(each, "item", lambda each=each: each)() for each in value[:6]]
    text = ", ".join(f"{each:.4g}" if isinstance(each, float) else str(each)[:24] for each in first)
    return f"{text}{', ...' if len(value) > 6 else ''}"


def _pictures(columns: Mapping[str, Any]) -> str:
    figures = "".join(map(_figure, batch_pictures(columns)))
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px;margin-top:6px">{figures}</div>' if figures else ""


def _figure(picture: BatchPicture) -> str:
    height, width = picture.pixels.shape[:2]
    longest = max(height, width)
    scale = (_SIDE if longest > _SIDE else max(longest, _SHOWN)) / longest
    size = f"width:{max(1, round(width * scale))}px;height:{max(1, round(height * scale))}px"
    sharp = "" if longest >= _SHOWN else ";image-rendering:pixelated"
    label = f'<div style="font-size:12px;max-width:{_SIDE}px;overflow-wrap:anywhere">{escape(picture.label)}</div>'
    return (
        f'<div><div style="position:relative;{size}"><img alt="{escape(picture.label)}" src="{data_url(picture.pixels, _SIDE)}" '
        f'style="{size};margin:0;max-width:none;border-radius:3px{sharp}">{boxes_html(picture.boxes)}</div>'
        f"{label if picture.label else ''}</div>"
    )


def boxes_html(boxes: NDArray[np.float64], names: Sequence[str] = ()) -> str:
    """Boxes (shares of a picture) as frames, for an element that is `position: relative` and as large as the picture."""
    frames = []
    for number, (top, left, bottom, right) in enumerate(boxes.tolist()):
        place = f"left:{left:.2%};top:{top:.2%};width:{right - left:.2%};height:{bottom - top:.2%}"
        title = f' title="{escape(names[number])}"' if number < len(names) else ""
        frames.append(f'<i style="{_BOX};{place}"{title}></i>')
    return "".join(frames)


def data_url(pixels: NDArray[np.uint8], longest: int) -> str:
    """Pixels as an image within a page: a JPEG; of small pictures, which are enlarged, a PNG."""
    kind = "PNG" if max(pixels.shape[:2]) < _SHOWN else "JPEG"
    return f"data:image/{kind.lower()};base64,{base64.b64encode(shrunk(pixels, longest, kind)[0]).decode('ascii')}"
