"""An archive as the result of a command: a file that appears whole or not at all, or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigError
from ...pack.tar import TarWriter
from ...source.tarstream import TarSample
from ..screen import check_writable
from .inputs import same_file, told

Output = Annotated[
    str,
    typer.Option("-o", "--output", metavar="FILE", help="Where the archive goes; `-` is standard output."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it exists.")]


class Archive:
    """Takes samples, in the order in which they shall lie."""

    def __init__(self, writer: TarWriter) -> None:
        self._writer = writer
        self.samples = 0

    def write(self, sample: TarSample) -> None:
        """Append a sample."""
        self._writer.write({"__key__": sample.key, **sample.fields})
        self.samples += 1


@contextmanager
def archive(output: str, overwrite: bool, inputs: Sequence[str] = ()) -> Iterator[Archive]:
    """An archive to write to. If the block raises, a file is not made, and a pipe is left without its end, so its reader notices."""
    check_output(output, overwrite, inputs)
    with TarWriter(output, overwrite=overwrite) as writer:
        yield Archive(writer)


def check_output(output: str, overwrite: bool, inputs: Sequence[str]) -> None:
    """Find out before the work what stands against writing there."""
    if output == "-":
        if sys.stdout.isatty():
            raise ConfigError("an archive would go to the terminal; name a file with -o, or pipe it into another command")
        _check_apart(inputs)
        return
    path = Path(output)
    check_writable(path)
    if path.is_file() and not overwrite:
        raise ConfigError(f"{output}: exists already, and is left as it is; give another name, or --overwrite")


def _check_apart(inputs: Sequence[str]) -> None:
    """A shell has emptied, or goes on filling, a file that standard output goes to; reading it too can only go wrong."""
    try:
        about = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        return  # no file at all
    for name in inputs:
        if os.path.stat.S_ISREG(about.st_mode) and same_file(name, about):
            raise ConfigError(f"{told(name)} is read and written at once; write to another file, or use -o and --overwrite")
