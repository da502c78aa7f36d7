"""One function over many things at once, for what is done before a run: looking at shards, making their indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Thing = TypeVar("Thing")

#: most of this is waiting for disks and networks
_THREADS = 16


def each(work: Callable[[Thing], Any], things: Iterable[Thing]) -> list[Any]:
    """The results in the order of `things`. Of several exceptions that of the first thing is raised, and no new work begins."""
    todo = list(things)
    if len(todo) < 2:
        return [work(thing) for thing in todo]
    pool = ThreadPoolExecutor(min(_THREADS, len(todo)), "stoker-look")
    try:
        return list(pool.map(work, todo))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
