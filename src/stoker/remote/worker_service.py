"""A worker on whatever machine: connects to a trainer, makes the rows it is asked for, and sends them back.

It runs its own code: the pipeline comes from a module that is here, and the trainer only says which rows. It waits for a
trainer, also after one has ended or was cut off, and leaves when it is told to: it gives back what it has not begun, and
finishes the rest.

The socket belongs to the thread that calls `run`. Threads that make rows put them into a queue, and wake it.
"""

from __future__ import annotations

import os
import socket as sockets
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq

from ..engine.executor import Outcome, Task
from ..engine.threads import ThreadExecutor
from ..engine.wake_pipe import WakePipe
from ..errors import WorkerRefused
from ..sizes import counted
from ..storage.plain_values import Unstorable
from .calling_socket import UNKNOWN_KEY, CallingSocket
from .carrier import Carrier, make_results
from .curve_keys import CallerKeys
from .frames import (
    PROTOCOL,
    Beat,
    Buffer,
    Bye,
    End,
    FrameError,
    Freed,
    FromTrainer,
    GivenBack,
    Hello,
    Refused,
    Results,
    Stranger,
    Tasks,
    Unsendable,
    Unwanted,
    Welcome,
    from_trainer,
    packed,
)
from .message_memory import keep_message_memory
from .pool_memory import AbsentReaders, PoolMemory, watch_of
from .row_frames import say_where
from .wire_addresses import by_ipv6

#: seconds without a welcome until the connection is made again, and for a worker that leaves to finish what it has begun
_WELCOME_S, _LEAVE_S = 3.0, 20.0
#: of a trainer's silence, how many times what it calls silence itself, until the connection is made again
_SILENCES = 2.0
#: seconds for which nobody is at the trainer's address until a worker takes it for ended that serves one trainer only
_GONE_S = 60.0
#: milliseconds for last words
_LINGER_MS = 1000


@dataclass(slots=True)
class _AskedRows:
    """A parcel of tasks; `time` counts connections, because what was asked for by an earlier one nobody waits for."""

    time: int
    asked: Tasks
    carrier: Carrier
    came_s: float


class Stuck(Exception):
    """A task does not come to its end, so this process has to."""


