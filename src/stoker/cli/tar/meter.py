"""Progress of a command that may take long: samples, bytes and rates, on standard error."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from ...sizes import counted, show_bytes
from ...source.streams.tar_stream import TarSample

Progress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress on standard error.",
        show_default="at a terminal, for the last command of a pipe",
    ),
]

#: seconds between two drawings in a terminal, and between two lines elsewhere
_DRAWN_S, _LINES_S = 0.2, 5.0


class Meter:
    """Counts what goes through while the ``with`` block runs, and tells it.

    In a terminal it is one line, drawn again and again, that stays with the totals when all went well. Elsewhere, and only if
    asked for, a line every few seconds. Drawn by whoever counts: there is no thread.
    """

    def __init__(self, doing: str, shown: bool | None = None, text_out: bool = False) -> None:
        self._doing, self._terminal = doing, sys.stderr.isatty()
        self._shown = self._of_itself(text_out) if shown is None else shown
        self._begun = time.monotonic()
        self._next = self._begun + (_DRAWN_S if self._terminal else _LINES_S)
        self._drawn = False
        self.samples = self.bytes = 0
        #: what else is to be told, in front of the counts
        self.note = ""

    def watch(self, samples: Iterable[TarSample]) -> Iterator[TarSample]:
        """The same samples, counted."""
        for sample in samples:
            self.add(1, sum(map(len, sample.fields.values())))
            yield sample

    def add(self, samples: int, nbytes: int) -> None:
        """So much more has gone through."""
        self.samples += samples
        self.bytes += nbytes
        self.tick()

    def tick(self) -> None:
        """Draw, if it is time."""
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + (_DRAWN_S if self._terminal else _LINES_S)
            self._draw()

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._shown and kind is None:
            self._draw()
        if self._drawn and self._terminal:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _of_itself(self, text_out: bool) -> bool:
        """At a terminal, unless another program of the pipe will draw there, or the result itself is written there."""
        return self._terminal and not _is_pipe(sys.stdout) and not (text_out and sys.stdout.isatty())

    def _draw(self) -> None:
        spent = max(1e-9, time.monotonic() - self._begun)
        rates = f"{self.samples / spent:,.0f} samples/s, {show_bytes(self.bytes / spent)}/s"
        note = f"{self.note}, " if self.note else ""
        text = f"{self._doing}: {note}{counted(self.samples, 'sample')}, {show_bytes(self.bytes)}, {rates}, {spent:,.0f} s"
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{text[:width]}\x1b[K")
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
        self._drawn = True


def _is_pipe(stream: object) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):
        return False
