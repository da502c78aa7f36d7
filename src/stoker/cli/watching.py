"""`--watch`: a run shown while it goes on, in the terminal and in a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..loader import Loader

Watched = Annotated[
    bool, typer.Option("--watch", help="Show the run while it goes on: in this terminal, and in a browser on this machine.")
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, metavar="N", help="Port of the page of `--watch`.", show_default="one that is free")
]


@contextmanager
def watching(loader: Loader, page: bool, port: int, *, title: str, terminal: bool, training: bool = True) -> Iterator[None]:
    """Show a loader while the ``with`` block runs, as far as that is wanted; where there is no terminal, the page's address."""
    from ..observe.live import watch
    from ..observe.loader_view import LoaderView
    from ..observe.terminal_view import shown_in_terminal

    with ExitStack() as stack:
        if page:
            url = stack.enter_context(watch(loader, port=port, terminal=terminal, title=title, training=training)).url
            if not sys.stderr.isatty():
                sys.stderr.write(f"watch it at {url}\n")
                sys.stderr.flush()
        elif terminal:
            stack.enter_context(shown_in_terminal(LoaderView(loader, "watch", title, training)))
        yield
