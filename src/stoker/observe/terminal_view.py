"""A loader in the terminal during training: rates, waiting, steps and workers, redrawn every second on standard error."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..engine.background import Background
from ..sizes import counted, show_bytes
from .loader_view import Glance, LoaderView
from .stats import StepStats

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: seconds between two drawings in a terminal, and between two lines elsewhere
_DRAWN_S, _LINES_S = 1.0, 10.0
_BAR, _SPARKS = 26, "▁▂▃▄▅▆▇█"
#: how a step's time is drawn: on a core, no core free, waiting for the interpreter lock, and for anything else
_WAYS = (
    ("cpu_s", "cyan", "on a core"),
    ("queued_s", "yellow", "no core free"),
    ("lock_s", "magenta", "lock"),
    ("wait_s", "bright_black", "other waiting"),
)


@contextmanager
def shown_in_terminal(view: LoaderView, url: str = "") -> Iterator[None]:
    """Draw a view while the ``with`` block runs, and nothing after that."""
    thread = Background(TerminalView(view, url, stays=False).run, 1, "stoker-terminal")
    try:
        yield
    finally:
        thread.close()


class TerminalView:
    """Draws until it is to stop, or the loader is closed; then the last state stays, or goes."""

    def __init__(self, view: LoaderView, url: str = "", stays: bool = True) -> None:
        self._view, self._url, self._stays = view, url, stays

    def run(self, stop: threading.Event) -> None:
        """The body of a thread."""
        from rich.console import Console

        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        (self._draw if console.is_terminal and not console.is_dumb_terminal else self._write)(console, stop)

    def _draw(self, console: Console, stop: threading.Event) -> None:
        from rich.constrain import Constrain
        from rich.live import Live

        # The terminal writes ^C after the last line itself. Without room there, it would begin a line more than are erased.
        def narrow() -> RenderableType:
            return Constrain(self._frame(), console.width - len("^C"))

        # What a program prints to this terminal meanwhile appears above the view; what goes to a file goes there.
        printed = sys.stdout.isatty()
        options: dict[str, Any] = {"auto_refresh": False, "redirect_stdout": printed, "transient": not self._stays}
        with Live(console=console, get_renderable=narrow, **options) as live:
            console.show_cursor(True)  # a program that is killed cannot bring it back
            _drawing[id(live)] = (sys.stdout, sys.stderr, live)
            try:
                live.refresh()
                while not stop.wait(_DRAWN_S) and not self._view.closed:
                    live.refresh()
            finally:
                _drawing.pop(id(live), None)

    def _write(self, console: Console, stop: threading.Event) -> None:
        due_s = time.monotonic() + _LINES_S
        while not stop.wait(_DRAWN_S) and not self._view.closed:
            if time.monotonic() >= due_s:
                due_s += _LINES_S
                sys.stderr.write(f"{line(self._view.glance(), self._view.training)}\n")
                sys.stderr.flush()

    def _frame(self) -> RenderableType:
        return frame(self._view.glance(), self._view.title, self._view.training, self._url)


def line(glance: Glance, training: bool = True) -> str:
    """How it goes, in a line of text."""
    stats, recent = glance.stats, glance.recent
    rate, waited, busy = recent[-1][1:] if recent else (stats.samples_per_s, stats.wait_share, stats.busy_share)
    wait = f", the loop waited {waited:.0%}" if training else ""
    limit = getattr(glance.why, "limit", "")
    return (
        f"{stats.samples:,} samples, {rate:,.0f} per second{wait}, workers busy {busy:.0%}{f', limit: {limit}' if limit else ''}"
    )


def frame(glance: Glance, title: str, training: bool = True, url: str = "") -> RenderableType:
    """How it goes, as a panel."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    stats = glance.stats
    rates = Table.grid(padding=(0, 2, 0, 0))
    rates.add_column(style="dim", no_wrap=True)
    rates.add_column(justify="right", no_wrap=True)
    rates.add_column(no_wrap=True)
    rates.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for row in _rates(glance, training):
        rates.add_row(*row)
    parts: list[Any] = [rates]
    steps = [step for step in stats.steps if step.samples]
    if steps:
        parts += [Text(), _steps(steps), Text("  ").join(Text(f"■ {name}", style) for _, style, name in _WAYS)]
    parts += [Text(), Text(_clean(glance.why))]
    if url:
        parts += [Text(), Text(url, style="dim", no_wrap=True, overflow="fold")]
    amount = f"{counted(stats.samples, 'sample')}, {counted(stats.batches, 'batch', 'batches')}"
    state = " (closed)" if glance.closed else ""
    return Panel(
        Group(*parts), title=Text(_clean(f"{title}{state}")), subtitle=Text(amount), title_align="left", subtitle_align="right"
    )


