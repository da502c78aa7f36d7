"""`stoker keys`: key files for a trainer and its remote workers, or for a pool and its trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..remote.curve_keys import make_keys
from .screen import argument, flag, tell


def keys(
    folder: Annotated[Path, argument("FOLDER", "Folder for the key files.")],
    names: Annotated[
        list[str] | None,
        argument("NAME", "Name of a worker or a group of workers; with --pool, of a trainer.", default="worker, or trainer"),
    ] = None,
    pool: Annotated[bool, flag("For a pool (`stoker serve`) and its trainers.", "--pool")] = False,
) -> None:
    """Make key files for connections to a trainer or a pool.

    Writes `trainer.key`, which stays with the trainer, and one file for each name, which goes to those workers. With `--pool` it
    writes `pool.key`, which stays with the pool, and one file for each trainer. All contain secrets and are readable only by you.
    Run it again with other names to add them. To revoke a key, remove its line from `trainer.key` or `pool.key`.

    Example: `stoker keys stoker-keys data-machines`
    """
    listener, usual = ("pool", "trainer") if pool else ("trainer", "worker")
    for path in make_keys(folder, names or [usual], listener):
        tell(str(path))
