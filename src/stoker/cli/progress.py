"""How far a long command is: a bar in a terminal, lines elsewhere if asked for, on standard error."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import Annotated

import typer

from ..sizes import show_bytes
from .screen import Bar

ShowProgress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show progress on standard error.", show_default="if that is a terminal"),
]

#: seconds between two lines where there is no terminal
_LINES_S = 5.0


class Progress:
    """Counts what goes through, from any thread, while the ``with`` block runs; `draw` tells it, in the caller's thread.

    `total` and `done` are in what `unit` says: samples, or bytes.
    """

    def __init__(self, doing: str, total: int | None, shown: bool | None = None, unit: str = "samples") -> None:
        self._doing, self._total, self._unit = doing, total, unit
        self._terminal = sys.stderr.isatty()
        self._lines = bool(shown) and not self._terminal
        # A bar of bytes counts megabytes, so that its numbers can be read.
        self._scale, title = (1, doing) if unit == "samples" else (10**6, f"{doing}, MB")
        whole = None if total is None else math.ceil(total / self._scale)
        self._bar = Bar(title, whole) if self._terminal and shown is not False else None
        self._lock = threading.Lock()
        self.samples = self.bytes = 0
        self._before = 0  # what was done earlier, and has no part in the rate
        self._begun = time.monotonic()
        self._next_s = self._begun + _LINES_S

    def add(self, samples: int, nbytes: int) -> None:
        """So much more has gone through."""
        with self._lock:
            self.samples += samples
            self.bytes += nbytes

    def had(self, count: int) -> None:
        """So much was done before."""
        with self._lock:
            self._before += count

    @property
    def seconds(self) -> float:
        return max(1e-9, time.monotonic() - self._begun)

    def draw(self) -> None:
        """Tell how far it is, if it is time."""
        if self._bar is not None:
            self._bar.move(self._done // self._scale, self.rate())
        elif self._lines and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LINES_S
            self._line()

    def rate(self) -> str:
        """Speed since the beginning."""
        samples = f"{self.samples / self.seconds:,.0f} samples/s, " if self.samples else ""
        return f"{samples}{show_bytes(self.bytes / self.seconds)}/s"

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.__enter__()
        self._begun = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__()
        elif self._lines and kind is None:
            self._line()

    @property
    def _done(self) -> int:
        return self._before + (self.samples if self._unit == "samples" else self.bytes)

    def _line(self) -> None:
        done, total = self._done, self._total
        told = f"{done:,}" if self._unit == "samples" else show_bytes(done)
        whole = "" if total is None else f" of {total:,}" if self._unit == "samples" else f" of {show_bytes(total)}"
        fresh = done - self._before
        left = f", {(total - done) * self.seconds / fresh:,.0f} s to go" if total is not None and fresh and done < total else ""
        unit = f" {self._unit}" if self._unit == "samples" else ""
        typer.echo(f"{self._doing}: {told}{whole}{unit}, {self.rate()}{left}", err=True)