class WorkerService:
    """One worker. `say` takes a line for whoever watches; `once`: it leaves when the trainer has ended.

    `successor`: there was one before, so there may have been a trainer, too. `worked` is called when it has made its first rows.
    """

    def __init__(
        self,
        address: str,
        carriers: Mapping[str, Carrier],
        *,
        keys: CallerKeys | None,
        version: str,
        identity: dict[str, str],
        threads: int,
        make_scratch: Callable[[], Any],
        say: Callable[[str], None],
        once: bool = False,
        successor: bool = False,
        worked: Callable[[], object] = lambda: None,
        memory: PoolMemory | None = None,
    ) -> None:
        self._address, self._keys, self._carriers, self._say, self._once = address, keys, carriers, say, once
        self._memory, at = memory, None if memory is None else memory.at
        host = sockets.gethostname()[:200]
        self._name = f"remote worker {host}:{os.getpid()}"
        self._hello = packed(Hello(PROTOCOL, version, identity, threads, host, os.getpid(), memory=at))
        self._process = -1  # a descriptor of the trainer's process, where that sees the memory
        self._lent: dict[int, list[memoryview]] = {}  # by serial, until the trainer says that it has them
        self._absent = AbsentReaders()
        keep_message_memory()
        self._context = zmq.Context(io_threads=1)
        self._connection: CallingSocket | None = None
        self._poller = zmq.Poller()
        self._wake = WakePipe()
        self._poller.register(self._wake.end, zmq.POLLIN)
        self._welcome: Welcome | None = None
        self._time = self._trainer = 0
        self._heard_s = self._began_s = self._beat_due = 0.0
        self._reached_s = time.monotonic() if successor else 0.0  # when somebody was last there; 0: there was no trainer yet
        self._worked: Callable[[], object] | None = worked  # None: it was called
        self._jobs: dict[int, _AskedRows] = {}  # that are not answered, by serial
        self._out: deque[tuple[int, int, list[Buffer], list[memoryview] | None]] = deque()  # time, serial, parts, what is lent
        self._leaving, self._ended, self._answered = False, False, False
        self._refusals: Counter[str] = Counter()  # since the last welcome
        self._executor = ThreadExecutor(threads, make_scratch)
        self._channel = self._executor.channel(self._make, self)

    def leave(self) -> None:
        """Finish what is begun, and then return from `run`. For handlers of signals, and other threads."""
        self._leaving = True
        self._wake.ring()

    def run(self) -> None:
        """Work until somebody says `leave`. Raises WorkerRefused where the trainer does not want this worker, and Stuck."""
        try:
            self._connect()
            while not self._leaving and not (self._once and self._over()):
                self._turn(0.5)
            self._finish()
        finally:
            self._executor.close()
            self._disconnect(_LINGER_MS)
            self._context.term()
            self._part()
            self._absent.close()
            if self._memory is not None:
                self._memory.close()
            self._wake.close()

    def _over(self) -> bool:
        """Whether the trainer has ended. One that was killed has not said so: then nobody is there any more.

        One that is stopped, as by a debugger, is still there: the system takes connections for it.
        """
        if not self._ended and self._reached_s and time.monotonic() > self._reached_s + _GONE_S:
            self._say(f"nobody has been at {self._address} for {_GONE_S:g} s: the trainer has ended")
            self._ended = True
        return self._ended

    # ---- the connection ------------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """A new connection; what was asked for by the last one is forgotten."""
        self._disconnect(0)
        self._start_over()
        self._connection = CallingSocket(self._context, self._address, self._keys, self._poller, waits=True)
        self._connection.socket.send(self._hello)

    def _start_over(self) -> None:
        self._time += 1
        self._jobs.clear()
        self._welcome, self._began_s = None, time.monotonic()
        self._part()

    def _part(self) -> None:
        """A trainer may still be reading what it was lent, until it has ended or takes this worker again."""
        self._absent.add(self._trainer, self._process, self._lent)
        self._process, self._lent = -1, {}

    def _disconnect(self, linger_ms: int) -> None:
        if self._connection is not None:
            self._connection.close(linger_ms)
            self._connection = None

    def _send(self, parts: list[Buffer]) -> None:
        assert self._connection is not None
        with suppress(zmq.Again):
            self._connection.socket.send_multipart(parts, zmq.NOBLOCK, copy=False)

    # ---- one turn ------------------------------------------------------------------------------------------------------------

    def _turn(self, seconds: float) -> None:
        """Wait for something to happen, and see to it."""
        if self._welcome is not None:
            seconds = min(seconds, self._welcome.beat_s / 2)
        ready = dict(self._poller.poll(int(1000 * seconds)))
        if self._wake.end in ready:
            self._wake.heard()
        if self._connection is not None and self._connection.monitor in ready:
            self._watch()
        while self._out:
            made, serial, parts, lent = self._out.popleft()
            if made == self._time and self._welcome is not None:
                if lent is not None:
                    self._lent[serial] = lent
                self._send(parts)
                if self._worked is not None:
                    self._worked()
                    self._worked = None
        self._receive()
        self._keep_time(time.monotonic())

    def _keep_time(self, now: float) -> None:
        welcome = self._welcome
        if welcome is None:
            if now > self._began_s + _WELCOME_S and not self._leaving:
                if not self._answered and not self._refusals:
                    self._answered = True  # said once; afterwards it is known whom this worker waits for
                    self._say(
                        f"no trainer answers at {self._address} yet{_unknown_name(self._address)}; this worker keeps trying"
                    )
                self._connect()
            return
        if now >= self._beat_due:
            self._beat_due = now + welcome.beat_s
            self._send([packed(Beat())])
            self._absent.look()
        if now > self._heard_s + _SILENCES * welcome.silent_s and not self._leaving:
            self._say(
                f"the trainer at {self._address} gave no sign of life for {_SILENCES * welcome.silent_s:g} s; connecting again"
            )
            self._connect()

    def _watch(self) -> None:
        if self._connection is None:
            return
        refusals = self._connection.refusals()
        if self._connection.reached and self._reached_s:
            self._connection.reached, self._reached_s = False, time.monotonic()
        for refusal in refusals:
            self._refusals[refusal] += 1
            if self._refusals[refusal] == (1 if refusal == UNKNOWN_KEY else 2):
                self._say(f"the trainer at {self._address} {refusal}")

    def _receive(self) -> None:
        while self._connection is not None:
            try:
                parts = self._connection.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard_s = time.monotonic()
            if self._reached_s:
                self._reached_s = self._heard_s
            try:
                self._hear(from_trainer(parts[0]))
            except FrameError as error:
                self._say(f"the trainer at {self._address} sent an unreadable message ({error}); connecting again")
                self._connect()

    def _hear(self, message: FromTrainer) -> None:
        if isinstance(message, Tasks):
            self._free(message.freed)
            self._take(message)
        elif isinstance(message, Freed):
            self._free(message.serials)
        elif isinstance(message, Unwanted):
            for serial in message.serials:
                self._jobs.pop(serial, None)
        elif isinstance(message, Welcome):
            self._welcome, self._ended, self._beat_due, self._trainer = message, False, 0.0, message.pid
            self._answered, self._reached_s = True, self._heard_s
            self._refusals.clear()
            self._absent.back(message.pid)
            if message.mapped and self._memory is not None:
                self._process = watch_of(message.pid)  # where it is not seen from here, rows are sent
            self._say(f"working for the trainer at {self._address}")
        elif isinstance(message, Refused) and message.stuck:
            raise Stuck(f"the trainer at {self._address} gave this worker up: {message.why}")
        elif isinstance(message, Refused):
            raise WorkerRefused(f"the trainer at {self._address} refused this worker: {message.why}")
        elif isinstance(message, Stranger) and self._welcome is not None:
            self._start_over()
            self._send([self._hello])
        elif isinstance(message, End):
            self._say(f"the trainer at {self._address} has ended{'' if self._once else '; waiting for the next'}")
            self._ended = True
            self._lent.clear()
            self._connect()

    def _free(self, serials: list[int]) -> None:
        for serial in serials:
            self._lent.pop(serial, None)

    def _take(self, asked: Tasks) -> None:
        carrier = self._carriers.get(asked.kind)
        if carrier is None:
            raise FrameError(f"it asks for {asked.kind!r}, which this pipeline does not have")
        if self._welcome is None or self._leaving:
            return
        job = self._jobs[asked.serial] = _AskedRows(self._time, asked, carrier, time.monotonic())
        self._channel.submit([Task(0, 0, job)], first=asked.first)

    # ---- threads -------------------------------------------------------------------------------------------------------------

    def _make(self, job: _AskedRows, scratch: Any) -> tuple[Results | Unsendable, list[Buffer]] | None:
        """The answer to a job; None: nobody waits for it any more."""
        serial, begun_s = job.asked.serial, time.monotonic()
        if job.time != self._time or serial not in self._jobs:
            return None
        try:
            results, buffers = make_results(job.carrier, job.asked.tasks, scratch)
            for result in results:
                say_where(result, self._name)
            return Results(serial, results, 0, max(0.0, begun_s - job.came_s)), buffers
        except (Unstorable, FrameError) as error:
            return Unsendable(serial, str(error)), []

    def put(self, outcomes: list[Outcome[_AskedRows, tuple[Results | Unsendable, list[Buffer]] | None]]) -> None:
        """Take outcomes of jobs, in the thread that did them."""
        for outcome in outcomes:
            job, answer = outcome.task.content, outcome.result
            if outcome.fault is not None:  # a mistake of ours
                answer = Unsendable(job.asked.serial, str(outcome.fault.error())[:1000]), []
            if job.time == self._time:
                self._jobs.pop(job.asked.serial, None)
            if answer is not None:
                message, buffers = answer
                if isinstance(message, Results):
                    message.thread = outcome.worker
                self._out.append((job.time, message.serial, *self._parts(message, buffers)))
        self._wake.ring()

    def _parts(self, message: Results | Unsendable, buffers: list[Buffer]) -> tuple[list[Buffer], list[memoryview] | None]:
        """What to send, and the memory that the trainer reads the rest from; None: all is sent."""
        if self._memory is None or self._process < 0 or not isinstance(message, Results):
            return [_header(message), *buffers], None
        try:
            own = [self._memory.own(buffer) for buffer in buffers]
        except (MemoryError, OSError):  # there is no more of it
            return [_header(message), *buffers], None
        message.places = [self._memory.place(buffer) for buffer in own]
        return [_header(message)], own

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Give back what is not begun, and send what is."""
        if self._welcome is None:
            return
        groups = self._executor.take_back(1 << 30)
        serials = [task.content.asked.serial for group in groups for task in group if task.content.time == self._time]
        for serial in serials:
            self._jobs.pop(serial, None)
        self._send([packed(GivenBack(serials[: 1 << 12]))])
        begun, deadline = len(self._jobs), time.monotonic() + _LEAVE_S
        if begun or serials:
            self._say(f"leaving: {counted(len(serials), 'parcel')} of tasks returned, {counted(begun, 'other')} to finish")
        while (self._jobs or self._out) and self._welcome is not None and time.monotonic() < deadline:
            self._turn(0.1)
        if self._welcome is not None:
            self._send([packed(Bye())])


def _unknown_name(address: str) -> str:
    """Why nobody answers at an address, if that is its name; in words that follow "yet"."""
    try:
        by_ipv6(address)
    except OSError as error:
        return f" (the name of the host cannot be resolved: {error.strerror})"
    return ""


def _header(message: Results | Unsendable) -> bytes:
    try:
        return packed(message)
    except FrameError as error:  # too long, or with a value that cannot be sent
        return packed(Unsendable(message.serial, str(error)))
