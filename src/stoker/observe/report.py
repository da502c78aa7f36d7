"""Reports as pages: one HTML file each, no script, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..sizes import counted, show_bytes
from .stats import Stats

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --faint: #667085; --paper: #f6f7f9; --card: #ffffff; --line: #e3e6ec;
  --main: #d9480f; --calm: #2b8a3e; --rail: #eceff4; --other: #3b5bdb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --faint: #98a2b3; --paper: #12151c; --card: #1b202b;
  --line: #2c3342; --main: #ff8f4c; --calm: #69db7c; --rail: #262c3a; --other: #91a7ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 24px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 13px; margin: 0 0 12px; color: var(--faint); text-transform: uppercase; letter-spacing: .06em; }
.under { color: var(--faint); margin: 0 0 22px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; margin: 0 0 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 16px; margin: 0 0 16px; }
.tiles section { margin: 0; }
.tiles .note { margin: 0; }
.figure { font-size: 27px; font-weight: 650; font-variant-numeric: tabular-nums; }
.note { color: var(--faint); font-size: 13px; margin-top: 6px; }
.verdict { border-left: 5px solid var(--main); font-size: 16px; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 8px 14px; align-items: center; }
.rail { background: var(--rail); border-radius: 4px; height: 18px; overflow: hidden; display: flex; }
.rail i { display: block; height: 100%; background: var(--main); }
.rail i.calm { background: var(--calm); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
table { margin-top: 12px; border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: right; color: var(--faint); font-weight: 500; font-size: 13px; }
td { text-align: right; padding: 3px 0; border-top: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
pre { margin: 0; overflow-x: auto; font: 12.5px/1.55 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; display: block; margin-bottom: 10px; }
"""


def page(title: str, under: str, body: str, style: str = "") -> str:
    """A whole HTML document around a body. Title and subtitle are text; the body is HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="under">{escape(under)}</p>\n{body}\n</main>\n</body>\n</html>\n'
    )


def report_page(
    title: str,
    stats: Stats,
    why: str,
    *,
    plan: str = "",
    lesson: Sequence[Mapping[str, float]] = (),
    under: str = "",
    training: bool = True,
) -> str:
    """The report of a run: rates, waiting, the cost of each step, the verdict, and the plan.

    `lesson` holds a mapping for every epoch of training (`epoch`, `loss`, `accuracy`, `images_per_s`, `wait_share`). Without
    `training` nobody worked with the batches, and waiting for them is left out.
    """
    parts = [_tiles(stats, training), _card("Verdict", f"<div>{escape(why)}</div>", "verdict")]
    if lesson:
        parts.append(_card("Learning", _curve(lesson) + _lesson_table(lesson)))
    if training and stats.measured:
        parts.append(_card("The training loop's time", _loop_bar(stats)))
    parts.append(_card("What a sample costs", _step_bars(stats)))
    if plan:
        parts.append(_card("The pipeline", f"<pre>{escape(plan)}</pre>"))
    size = f", {show_bytes(stats.bytes)}" if stats.bytes else ""
    told = under or f"{counted(stats.samples, 'sample')} in {counted(stats.batches, 'batch', 'batches')}{size}"
    return page(title, told, "\n".join(parts))


def step_costs(stats: Stats) -> dict[str, float]:
    """Worker time by step, in microseconds for each sample."""
    return {name: seconds / max(1, stats.worked) * 1e6 for name, seconds in stats.steps_s.items()}


def _card(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{body}</section>'


def _tiles(stats: Stats, training: bool) -> str:
    tiles = [("First batch", f"{stats.first_batch_s:.2f} s", "after it was asked for")]
    if stats.measured:
        tiles.insert(0, ("Samples per second", f"{stats.samples_per_s:,.0f}", f"over {stats.elapsed_s:.1f} s"))
        tiles.append(("Workers busy", f"{stats.busy_share:.0%}", f"of the time of {counted(stats.workers, 'worker')}"))
    if training and stats.measured:
        tiles.insert(1, ("The loop waited", f"{stats.wait_share:.1%}", f"{stats.waited_s:.2f} s for data"))
    cards = (_card(title, f'<div class="figure">{figure}</div><div class="note">{note}</div>') for title, figure, note in tiles)
    return f'<div class="tiles">{"".join(cards)}</div>'


def _loop_bar(stats: Stats) -> str:
    waited = stats.wait_share * 100
    return (
        f'<div class="rail"><i style="width:{waited:.2f}%"></i><i class="calm" style="width:{100 - waited:.2f}%"></i></div>'
        f'<div class="note">{waited:.1f}% waiting for data, {100 - waited:.1f}% at work</div>'
    )


def _step_bars(stats: Stats) -> str:
    costs = step_costs(stats)
    most = max(costs.values(), default=0.0) or 1.0
    rows = "".join(
        f'<div>{escape(name)}</div><div class="rail"><i style="width:{cost / most:.2%}"></i></div>'
        f'<div class="number">{cost:,.1f} us</div>'
        for name, cost in costs.items()
    )
    return f'<div class="bars">{rows}</div><div class="note">time of one worker for one sample, by step</div>'


def _lesson_table(lesson: Sequence[Mapping[str, float]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("epoch", "loss", "accuracy", "images/s", "waited"))
    rows = "".join(
        f"<tr><td>{row['epoch']:.0f}</td><td>{row['loss']:.3f}</td><td>{row['accuracy']:.1%}</td>"
        f"<td>{row['images_per_s']:,.0f}</td><td>{row['wait_share']:.1%}</td></tr>"
        for row in lesson
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _curve(lesson: Sequence[Mapping[str, float]]) -> str:
    """Accuracy and loss over the epochs, as lines."""
    width, height, left, top = 960, 200, 8, 14
    across = (width - 2 * left) / max(1, len(lesson) - 1)
    most = max(row["loss"] for row in lesson) or 1.0

    def line(values: Sequence[float], color: str) -> str:
        points = [(left + at * across, top + (1 - value) * (height - 2 * top)) for at, value in enumerate(values)]
        told = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="var({color})"/>' for x, y in points)
        return f'<polyline points="{told}" fill="none" stroke="var({color})" stroke-width="2.5"/>{dots}'

    grid = "".join(
        f'<line x1="0" x2="{width}" y1="{y}" y2="{y}" stroke="var(--line)"/>' for y in (top, height // 2, height - top)
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="accuracy and loss by epoch">{grid}'
        f"{line([row['loss'] / most for row in lesson], '--other')}{line([row['accuracy'] for row in lesson], '--main')}</svg>"
        '<div class="note"><b style="color:var(--main)">accuracy</b>, 0 to 100%; '
        f'<b style="color:var(--other)">loss</b>, 0 to {most:.2f}</div>'
    )
