"""Retries for remote files: one loop for everything that is reached over a network.

A backend (`Remote`) makes single attempts and raises `RemoteFault` when one fails. What follows is decided here and nowhere else:
try again after a pause, from the last good byte; or give up, with an error that names the URL. So a new backend is one small
class, and a test that needs a broken network needs no network.

How long anything can take: a read that makes no progress gives up after `budget_s`. Within an attempt it may take `connect_s`
to connect, `silence_s` from the request to the end of the answer's headers, and `silence_s` for each next byte. An attempt is
cut off where the budget ends, but the first may always connect and wait for an answer. A server that sends one byte per second
is as bad as one that sends none: an attempt slower than `least_bytes_per_s` is broken off, and less than `progress_bytes` do
not count as progress, nor do bytes that were received before.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import TypeVar

from ..errors import ConfigError, RemoteError, ShardChanged, SourceNotFound, StokerError
from .blob import Stat
from .traffic import Traffic

_log = logging.getLogger("stoker")
_T = TypeVar("_T")
#: bytes thrown away at once, where a server cannot begin in the middle
_SKIP_BYTES = 1 << 20
#: attempts that fail for longer than this are not kept to ourselves, or waiting looks like hanging; by server, when that was said
_SILENT_S, _WARN_EVERY_S = 3.0, 60.0
_warned: dict[str, float] = {}
#: of each number of `Patience` but those of bytes; many years in seconds are more than a system call takes
_MOST = 1_000_000
#: of its own: users' functions, and who else draws from the generator that all share, must not notice
_chance = random.Random()


@dataclass(frozen=True, slots=True)
class Patience:
    """Network timeouts and retries. Together they take less time than the loader's watchdog, so that the error names the URL."""

    #: to connect: to any of a host's addresses, through a proxy, with TLS
    connect_s: float = 10.0
    #: the longest wait for an answer's headers, all of them together, and for the next byte after them
    silence_s: float = 15.0
    #: an answer that is slower than this over `rate_window_s` is broken off, and asked for again
    least_bytes_per_s: float = 1024.0
    rate_window_s: float = 15.0
    #: pauses between attempts: half of it to all of it, by chance; each `delay_factor` times the one before
    first_delay_s: float = 0.1
    delay_factor: float = 2.0
    longest_delay_s: float = 8.0
    #: a server's Retry-After is kept, up to this
    longest_retry_after_s: float = 30.0
    #: time without progress after which a read gives up
    budget_s: float = 40.0
    progress_bytes: int = 1 << 16

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not isinstance(value, (int, float)) or not value > 0:
                raise ConfigError(f"Patience({entry.name}={value!r}): must be a number above 0")
            if value > _MOST and "bytes" not in entry.name:
                raise ConfigError(f"Patience({entry.name}={value!r}): must be at most {_MOST:,}, because every wait must end")


class Clock:
    """Time, waiting and chance, as one thing that tests can replace."""

    def now(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float, stop: threading.Event) -> None:
        """Wait, but no longer than until `stop` is set."""
        stop.wait(seconds)

    def chance(self) -> float:
        """A number in [0, 1). It spreads attempts in time and touches no result."""
        return _chance.random()


class RemoteFault(Exception):
    """One attempt failed. It stays inside this package: the loop below turns it into another attempt or an error."""

    def __init__(
        self,
        why: str,
        *,
        status: int | None = None,
        again: bool = True,
        changed: bool = False,
        after_s: float | None = None,
        late: bool = False,
        tries: int = 1 << 30,
        remedy: str = "",
    ) -> None:
        super().__init__(why)
        self.why = why
        self.status = status
        #: whether another attempt may go better
        self.again = again and not changed
        #: the file is no longer the one that was looked at first
        self.changed = changed
        #: what the server asked us to wait
        self.after_s = after_s
        #: nothing is known but that it took too long
        self.late = late
        #: how many attempts are worth it
        self.tries = tries
        #: what to do about it; "": what its status says
        self.remedy = remedy
        #: who was asked in the server's place, for messages
        self.via = ""


