"""The contact sheet of `stoker show --html`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from ..observe.report import page
from ..sizes import counted, show_bytes
from .thumbnails import Picture

_STYLE = """
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); gap: 14px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
.frame { height: 170px; background: var(--rail); display: flex; align-items: center; justify-content: center; padding: 6px; }
.frame img { max-width: 100%; max-height: 100%; border-radius: 3px; }
.frame.bad { color: var(--main); font-size: 13px; padding: 14px; overflow: auto; }
figcaption { padding: 8px 11px 10px; font-size: 12.5px; line-height: 1.4; overflow-wrap: anywhere; }
figcaption .about { opacity: .75; }
figcaption b { display: block; font-weight: 600; }
"""


def sheet_page(title: str, pictures: Sequence[Picture]) -> str:
    """Thumbnails in a grid, each with its name, label and size; the images are in the page itself."""
    figures = "\n".join(_figure(picture) for picture in pictures)
    return page(title, f"{counted(len(pictures), 'sample')}, spread evenly", f'<div class="sheet">{figures}</div>', _STYLE)


def _figure(picture: Picture) -> str:
    name = f"<b>{escape(picture.told_label)}</b>" if picture.told_label else ""
    size = f"{picture.pixels}, {escape(picture.kind)}, {show_bytes(picture.size)}" if picture.field else "no picture"
    about = f'<div class="about">{escape(picture.about)}</div>' if picture.about else ""
    return (
        f"<figure>{_frame(picture)}<figcaption>{name}{escape(picture.key)}{about}"
        f'<div class="note">#{picture.index:,} · {size}</div></figcaption></figure>'
    )


def _frame(picture: Picture) -> str:
    if picture.problem:
        return f'<div class="frame bad">{escape(picture.problem)}</div>'
    if not picture.thumbnail:
        return '<div class="frame none"></div>'
    data = base64.b64encode(picture.thumbnail).decode("ascii")
    return f'<div class="frame"><img alt="{escape(picture.key)}" src="data:image/jpeg;base64,{data}"></div>'
