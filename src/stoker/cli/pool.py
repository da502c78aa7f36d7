"""The threads of a command that works on many shards: a few take a shard each, and share the others for what is inside."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Annotated, Any, TypeVar

import typer

from ..engine.resources import usable_cores
from ..errors import ConfigError
from ..pack.jobs.convert import Stopped

Thing = TypeVar("Thing")
Result = TypeVar("Result")

Jobs = Annotated[
    int | None,
    typer.Option("-j", "--jobs", min=1, metavar="N", help="Worker threads.", show_default="the cores of this machine"),
]

#: shards at once: more would only hold more in memory, and lose more when the command is killed
_SHARDS = 4
#: seconds between two looks at whether all is to stop
_LOOK_S = 0.1


class Pool:
    """`over` runs a function on things, several at once; within it `ordered` shares out smaller work to all other threads.

    Leaving the ``with`` block by an exception, Ctrl-C among them, lets what runs come to its next look at `stopping`, and waits.
    """

    def __init__(self, jobs: int | None, things: int) -> None:
        self.jobs = jobs or usable_cores()
        self._at_once = max(1, min(self.jobs, things, _SHARDS))
        self._ahead = math.ceil(2 * self.jobs / self._at_once)
        self._stop = threading.Event()
        self._outer = ThreadPoolExecutor(self._at_once, "stoker-shard")
        self._inner = ThreadPoolExecutor(self.jobs, "stoker-work")

    def over(self, work: Callable[[Thing], Result], things: Iterable[Thing], tick: Callable[[], None]) -> Iterator[Result]:
        """Results as they come; the first exception ends it. `tick` is called ten times a second, in the caller's thread."""
        waiting: set[Future[Result]] = {self._submit(self._outer, work, thing) for thing in things}
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, _LOOK_S, concurrent.futures.FIRST_COMPLETED)
            tick()
            for future in done:
                yield future.result()

    def ordered(self, work: Callable[[Any], Any], things: Iterable[Any]) -> Iterator[Any]:
        """Results in order, worked out some way ahead."""
        waiting: deque[Future[Any]] = deque()
        try:
            for thing in things:
                waiting.append(self._submit(self._inner, work, thing))
                if len(waiting) > self._ahead:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()

    def stopping(self) -> bool:
        """Whether all is to stop."""
        return self._stop.is_set()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._stop.set()
        self._outer.shutdown(wait=True, cancel_futures=True)
        self._inner.shutdown(wait=True, cancel_futures=True)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[Any], Any], thing: Any) -> Future[Any]:
        try:
            return pool.submit(work, thing)
        except RuntimeError as error:  # a limit on threads, or a pool that is shut down
            if self._stop.is_set():
                raise Stopped from error
            raise ConfigError(f"a thread could not be started ({error}); use fewer with -j, or raise `ulimit -u`") from error

    def _result(self, future: Future[Any]) -> Any:
        while not future.done():
            concurrent.futures.wait((future,), _LOOK_S)
            if self._stop.is_set():
                raise Stopped
        return future.result()
