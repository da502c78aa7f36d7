"""A pipeline as a graph from its source to the training loop: boxes as wide as their cost, edges as thick as their traffic.

One SVG without script or style sheet: it looks the same in a report, in a notebook and in a file, on light and dark backgrounds.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ..plan.nodes import (
    Drop,
    Filter,
    FlatMap,
    Map,
    MapBatch,
    MapFields,
    Node,
    Regroup,
    Rename,
    Select,
    written,
)
from ..plan.plan import Plan
from ..sizes import show_bytes
from .stats import Stats, StepStats


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One box: a verb with its arguments, what it costs for each sample, and the bytes of a sample that leave it."""

    name: str
    detail: str = ""
    kind: str = ""  # "read", "native", "function"; nothing: it takes no time
    cost_us: float | None = None  # None: not measured
    bytes: float | None = None


#: how kinds of work look, and what they are called; both colours are read on white and on black
_KINDS = {
    "read": ("#2f7fd6", "reading"),
    "native": ("#d9610f", "native code"),
    "function": ("#8f56d8", "Python functions"),
    "": ("#7d8696", ""),
}
#: verbs whose work is Python code
_FUNCTIONS = (Map, MapFields, Filter, FlatMap, MapBatch, Regroup)
_NAMES = (Select, Rename, Drop)

#: sizes in pixels: a box that costs nothing, what all costs together add, the gap for an edge, a line of text
_BOX, _COSTS, _GAP, _LINE = 118, 300, 54, 14
_EDGE = 8  # the border of the picture
_MOST_LINES = 5
_CHARACTER = 6.7  # of the arguments' font


# ---- what is in it -----------------------------------------------------------------------------------------------------------


def graph_nodes(plan: Plan, stats: Stats | None = None, device: str = "") -> list[GraphNode]:
    """The boxes of a plan, with what was measured, if it ran; `device` is where its batches go."""
    costs = _Costs(stats)
    nodes = [costs.node("source", plan.source.describe(), "read", "read")]
    verbs: list[Node] = [*(plan.order.verbs if plan.order else ()), *([plan.shard] if plan.shard else [])]
    if verbs:
        nodes.append(GraphNode("order", ", ".join(map(written, verbs))))
    for segment in plan.segments:
        nodes += [costs.verb(node) for node in segment.nodes]
        nodes += [GraphNode(*_split(node)) for node in segment.tail]
    nodes += [costs.verb(node) for node in plan.stages]
    if plan.batch is not None:
        specs = (plan.specs or {}).values()
        size = sum(spec.nbytes for spec in specs) if all(spec.fixed for spec in specs) else 0
        nodes.append(costs.node(*_split(plan.batch), "native" if costs.has("collate") else "", "collate", size or None))
    nodes += [costs.verb(node) for node in plan.finish]
    worth = costs.handed_us > sum(node.cost_us or 0.0 for node in nodes) / 100
    told = f"on {device}" if device else "hand-over" if worth else ""
    return [*nodes, GraphNode("training", told, "native" if worth else "", costs.handed_us if worth else None)]


class _Costs:
    """What steps took, each found once: in the order of the pipeline, by the verb its name begins with."""

    def __init__(self, stats: Stats | None) -> None:
        self._left = list(stats.steps) if stats is not None else []
        self._measured = bool(self._left)
        self._samples = max([1, *(step.samples for step in self._left)])
        self.handed_us = stats.handed_s / max(1, stats.samples) * 1e6 if stats is not None else 0.0

    def has(self, name: str) -> bool:
        return any(_verb(step.name) == name for step in self._left)

    def verb(self, node: Node) -> GraphNode:
        name, detail = _split(node)
        kind = "" if isinstance(node, _NAMES) else "function" if isinstance(node, _FUNCTIONS) else "native"
        return self.node(name, detail, kind, name)

    def node(self, name: str, detail: str, kind: str, step: str, nbytes: float | None = None) -> GraphNode:
        found = self._find(step, detail)
        if found is None:
            return GraphNode(name, detail, kind, 0.0 if self._measured and not kind else None, nbytes)
        self._left.remove(found)
        out = found.bytes_out / self._samples
        return GraphNode(name, detail, found.kind, found.wall_s / self._samples * 1e6, out or nbytes)

    def _find(self, verb: str, detail: str) -> StepStats | None:
        """The first step of this verb, the one that names the same field first: images may be rendered in another order."""
        fit = [step for step in self._left if _verb(step.name) == verb]
        exact = [step for step in fit if detail.startswith(step.name[len(verb) :].strip("( )") or "\0")]
        return next(iter(exact or fit), None)


