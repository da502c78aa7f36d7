"""A script that a command imports for its pipeline: it must not begin to train there, as its training program does elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ConfigError

_log = logging.getLogger("stoker")
_GUARD = 'put its training code under if __name__ == "__main__":'
_imported: list[_Import] = []


class _Import:
    """The import of a module by a command, and whether that trains."""

    def __init__(self, module: str) -> None:
        self.module, self.trains = module, False


@contextmanager
def imported_by_command(module: str) -> Iterator[_Import]:
    """What is run meanwhile is the import of this module."""
    _imported.append(_Import(module))
    try:
        yield _imported[-1]
    finally:
        _imported.pop()


def check_trains(call: str) -> None:
    """Raise where a loader for a training program is made while a command imports its module."""
    if _imported:
        raise ConfigError(f"{call}: {_imported[-1].module} makes this loader while it is imported for its pipeline; {_GUARD}")


def warn_trains() -> None:
    """Say why a command does not begin: the training program of its module runs first."""
    if _imported and not _imported[-1].trains:
        _imported[-1].trains = True
        _log.warning(
            "%s makes a loader while it is imported: the command begins when its training has ended; %s",
            _imported[-1].module,
            _GUARD,
        )
