"""Scripts that are imported: what they do at their top level, they do once more, and in every worker.

Commands import a script for its pipeline, workers import modules for the functions in them. A loader that is made meanwhile would
train there, too; one with worker processes would start workers that import the script again, without end.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import ConfigError

_log = logging.getLogger("stoker")
_GUARD = 'under if __name__ == "__main__":'
#: of what this thread does now: whether a worker imports modules; None: nobody imports any
_worker: ContextVar[bool | None] = ContextVar("stoker-imports", default=None)


@contextmanager
def importing(worker: bool) -> Iterator[None]:
    """Modules are imported meanwhile: by a worker, or by a command."""
    token = _worker.set(worker)
    try:
        yield
    finally:
        _worker.reset(token)


def check_guarded(call: str, elsewhere: bool = False) -> None:
    """Refuse a loader of a module that a worker imports, and one of `elsewhere` of a module that a command imports: its rows come
    from a server, which this may be. Any other loader of such a module does no harm, but takes time: a warning."""
    if (worker := _worker.get()) is None:
        return
    if worker:
        raise ConfigError(f"{call}: {_module()} makes a loader while a worker imports it for its functions; put it {_GUARD}")
    if elsewhere:
        raise ConfigError(
            f"{call}: {_module()} makes this loader while it is imported for its pipeline; put its training code {_GUARD}"
        )
    _log.warning(
        "%s makes a loader while it is imported for its pipeline, and uses it first; to avoid that, put it %s",
        _module(),
        _GUARD,
    )


def _module() -> str:
    """The file of the innermost module that is being imported, as far as that is known."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame.f_code.co_filename
