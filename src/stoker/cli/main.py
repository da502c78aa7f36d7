"""`stoker`: the command line. Each command is a file beside this one and imports what it needs when it runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__
from ..engine import signals
from .bench import bench
from .demo import demo
from .explain import explain
from .guard import Guard, tell_stopped
from .helping import PlainCommand
from .index import index
from .make_key_files import keys
from .map import map_
from .pack import pack
from .run import run
from .serve import serve
from .show import show
from .tar.app import tar
from .verify import verify
from .worker import worker

app = typer.Typer(
    name="stoker",
    cls=Guard,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, bench, run, show, explain, pack, index, verify, worker, serve, keys):
    app.command(cls=PlainCommand)(command)
app.add_typer(tar)
app.command("map", cls=PlainCommand)(map_)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stoker {__version__}")
        raise typer.Exit()


@app.callback(
    epilog="Exit status: 0 done, 1 the data are bad, 2 wrong usage, 74 the output cannot be written, 130 stopped with Ctrl-C."
)
def stoker(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Stoker feeds training: stored samples in, decoded and augmented batches out.

    Begin with `stoker demo`; then try `stoker bench FOLDER` on your own images.
    `stoker COMMAND --help` explains a command, with an example.
    """


def main() -> None:
    """The console script."""
    signals.install()
    try:
        app(prog_name="stoker")
    except KeyboardInterrupt:  # before or after the command
        sys.exit(tell_stopped())


if __name__ == "__main__":
    main()
