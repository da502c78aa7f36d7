"""A pipeline and a loader in a notebook: the graph, the measurements, and a collapsible explanation."""

from __future__ import annotations

from html import escape

from ..plan.plan import Plan
from ..sizes import counted, show_bytes
from .bottleneck import workers_in_words
from .pipeline_graph import graph_nodes, graph_svg
from .stats import Stats

_PRE = "margin:4px 0;font:12px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;background:none"


def pipeline_html(plan: Plan, explained: str) -> str:
    """The graph of a pipeline, and its explanation."""
    folded = f'<details><summary style="cursor:pointer;opacity:.75">explain()</summary>{plain_html(explained)}</details>'
    return f'<div style="font-size:13px">{graph_svg(graph_nodes(plan))}{folded}</div>'


def loader_html(plan: Plan, stats: Stats, state: str, memory: int, device: str) -> str:
    """Where a loader is, what it may use, what it measured so far, and what each step costs."""
    facts = {"state": state, "workers": _workers(stats), "memory": f"at most {show_bytes(memory)} in flight", **_measured(stats)}
    cell = "text-align:left;padding:2px 14px 2px 0;border:0;vertical-align:top"
    rows = "".join(
        f'<tr><td style="{cell};opacity:.65">{escape(name)}</td><td style="{cell}">{escape(fact)}</td></tr>'
        for name, fact in facts.items()
    )
    table = f'<table style="border-collapse:collapse;border:0;margin:4px 0;font-size:13px">{rows}</table>'
    graph = graph_svg(graph_nodes(plan, stats, device))
    return f'<div style="font-size:13px"><div style="font-weight:650">Loader</div>{table}{graph}</div>'


def plain_html(text: str) -> str:
    """Text, escaped."""
    return f'<pre style="{_PRE}">{escape(text)}</pre>'


def _workers(stats: Stats) -> str:
    executor = stats.executor
    where = workers_in_words(stats) if executor.threads else executor.name
    return f"{where} ({executor.reason})" if executor.reason else where


def _measured(stats: Stats) -> dict[str, str]:
    if not stats.batches:
        return {"measured": "nothing yet"}
    size = f", {show_bytes(stats.bytes)}" if stats.bytes else ""
    facts = {"handed out": f"{counted(stats.batches, 'batch', 'batches')}, {counted(stats.samples, 'sample')}{size}"}
    if stats.measured:
        facts["rate"] = f"{stats.samples_per_s:,.0f} samples per second"
        facts["the loop waited"] = f"{stats.wait_share:.1%} of the time"
        facts["workers busy"] = f"{stats.busy_share:.0%} of the time"
    return facts
