"""Timelines as a picture: a self-contained SVG, in light and dark, for a page or a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from .timeline import STEP, TASK, WAIT, Timeline, TimelineRow

#: colours in light and in dark, by class: the loop's, reading, decoding, what has no name, and other steps
_COLOURS = {
    "tl-step": ("#2b8a3e", "#51cf66"), "tl-wait": ("#f1b0b7", "#7d3c46"), "tl-read": ("#1c7ed6", "#4dabf7"),
    "tl-decode": ("#e8590c", "#ff922b"), "tl-rest": ("#adb5bd", "#5c636a"), "tl-a": ("#7048e8", "#9775fa"),
    "tl-b": ("#0c8599", "#22b8cf"), "tl-c": ("#c2255c", "#f06595"), "tl-d": ("#846a2c", "#d0b060"),
}  # fmt: skip
_KNOWN = {STEP: "tl-step", WAIT: "tl-wait", "read": "tl-read", TASK: "tl-rest"}
_OTHERS = ("tl-a", "tl-b", "tl-c", "tl-d")
_DECODING = ("image", "decode")

_LEFT, _RIGHT, _ROW, _GAP, _TITLE, _AXIS, _LEGEND = 92, 12, 17, 4, 30, 34, 26
#: parts of a pixel that are text apart, and the height that the rows of a panel may take
_CELLS, _MOST = 2, 420


def _fills(shade: int) -> str:
    return "".join(f".tl .{name}{{fill:{pair[shade]}}}" for name, pair in _COLOURS.items())


_STYLE = (
    ".tl{font:12px system-ui,sans-serif;width:100%;min-width:560px;height:auto;display:block}"
    ".tl .tlt{font-size:14px;font-weight:600;fill:#1c2330}.tl .tln{fill:#667085}.tl .tlr{fill:#eceff4}.tl .tla{stroke:#d0d5dd}"
    ".tl .tlm{stroke:#fff;stroke-opacity:.8}"
    f"{_fills(0)}@media (prefers-color-scheme:dark){{.tl .tlt{{fill:#e8eaf0}}.tl .tln{{fill:#98a2b3}}.tl .tlr{{fill:#262c3a}}"
    f".tl .tla{{stroke:#3a4252}}{_fills(1)}}}"
)


def colours(names: Iterable[str]) -> dict[str, str]:
    """The class of every name of a bar: always the same for the loop, reading and decoding."""
    chosen: dict[str, str] = {}
    others = 0
    for name in names:
        if name in _KNOWN:
            chosen[name] = _KNOWN[name]
        elif name.startswith(_DECODING) and "tl-decode" not in chosen.values():
            chosen[name] = "tl-decode"
        else:
            chosen[name] = _OTHERS[others % len(_OTHERS)]
            others += 1
    return chosen


def timeline_svg(panels: Sequence[tuple[str, Timeline]], *, width: int = 960) -> str:
    """Timelines one below the other on one axis of time, each with its title (which may be empty)."""
    length_s = max((timeline.length_s for _, timeline in panels), default=0.0) or 1.0
    names = list(dict.fromkeys(name for _, timeline in panels for name in timeline.names))
    classes = colours(names)
    across, parts, y = width - _LEFT - _RIGHT, [], 6.0
    tops = []
    for title, timeline in panels:
        if title:
            parts.append(f'<text class="tlt" x="0" y="{y + 14:.0f}">{escape(title)}</text>')
            y += _TITLE
        tops.append(y)
        row_height = max(3.0, min(_ROW, _MOST / max(1, len(timeline.rows)) - _GAP))
        for number, row in enumerate(timeline.rows):
            if row_height >= 10 or number % 4 == 0:
                parts.append(f'<text class="tln" x="0" y="{y + row_height / 2 + 4:.1f}">{escape(row.name)}</text>')
            parts.append(f'<rect class="tlr" x="{_LEFT}" y="{y:.1f}" width="{across}" height="{row_height:.1f}" rx="2"/>')
            cells = max(1, round(across * _CELLS * timeline.length_s / length_s))
            parts += _row_paths(row, timeline.length_s, cells, y, row_height, classes)
            parts += _step_marks(row, length_s, across, y, row_height)
            y += row_height + min(_GAP, row_height / 3)
        y += 8
    axis = list(_axis(length_s, across, tops[0] if tops else y, y))
    legend, y = _legend(names, classes, width, y + _AXIS)
    spoken = escape(", ".join(title for title, _ in panels if title) or "what the training loop and the workers did")
    return (
        f'<svg class="tl" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y:.0f}" role="img" aria-label="{spoken}">'
        f"<style>{_STYLE}</style>{''.join(axis)}{''.join(parts)}{legend}</svg>"
    )


def _row_paths(row: TimelineRow, length_s: float, cells: int, y: float, height: float, classes: dict[str, str]) -> Iterator[str]:
    """One path for each name: the parts of the row in which it is what went on."""
    paths: dict[str, list[str]] = {}
    at = 0
    for name, run in groupby(row.cells(length_s, cells)):
        count = len(list(run))
        if name:
            across = count / _CELLS
            paths.setdefault(name, []).append(f"M{_LEFT + at / _CELLS:g} {y:.1f}h{across:g}v{height:.1f}h-{across:g}z")
        at += count
    seconds = row.seconds()
    for name, path in paths.items():
        text = escape(f"{row.name}: {name}, {time_text(seconds[name])} of {time_text(length_s)}")
        yield f'<path class="{classes[name]}" d="{"".join(path)}"><title>{text}</title></path>'


def _step_marks(row: TimelineRow, length_s: float, across: float, y: float, height: float) -> Iterator[str]:
    """A line where the loop got each batch, if there is room for them: steps without waits in between would look like one."""
    steps = [bar.start_s for bar in row.bars if bar.name == STEP]
    if 1 < len(steps) <= across / 6:
        path = "".join(f"M{_LEFT + start / length_s * across:.1f} {y:.1f}v{height:.1f}" for start in steps)
        yield f'<path class="tlm" d="{path}"/>'


def _axis(length_s: float, across: float, top: float, bottom: float) -> Iterator[str]:
    tick_s = _tick(length_s)
    unit, scale = ("ms", 1e3) if length_s < 2 else ("s", 1.0)
    count = int(length_s / tick_s + 1e-9)
    for number in range(count + 1):
        x = _LEFT + number * tick_s / length_s * across
        anchor = "end" if number == count and x > _LEFT + across - 20 else "middle" if number else "start"
        text = f"{number * tick_s * scale:g}{f' {unit}' if number in (0, count) else ''}"
        yield f'<line class="tla" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4:.1f}" y2="{bottom:.1f}"/>'
        yield f'<text class="tln" x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="{anchor}">{text}</text>'


def _tick(length_s: float) -> float:
    """A round time, of which there are 4 to 10 in the length."""
    tick = 1e-6
    while True:
        for factor in (1, 2, 5):
            if length_s / (tick * factor) <= 10:
                return tick * factor
        tick *= 10


def _legend(names: Sequence[str], classes: dict[str, str], width: int, y: float) -> tuple[str, float]:
    """Names with their colours, in as many lines as they need; and where that ends."""
    parts, x = [], float(_LEFT)
    for name in names:
        text = {STEP: "step of the loop", WAIT: "loop waits"}.get(name, name)
        needed = 26 + 7.2 * len(text)
        if x > _LEFT and x + needed > width:
            x, y = float(_LEFT), y + _LEGEND
        parts.append(f'<rect class="{classes[name]}" x="{x:.0f}" y="{y - 10:.0f}" width="12" height="12" rx="2"/>')
        parts.append(f'<text class="tln" x="{x + 17:.0f}" y="{y:.0f}">{escape(text)}</text>')
        x += needed
    return "".join(parts), y + 10


def time_text(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"
