"""An archive as the result of a command: a file that appears whole or not at all, or a pipe."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

from ...engine.signals import uninterrupted
from ...errors import ConfigError, RecordError
from ...pack.writers.tar_writer import Encoded, TarWriter
from ...source.paths import printable
from ...source.streams.tar_stream import TarSample
from ...storage.names import spelled
from ..screen import check_writable, flag, option
from .inputs import same_file, told

Output = Annotated[str, option("FILE", "Where the archive goes; `-` is standard output.", "-o", "--output")]
Overwrite = Annotated[bool, flag("Replace FILE if it exists.", "--overwrite")]


class Archive:
    """Takes samples, in the order in which they are stored."""

    def __init__(self, writer: TarWriter) -> None:
        self._writer = writer

    @property
    def samples(self) -> int:
        """How many it has."""
        return self._writer.samples

    def write(self, sample: TarSample) -> None:
        """Append a sample."""
        try:
            self._writer.add(encode(sample, self.samples))
        except ConfigError as error:
            raise RecordError(str(error), key=printable(sample.key)) from error


@contextmanager
def archive(output: str, overwrite: bool, inputs: Sequence[str] = ()) -> Iterator[Archive]:
    """An archive to write to. If the block raises, no file is made, and a pipe is left without its end, so its reader notices."""
    check_output(output, overwrite, inputs)
    with ExitStack() as stack:
        with uninterrupted():
            writer = stack.enter_context(TarWriter(output, overwrite=overwrite))
        yield Archive(writer)


def encode(sample: TarSample, number: int) -> Encoded:
    """The stored form of a sample. Raises RecordError if no reader would read it back unchanged."""
    fields: dict[str, Any] = {}
    for name, data in sample.fields.items():
        if name.startswith("__") and name.endswith("__"):  # writers take these for notes about the sample
            raise RecordError(
                f"the sample {printable(sample.key)}: {name!r} cannot be the name of a field", key=printable(sample.key)
            )
        fields[spelled(name)] = data
    try:
        return TarWriter.encode({"__key__": sample.key, **fields}, number)
    except ConfigError as error:
        raise RecordError(str(error), key=printable(sample.key)) from error


def check_output(output: str, overwrite: bool, inputs: Sequence[str]) -> None:
    """Find out before the work starts whether the output can be written."""
    if output == "-":
        if sys.stdout.isatty():
            raise ConfigError(
                "the output is binary and would go to the terminal; write it to a file with -o, or pipe it into another command"
            )
        _check_apart(inputs)
        return
    path = Path(output)
    check_writable(path)
    if path.is_file() and not overwrite:
        raise ConfigError(f"{output}: already exists and was not changed; use another name, or --overwrite")


def _check_apart(inputs: Sequence[str]) -> None:
    """A shell has emptied, or goes on filling, a file that standard output goes to; reading it too can only go wrong."""
    try:
        about = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        return  # no file at all
    for name in inputs:
        if stat.S_ISREG(about.st_mode) and same_file(name, about):
            raise ConfigError(
                f"{told(name)} would be read and written at the same time; write to another file, or use -o and --overwrite"
            )
