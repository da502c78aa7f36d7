"""The executor with workers on other machines: tasks go out, rows come back and are written straight to their batch's memory.

One thread, the *exchange*, has the socket: it sends tasks, takes in rows, hears who is there, and finds out who is not. Threads
of this process work beside the workers, and take from the same line. What cannot travel (joining a batch, rows that exist
already, results that have no plain bytes) is done by them, so a run goes on whoever comes or leaves, also where nobody does.

Who is first with a parcel of tasks settles it, under one lock, and only then writes. A late result finds nothing to settle, so it
never reaches memory that is used again. What home does because a worker is late it does in memory of its own, for that reason.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..engine.daemons import Daemons
from ..engine.executor import CRASHED, KILLED, Address, Channel, Executor, Outcome, RemoteCount, Task, TaskWork
from ..engine.run_task import run_task
from ..engine.threads import ThreadExecutor
from ..sizes import counted
from ..storage.plain_values import Unstorable
from .carrier import Carrier, make_results
from .curve_keys import TrainerKeys
from .frames import (
    PROTOCOL,
    Beat,
    BufferQueue,
    Bye,
    End,
    FaultResult,
    FrameError,
    FromWorker,
    GivenBack,
    Hello,
    Refused,
    Results,
    RowsResult,
    Stranger,
    Tasks,
    Unsendable,
    Unwanted,
    Welcome,
    from_worker,
    other_version,
    packed,
)
from .parcel_ledger import Parcel, ParcelLedger, WorkerAccount
from .row_frames import read_fault
from .trainer_port import TrainerPort

C = TypeVar("C")
R = TypeVar("R")

_log = logging.getLogger("stoker")
_CLOSE_S = 1.0
#: workers that a trainer takes
_MOST_WORKERS = 1024
#: what differs, by the name of it in a handshake, in words
_DIFFERENCES = {
    "source": "its source holds other samples",
    "order": "its order (shuffle, take, skip, repeat, mix) is another",
    "stages": "its stages, or what they are called with, are others",
    "functions": "a function of it has other code",
    "fields": "its samples have other fields, types or shapes",
    "seed": "its seed is another",
    "on_error": "it treats bad samples in another way (on_error)",
}


class BeatTimes(NamedTuple):
    """Seconds: between two signs of life, until who gives none is lost, and between two looks at what may be late."""

    beat_s: float = 0.5
    silent_s: float = 5.0
    look_s: float = 0.02


class RemoteSetting(NamedTuple):
    """Where workers connect, who they may be, and what they must have in common with this process."""

    address: str
    keys: TrainerKeys | None
    version: str
    identity: Mapping[str, str]
    carrier_of: Callable[[TaskWork[Any, Any]], Carrier | None]
    shy: bool = False  # rows are made here only while no worker is there
    patience: BeatTimes = BeatTimes()


class RemoteExecutor(Executor):
    """Threads of this process, and whoever connects."""

    def __init__(self, workers: int, make_scratch: Callable[[], Any], processes: int = 1, *, setting: RemoteSetting) -> None:
        self._exchange = _Exchange(workers, make_scratch, setting)
        #: where workers connect, with the port that was found
        self.address = self._exchange.port.address

    @property
    def workers(self) -> int:  # type: ignore[override]  # they come and go
        return self._exchange.ledger.threads

    @property
    def remote_workers(self) -> list[WorkerAccount]:
        """Those who are connected."""
        return list(self._exchange.ledger.workers.values())

    @property
    def remote(self) -> RemoteCount:
        workers = self.remote_workers
        return RemoteCount(self._exchange.ledger.home, len(workers), sum(worker.threads for worker in workers))

    @property
    def hedged(self) -> int:
        """Parcels of tasks that were given to somebody else, too."""
        return self._exchange.ledger.hedged

    @property
    def stopped(self) -> bool:
        return self._exchange.home.stopped

    def allocate(self, nbytes: int) -> tuple[NDArray[np.uint8], Address | None]:
        return np.empty(nbytes, np.uint8), None

    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        return _RemoteChannel(self._exchange, work)

    def stacks(self, describe: Callable[[Any], str]) -> str:
        return self._exchange.stacks(describe)

    def replace_stuck(self, quiet_s: float) -> bool:
        return self._exchange.end_stuck(quiet_s)

    def close(self) -> None:
        self._exchange.close()


class _RemoteChannel(Channel[C, R]):
    def __init__(self, exchange: _Exchange, work: TaskWork[C, R]) -> None:
        self.work, self.carrier = work, exchange.setting.carrier_of(work)
        self.travels, self.cancelled = self.carrier is not None, False
        self._exchange = exchange
        self._done: queue.SimpleQueue[list[Outcome[C, R]]] = queue.SimpleQueue()

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        asked, nbytes, carrier = None, 0, self.carrier
        if carrier is not None and self.travels:
            wanted = [carrier.asked(task.content) for task in tasks]
            if None not in wanted:
                asked, nbytes = wanted, sum(carrier.nbytes(task.content) for task in tasks)
        self._exchange.take_on(Parcel(self, tasks, asked, nbytes, first))

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        outcomes: list[Outcome[C, R]] = []
        try:
            outcomes += self._done.get(timeout=timeout_s) if timeout_s > 0 else self._done.get_nowait()
            while True:
                outcomes += self._done.get_nowait()
        except queue.Empty:
            return outcomes

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._exchange.forget(self)
        self._done.put([])  # wakes whoever waits for an outcome that will not come

    def answer(self, outcomes: list[Outcome[C, R]]) -> None:
        if not self.cancelled:
            self._done.put(outcomes)


class _Errand(NamedTuple):
    """What a thread of this process does; `apart`: a worker is at it, too, so it is done in memory of its own."""

    parcel: Parcel
    apart: bool = False


class _Exchange:
    """Between the consumer, the threads of this process and the socket. It does not know the executor, nor any loader."""

    def __init__(self, threads: int, make_scratch: Callable[[], Any], setting: RemoteSetting) -> None:
        self.setting = setting
        self.ledger = ParcelLedger(threads, setting.shy)
        self._lock = threading.Lock()  # of the ledger
        self._mail: deque[tuple[Any, bytes]] = deque()  # that the exchange's thread is to send
        self._refused: set[str] = set()  # what was logged
        self._wake_end, self._wake = os.pipe()
        for end in (self._wake_end, self._wake):
            os.set_blocking(end, False)
        stop = threading.Event()
        self._daemons = Daemons(partial(_tell, stop, self._wake))
        try:
            self.port = TrainerPort(setting.address, setting.keys, self._wake_end)
        except BaseException:
            self._close_pipe()
            raise
        try:
            self.home = ThreadExecutor(threads, make_scratch)
            self._errands = self.home.channel(self._run_errand, self)
            self._daemons.start("the thread that talks to remote workers", "stoker-remote", self._run, stop)
        except BaseException:
            if hasattr(self, "home"):
                self.home.close()
            self.port.close()
            self._close_pipe()
            raise

    # ---- asked by others -----------------------------------------------------------------------------------------------------

    def take_on(self, parcel: Parcel) -> None:
        with self._lock:
            self.ledger.put(parcel)
            self._occupy_home()
            away = parcel.asked is not None and bool(self.ledger.workers)
        if away:
            self._wake_up()

    def forget(self, line: _RemoteChannel[Any, Any]) -> None:
        with self._lock:
            told = self.ledger.drop(line)
        self._mail += [(address, packed(Unwanted(serials))) for address, serials in told.items()]
        self._wake_up()

    def end_stuck(self, quiet_s: float) -> bool:
        before, found = time.monotonic() - quiet_s, False
        cause = f"was stuck: it did not finish within {quiet_s:g} s"
        with self._lock:
            workers = list(self.ledger.workers.values())
        for worker in workers:
            since = [parcel.holders.get(worker.number, before + 1) for parcel in list(worker.held.values())]
            if since and min(since) <= before:
                found = True
                self._mail.append((worker.address, packed(Refused(f"a task {cause}"))))
                self._lose(worker, cause, CRASHED)
        self._wake_up()
        return found

    def stacks(self, describe: Callable[[Any], str]) -> str:
        def errand_told(errand: _Errand) -> str:
            return "; ".join(describe(task.content) for task in errand.parcel.tasks)

        with self._lock:
            away = [
                f"remote worker {worker.name}, at "
                + ("; ".join(describe(task.content) for p in worker.held.values() for task in p.tasks) or "nothing")
                for worker in self.ledger.workers.values()
            ]
        return "\n".join([self.home.stacks(errand_told), *away])

    def close(self) -> None:
        self._daemons.close(_CLOSE_S)
        self.home.close()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._wake >= 0:
            ends, self._wake = (self._wake, self._wake_end), -1
            for end in ends:
                os.close(end)

    def _wake_up(self) -> None:
        if self._wake >= 0:
            with suppress(OSError):
                os.write(self._wake, b"!")

    # ---- at home -------------------------------------------------------------------------------------------------------------

    def _occupy_home(self) -> None:
        """Give free threads of this process something to do. The lock is held."""
        while (parcel := self.ledger.for_home(time.monotonic())) is not None:
            self._errands.submit([Task(0, 0, _Errand(parcel))])

    def _run_errand(self, errand: _Errand, scratch: Any) -> list[Outcome[Any, Any]]:
        """In a thread of this process."""
        parcel = errand.parcel
        line: _RemoteChannel[Any, Any] = parcel.line
        if not errand.apart:
            outcomes: list[Outcome[Any, Any]] = []
            for task in parcel.tasks:
                if line.cancelled:
                    break
                outcomes.append(run_task(line.work, task, scratch, 0))
            with self._lock:
                self.ledger.settle(parcel.serial)
            return outcomes
        assert line.carrier is not None
        try:
            results, buffers = make_results(line.carrier, parcel.asked or [], scratch)
            opened = self._opened(parcel, results, BufferQueue(buffers))
        except (Unstorable, FrameError):
            with self._lock:
                self.ledger.keep_home(parcel)
            return []
        with self._lock:
            # One that is kept home meanwhile is written to by whoever does it there.
            settled = None if parcel.asked is None else self.ledger.settle(parcel.serial)
        if settled is None:
            return []
        self._mail += [(worker.address, packed(Unwanted([parcel.serial]))) for worker in settled[1]]
        return self._written(parcel, opened)

    def put(self, errands: list[Outcome[_Errand, list[Outcome[Any, Any]]]]) -> None:
        """Take outcomes of errands, in the thread that ran them."""
        with self._lock:
            self.ledger.home_busy -= len(errands)
            self._occupy_home()
        answers = [_answer(errands.pop()) for _ in range(len(errands))]
        while answers:
            # Nothing may linger in this frame: a batch held here could not be recycled.
            answers[-1][0].answer(answers.pop()[1])

    # ---- the exchange's thread -----------------------------------------------------------------------------------------------

    def _run(self, stop: threading.Event) -> None:
        patience, beat_due = self.setting.patience, 0.0
        try:
            while not stop.is_set():
                self.port.wait(patience.look_s if self.ledger.uneasy else patience.beat_s)
                for address, header, buffers in self.port.received():
                    self._hear(address, header, buffers)
                now = time.monotonic()
                if now >= beat_due:
                    beat_due = now + patience.beat_s
                    self._look_after(now)
                while self._mail:
                    self.port.send(*self._mail.popleft())
                self._hand_out(now)
            for worker in list(self.ledger.workers.values()):
                self.port.send(worker.address, packed(End()))
        except Exception:  # noqa: BLE001  a mistake of ours: nobody must wait for what was asked of workers
            _log.exception("remote workers cannot be reached any more; this process goes on alone")
            for worker in list(self.ledger.workers.values()):
                self._lose(worker, "cannot be reached any more", blame=0)
        finally:
            self.port.close()

    def _hand_out(self, now: float) -> None:
        """Send parcels to who has room, and late ones to others, too: but not those of somebody who has just ended."""
        with self._lock:
            dawdlers = self.ledger.dawdlers(now)
        for dawdler in dawdlers:
            if not self.port.send(dawdler.address, packed(Beat())):
                self._lose(dawdler, "lost its connection")
        with self._lock:
            sent: list[tuple[WorkerAccount | None, Parcel]] = [*self.ledger.for_workers(now)]
            if self.ledger.uneasy:
                sent += self.ledger.late(now)
            for worker, parcel in sent:
                if worker is None:
                    self._errands.submit([Task(0, 0, _Errand(parcel, apart=True))], first=True)
        for worker, parcel in sent:
            if worker is not None and not self._ask(worker, parcel):
                self._lose(worker, "lost its connection")

    def _ask(self, worker: WorkerAccount, parcel: Parcel) -> bool:
        asked, carrier = parcel.asked, parcel.line.carrier
        if asked is None:
            return True  # home has it meanwhile
        return self.port.send(worker.address, packed(Tasks(parcel.serial, carrier.kind, asked, parcel.first)))

    def _look_after(self, now: float) -> None:
        """Say that this process is there, and find out who is not any more."""
        beat, silent_s = packed(Beat()), self.setting.patience.silent_s
        for worker in list(self.ledger.workers.values()):
            if not self.port.send(worker.address, beat):
                self._lose(worker, "lost its connection")
            elif worker.heard_s < now - silent_s:
                self._lose(worker, f"gave no sign of life for {silent_s:g} s", blame=0)
        with self._lock:
            self._occupy_home()  # it may have waited for somebody to come

    def _lose(self, worker: WorkerAccount, how: str, blame: int = KILLED) -> None:
        """A worker is gone. What it may have begun when its connection ended may be why, and is tried alone."""
        with self._lock:
            if worker.address not in self.ledger.workers:
                return
            parcels = len(worker.held)
            suspects = self.ledger.leave(worker, blamed=bool(blame), now=time.monotonic())
            left = len(self.ledger.workers)
            self._occupy_home()
        again = f", and {counted(parcels, 'parcel')} of its tasks will run again" if parcels else ""
        _log.warning("remote worker %s %s%s (%s left)", worker.name, how, again, counted(left, "remote worker"))
        for parcel in suspects:
            cause = f"of remote worker {worker.name} {how}"
            parcel.line.answer([_lost(task, blame, cause) for task in parcel.tasks])

    def _hear(self, address: bytes, header: Any, buffers: list[Any]) -> None:
        worker = self.ledger.workers.get(address)
        try:
            message = from_worker(header)
            if isinstance(message, Hello):
                self._greet(address, message)
            elif worker is None:
                self.port.send(address, packed(Stranger()))
            else:
                worker.heard_s = time.monotonic()
                self._obey(worker, message, buffers)
        except (FrameError, MemoryError) as error:
            other = None if worker is not None else other_version(header)
            if other is not None:
                self._refuse(
                    address, "a worker", f"it has protocol {other[0]} (Stoker {other[1]}), and the trainer {self._own()}"
                )
            elif worker is not None:
                self.port.send(address, packed(Refused(f"the trainer could not read what this worker sent: {error}")))
                self._lose(worker, f"sent what cannot be read ({error})", blame=0)

    def _own(self) -> str:
        return f"{PROTOCOL} (Stoker {self.setting.version})"

    def _greet(self, address: bytes, hello: Hello) -> None:
        name, now = f"{hello.host}:{hello.pid}", time.monotonic()
        known = self.ledger.workers.get(address)
        if known is not None:
            self._lose(known, "began again", blame=0)
        why = self._mismatch(hello)
        if why:
            self._refuse(address, f"worker {name}", why)
            return
        if not self.port.send(address, packed(Welcome(self.setting.patience.beat_s, self.setting.patience.silent_s))):
            return
        with self._lock:
            self.ledger.join(address, name, hello.threads, now)
            count = len(self.ledger.workers)
        _log.info(
            "remote worker %s joined with %s (%s now)", name, counted(hello.threads, "thread"), counted(count, "remote worker")
        )

    def _mismatch(self, hello: Hello) -> str:
        """Why a worker cannot be taken; "": it can."""
        if hello.protocol != PROTOCOL or hello.version != self.setting.version:
            return f"it has protocol {hello.protocol} (Stoker {hello.version}), and the trainer {self._own()}; install the same"
        if len(self.ledger.workers) >= _MOST_WORKERS:
            return f"the trainer has {_MOST_WORKERS:,} workers already"
        mine, its = self.setting.identity, hello.identity
        told = [words for name, words in _DIFFERENCES.items() if mine.get(name) != its.get(name)]
        if mine.get("python") != its.get("python"):
            told = [words for words in told if words != _DIFFERENCES["functions"]]  # versions of Python make other code
        return f"its pipeline is not the trainer's: {'; '.join(told)}" if told else ""

    def _refuse(self, address: bytes, name: str, why: str) -> None:
        if why not in self._refused:
            self._refused.add(why)
            _log.warning("%s was refused: %s", name, why)
        self.port.send(address, packed(Refused(why)))

    def _obey(self, worker: WorkerAccount, message: FromWorker, buffers: list[Any]) -> None:
        if isinstance(message, Results):
            self._take_in(worker, message, BufferQueue(buffers))
        elif isinstance(message, Unsendable):
            self._keep_home(message)
        elif isinstance(message, GivenBack):
            with self._lock:
                self.ledger.give_back(worker, message.serials)
                self._occupy_home()
        elif isinstance(message, Bye):
            with self._lock:
                self.ledger.leave(worker, blamed=False)
                self._occupy_home()
            _log.info("remote worker %s left", worker.name)

    def _keep_home(self, message: Unsendable) -> None:
        with self._lock:
            parcel = self.ledger.open.get(message.serial)
            if parcel is None:
                return
            line: _RemoteChannel[Any, Any] = parcel.line
            if line.travels:
                line.travels = False  # what follows would be as this is
                _log.warning("rows of this pipeline are made by the trainer itself, because they cannot be sent: %s", message.why)
            self.ledger.keep_home(parcel)
            self._occupy_home()

    def _take_in(self, worker: WorkerAccount, message: Results, buffers: BufferQueue) -> None:
        """Rows have come: unless somebody was faster, they go where they belong."""
        parcel = worker.held.get(message.serial)
        sent_s = None if parcel is None else parcel.holders.get(worker.number)
        if parcel is None or sent_s is None:
            return
        outcomes = self._opened(parcel, message.results, buffers)
        now = time.monotonic()
        with self._lock:
            settled = self.ledger.settle(parcel.serial)
            if settled is None:
                return
            work_s = sum(result.wall_s for result in message.results)
            self.ledger.done(worker, sent_s, now, work_s, message.waited_s)
        for other in settled[1]:
            if other is not worker:
                self.port.send(other.address, packed(Unwanted([parcel.serial])))
        written = self._written(parcel, outcomes)
        for outcome in written:
            outcome.worker = worker.seat + message.thread % worker.threads
        parcel.line.answer(written)

    def _opened(self, parcel: Parcel, results: list[RowsResult | FaultResult], buffers: BufferQueue) -> list[_Opened]:
        """What came back, checked; nothing is written yet."""
        if len(results) != len(parcel.tasks):
            raise FrameError(f"{len(results)} results came for {counted(len(parcel.tasks), 'task')}")
        carrier: Carrier = parcel.line.carrier
        opened: list[_Opened] = []
        for task, result in zip(parcel.tasks, results):
            if isinstance(result, FaultResult):
                fault = read_fault(result.fault)
                opened.append((result, partial(Outcome, task, fault=fault)))
            else:
                write = carrier.received(task.content, result, buffers)
                opened.append((result, partial(_outcome, task, write)))
        buffers.end()
        return opened

    def _written(self, parcel: Parcel, opened: list[_Opened]) -> list[Outcome[Any, Any]]:
        outcomes: list[Outcome[Any, Any]] = []
        now = time.monotonic()
        for result, write in opened:
            outcome = write()
            outcome.start_s, outcome.stop_s, outcome.cpu_s = now - result.wall_s, now, result.cpu_s
            outcomes.append(outcome)
        return outcomes


#: a result that was checked, and what writes it and gives the outcome
_Opened = tuple["RowsResult | FaultResult", Callable[[], "Outcome[Any, Any]"]]


def _answer(ended: Outcome[_Errand, list[Outcome[Any, Any]]]) -> tuple[_RemoteChannel[Any, Any], list[Outcome[Any, Any]]]:
    """What an errand gave, and whose it is."""
    parcel, outcomes = ended.task.content.parcel, ended.result or []
    if ended.fault is not None:  # a mistake of ours, which must not be waited for
        outcomes = [Outcome(task, fault=ended.fault) for task in parcel.tasks]
    for outcome in outcomes:
        outcome.worker = ended.worker
    return parcel.line, outcomes


def _lost(task: Task[Any], blame: int, cause: str) -> Outcome[Any, Any]:
    return Outcome(task, lost=True, blame=blame, cause=cause)


def _outcome(task: Task[Any], write: Callable[[], Any]) -> Outcome[Any, Any]:
    return Outcome(task, result=write())


def _tell(stop: threading.Event, wake: int) -> None:
    stop.set()
    with suppress(OSError):
        os.write(wake, b"!")
