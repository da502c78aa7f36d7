"""What follows a loader while it runs, and ends with it: traces, logs, pages."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ClosedError, ConfigError
from .meters import Meters

if TYPE_CHECKING:
    from ..loader import Loader

#: called with every loader that is made
newcomers: list[Callable[[Loader], None]] = []
_Self = TypeVar("_Self", bound="ClosedByWith")


def meters_of(loader: Loader, call: str) -> Meters:
    """The meters of a loader, which anything else that was passed to `call` lacks."""
    meters: Any = getattr(loader, "_meters", None)
    if not isinstance(meters, Meters):
        raise ConfigError(f"{call}: must be a loader, as pipeline.loader() makes it, not {type(loader).__name__}")
    return meters


class ClosedByWith(ABC):
    """Leaving the ``with`` block closes it."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Follower(ClosedByWith):
    """Follows one loader, until it is closed: by `close`, as a context manager, with its loader, or when the program ends.

    A loader without references ends it too. A forked child leaves it alone.
    """

    def __init__(self, loader: Loader, call: str) -> None:
        meters = meters_of(loader, call)
        if loader._closed:
            raise ClosedError(f"{call}: this loader is closed; call it before closing the loader")
        self._meters, self._process = meters, os.getpid()
        self.rank, self.world = loader._rank.rank, loader._rank.world
        self.closed = False

    def _begin(self, loader: Loader) -> None:
        """From here on it is closed with its loader: when all that can fail has been done."""
        # When the program ends, too: nothing else uses what it has, and what it holds back would be lost.
        self._net = weakref.finalize(loader, self.close)
        self._meters.endings += (self.close,)

    def close(self) -> None:
        """End it; idempotent."""
        if self.closed:
            return
        self.closed = True
        self._net.detach()
        meters, me = self._meters, id(self)
        meters.endings = tuple(end for end in meters.endings if end != self.close)
        meters.sinks = tuple(sink for sink in meters.sinks if id(sink) != me)
        if self._process == os.getpid():
            self._finish()

    @abstractmethod
    def _finish(self) -> None:
        """Write what is left, and let go of everything."""
