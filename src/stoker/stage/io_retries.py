"""`retry(n)`: reads, and calls of users' functions, that fail for a temporary reason are tried again after a pause.

This covers only input and output: a lost connection, a timeout, a disk or network file system that refuses for a moment. Bad data
stay bad and missing data stay missing, so these are never retried. What Stoker itself fetches over a network has been retried
already (`storage/retry.py`) when it fails, and is not retried again: nested loops multiply.
"""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import RemoteError
from ..source.chunk import BytesColumn, Column, Ints, spread_columns, take_rows
from ..source.source import Rows
from ..storage.scratch import Scratch

#: pauses: the first, and the longest; each is twice the one before it, and then a half to all of it by chance
_FIRST_S, _LONGEST_S = 0.1, 5.0
#: how long a chunk may be tried again at one step: less than the watchdog's minute
_TOTAL_S = 30.0
#: error numbers of what may pass
_PASSING = {
    errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.EINTR, errno.EIO, errno.EMFILE, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ENFILE, errno.ENOBUFS,
    errno.ENOTCONN, errno.EPIPE, errno.EPROTO, errno.ESHUTDOWN, errno.ESTALE, errno.ETIMEDOUT,
} | {getattr(errno, name) for name in ("ECOMM", "EREMOTEIO") if hasattr(errno, name)}  # fmt: skip
#: what clients of networks (requests, urllib3, httpx, aiohttp, botocore, http.client) call their errors of this kind
_NAMES = {
    "ClientConnectionError", "ConnectionError", "ConnectTimeoutError", "EndpointConnectionError", "HTTPClientError",
    "IncompleteRead", "NewConnectionError", "ProtocolError", "ReadTimeoutError", "Timeout", "TimeoutError", "TransportError",
}  # fmt: skip
#: HTTP statuses of temporary failures, besides 500 and above
_STATUSES = {408, 425, 429}
#: causes of causes that are looked at
_MOST_CAUSES = 8
#: of its own: users' functions, and who else draws from the generator that all share, must not notice
_chance = random.Random()


def may_pass(error: BaseException | None) -> bool:
    """Whether what failed so may go well the next time.

    >>> [may_pass(error) for error in (ConnectionResetError(), OSError(errno.EIO, ""), FileNotFoundError(2, ""), ValueError())]
    [True, True, False, False]
    """
    for _ in range(_MOST_CAUSES):
        if error is None or isinstance(error, RemoteError):
            return False
        status = _status(error)
        if status is not None:
            return status >= 500 or status in _STATUSES
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno in _PASSING or (isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN)
        if any(kind.__name__ in _NAMES for kind in type(error).__mro__):
            return True
        reason = getattr(error, "reason", None)  # of urllib's URLError
        error = reason if isinstance(reason, OSError) else error.__cause__
    return False


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error of a client tells of."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
                return value
    return None


@dataclass(frozen=True, slots=True)
class IoRetries:
    """How often to try again; 0 and more."""

    times: int

    def patient(self, act: Callable[[int], Any], scratch: Scratch) -> Callable[[int], Any]:
        """A function over the rows of a chunk that retries if that may help. The whole call is repeated."""
        tries = _Tries(self.times, scratch)

        def call(row: int) -> Any:
            tried = 0
            while True:
                try:
                    return act(row)
                except Exception as error:
                    if not may_pass(error) or not tries.pause(tried, 1):
                        raise
                tried += 1

        return call

    def read(self, rows: Rows, count: int, again: Callable[[Ints], Rows], scratch: Scratch) -> Rows:
        """`count` rows of a source, those that failed for a reason that may pass read again by `again`."""
        tries, tried = _Tries(self.times, scratch), 0
        while (failed := [row for row, error in rows.errors.items() if may_pass(error)]) and tries.pause(tried, len(failed)):
            rows = _replaced(rows, count, failed, again)
            tried += 1
        return rows


class _Tries:
    """The pauses between the attempts of one chunk at one step."""

    __slots__ = ("_scratch", "_times", "_until")

    def __init__(self, times: int, scratch: Scratch) -> None:
        self._times, self._scratch = times, scratch
        self._until: float | None = None

    def pause(self, tried: int, rows: int) -> bool:
        """Wait before another attempt for some rows, which were tried again so often; False: there is none."""
        now = time.monotonic()
        self._until = now + _TOTAL_S if self._until is None else self._until
        delay = min(_LONGEST_S, _FIRST_S * 2.0 ** min(tried, 50)) * (0.5 + 0.5 * _chance.random())
        if tried >= self._times or now + delay > self._until:
            return False
        self._scratch.notes.retried += rows
        time.sleep(delay)
        return True


def _replaced(rows: Rows, count: int, failed: list[int], again: Callable[[Ints], Rows]) -> Rows:
    """The same rows, with those that failed as they are read now. What was read before must not stay in the worker's arena."""
    columns: dict[str, Column] = {
        name: column.lasting() if isinstance(column, BytesColumn) else column for name, column in rows.columns.items()
    }
    which = np.asarray(failed, np.int64)
    new = again(which)
    errors = {row: error for row, error in rows.errors.items() if row not in set(failed)}
    errors |= {failed[row]: error for row, error in new.errors.items()}
    kept = np.setdiff1d(np.arange(count), which)
    for name, column in new.columns.items():
        fresh = column.lasting() if isinstance(column, BytesColumn) else column
        columns[name] = _merged(columns.get(name), fresh, kept, which, count)
    return Rows(columns, errors)


def _merged(before: Column | None, fresh: Column, kept: Ints, which: Ints, count: int) -> Column:
    """A column in which the rows `which` are the fresh ones; an array, which may be the batch's memory, stays where it is."""
    if isinstance(before, np.ndarray) and isinstance(fresh, np.ndarray) and before.dtype == fresh.dtype:
        before[which] = fresh
        return before
    if before is None or not len(kept):
        return fresh
    return spread_columns([(kept, take_rows(before, kept)), (which, fresh)], count)