def refused(status: int, *, after_s: float | None = None) -> RemoteFault:
    """The fault for a status: 408, 429 and 5xx may be temporary, all others are not."""
    again = status in (408, 429) or status >= 500
    return RemoteFault(f"HTTP {status} {phrase_of(status)}", status=status, again=again, changed=status == 412, after_s=after_s)


def phrase_of(status: int) -> str:
    """What a status means, in HTTP's own words, never in the server's."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "(an unknown status)"


class Body(ABC):
    """The bytes of one answer, in order. `at` is the place in the file of the next one."""

    at: int
    #: as that of a fault
    via: str = ""

    @abstractmethod
    def readinto(self, view: memoryview, wait_s: float) -> int:
        """Put what has arrived, at least a byte, into `view` and move `at`; 0 is the end of the answer.

        Raises RemoteFault, also when nothing came for `wait_s`.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the answer, read or not, at once."""


class Remote(ABC):
    """A file far away, asked once: no patience, no memory of failures. Safe for many threads."""

    #: for messages; never holds a secret
    url: str
    #: the last part of its path
    name: str
    #: the full URL, secrets and all: for asking and for telling files apart, never for showing
    address: str

    @abstractmethod
    def head(self, patience: Patience, limit_s: float) -> Stat:
        """Ask for size and version, within `limit_s`; raises RemoteFault."""

    @abstractmethod
    def get(self, start: int, stop: int, stat: Stat, patience: Patience, limit_s: float) -> Body:
        """Request bytes `start` up to `stop` of the file that `stat` describes; the answer may begin earlier.

        The answer arrives within `limit_s`, its bytes perhaps later. Raises RemoteFault.
        """

    @abstractmethod
    def sibling(self, suffix: str) -> Remote:
        """The file whose name is this one's and `suffix`."""

    def close(self) -> None:
        """Let go of idle connections; it may be used again."""


class Attempts:
    """The pauses between attempts, and when they end."""

    def __init__(self, remote: Remote, patience: Patience, clock: Clock, stop: threading.Event) -> None:
        self._remote, self._patience, self._clock, self._stop = remote, patience, clock, stop
        self._limit_s = math.inf
        #: whether the server sent any of what is wanted
        self.lives = False
        self.begin()

    def begin(self) -> None:
        """Something new is wanted: all patience is there again."""
        self._since = self._clock.now()
        self._fresh_bytes = 0
        self._failed = 0
        self._reason: RemoteFault | None = None

    def moved(self, count: int) -> None:
        """Note the progress of some bytes; enough of them restore patience."""
        self._fresh_bytes += count
        if self._fresh_bytes >= self._patience.progress_bytes:
            self.begin()

    def limit_s(self) -> float:
        """How long the next attempt may take before anything moves: as long as the budget lasts.

        The first may always connect and wait for an answer, or a small budget would mean not to try.
        """
        left = self._since + self._patience.budget_s - self._clock.now()
        self._limit_s = left if self._failed else max(left, self._patience.connect_s + self._patience.silence_s)
        return self._limit_s

    def check(self) -> None:
        """Raise if what is read is no longer wanted."""
        if self._stop.is_set():
            raise RemoteError(f"{self._remote.url}: closed while it was read", url=self._remote.url)

    def failed(self, fault: RemoteFault, place: str) -> None:
        """Return after a pause when there may be another attempt; raise when not."""
        self._failed += 1
        if not fault.again:
            raise error_of(self._remote, fault, place, moved=self.lives)
        patience = self._patience
        if fault.late and self._limit_s < patience.silence_s and self._reason is not None:
            fault = self._reason  # cut off by the end of the budget: what went wrong before says more
        self._reason = fault
        delay = min(patience.longest_delay_s, patience.first_delay_s * patience.delay_factor ** min(self._failed - 1, 50))
        delay *= 0.5 + 0.5 * self._clock.chance()
        if fault.after_s is not None:
            delay = max(delay, min(fault.after_s, patience.longest_retry_after_s))
        spent = self._clock.now() - self._since
        self.check()
        if spent + delay > patience.budget_s or self._failed >= fault.tries:
            tried = f"; gave up after {self._failed} attempts in {spent:.0f} s" if self._failed > 1 else ""
            raise error_of(self._remote, fault, place, tried, self.lives)
        _log.info("%s: %s%s%s; trying again in %.1f s", self._remote.url, fault.why, place, fault.via, delay)
        if spent + delay > _SILENT_S:
            self._warn(f"{fault.why}{place}{fault.via}", patience.budget_s - spent)
        self._clock.pause(delay, self._stop)

    def _warn(self, why: str, left_s: float) -> None:
        """Say that reading takes long because of failures: once per minute and server, however many reads fail."""
        now, server = self._clock.now(), self._remote.url.rpartition("/")[0]
        if now - _warned.get(server, -math.inf) < _WARN_EVERY_S:
            return
        _warned[server] = now
        _log.warning("%s: %s; trying again for up to %.0f s", self._remote.url, why, left_s)


