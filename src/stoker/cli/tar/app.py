"""`stoker tar`: the commands for shards."""

from __future__ import annotations

import typer

from ..helping import PlainCommand, PlainGroup
from .cat import cat
from .create import create
from .first import first
from .pcat import pcat
from .proc import proc
from .show_samples import show
from .sort import sort
from .split import split
from .tsv import tsv

tar = typer.Typer(
    name="tar",
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (cat, create, first, pcat, proc, show, sort, split, tsv):
    tar.command(cls=PlainCommand)(command)


@tar.callback()
def _tar() -> None:
    """Concatenate, sort, split and show tar shards, in pipes.

    A sample consists of the files with the same key: `a/b.jpg` and `a/b.cls` are the fields `jpg` and `cls` of the sample `a/b`.

    Shards are paths, globs, braces as in `train-{0000..0147}.tar`, or URLs (`http://`, `https://`, `s3://`, `gs://`), plain or
    compressed (`.tar.gz`, `.tgz`, `.tar.zst`); `-`, or none, is standard input. An archive goes to standard output, or with `-o`
    to a file, which appears complete or not at all, with its index next to it.

    Example: `stoker tar cat 'train-{0000..0009}.tar' --shuffle 1000 | stoker tar split -s 1e9 -o mixed`
    """
