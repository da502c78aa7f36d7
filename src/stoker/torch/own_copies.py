"""A work for threads of this process, each of which has its own copy of the data set, such as a worker process would have.

So a file that an item opens, a cache that it fills, an array that it writes to are one thread's. What stays common is what a
process has once: attributes of modules and classes, and `get_worker_info()`, which knows of processes alone and says None here.
Two things are better done by a process, and are found out: drawing from the process's generators, which has to be done by one
thread at a time, in between what the program draws; and asking `get_worker_info()`, which is noticed in a thread's first batch.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import get_worker_info

from ..engine.background import Background
from ..engine.packed_work import PackedWork
from ..engine.shared_memory import BlockArena, MemoryFile
from .fetch_work import FetchResult, FetchTask, FetchWork

#: joins tensors in shared memory where that is a process
_ASKING_IN_VAIN = ("torch.utils.data._utils.collate",)
DRAWS = "items draw from generators that all threads share, and would have to take turns"
ASKS = "the data set asks get_worker_info(), which knows of processes alone"


class OwnCopies:
    """The work of some threads. Sent to worker processes, it is the work itself as it was when this was made."""

    writes = True

    def __init__(self, work: FetchWork) -> None:
        self.work = work
        self._usual_threads = torch.get_num_threads()
        file = MemoryFile()
        weakref.finalize(self, file.close).atexit = False
        self._packed: PackedWork[FetchTask | None, FetchResult | None] = PackedWork(work, BlockArena(file))
        #: why processes are to do it, in words; "": nothing was seen that says so
        self.needs_processes = ""

    def __call__(self, task: FetchTask, scratch: Any) -> FetchResult | None:
        own: _Own = scratch.keep(self, self._own)
        if own.new:
            with _noticing_who_asks(self._asks):
                result: FetchResult | None = own.work(task, scratch)
            own.new = False
        else:
            result = own.work(task, scratch)
        if result is not None and result.report.draws:
            self.needs_processes = self.needs_processes or DRAWS
        return result

    def _asks(self) -> None:
        self.needs_processes = ASKS

    def _own(self) -> _Own:
        _compute_with_one_thread(self._usual_threads)
        return _Own(self._copy())

    def _copy(self) -> Any:
        copy: Any = self._packed.copy()
        copy.stands_in = False
        return copy

    def unchanged(self) -> bool:
        """Whether the work is still what its copies are."""
        return self._packed.unchanged()

    def __reduce__(self) -> Any:
        return _as_it_is, (self._copy(),)


def _as_it_is(work: FetchWork) -> FetchWork:
    return work


class _Own:
    """One thread's copy; `new` until it was called."""

    __slots__ = ("new", "work")

    def __init__(self, work: Any) -> None:
        self.work, self.new = work, True


def _compute_with_one_thread(usual: int) -> None:
    """Have torch compute with one thread where this thread calls it.

    The number that a thread sets last is that of all threads that begin later; so another one sets what is usual again.
    """
    torch.set_num_threads(1)
    Background(lambda _: torch.set_num_threads(usual), 1, "stoker-torch").close()


@contextmanager
def _noticing_who_asks(seen: Callable[[], None]) -> Iterator[None]:
    """Call `seen` if this thread calls `get_worker_info` meanwhile, but for torch itself; not where a profiler is at work."""

    def look(frame: Any, event: str, _: Any) -> None:
        if frame.f_code is asking and event == "call" and frame.f_back.f_globals.get("__name__") not in _ASKING_IN_VAIN:
            seen()

    asking = get_worker_info.__code__
    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
