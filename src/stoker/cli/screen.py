"""How commands talk to people and programs: results on standard output, progress on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

#: columns if the output is not a terminal, and so has no width
_WIDTH = 120
#: columns of a table that may break over lines, with the width they need for it
_LEAST = {"key": 16}


def argument(metavar: str, help: str, default: bool | str = False) -> Any:
    """What a command is about; `default` says what it is when it is not given."""
    return typer.Argument(metavar=metavar, help=help, show_default=default)


def option(metavar: str, help: str, *names: str, default: bool | str = True, **limits: Any) -> Any:
    """An option that takes a value."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=default, **limits)


def amount(help: str, *names: str, least: int | None = 1, most: int | None = None, default: bool | str = True) -> Any:
    """An option that takes a whole number."""
    return typer.Option(*names, min=least, max=most, metavar="N", help=help, show_default=default)


def flag(help: str, *names: str) -> Any:
    """An option that is given or not."""
    return typer.Option(*names, help=help)


#: options that several commands have
AsJson = Annotated[bool, flag("Print one JSON object on standard output, nothing else.", "--json")]
Threads = Annotated[int | None, amount("Worker threads.", default="the cores of this machine")]
Processes = Annotated[int | None, amount("Worker processes, of `--threads` threads each.", default="chosen by measuring")]
Jobs = Annotated[int | None, amount("Worker threads.", "-j", "--jobs", default="the cores of this machine")]
Ahead = Annotated[int | None, amount("Batches prepared ahead.", default="about 64 MB worth")]
ReportFile = Annotated[Path | None, option("FILE", "Write a report: one self-contained HTML page.", "--html", default=False)]


def out(needed: int = 0) -> Console:
    """Standard output, at least `needed` columns wide if it is not a terminal. File names are never interpreted as markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else max(needed, _WIDTH)
    return Console(markup=False, emoji=False, highlight=False, width=width)


def tell(text: str = "", style: str = "") -> None:
    """Print a line of text on standard output; the terminal breaks long ones."""
    out().print(text, style=style, soft_wrap=True)


def tell_aside(text: str) -> None:
    """Print a line about the progress of a command, which is not its result."""
    tell(text, style="dim")


def tell_sentence(text: str, style: str = "") -> None:
    """Print text for people on standard output: a terminal breaks it between words; in a pipe it is one line."""
    console = out()
    console.print(text, style=style, soft_wrap=not console.is_terminal)


def tell_plan(text: str) -> None:
    """Print what `pipeline.explain()` says; in a terminal, long lines continue indented below their beginning."""
    from rich.table import Table

    console = out()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        tell(text)
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in text.splitlines():
        grid.add_row(line[:8], line[8:].strip())
    console.print(grid)


def tell_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    strong: int | None = None,
    least: Mapping[str, int] = _LEAST,
) -> None:
    """Print rows below the names of their columns; in a terminal that is too narrow, a block of lines for each row.

    Columns in `least` may be wrapped if they keep that width. If the output is not a terminal, lines are as long as necessary, so
    that programs find a cell in one line. `right` names the columns of numbers, `strong` is the row that matters.
    """
    from rich.cells import cell_len
    from rich.table import Table

    widths = {name: max(map(cell_len, cells)) for name, *cells in zip(columns, columns, *rows)}
    needed = sum(widths.values()) + 2 * len(columns)
    console = out(needed)
    spare = sum(max(0, widths[name] - width) for name, width in least.items() if name in widths)
    if needed - spare > console.width:
        _tell_blocks(console, columns, rows)
        return
    table = Table(box=None, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name not in least, overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(*row, style="bold" if number == strong else None)
    console.print(table)


def _tell_blocks(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A line for each cell, with the name of its column; long cells go on below their beginning."""
    from rich.table import Table

    for number, row in enumerate(rows):
        if number:
            console.print()
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, cell in zip(columns, row):
            if cell:
                grid.add_row(name, cell)
        console.print(grid)


def print_json(value: dict[str, Any]) -> None:
    """The one object that ``--json`` promises."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


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
