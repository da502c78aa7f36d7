"""Modules that make loaders while they are imported, such as a training script without ``if __name__ == "__main__":``.

Commands import a script for its pipeline, and workers import modules for the functions in them. What a module does at its top
level then happens once more; if it starts workers, these import it again, and so on without end. So workers get the functions of
such modules without importing them (`trains`), and a worker that imports one anyway starts no workers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from ..errors import ConfigError

_log = logging.getLogger("stoker")
_GUARD = 'under if __name__ == "__main__":'
#: whether this thread imports modules for a worker, or for a command; None: for neither
_worker: ContextVar[bool | None] = ContextVar("stoker-imports", default=None)
#: modules that made a loader while they were imported
_trained: set[str] = set()


@contextmanager
def importing(worker: bool) -> Iterator[None]:
    """Modules are imported meanwhile: by a worker, or by a command."""
    token = _worker.set(worker)
    try:
        yield
    finally:
        _worker.reset(token)


def in_worker() -> bool:
    """Whether a worker is importing modules."""
    return bool(_worker.get())


def note_loader(call: str, elsewhere: bool = False) -> None:
    """Note the modules that make a loader while they are imported. If a command imports them, it waits for that: a warning.

    It is an error if the rows come from `elsewhere`: from a server, which this program may be.
    """
    files = []
    for frame in _frames():
        if frame.f_code.co_name == "<module>" and _half_made(name := frame.f_globals.get("__name__", "")):
            _trained.add(name)
            files.append(frame.f_code.co_filename)
    if _worker.get() is not False or not files:
        return
    if elsewhere:
        raise ConfigError(
            f"{call}: {files[0]} makes this loader while it is imported for its pipeline; put its training code {_GUARD}"
        )
    _log.warning(
        "%s makes a loader while it is imported, so the command begins after that; put its training code %s", files[0], _GUARD
    )


def check_processes(call: str) -> None:
    """Refuse worker processes of a module that a worker imports."""
    if in_worker():
        file = next((frame.f_code.co_filename for frame in _frames() if frame.f_code.co_name == "<module>"), "a module")
        raise ConfigError(f"{call}: {file} starts worker processes while a worker imports it; put its training code {_GUARD}")


def trains(name: str) -> bool:
    """Whether a module has made a loader while it was imported, or may be about to: its import, or its package's, is not over."""
    parts = name.split(".")
    return name in _trained or any(_half_made(".".join(parts[:end])) for end in range(1, len(parts) + 1))


def _half_made(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _frames() -> Iterator[FrameType]:
    """The frames of this thread, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
