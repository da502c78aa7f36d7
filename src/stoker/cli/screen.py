"""What commands share in talking to people and programs: results on standard output, progress on standard error."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

#: columns where the output is no terminal, so has no width of its own
_WIDTH = 120

#: options that several commands have
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Worker threads.", show_default="the cores of this machine")
]
Ahead = Annotated[int | None, typer.Option(min=1, metavar="N", help="Batches prepared ahead.", show_default="about 64 MB worth")]
ReportFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a report: one page, complete in itself.", show_default=False),
]


def out() -> Console:
    """Standard output. Text is shown as it is: nothing in a file's name is markup."""
    return _console(error=False)


def tell(text: str = "", style: str = "") -> None:
    """A line of text on standard output; long ones are left to the terminal to break."""
    out().print(text, style=style, soft_wrap=True)


def tell_plan(text: str) -> None:
    """What `pipeline.explain()` says; in a terminal, long lines go on below their beginning."""
    from rich.table import Table

    console = out()
    if not console.is_terminal:
        tell(text)
        return
    grid = Table.grid(padding=(0, 1))
    for line in text.splitlines():
        grid.add_row(line[:8], line[8:].strip())
    console.print(grid)


def print_json(value: dict[str, Any]) -> None:
    """The one object that ``--json`` promises."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def many(count: int, one: str, several: str) -> str:
    """A number of things: 1 batch, 2,000 batches."""
    return f"{count:,} {one if count == 1 else several}"


def bar(share: float, width: int = 24) -> str:
    """A share as a bar of text."""
    return "█" * max(0, min(width, round(share * width)))


def check_writable(path: Path | None) -> None:
    """Find out that a result cannot be written before the work is done, not after."""
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"cannot write {path}: {'it is a folder' if path.is_dir() else 'permission denied'}")


class Bar:
    """A progress bar on standard error while the ``with`` block runs; nothing where that is no terminal.

    Drawn by whoever moves it, ten times a second at most: a thread of its own would disturb measurements, and forks.
    """

    def __init__(self, title: str, total: int | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = _console(error=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task(title, total=total, told="")
        self._next_s = 0.0

    def move(self, done: int, told: str = "", title: str | None = None) -> None:
        """How far it is."""
        now = time.monotonic()
        if now >= self._next_s or title is not None:
            self._next_s = now + 0.1
            self._progress.update(self._task, completed=done, told=told, description=title, refresh=True)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _console(error: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(stderr=error, markup=False, emoji=False, highlight=False, width=width)
