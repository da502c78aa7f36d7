"""Maps errors to exit statuses, in one place for all commands."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import traceback
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer

from ..errors import ConfigError, FunctionError, MissingExtra, StokerError, WriteError
from .helping import PlainGroup

#: 74 is EX_IOERR of sysexits.h; 141 is what a shell reports of a program that wrote to a pipe without a reader
DATA, USAGE, OUTPUT, STOPPED, BROKEN_PIPE = 1, 2, 74, 130, 141
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Guard(PlainGroup):
    """Runs a command; an error of Stoker becomes a message and an exit status, not a traceback.

    When the program that reads the output has ended, this one ends too, without a word. Any other exception is a bug, here or
    in the user's code, and keeps its traceback.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        _open_streams()
        with guarded():  # `--help` and `--version` print here
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with guarded():
            return super().invoke(ctx)


@contextmanager
def guarded() -> Iterator[None]:
    """Turn errors into messages and `typer.Exit`, and let this program end quietly when who reads its output has ended."""
    try:
        with _messages():
            try:
                yield
            finally:
                sys.stdout.flush()  # what it cannot take is to be known here, not when the interpreter ends
    except (Exception, SystemExit) as error:
        if not _pipe_broke(error):
            raise
        for stream in (sys.stdout, sys.stderr):
            _forget(stream)
        raise typer.Exit(BROKEN_PIPE) from error


@contextmanager
def _messages() -> Iterator[None]:
    """Turn errors into their message and status."""
    try:
        yield
    except StokerError as error:
        if _pipe_broke(error):
            raise
        _say(message(error))
        raise typer.Exit(status_of(error)) from error
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _forget(sys.stdout)
        _say(message(WriteError(f"the output cannot be written: {error.strerror}; it is incomplete")))
        raise typer.Exit(OUTPUT) from error
    except KeyboardInterrupt as stopped:
        raise typer.Exit(tell_stopped()) from stopped


def status_of(error: StokerError) -> int:
    """The exit status for an error."""
    if isinstance(error, (ConfigError, MissingExtra)):
        return USAGE
    return OUTPUT if isinstance(error, WriteError) else DATA


def _pipe_broke(error: BaseException) -> bool:
    """Whether the program that reads our output has ended; the user's code may have pipes and sockets of its own that break."""
    if type(error) is SystemExit:  # rich makes one of a broken pipe, with the status of bad data, and closes the pipe
        return isinstance(error.__context__, BrokenPipeError)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__cause__
    return cause is not None and any(map(_lost_reader, (sys.stdout, sys.stderr)))


def _lost_reader(stream: TextIO) -> bool:
    try:
        watched = select.poll()
        watched.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # it is not a file of the system's, or closed
        return False
    return any(seen & (select.POLLERR | select.POLLHUP) for _, seen in watched.poll(0))


def _open_streams() -> None:
    """Let any program be started with any streams and encoding.

    A stream that was closed when the program began (`<&-`, `>&-`), in whose place Python has None, is empty. A letter or a bar
    that the encoding of the output lacks becomes a question mark.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  open to the end
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.encoding.lower().startswith("utf"):
        sys.stdout.reconfigure(errors="replace")


def _say(text: str) -> None:
    """A last word on standard error. Where that cannot be written either, the exit status has to say it."""
    try:
        typer.echo(text, err=True)
    except OSError:
        _forget(sys.stderr)


def _forget(stream: TextIO) -> None:
    """Let what a stream has not taken yet vanish, or the interpreter would fail to flush it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def tell_stopped() -> int:
    """Report Ctrl-C, and make the exit status ours.

    Python executes code from strings, for example when it makes dataclasses during an import. If an interrupt leaves such code,
    Python notes it, and later ends the program by the signal, whatever happened to the interrupt. Executing another string clears
    that note.
    """
    _say("stopped")
    namedtuple("Nothing", ())
    return STOPPED


def message(error: StokerError) -> str:
    """The error as text; for a user's function that raised, with the line it raised on."""
    told = f"{typer.style('error:', fg='red', bold=True)} {error}"
    if isinstance(error, FunctionError) and error.__cause__ is not None:
        told += f"\n       raised at {place(error.__cause__)}"
    return told


def place(error: BaseException) -> str:
    """File and line an exception was raised on."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "an unknown place"
