"""Imports a user's script for its pipeline. The script must not start training when a command imports it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ConfigError

_imported: list[str] = []


@contextmanager
def imported_by_command(module: str) -> Iterator[None]:
    """What runs inside this context is the import of this module."""
    _imported.append(module)
    try:
        yield
    finally:
        _imported.pop()


def check_trains(call: str) -> None:
    """Raise if a loader for a training program is made while a command imports its module."""
    if _imported:
        raise ConfigError(
            f"{call}: {_imported[-1]} makes this loader while it is imported for its pipeline; put its training code under "
            'if __name__ == "__main__":'
        )
