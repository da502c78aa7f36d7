"""The seam a stage fills: a chunk in, a chunk out."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..batch.written_rows import SLOW_S, SLOW_TIMES
from ..errors import FunctionError, SampleError, message_of
from ..plan.columns import Step
from ..plan.nodes import Function, describe_function
from ..source.chunk import Chunk
from ..source.sample_names import NamedSample
from ..source.source import Targets as Targets
from ..storage.scratch import Scratch
from .io_retries import IoRetries
from .pytrees import introduce

if TYPE_CHECKING:
    from .user_function import UserFunction

#: a function that usually takes so long for a row is timed row by row: that costs 0.2 us
_WORTH_TIMING_S = 40e-6


class Stage(ABC):
    """One step of a task. Immutable and shared between workers; what a worker needs for itself is in its scratch.

    It is made of its step of the plan; if it draws, its random numbers are those of `seed` and the step's streams.
    """

    #: shown in statistics
    name: str
    #: works on the rows of a task together: on all of them, or not at all
    whole = False
    #: users' functions that it calls
    functions: tuple[UserFunction, ...] = ()
    #: how often a user's function that waits for a disk or a network is called again; None: never
    retries: IoRetries | None = None

    @abstractmethod
    def __init__(self, step: Step[Any], seed: int) -> None: ...

    @abstractmethod
    def run(self, chunk: Chunk, targets: Targets, scratch: Scratch) -> Chunk:
        """Transform a chunk. A bad row is reported with `chunk.fail`, never raised.

        `targets` names the final memory of fields: writing there saves a copy, and a stage may ignore it. It is empty when rows
        no longer line up with it.
        """

    def call_rows(self, function: UserFunction, chunk: Chunk, act: Callable[[int], Any], scratch: Scratch) -> list[Any]:
        """What `act`, which calls the function, makes of each row; done again as `retry` says, and then draws begin again."""
        retries, begun = self.retries, time.perf_counter()
        patient = None if retries is None else lambda act: retries.patient(act, scratch)
        if function.usual_s > _WORTH_TIMING_S:
            act = _timed(act, chunk, function.usual_s, scratch)
        results = function.each_row(chunk, act, scratch.again, patient)
        function.learn((time.perf_counter() - begun) / max(1, len(chunk)))
        return results


def _timed(act: Callable[[int], Any], chunk: Chunk, usual_s: float, scratch: Scratch) -> Callable[[int], Any]:
    """The same, and rows that take much longer than others are noted."""
    slow, limit_s, clock = scratch.slow, max(SLOW_TIMES * usual_s, SLOW_S), time.perf_counter

    def timed(row: int) -> Any:
        begun = clock()
        result = act(row)
        if (spent := clock() - begun) > limit_s:
            slow.append((int(chunk.slots[row]), spent))
        return result

    return timed


def samples_of(chunk: Chunk) -> Callable[[int], NamedSample]:
    """The rows of a chunk, as users' functions get them."""
    introduce()
    return chunk.row


def each_row(chunk: Chunk, act: Callable[[int], Any], fn: Function, rows: range | None = None) -> list[Any]:
    """Call `act` for every row (or for `rows`) that is still good; one on which it raises is marked as failed.

    The original is the cause of its error.

    sys.exit() in a function is an error like any other, unless it may be meant for the program: signals come in the main thread.
    """
    results: list[Any] = []
    for row in range(len(chunk)) if rows is None else rows:
        if row in chunk.failures:
            results.append(None)
            continue
        try:
            results.append(act(row))
        except SampleError as error:
            results.append(None)
            chunk.fail(row, error)
        except BaseException as error:  # the user's function may raise anything
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise
            results.append(None)
            chunk.fail(row, function_error(error, f"sample {chunk.name(row)!r}", fn))
    return results


def function_error(error: BaseException, what: str, fn: Function) -> FunctionError:
    """The user's exception, with what it was raised on in front, and itself, traceback and all, as the cause."""
    wrapped = FunctionError(f"{describe_function(fn)} raised {type(error).__name__} on {what}: {message_of(error)}")
    wrapped.__cause__ = error
    return wrapped