def _verb(text: str) -> str:
    found = re.match(r"\w+", text)
    return found[0] if found else text


def _split(node: Node) -> tuple[str, str]:
    """A verb, and its arguments as they are written."""
    text = re.sub(r"\b(__main__|builtins)\.", "", written(node))
    verb = _verb(text)
    return verb, text[len(verb) + 1 : -1] if not isinstance(node, Regroup) else text[len(verb) :]


# ---- how it looks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Box:
    """A node with its place."""

    node: GraphNode
    x: float
    width: float
    lines: tuple[str, ...]


def graph_svg(nodes: Sequence[GraphNode], width: int = 940) -> str:
    """The graph as one `<svg>` in a `<div>` that scrolls if it is narrower than `width`.

    Boxes go from left to right, and continue in a new row at `width`.
    """
    rows = _rows(nodes, width)
    body: list[str] = []
    y, end = float(_EDGE), (0.0, 0.0)
    most = max((node.bytes or 0.0 for node in nodes), default=0.0)
    for number, row in enumerate(rows):
        height = 46 + _LINE * max(len(box.lines) for box in row) + (12 if any(box.node.cost_us for box in row) else 0)
        middle = y + height / 2
        if number:
            body.append(_turn(rows[number - 1][-1].node, end, (row[0].x, middle), y, most))
        for box, after in zip(row, [*row[1:], None]):
            body.append(_drawn(box, y, height))
            if after is not None:
                body.append(_edge(box.node, box.x + box.width, after.x, middle, most))
        end = row[-1].x + row[-1].width, middle
        y += height + 40
    legend, legend_end = _legend(nodes, y - 18)
    full = y - 40 + _EDGE + (34 if legend else 0)
    wide = max([*(row[-1].x + row[-1].width + 2 * _EDGE for row in rows), legend_end, 420.0])
    told = escape(_told(nodes))
    return (
        '<div style="overflow-x:auto;max-width:100%">'
        f'<svg role="img" aria-label="{told}" viewBox="0 0 {wide:.0f} {full:.0f}" width="{wide:.0f}" height="{full:.0f}" '
        f'style="width:{wide:.0f}px;height:{full:.0f}px;max-width:none;display:block;margin:0" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="currentColor">{"".join(body)}{legend}</svg></div>'
    )


def _rows(nodes: Sequence[GraphNode], width: int) -> list[list[_Box]]:
    total = sum(node.cost_us or 0.0 for node in nodes)
    rows: list[list[_Box]] = [[]]
    x = float(_EDGE)
    for node in nodes:
        across = _width(node, total)
        if rows[-1] and x + across > width - _EDGE - 14:
            rows.append([])
            x = _EDGE + 14.0
        lines = textwrap.wrap(node.detail, int((across - 20) / _CHARACTER), max_lines=_MOST_LINES, placeholder=" …")
        rows[-1].append(_Box(node, x, across, tuple(lines)))
        x += across + (_GAP if node.bytes else _GAP / 2)
    return [row for row in rows if row]


def _width(node: GraphNode, total: float) -> float:
    if total > 0 and node.cost_us:
        return _BOX + _COSTS * node.cost_us / total
    text = 22 + max(_CHARACTER * len(node.detail), 8.8 * len(node.name))
    return max(64.0, min(text, (1.2 if total > 0 else 1.5) * _BOX))


def _drawn(box: _Box, y: float, height: float) -> str:
    node = box.node
    colour = _KINDS.get(node.kind, _KINDS[""])[0]
    x, left = box.x, box.x + 10
    parts = [
        f"<g><title>{escape(_told_node(node))}</title>",
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{height:.1f}" rx="7" fill="{colour}" '
        f'fill-opacity="{0.13 if node.kind else 0.05}" stroke="{colour}" stroke-opacity=".75"/>',
        f'<text x="{left:.1f}" y="{y + 20:.1f}" font-weight="650">{escape(_cut(node.name, (box.width - 18) / 8.4))}</text>',
    ]
    for number, line in enumerate(box.lines):
        parts.append(
            f'<text x="{left:.1f}" y="{y + 37 + number * _LINE:.1f}" font-family="ui-monospace, monospace" font-size="11" '
            f'opacity=".8">{escape(line)}</text>'
        )
    if node.cost_us:
        parts.append(
            f'<text x="{left:.1f}" y="{y + height - 10:.1f}" font-size="12" font-weight="600" fill="{colour}">'
            f"{_microseconds(node.cost_us)}</text>"
        )
    return "".join([*parts, "</g>"])


