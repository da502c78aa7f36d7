"""`stoker run`: iterates a pipeline, and reports how fast it is and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .. import observe
from ..errors import ConfigError
from ..observe.bottleneck import workers_in_words
from ..observe.page_data import verdict_data
from ..observe.report import step_costs, write_report
from ..observe.run_settings import command_line
from ..sizes import counted, show_bytes
from .pipelines import PipelineName, load_pipeline
from .progress import Progress
from .screen import (
    Ahead,
    AsJson,
    Processes,
    ReportFile,
    Threads,
    amount,
    bar,
    check_writable,
    option,
    out,
    print_json,
    tell,
    tell_table,
)
from .watching import Port, Watched, timeline_of, watching

if TYPE_CHECKING:
    from ..loader import Loader
    from ..observe.stats import Stats


def run(
    pipeline: PipelineName,
    epochs: Annotated[int, amount("Number of epochs.")] = 1,
    limit: Annotated[int | None, amount("Stop after this many batches, over all epochs.", default="none")] = None,
    threads: Threads = None,
    processes: Processes = None,
    ahead: Ahead = None,
    trace: Annotated[
        Path | None, option("FILE", "Write a timeline for ui.perfetto.dev or chrome://tracing.", default=False)
    ] = None,
    html: ReportFile = None,
    watch: Watched = False,
    port: Port = 0,
    json: AsJson = False,
) -> None:
    """Iterate a pipeline without training, and measure it.

    Reports the samples per second of the pipeline on this machine, the cost of each step, and what limits it.

    Example: `stoker run train.py:train --epochs 2 --html report.html`
    """
    check_writable(trace)
    check_writable(html)
    chosen = load_pipeline(pipeline)
    if limit is None and chosen.plan.order is not None and chosen.plan.order.length is None:
        raise ConfigError(f"{pipeline} never ends; set a limit, as in --limit 1000")
    with chosen.loader(threads=threads, processes=processes, ahead=ahead) as loader:
        recorded = observe.trace(loader, trace) if trace else None
        with (
            watching(loader, watch, port, title=pipeline, terminal=watch, training=False) as show,
            timeline_of(loader, html) as timeline,
        ):

            def report(batch: Any = None) -> None:
                if html:
                    more = {"timeline": timeline(), "command": command_line()}
                    write_report(loader, html, title=pipeline, batch=batch, training=False, **more)

            last, stopped = None, None
            try:
                last = _iterate(loader, epochs, limit, show, progress=None if not watch else False)
            except KeyboardInterrupt as error:  # the way to end a run that has shown enough
                stopped = error
            except BaseException:
                report()
                raise
        stats, why = loader.stats(), loader.why(training=False)
    if stopped is not None and not stats.batches:
        raise stopped
    if json:
        print_json({"pipeline": pipeline, **stats_json(stats), **verdict_json(why)})
    else:
        tell_stats(stats)
        tell_verdict(why)
    report(last)  # after the figures, which a full disk is not to cost
    if recorded and recorded.error:
        raise recorded.error
    for path, what in ((html, "report"), (trace, "timeline; open it in ui.perfetto.dev")):
        if path and not json:
            tell(f"{path}: {what}", style="dim")
    if stopped is not None:
        raise stopped


def _iterate(loader: Loader, epochs: int, limit: int | None, show: Callable[[Any], None], progress: bool | None) -> Any:
    """All batches, one after another; the last one is given back, for its pictures."""
    batch = None
    with Progress("running", _total(loader, epochs, limit), progress, unit="batches") as shown:
        batches = samples = 0
        begun = time.monotonic()
        for _ in range(epochs):
            for batch in loader:
                batches += 1
                samples += getattr(batch, "rows", 1)
                show(batch)
                shown.move(batches, f"{samples / (time.monotonic() - begun):,.0f} samples/s")
                if batches == limit:
                    return batch
    return batch


def _total(loader: Loader, epochs: int, limit: int | None) -> int | None:
    """How many batches will come; None where nobody knows."""
    try:
        known = len(loader) * epochs
    except TypeError:
        return limit
    return known if limit is None else min(known, limit)


def stats_json(stats: Stats) -> dict[str, Any]:
    """Statistics with the figures people compare worked out."""
    shares = {name: getattr(stats, name) for name in ("samples_per_s", "wait_share", "busy_share")}
    return {**asdict(stats), **shares, "step_us": step_costs(stats)}


def verdict_json(why: str) -> dict[str, Any]:
    """A verdict as text, and apart from that its limit and what would help."""
    told = verdict_data(why)
    return {"verdict": told["text"], "limit": told["limit"], "advice": told["advice"]}


def tell_stats(stats: Stats) -> None:
    """The figures of a run without training, and its steps as bars."""
    size = f", {show_bytes(stats.bytes)}" if stats.bytes else ""
    rows = {
        "handed out": f"{counted(stats.samples, 'sample')}, {counted(stats.batches, 'batch', 'batches')}{size}",
        "first batch": f"after {stats.first_batch_s:.2f} s",
    }
    busy = ""
    if stats.measured:
        tell(f"{stats.samples_per_s:,.0f} samples/s", style="bold")
        rows["measured"] = f"{stats.elapsed_s:.1f} s after that"
        busy = f", busy {stats.busy_share:.0%} of the time"
    rows["workers"] = f"{workers_in_words(stats)} on {counted(stats.cores, 'core')}{busy}"
    if stats.skipped:
        rows["skipped"] = f"{stats.skipped:,} bad samples"
    if stats.retried:
        rows["tried again"] = f"{stats.retried:,} reads and calls"
    if stats.damaged:
        rows["damaged"] = f"{stats.damaged:,} images, decoded as far as they go"
    for name, value in rows.items():
        tell(f"  {name:<12} {value}")
    tell_steps(step_costs(stats))


def tell_steps(costs: dict[str, float]) -> None:
    """Steps with their cost for each sample."""
    total = sum(costs.values()) or 1.0
    width = 24 if out().width >= 80 else 4
    rows = [[name, f"{cost:,.1f}", f"{cost / total:.0%}", bar(cost / total, width)] for name, cost in costs.items()]
    tell()
    tell_table(("step", "us/sample", "share", ""), rows, right=("us/sample", "share"))


def tell_verdict(why: str) -> None:
    """The last word."""
    from rich.panel import Panel

    tell()
    out().print(Panel(why, title="verdict", title_align="left", border_style="green"))
