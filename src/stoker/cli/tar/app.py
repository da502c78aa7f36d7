"""`stoker tar`: the commands for shards, and what a closed pipe means to all of them."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ...errors import StokerError, WriteError
from .cat import cat
from .create import create
from .first import first
from .pcat import pcat
from .proc import proc
from .show import show
from .sort import sort
from .split import split
from .tsv import tsv

#: what a shell reports of a program that wrote to a pipe nobody reads any more
BROKEN_PIPE = 141
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Pipes(TyperGroup):
    """Runs a command of a pipe: when the next program has read enough and ends, this one ends too, without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except Exception as error:
            if _pipe_broke(error):
                _forget_output()
                raise typer.Exit(BROKEN_PIPE) from error
            if isinstance(error, OSError) and error.errno in _FULL and not isinstance(error, StokerError):
                _forget_output()
                raise WriteError(f"the result cannot be written: {error.strerror}; what is there of it is not whole") from error
            raise


def _pipe_broke(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__cause__
    return False


def _forget_output() -> None:
    """Let what is still to be flushed vanish, or the interpreter would complain when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


tar = typer.Typer(
    name="tar",
    cls=Pipes,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (cat, create, first, pcat, proc, show, sort, split, tsv):
    tar.command()(command)


@tar.callback()
def _tar() -> None:
    """Concatenate, shuffle, sort, split, map and look into tar shards, through pipes.

    A sample is the files of one key: `a/b.jpg` and `a/b.cls` are the fields `jpg` and `cls` of the sample `a/b`.

    Shards are paths, globs, braces as in `train-{0000..0147}.tar`, or URLs (`http://`, `https://`, `s3://`, `gs://`), plain or
    packed (`.tar.gz`, `.tgz`, `.tar.zst`); `-`, or none, is standard input. An archive goes to standard output, or with `-o` to a
    file, which appears whole or not at all, its index beside it.

    Example: `stoker tar cat 'train-{0000..0009}.tar' --shuffle 1000 | stoker tar split -s 1e9 -o mixed`
    """