def _edge(node: GraphNode, start: float, stop: float, y: float, most: float) -> str:
    thick, told = _thickness(node, most), show_bytes(node.bytes) if node.bytes else ""
    text = f'<text x="{(start + stop) / 2:.1f}" y="{y - 8 - thick / 2:.1f}" text-anchor="middle" font-size="11" opacity=".75">'
    return (
        f'<path d="M{start + 2:.1f} {y:.1f}H{stop - 8:.1f}" stroke="currentColor" stroke-opacity=".45" '
        f'stroke-width="{thick:.1f}"/>'
        f"{_head(stop - 2, y)}{f'{text}{told}</text>' if told else ''}"
    )


def _turn(node: GraphNode, start: tuple[float, float], stop: tuple[float, float], top: float, most: float) -> str:
    """The edge from the end of a row to the beginning of the next, between them."""
    between = top - 20
    told = show_bytes(node.bytes) if node.bytes else ""
    text = f'<text x="{start[0] - 6:.1f}" y="{between - 6:.1f}" text-anchor="end" font-size="11" opacity=".75">{told}</text>'
    return (
        f'<path d="M{start[0] + 2:.1f} {start[1]:.1f}h9V{between:.1f}H{stop[0] - 14:.1f}V{stop[1]:.1f}h6" fill="none" '
        f'stroke="currentColor" stroke-opacity=".45" stroke-width="{_thickness(node, most):.1f}" stroke-linejoin="round"/>'
        f"{_head(stop[0] - 2, stop[1])}{text if told else ''}"
    )


def _head(x: float, y: float) -> str:
    return f'<path d="M{x - 8:.1f} {y - 5:.1f}l8 5l-8 5z" fill-opacity=".6"/>'


def _thickness(node: GraphNode, most: float) -> float:
    return 1.5 + (5.5 * ((node.bytes or 0.0) / most) ** 0.5 if most else 0.0)


def _legend(nodes: Sequence[GraphNode], y: float) -> tuple[str, float]:
    """What colours and sizes mean, as far as they occur; and where that ends, in a wide font."""
    parts, x = [], float(_EDGE)
    for kind, (colour, told) in _KINDS.items():
        if told and any(node.kind == kind for node in nodes):
            parts.append(f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" rx="2.5" fill="{colour}"/>')
            parts.append(f'<text x="{x + 15:.1f}" y="{y:.1f}">{told}</text>')
            x += 34 + 6.2 * len(told)
    sizes = ["boxes: time of one worker per sample"] if any(node.cost_us for node in nodes) else []
    sizes += ["edges: bytes per sample"] if any(node.bytes for node in nodes[:-1]) else []
    if sizes:
        told = "; ".join(sizes)
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" opacity=".75">{told}</text>')
        x += 6.8 * len(told)
    return f'<g font-size="11.5">{"".join(parts)}</g>' if parts else "", x


def _told(nodes: Sequence[GraphNode]) -> str:
    steps = (f"{node.name} ({_microseconds(node.cost_us)})" if node.cost_us else node.name for node in nodes)
    return f"The pipeline: {', then '.join(steps)}"


def _told_node(node: GraphNode) -> str:
    lines = [f"{node.name}: {node.detail}" if node.detail else node.name]
    if node.cost_us:
        lines.append(f"{_microseconds(node.cost_us)} of a worker for each sample")
    if node.bytes:
        lines.append(f"{show_bytes(node.bytes)} for each sample leave it")
    return "\n".join(lines)


def _microseconds(cost_us: float) -> str:
    if cost_us >= 10_000:
        return f"{cost_us / 1000:,.1f} ms"
    return f"{cost_us:,.0f} µs" if cost_us >= 10 else f"{cost_us:.1f} µs"


def _cut(text: str, most: float) -> str:
    return text if len(text) <= most else f"{text[: int(most) - 1]}…"
