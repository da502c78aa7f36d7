"""The progress of a command on standard error: one line in a terminal, redrawn; plain lines elsewhere, if requested."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer

from ..engine.each import Crews
from ..engine.resources import usable_cores
from ..sizes import show_bytes
from ..source.streams.tar_stream import TarSample
from .screen import bar

ShowProgress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show progress on standard error.", show_default="if that is a terminal"),
]
PipeProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress on standard error.",
        show_default="at a terminal, for the last command of a pipe",
    ),
]

#: seconds between two drawings in a terminal, and between two lines elsewhere
_DRAWN_S, _LINES_S = 0.1, 5.0
#: characters of the bar, where it is known how much there is to do
_BAR = 16


class Progress:
    """Counts progress, from any thread, while the ``with`` block runs; `draw` shows it, in the caller's thread.

    There is no thread: it would disturb measurements, and forks. `total` and progress are counted in `unit`: samples, bytes, or
    whatever `move` counts. In a terminal the line is removed at the end, unless it `stays`, with the totals, after success.
    Nothing is shown if results go through standard output and another program of the pipe shows progress, or if the result is
    `text` on the same terminal.
    """

    def __init__(
        self,
        doing: str,
        total: int | None = None,
        shown: bool | None = None,
        unit: str = "samples",
        *,
        stays: bool = False,
        text: bool = False,
    ) -> None:
        self._doing, self._total, self._unit, self._stays = doing, total, unit, stays
        self._terminal = sys.stderr.isatty()
        hidden = stays and (_is_pipe(sys.stdout) or (text and sys.stdout.isatty()))
        self._shown = self._terminal and not hidden if shown is None else shown
        self._pause_s = _DRAWN_S if self._terminal else _LINES_S
        self._drawn = False
        self._lock = threading.Lock()
        self._moved = self.samples = self.bytes = 0
        self._before = 0  # what was done earlier, and has no part in the rate
        self._begun = time.monotonic()
        self._next_s = self._begun + (0.0 if self._terminal else self._pause_s)
        #: what else is shown, before the counts
        self.note = ""

    def add(self, samples: int, nbytes: int) -> None:
        """So much more has gone through."""
        with self._lock:
            self.samples += samples
            self.bytes += nbytes

    def had(self, count: int) -> None:
        """So much was done before."""
        with self._lock:
            self._before += count

    def move(self, done: int, note: str = "") -> None:
        """So much is done by now; `note` is shown with it."""
        self._moved, self.note = done, note
        self.draw()

    def crews(self, jobs: int | None, things: int) -> Crews:
        """Threads for the work that is shown here."""
        return Crews(jobs or usable_cores(), things, self.draw)

    def counting(self, crews: Crews) -> Callable[[int, int], None]:
        """Counts for the work of these threads, and ends it if it is given up."""

        def add(samples: int, nbytes: int) -> None:
            crews.check()
            self.add(samples, nbytes)

        return add

    def watch(self, samples: Iterable[TarSample]) -> Iterator[TarSample]:
        """The same samples, counted and shown."""
        for sample in samples:
            self.add(1, sample.nbytes)
            self.draw()
            yield sample

    @property
    def seconds(self) -> float:
        return max(1e-9, time.monotonic() - self._begun)

    def rate(self) -> str:
        """Speed since the beginning."""
        samples = f"{self.samples / self.seconds:,.0f} samples/s, " if self.samples else ""
        return f"{samples}{show_bytes(self.bytes / self.seconds)}/s"

    def draw(self) -> None:
        """Show how far it is, if it is time."""
        if self._shown and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._pause_s
            self._draw()

    def __enter__(self) -> Progress:
        self._begun = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._shown and kind is None and (self._stays or not self._terminal):
            self._draw()
        if self._drawn and self._terminal:
            sys.stderr.write("\n" if self._stays else "\r\x1b[K")
            sys.stderr.flush()

    def _draw(self) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{self._line()[:width]}\x1b[K")
        else:
            sys.stderr.write(f"{self._line()}\n")
        sys.stderr.flush()
        self._drawn = True

    def _line(self) -> str:
        fresh = {"samples": self.samples, "bytes": self.bytes}.get(self._unit, self._moved)
        done, total = self._before + fresh, self._total
        parts = [self.note] if self.note else []
        parts.append(self._amount(done, total))
        if self.samples or self.bytes:
            parts += [show_bytes(self.bytes)] if self._unit == "samples" else []
            parts.append(self.rate())
        if total is None:
            parts.append(f"{self.seconds:,.0f} s")
        elif fresh and done < total:
            parts.append(f"{(total - done) * self.seconds / fresh:,.0f} s to go")
        drawn = f"{bar(done / total, _BAR):░<{_BAR}} " if total and self._terminal else ""
        return f"{self._doing}: {drawn}{', '.join(parts)}"

    def _amount(self, done: int, total: int | None) -> str:
        if self._unit == "bytes":
            return show_bytes(done) + ("" if total is None else f" of {show_bytes(total)}")
        unit = self._unit[:-1] if total is None and done == 1 else self._unit
        return f"{done:,}{'' if total is None else f' of {total:,}'} {unit}"


def _is_pipe(stream: object) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):
        return False
