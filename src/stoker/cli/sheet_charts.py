"""Charts of a contact sheet, as HTML and SVG with axes and units; no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..sizes import counted

#: pixels of a chart, and of the room for its axes
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 320, 200, 50, 40, 12
_BINS = 21

STYLE = """
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 260px), 1fr)); gap: 18px 26px; }
.charts svg { width: 100%; height: auto; margin: 0; }
.charts h3 { margin: 0 0 4px; font-size: 13.5px; font-weight: 600; }
.chart { fill: var(--chart); stroke: none; }
.classes { display: grid; grid-template-columns: minmax(60px, max-content) minmax(60px, 1fr) max-content; gap: 5px 12px;
  align-items: center; font-size: 13px; }
.classes b { font-weight: 500; overflow-wrap: anywhere; max-width: 38vw; }
.classes i { display: block; height: 14px; border-radius: 3px; background: var(--chart); min-width: 1px; }
.classes span { text-align: right; font-variant-numeric: tabular-nums; }
:root { --chart: #3b6fd4; }
@media (prefers-color-scheme: dark) { :root { --chart: #84a9ff; } }
"""


def histogram(title: str, values: Sequence[float], show: Callable[[float], str], unit: str) -> str:
    """How many pictures have which value. Where values differ by more than a factor of 20, the axis is logarithmic."""
    numbers = np.asarray(values, np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    logarithmic = low > 0 and high / low > 20
    if high <= low:
        low, high = low * 0.9, high * 1.1 or 1.0
    edges = np.geomspace(low, high, _BINS + 1) if logarithmic else np.linspace(low, high, _BINS + 1)
    counts = np.histogram(numbers, edges)[0]
    most = max(1, int(counts.max()))
    step = (_WIDTH - _LEFT) / _BINS
    tall = _HEIGHT - _BOTTOM - _TOP
    bars = "".join(
        f'<rect class="chart" x="{_LEFT + at * step + 1:.1f}" y="{_TOP + tall * (1 - count / most):.1f}" '
        f'width="{step - 2:.1f}" height="{tall * count / most:.1f}"><title>{show(edges[at])} to {show(edges[at + 1])}: '
        f"{count:,}</title></rect>"
        for at, count in enumerate(counts.tolist())
        if count
    )
    across = [(at * step, float(edges[at])) for at in range(0, _BINS + 1, 7)]
    axis = f"{unit}{', logarithmic' if logarithmic else ''}"
    return _chart(title, bars, [(x, show(value)) for x, value in across], axis, most, "pictures")


def scatter(sizes: Sequence[tuple[int, int]]) -> str:
    """Widths and heights of pictures, a dot for each size, as large as there are pictures of it."""
    points = np.asarray(sizes, np.float64)
    unique, counts = np.unique(points, axis=0, return_counts=True)
    limit = _ceiling(float(points.max()))
    tall, wide = _HEIGHT - _BOTTOM - _TOP, _WIDTH - _LEFT
    dots = "".join(
        f'<circle class="chart" fill-opacity=".45" cx="{_LEFT + width / limit * wide:.1f}" '
        f'cy="{_TOP + (1 - height / limit) * tall:.1f}" r="{2.2 + 5 * math.sqrt((count - 1) / counts.max()):.1f}">'
        f"<title>{width:.0f} x {height:.0f}: {count:,}</title></circle>"
        for (width, height), count in zip(unique.tolist(), counts.tolist())
    )
    ticks = [(at * wide / 4, f"{limit * at / 4:,.0f}") for at in range(5)]
    return _chart("Width and height", dots, ticks, "width, pixels", limit, "height, pixels")


@dataclass(frozen=True, slots=True)
class ClassSizes:
    """How many samples each class has, or objects: of all samples, or `among` some of them."""

    counts: Mapping[str, int]
    among: str = ""
    thing: str = "sample"


def class_bars(classes: ClassSizes, most: int) -> str:
    """The largest classes as bars, and what is left in a sentence."""
    ordered = sorted(classes.counts.items(), key=lambda pair: -pair[1])
    largest = max(1, ordered[0][1])
    rows = "".join(
        f'<b>{escape(name)}</b><div><i style="width:{count / largest:.2%}"></i></div><span>{count:,}</span>'
        for name, count in ordered[:most]
    )
    rest = [count for _, count in ordered[most:]]
    among = f", in {classes.among}" if classes.among else ""
    left = f"; {counted(len(rest), 'other class', 'other classes')} with {_between(rest, classes.thing)} each" if rest else ""
    return f'<div class="classes">{rows}</div><div class="note">{classes.thing}s of each class{among}{left}</div>'


def show_count(value: float) -> str:
    """A number on an axis."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _between(counts: Sequence[int], thing: str) -> str:
    low, high = min(counts), max(counts)
    return counted(low, thing) if low == high else f"{low:,} to {high:,} {thing}s"


def _chart(title: str, body: str, ticks: Sequence[tuple[float, str]], across: str, most: float, up: str) -> str:
    """A body with its axes: `ticks` along the lower one, 0 and `most` along the left one."""
    floor = _HEIGHT - _BOTTOM
    axes = f'<path d="M{_LEFT} {_TOP}V{floor}H{_WIDTH}" fill="none" stroke="currentColor" stroke-opacity=".4"/>'
    marks = ""
    for x, label in ticks:
        anchor = "end" if x > _WIDTH - _LEFT - 20 else "middle"
        marks += f'<text x="{_LEFT + x:.1f}" y="{floor + 14}" text-anchor="{anchor}">{label}</text>'
    marks += f'<text x="{_LEFT - 5}" y="{floor}" text-anchor="end">0</text>'
    marks += f'<text x="{_LEFT - 5}" y="{_TOP + 8}" text-anchor="end">{most:,.0f}</text>'
    marks += f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{floor + 32}" text-anchor="middle">{across}</text>'
    middle = (_TOP + floor) / 2
    marks += f'<text x="12" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 12 {middle:.0f})">{up}</text>'
    return (
        f'<div><h3>{escape(title)}</h3><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}: {across} against {up}">'
        f'{body}{axes}<g font-size="11" fill="currentColor" fill-opacity=".75">{marks}</g></svg></div>'
    )


def _ceiling(value: float) -> float:
    """The next round number that is not smaller."""
    power = 10.0 ** math.floor(math.log10(max(1.0, value)))
    return float(next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= value))
