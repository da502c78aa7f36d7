"""Pictures in a terminal: two pixels per character, one above the other, as foreground and background of a half block."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ..image.pillow import open_image
from .thumbnails import Picture

_BLOCK = "▀"
#: characters across a picture, and lines of one at most
_WIDTH, _LINES = 36, 16


def can_show(console: Console) -> bool:
    """Whether it is a terminal with colours enough for a picture."""
    return console.is_terminal and console.color_system in ("256", "truecolor")


def show_pictures(console: Console, pictures: Sequence[Picture]) -> None:
    """Print pictures with their names, as many side by side as fit."""
    across = max(1, console.width // (_WIDTH + 2))
    for first in range(0, len(pictures), across):
        grid = Table.grid(padding=(0, 1))
        row = pictures[first : first + across]
        for _ in row:
            grid.add_column(width=_WIDTH, vertical="bottom")
        grid.add_row(*(_framed(picture) for picture in row))
        console.print(grid)
        console.print()


def _framed(picture: Picture) -> RenderableType:
    drawn = half_blocks(picture.thumbnail) if picture.thumbnail else Text(picture.problem or "no picture", "red")
    label = Text(picture.told_label, "bold", no_wrap=True, overflow="ellipsis")
    key = Text(f"#{picture.index:,} {picture.key}", "dim", no_wrap=True, overflow="ellipsis")
    return Group(drawn, label, key) if picture.told_label else Group(drawn, key)


def half_blocks(data: bytes) -> Text:
    """An encoded picture as coloured text."""
    import numpy as np
    from PIL import Image

    with open_image(data) as image:
        scale = min(_WIDTH / image.width, 2 * _LINES / image.height)
        across, down = max(1, round(image.width * scale)), max(2, 2 * round(image.height * scale / 2))
        pixels = np.asarray(image.convert("RGB").resize((across, down), Image.Resampling.BOX)).tolist()
    text = Text(no_wrap=True)
    for line in range(0, down, 2):
        for upper, lower in zip(pixels[line], pixels[line + 1]):
            text.append(_BLOCK, Style(color=_hex(upper), bgcolor=_hex(lower)))
        if line + 2 < down:
            text.append("\n")
    return text


def _hex(pixel: Sequence[int]) -> str:
    return f"#{pixel[0]:02x}{pixel[1]:02x}{pixel[2]:02x}"
