"""What a forked child must make again: locks that a thread of the parent may hold, connections that both would use."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_renewers: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def after_fork(thing: _T, renew: Callable[[_T], None]) -> None:
    """Have ``renew(thing)`` called in every child forked while `thing` lives; nothing else runs in the child then."""
    _renewers[thing] = renew


def _renew_all() -> None:
    for thing, renew in list(_renewers.items()):
        renew(thing)


os.register_at_fork(after_in_child=_renew_all)
