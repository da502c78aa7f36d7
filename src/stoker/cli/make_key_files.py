"""`stoker keys`: key files for a trainer and its remote workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..remote.curve_keys import make_keys
from .screen import tell


def keys(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the key files go.", show_default=False)],
    workers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="A worker, or a group of them, that is to have a key.", show_default="worker"),
    ] = None,
) -> None:
    """Make key files for a trainer and its remote workers.

    Writes `trainer.key`, which stays with the trainer, and one file for each name, which goes to those workers. All hold secrets,
    and are readable by you alone. Run again with other names, it adds these. To shut somebody out, remove their line from
    `trainer.key`.

    Example: `stoker keys stoker-keys data-machines`
    """
    for path in make_keys(folder, workers or ["worker"]):
        tell(str(path))