def _rates(glance: Glance, training: bool) -> Iterable[tuple[RenderableType, ...]]:
    from rich.text import Text

    stats, recent = glance.stats, glance.recent
    rate, waited, busy = recent[-1][1:] if recent else (stats.samples_per_s, stats.wait_share, stats.busy_share)
    yield "samples/s", Text(f"{rate:,.0f}", "bold"), sparks([row[1] for row in recent]), f"{stats.samples_per_s:,.0f} on average"
    if training:
        style = "green" if waited < 0.05 else "yellow" if waited < 0.3 else "red"
        yield (
            "loop waited",
            Text(f"{waited:.0%}", style),
            sparks([row[2] for row in recent], 1.0),
            f"{stats.wait_share:.0%} on average",
        )
    workers = f"{counted(stats.workers, 'worker')} on {counted(stats.cores, 'core')}"
    yield "workers busy", f"{busy:.0%}", sparks([row[3] for row in recent], 1.0), workers
    if stats.history:
        last = stats.history[-1]
        yield "ready", f"{last.ready}", blocks(last.ready / max(1, last.in_flight)), f"of {last.in_flight} in progress"
        share = last.nbytes / max(1, last.budget)
        yield "memory", show_bytes(last.nbytes), blocks(share), f"of {show_bytes(last.budget)} allowed"


def _steps(steps: list[StepStats]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    most = max(step.sample_s for step in steps) or 1.0
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=28)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(Text("step", "dim"), Text("us/sample", "dim"), "")
    for step in steps:
        drawn, end = Text(), 0.0
        for way, style, _ in _WAYS:
            begun, end = end, end + getattr(step, way) / step.samples
            drawn.append("█" * (round(end / most * _BAR) - round(begun / most * _BAR)), style)
        table.add_row(_clean(step.name), f"{step.sample_s * 1e6:,.1f}", drawn)
    return table


def _clean(text: str) -> str:
    """Text that steers no terminal: names may come from data."""
    return "".join(sign if sign.isprintable() else "?" for sign in text.replace("\n", " "))


def sparks(values: list[float], most: float = 0.0) -> str:
    """The latest values as a line of small bars.

    >>> sparks([0, 1, 2, 4])
    '▁▂▄█'
    """
    shown = values[-_BAR:]
    top = most or max(shown, default=0.0) or 1.0
    return "".join(_SPARKS[min(7, max(0, int(value / top * 7.999 - 1e-9)))] for value in shown)


def blocks(share: float) -> str:
    """A share as a bar on its rail."""
    full = max(0, min(_BAR, round(share * _BAR)))
    return "█" * full + "░" * (_BAR - full)


#: views that are on the screen, with what stands in the place of standard output and error meanwhile
_drawing: dict[int, tuple[Any, Any, Any]] = {}


def _leave() -> None:
    """A forked child prints as it is used to: the view, and the locks it may hold, are the parent's."""
    for stdout, stderr, _ in list(_drawing.values()):
        for name, stream in (("stdout", stdout), ("stderr", stderr)):
            original = getattr(stream, "rich_proxied_file", None)
            if original is not None and getattr(sys, name) is stream:
                setattr(sys, name, original)
    _drawing.clear()


os.register_at_fork(after_in_child=_leave)
