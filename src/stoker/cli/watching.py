"""`--watch`: shows a run while it goes on, in the terminal and in a browser."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .screen import amount, flag

if TYPE_CHECKING:
    from ..loader import Loader

#: tasks that the timeline of a report shows at most
_TASKS = 3000

Watched = Annotated[bool, flag("Show the run live, in this terminal and in a browser on this machine.", "--watch")]
Port = Annotated[int, amount("Port of the page that --watch serves.", least=0, most=65535, default="one that is free")]


@contextmanager
def watching(
    loader: Loader, page: bool, port: int, *, title: str, terminal: bool, training: bool = True
) -> Iterator[Callable[[Any], None]]:
    """Show a loader while the ``with`` block runs, if requested; without a terminal, only the page's address.

    The result is a function to call with every batch, for its pictures.
    """
    from ..observe.live import watch
    from ..observe.loader_view import LoaderView
    from ..observe.terminal_view import shown_in_terminal

    url, show = "", _nothing
    with ExitStack() as stack:
        if page:
            served = stack.enter_context(watch(loader, port=port, title=title, training=training))
            url, show = served.url, served.show
            if not sys.stderr.isatty():
                sys.stderr.write(f"watch it at {url}\n")
                sys.stderr.flush()
        if terminal:
            stack.enter_context(shown_in_terminal(LoaderView(loader, "watch", title, training), url))
        yield show


def _nothing(batch: Any) -> None:
    """Nobody looks."""


@contextmanager
def timeline_of(loader: Loader, report: Path | None) -> Iterator[Callable[[], dict[str, Any] | None]]:
    """Record what workers do while the ``with`` block runs, if there will be a report; what is given makes its timeline."""
    if report is None:
        yield lambda: None
        return
    from ..observe.page_data import recorded_timeline
    from ..observe.timeline import recorded

    with recorded(loader, _TASKS) as recorder:
        yield lambda: recorded_timeline(recorder)