def error_of(remote: Remote, fault: RemoteFault, place: str = "", tried: str = "", moved: bool = False) -> StokerError:
    """The error a user sees for a fault that stays."""
    if fault.changed:
        return ShardChanged(
            f"{remote.url}: changed since it was opened ({fault.why}{place}); create the pipeline again",
            shard=remote.url,
        )
    if fault.status in (404, 410) and not place:
        return SourceNotFound(f"{remote.url}: {fault.why}{fault.via}; check the spelling, and that it was uploaded")
    remedy = fault.remedy or _REMEDIES.get(fault.status or 0, "try again later" if fault.again else "")
    message = f"{remote.url}: {fault.why}{place}{fault.via}{tried}" + (f"; {remedy}" if remedy else "")
    return RemoteError(message, url=remote.url, status=fault.status, moved=moved)


_REMEDIES = {
    400: "check the URL, and that credentials for a limited time have not expired",
    401: "use credentials that may read it",
    403: "check the spelling, that the credentials may read it, that a signed URL has not expired, and this machine's clock",
    404: "it was there before; put it back",
    407: "put name and password into the proxy's URL: http_proxy or https_proxy=http://name:password@host:port",
    429: "the server wants fewer requests: read with fewer threads, or through a cache",
}


def ask(remote: Remote, question: Callable[[float], _T], patience: Patience, clock: Clock, stop: threading.Event) -> _T:
    """The answer to a question that can be asked again; it is given the seconds it may take."""
    attempts = Attempts(remote, patience, clock, stop)
    while True:
        try:
            return question(attempts.limit_s())
        except RemoteFault as caught:
            fault = caught
        # Outside of the handler, so that what a server said is not chained to the error and printed with it.
        attempts.failed(fault, "")


