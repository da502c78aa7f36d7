"""What an error means for the exit status, in one place for all commands."""

from __future__ import annotations

import traceback
from collections import namedtuple
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import ConfigError, FunctionError, MissingExtra, StokerError

DATA, USAGE, STOPPED = 1, 2, 130


class Guard(TyperGroup):
    """Runs a command; an error of Stoker becomes a message and an exit status, not a traceback.

    Any other exception is a bug, here or in the user's code, and keeps its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StokerError as error:
            typer.echo(message(error), err=True)
            raise typer.Exit(USAGE if isinstance(error, (ConfigError, MissingExtra)) else DATA) from error
        except KeyboardInterrupt as stopped:
            raise typer.Exit(tell_stopped()) from stopped


def tell_stopped() -> int:
    """Say that Ctrl-C came, and have the exit status be ours.

    Python runs code from strings when it makes dataclasses and the like, as importing a module does. When an interrupt comes out
    of one, it notes that, and ends the program by the signal whatever became of the interrupt. Running another clears the note.
    """
    typer.echo("stopped", err=True)
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
