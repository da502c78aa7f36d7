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
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from ..engine.executor import Outcome, Task
from ..engine.threads import ThreadExecutor
from ..errors import WorkerRefused
from ..sizes import counted
from ..storage.plain_values import Unstorable
from .carrier import Carrier, make_results
from .curve_keys import WorkerKeys
from .frames import (
    MAX_BUFFER,
    PROTOCOL,
    Beat,
    Buffer,
    Bye,
    End,
    FrameError,
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

#: seconds without a welcome until the connection is made again, and for a worker that leaves to finish what it has begun
_WELCOME_S, _LEAVE_S = 3.0, 20.0
#: of a trainer's silence, how many times what it calls silence itself, until the connection is made again
_SILENCES = 2.0
#: milliseconds: between attempts to connect, and for last words
_RECONNECT_MS, _RECONNECT_MOST_MS, _LINGER_MS = 100, 2000, 1000
_EVENTS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


@dataclass(slots=True)
class _AskedRows:
    """A parcel of tasks; `time` counts connections, because what was asked for by an earlier one nobody waits for."""

    time: int
    asked: Tasks
    carrier: Carrier
    came_s: float


class WorkerService:
    """One worker. `say` takes a line for whoever watches; `once`: it leaves when the trainer has ended."""

    def __init__(
        self,
        address: str,
        carriers: Mapping[str, Carrier],
        *,
        keys: WorkerKeys | None,
        version: str,
        identity: dict[str, str],
        threads: int,
        make_scratch: Callable[[], Any],
        say: Callable[[str], None],
        once: bool = False,
    ) -> None:
        self._address, self._keys, self._carriers, self._say, self._once = address, keys, carriers, say, once
        self._hello = packed(Hello(PROTOCOL, version, identity, threads, sockets.gethostname()[:200], os.getpid()))
        self._context = zmq.Context(io_threads=1)
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Any = None
        self._poller = zmq.Poller()
        self._wake_end, self._wake = os.pipe()
        for end in (self._wake_end, self._wake):
            os.set_blocking(end, False)
        self._poller.register(self._wake_end, zmq.POLLIN)
        self._welcome: Welcome | None = None
        self._time = 0
        self._heard_s = self._began_s = self._beat_due = 0.0
        self._jobs: dict[int, _AskedRows] = {}  # that are not answered, by serial
        self._out: deque[tuple[int, list[Buffer]]] = deque()
        self._leaving, self._ended = False, False
        self._told: set[str] = set()
        self._executor = ThreadExecutor(threads, make_scratch)
        self._channel = self._executor.channel(self._make, self)

    def leave(self) -> None:
        """Finish what is begun, and then return from `run`. For handlers of signals, and other threads."""
        self._leaving = True
        with suppress(OSError):
            os.write(self._wake, b"!")

    def run(self) -> None:
        """Work until somebody says `leave`. Raises WorkerRefused where the trainer does not want this worker."""
        try:
            self._connect()
            while not self._leaving and not (self._once and self._ended):
                self._turn(0.5)
            self._finish()
        finally:
            self._executor.close()
            self._disconnect(_LINGER_MS)
            self._context.term()
            for end in (self._wake_end, self._wake):
                os.close(end)

    # ---- the connection ------------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """A new connection; what was asked for by the last one is forgotten."""
        self._disconnect(0)
        self._start_over()
        socket = self._socket = self._context.socket(zmq.DEALER)
        if self._keys is not None:
            socket.curve_publickey, socket.curve_secretkey = self._keys.public.encode(), self._keys.secret.encode()
            socket.curve_serverkey = self._keys.trainer.encode()
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),  # the trainer asks for no more than it can take
            (zmq.MAXMSGSIZE, MAX_BUFFER),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _RECONNECT_MOST_MS),
            (zmq.IPV6, int("[" in self._address)),
        ):
            socket.setsockopt(option, value)
        self._monitor = socket.get_monitor_socket(_EVENTS)
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        socket.connect(self._address)
        socket.send(self._hello)

    def _start_over(self) -> None:
        self._time += 1
        self._jobs.clear()
        self._welcome, self._began_s = None, time.monotonic()

    def _disconnect(self, linger_ms: int) -> None:
        if self._socket is not None:
            self._poller.unregister(self._socket)
            self._poller.unregister(self._monitor)
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
            self._socket.close(linger=linger_ms)
            self._socket = None

    def _send(self, parts: list[Buffer]) -> None:
        assert self._socket is not None
        with suppress(zmq.Again):
            self._socket.send_multipart(parts, zmq.NOBLOCK, copy=False)

    # ---- one turn ------------------------------------------------------------------------------------------------------------

    def _turn(self, seconds: float) -> None:
        """Wait for something to happen, and see to it."""
        if self._welcome is not None:
            seconds = min(seconds, self._welcome.beat_s / 2)
        self._poller.poll(int(1000 * seconds))
        with suppress(BlockingIOError):
            os.read(self._wake_end, 4096)
        self._watch()
        while self._out:
            made, parts = self._out.popleft()
            if made == self._time and self._welcome is not None:
                self._send(parts)
        self._receive()
        self._keep_time(time.monotonic())

    def _keep_time(self, now: float) -> None:
        welcome = self._welcome
        if welcome is None:
            if now > self._began_s + _WELCOME_S and not self._leaving:
                self._connect()
            return
        if now >= self._beat_due:
            self._beat_due = now + welcome.beat_s
            self._send([packed(Beat())])
        if now > self._heard_s + _SILENCES * welcome.silent_s and not self._leaving:
            self._say(
                f"the trainer at {self._address} gave no sign of life for {_SILENCES * welcome.silent_s:g} s; connecting again"
            )
            self._connect()

    def _watch(self) -> None:
        """Say why a connection is not accepted; else it would be tried for ever, without a word."""
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())["event"]
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                told = "does not know the key of this worker; add it with `stoker keys`, or use the right key file"
            else:
                told = "does not speak to this worker: one of the two has no keys, or the wrong ones"
            if told not in self._told:
                self._told.add(told)
                self._say(f"the trainer at {self._address} {told}")

    def _receive(self) -> None:
        assert self._socket is not None
        while self._socket is not None:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard_s = time.monotonic()
            try:
                self._hear(from_trainer(parts[0]))
            except FrameError as error:
                self._say(f"the trainer at {self._address} sent what cannot be read ({error}); connecting again")
                self._connect()

    def _hear(self, message: FromTrainer) -> None:
        if isinstance(message, Tasks):
            self._take(message)
        elif isinstance(message, Unwanted):
            for serial in message.serials:
                self._jobs.pop(serial, None)
        elif isinstance(message, Welcome):
            self._welcome, self._ended, self._beat_due = message, False, 0.0
            self._say(f"working for the trainer at {self._address}")
        elif isinstance(message, Refused):
            raise WorkerRefused(f"the trainer at {self._address} refused this worker: {message.why}")
        elif isinstance(message, Stranger) and self._welcome is not None:
            self._start_over()
            self._send([self._hello])
        elif isinstance(message, End):
            self._say(f"the trainer at {self._address} has ended{'' if self._once else '; waiting for the next'}")
            self._ended = True
            self._connect()

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
                self._out.append((job.time, [_header(message), *buffers]))
        with suppress(OSError):
            os.write(self._wake, b"!")

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
            self._say(f"leaving: {counted(len(serials), 'parcel')} of tasks given back, {counted(begun, 'other')} to finish")
        while (self._jobs or self._out) and self._welcome is not None and time.monotonic() < deadline:
            self._turn(0.1)
        if self._welcome is not None:
            self._send([packed(Bye())])


def _header(message: Results | Unsendable) -> bytes:
    try:
        return packed(message)
    except FrameError as error:  # too long
        return packed(Unsendable(message.serial, str(error)))