class RangeReader:
    """Bytes from `start` up to `stop`, each exactly once, over as many answers as it takes. For one thread.

    Invariant: everything handed over is before `at`, and the next answer is requested from `at`.
    """

    def __init__(
        self,
        remote: Remote,
        start: int,
        stop: int,
        stat: Stat,
        patience: Patience,
        clock: Clock,
        stopped: threading.Event,
    ) -> None:
        self._remote, self._stop, self._stat, self._patience, self._clock = remote, stop, stat, patience, clock
        self._attempts = Attempts(remote, patience, clock, stopped)
        self._body: Body | None = None
        self.at = start
        #: answers that began, and how long they took until then
        self.answers, self.answer_s = 0, 0.0
        #: the farthest byte that came so far, skipped ones included: only what lies beyond it is progress
        self._farthest = 0

    def fill(self, view: memoryview, moved: Callable[[], None] | None = None) -> None:
        """Fill the whole view with the bytes that come next, or raise; `moved` is called whenever some have come."""
        if self.at + len(view) > self._stop:
            raise ValueError(f"{len(view)} bytes at {self.at} of a range that ends at {self._stop}")
        self._attempts.begin()
        self._attempts.lives = False
        rate = self._new_rate()
        while view:
            self._attempts.check()
            try:
                count = self._some(view, rate)
            except RemoteFault as caught:
                fault = caught
            else:
                view = view[count:]
                self.at += count
                self._attempts.lives = True
                if moved is not None:
                    moved()
                continue
            if self._body is not None:
                fault.via = self._body.via
                # An answer that was accepted and then ended at once is of a bad place; silence after it is not.
                self._attempts.lives |= not fault.late
            self.close()
            self._attempts.failed(fault, f" at byte {self.at:,}")
            rate = self._new_rate()

    def close(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()

    def _new_rate(self) -> _Rate:
        return _Rate(self._patience, self._clock, self._attempts.limit_s())

    def _some(self, view: memoryview, rate: _Rate) -> int:
        if self._body is None:
            asked = self._clock.now()
            self._body = self._remote.get(self.at, self._stop, self._stat, self._patience, rate.limit_s)
            self.answers, self.answer_s = self.answers + 1, self.answer_s + self._clock.now() - asked
            self._farthest = max(self._farthest, self._body.at)
            rate.begin()
        body = self._body
        if body.at < self.at:
            self._skip(body, rate)
        if body.at != self.at:
            raise RemoteFault(f"the answer begins at byte {body.at:,} and not", tries=3)
        count = self._read(body, view, rate)
        if not count:
            raise RemoteFault(f"the answer ended {self._stop - self.at:,} bytes early")
        return count

    def _skip(self, body: Body, rate: _Rate) -> None:
        """Throw away what comes before the bytes asked for, however long that takes, as long as it comes fast enough."""
        bin_ = memoryview(bytearray(min(_SKIP_BYTES, self.at - body.at)))
        while body.at < self.at:
            if not self._read(body, bin_[: self.at - body.at], rate):
                raise RemoteFault(f"the answer ended at byte {body.at:,}, before what was asked for")

    def _read(self, body: Body, view: memoryview, rate: _Rate) -> int:
        count = body.readinto(view, rate.wait_s())
        rate.moved(count)
        # A server that cannot begin in the middle and ends each answer at the same place sends much, and gets nowhere.
        if body.at > self._farthest:
            self._attempts.moved(body.at - self._farthest)
            self._farthest = body.at
        return count


class _Rate:
    """Whether bytes come fast enough, in one attempt. It counts from the end of the answer's headers on, and only while somebody
    waits for bytes, so a slow consumer is not a slow server."""

    def __init__(self, patience: Patience, clock: Clock, limit_s: float) -> None:
        self._patience, self._clock = patience, clock
        #: how long the attempt may take before anything moves
        self.limit_s = limit_s
        self._window_s = min(patience.rate_window_s, limit_s)
        self.begin()
        self._until = self._since + limit_s

    def begin(self) -> None:
        self._since, self._bytes = self._clock.now(), 0

    def moved(self, count: int) -> None:
        self._bytes += count

    def wait_s(self) -> float:
        """The longest wait for the next byte. Where the budget ends, bytes that came go on buying time, at the least rate.

        Raises RemoteFault when those that came were too few.
        """
        now, least = self._clock.now(), self._patience.least_bytes_per_s
        took = now - self._since
        if took >= self._window_s:
            if self._bytes < took * least:
                raise RemoteFault(f"only {self._bytes:,} bytes came in {took:.0f} s")
            self._since, self._bytes, self._window_s, self._until = now, 0, self._patience.rate_window_s, math.inf
        return min(self._patience.silence_s, max(self._until, self._since + self._bytes / least) - now)


def read_range(
    remote: Remote,
    start: int,
    stop: int,
    view: memoryview,
    stat: Stat,
    patience: Patience,
    clock: Clock,
    stopped: threading.Event | None = None,
    moved: Callable[[], None] | None = None,
) -> Traffic:
    """Fill `view` with the bytes from `start` up to `stop`, whatever it takes within `patience`, or raise.

    `moved` is called whenever some have come.
    """
    if stop - start != len(view):
        raise ValueError(f"{len(view)} bytes for {start} to {stop}")
    reader = RangeReader(remote, start, stop, stat, patience, clock, stopped or threading.Event())
    begun = clock.now()
    try:
        reader.fill(view, moved)
    finally:
        reader.close()
    return Traffic(reader.answers, len(view), reader.answer_s, clock.now() - begun - reader.answer_s)
