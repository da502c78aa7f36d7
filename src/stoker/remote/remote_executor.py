"""The executor with workers on other machines, or a pool: tasks go out, rows come back, straight to their batch's memory.

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
import socket
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..engine.daemons import Daemons
from ..engine.executor import CRASHED, KILLED, Address, Channel, Executor, Outcome, RemoteCount, Task, TaskWork
from ..engine.run_task import run_task
from ..engine.threads import ThreadExecutor
from ..engine.wake_pipe import WakePipe
from ..errors import WorkerRefused, message_of
from ..sizes import counted
from ..storage.plain_values import Unstorable
from .carrier import Carrier, make_results
from .frames import (
    MAX_GREETING,
    PROTOCOL,
    Beat,
    BufferQueue,
    Bye,
    End,
    FaultResult,
    FrameError,
    Freed,
    FromWorker,
    GivenBack,
    Hello,
    NotReadYet,
    Refused,
    Results,
    RowsResult,
    RowsTask,
    Stranger,
    Tasks,
    Unsendable,
    Unwanted,
    Welcome,
    from_worker,
    other_version,
    packed,
)
from .home_process import HomeProcess
from .identities import differences
from .listening_port import Port
from .parcel_ledger import Parcel, ParcelLedger, WorkerAccount
from .pool_memory import SeenMemory
from .row_frames import read_fault

C = TypeVar("C")
R = TypeVar("R")

_log = logging.getLogger("stoker")
_CLOSE_S = 1.0
#: what this program has for rows at which a worker ended
_OWN = "the worker process of this program"
#: workers that a trainer takes
_MOST_WORKERS = 1024
#: how often messages are taken in before somebody who is gone counts as lost
_MOST_LAST_WORDS = 64
#: parcels whose rows cannot be sent, until no others are asked for, where these are most of them
_MOST_UNSENT = 4
#: different reasons to refuse a worker that are logged
_MOST_REFUSALS = 100
#: seconds for which a pool may be silent at first, or no worker there, before a process that prefers them makes rows itself
_POOL_S = 3.0


class BeatTimes(NamedTuple):
    """Seconds: between two signs of life, until who gives none is lost, and between two looks at what may be late."""

    beat_s: float = 0.5
    silent_s: float = 5.0
    look_s: float = 0.02


class RemoteSetting(NamedTuple):
    """How to reach workers, and what they must have in common with this process."""

    open_port: Callable[[WakePipe], Port]  # given what wakes who waits
    version: str
    identity: Mapping[str, str]
    carrier_of: Callable[[TaskWork[Any, Any]], Carrier | None]
    shy: bool = False  # rows are made here only while no worker is there
    pooled: bool = False  # these are pools, which others use, too
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
    def task_rows(self) -> int:  # type: ignore[override]  # a pool says it
        return self._exchange.task_rows

    @property
    def remote_workers(self) -> list[WorkerAccount]:
        """Those who are connected."""
        return list(self._exchange.ledger.workers.values())

    @property
    def remote(self) -> RemoteCount:
        workers, ledger = self.remote_workers, self._exchange.ledger
        threads, away = (sum(each.threads for each in some) for some in (workers, [each for each in workers if not each.here]))
        return RemoteCount(ledger.home, len(workers), threads, away, ledger.shy, ledger.rerun)

    @property
    def hedged(self) -> int:
        """Parcels of tasks that were given to somebody else, too."""
        return self._exchange.ledger.hedged

    @property
    def stopped(self) -> bool:
        return self._exchange.home.stopped

    @property
    def starting(self) -> bool:
        return self._exchange.home_process.starting

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
        self.sent = self.unsent = 0  # parcels whose rows came from workers, and those whose rows could not
        self._exchange = exchange
        self._done: queue.SimpleQueue[list[Outcome[C, R]]] = queue.SimpleQueue()

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        asked, nbytes, carrier = None, 0, self.carrier
        if carrier is not None and self.travels:
            wanted = [carrier.asked(task.content) for task in tasks]
            if None not in wanted:
                asked, nbytes = wanted, sum(carrier.nbytes(task.content) for task in tasks)
        self._exchange.take_on(Parcel(self, tasks, asked, nbytes, first, route=self._exchange.route(asked)))

    def collect(self, timeout_s: float) -> list[Outcome[C, R]]:
        if self._exchange.refusal is not None:
            raise WorkerRefused(self._exchange.refusal)
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
        self._rows_told: dict[Any, int] = {}  # by pools, by address
        self.refusal: str | None = None  # why a pool does not work for this process
        self._alone_s = time.monotonic() + _POOL_S if setting.pooled else 0.0  # when to go on without a pool; 0: said so
        self._seen: dict[Any, SeenMemory] = {}  # memory of workers and pools, by address
        self._name = "the pool at" if setting.pooled else "remote worker"
        waits_until = time.monotonic() + _POOL_S  # workers that are there already take a moment to connect
        self.ledger = ParcelLedger(threads, setting.shy, hedges=not setting.pooled, waits_until=waits_until)
        self._lock = threading.Lock()  # of the ledger
        self._mail: deque[tuple[Any, bytes]] = deque()  # that the exchange's thread is to send
        self._freed: dict[Any, list[int]] = {}  # parcels whose answers are not needed any more, and who does not know it yet
        self._refused: set[str] = set()  # what was logged
        self._told_unsent = self._told_suspect = False
        self._safe = True  # what may end its worker can be made in a process of this program
        self._pythons: set[str] = set()  # the same of versions that are not this one's
        self._wake = WakePipe()
        stop = threading.Event()
        self._daemons = Daemons(partial(_tell, stop, self._wake))
        try:
            self.port = setting.open_port(self._wake)
        except BaseException:
            self._wake.close()
            raise
        try:
            self.home = ThreadExecutor(threads, make_scratch)
            self.home_process = HomeProcess(make_scratch)
            self._errands = self.home.channel(self._run_errand, self)
            self._daemons.start("the thread that talks to remote workers", "stoker-remote", self._run, stop)
        except BaseException:
            if hasattr(self, "home"):
                self.home.close()
            self.port.close()
            self._wake.close()
            raise

    # ---- asked by others -----------------------------------------------------------------------------------------------------

    def take_on(self, parcel: Parcel) -> None:
        with self._lock:
            self.ledger.put(parcel)
            self._occupy_home()
            away = parcel.asked is not None and bool(self.ledger.workers)
        if away:
            self._wake.ring()

    @property
    def task_rows(self) -> int:
        """Rows that every task is to have: the fewest that a pool has told; 0: nobody asks for the same tasks."""
        return min(self._rows_told.values(), default=0)

    def route(self, asked: list[RowsTask | None] | None) -> int | None:
        """Which of several pools is to do it: for the same rows the same one, whoever asks; None: any worker."""
        if not self.setting.pooled or not asked or asked[0] is None:
            return None
        return zlib.crc32(asked[0].positions[:8])

    def forget(self, line: _RemoteChannel[Any, Any]) -> None:
        with self._lock:
            told = self.ledger.drop(line)
        self._mail += [(address, packed(Unwanted(serials))) for address, serials in told.items()]
        self._wake.ring()

    def end_stuck(self, quiet_s: float) -> bool:
        before = time.monotonic() - quiet_s
        cause = f"was stuck: it did not finish within {quiet_s:g} s"
        found = self.home_process.end_stuck(cause)
        with self._lock:
            workers = list(self.ledger.workers.values())
        for worker in workers:
            since = [parcel.holders.get(worker.number, before + 1) for parcel in list(worker.held.values())]
            if since and min(since) <= before:
                found = True
                self._mail.append((worker.address, packed(Refused(f"a task {cause}", stuck=True))))
                self._lose(worker, cause, CRASHED)
        self._wake.ring()
        return found

    def stacks(self, describe: Callable[[Any], str]) -> str:
        def told(parcel: Parcel) -> str:
            return "; ".join(describe(task.content) for task in parcel.tasks)

        def errand_told(errand: _Errand) -> str:
            return told(errand.parcel)

        with self._lock:
            away = [f"{self._name} {worker.name}, at {worker.work_in_words(told)}" for worker in self.ledger.workers.values()]
        return "\n".join([self.home.stacks(errand_told), *away])

    def close(self) -> None:
        self._daemons.close(_CLOSE_S)
        self.home_process.close()
        self.home.close()
        self._wake.close()

    # ---- at home -------------------------------------------------------------------------------------------------------------

    def _occupy_home(self) -> None:
        """Give free threads of this process something to do. The lock is held."""
        while (parcel := self.ledger.for_home(time.monotonic())) is not None:
            self._errands.submit([Task(0, 0, _Errand(parcel))])

    def _run_errand(self, errand: _Errand, scratch: Any) -> list[Outcome[Any, Any]]:
        """In a thread of this process."""
        parcel = errand.parcel
        line: _RemoteChannel[Any, Any] = parcel.line
        suspect = parcel.suspect and parcel.asked is not None and not errand.apart
        if suspect and self._safe and (tried := self._tried(parcel)) is not None:
            return tried
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

    def _tried(self, parcel: Parcel) -> list[Outcome[Any, Any]] | None:
        """The outcomes of rows at which a worker ended, made in a process of their own. None: they cannot be."""
        line: _RemoteChannel[Any, Any] = parcel.line
        assert line.carrier is not None and parcel.asked is not None
        if not self._told_suspect:
            self._told_suspect = True
            _log.warning(
                "no remote worker is left to try the rows at which one ended; a worker process of this program tries them"
            )
        try:
            outcome = self.home_process.make(line.carrier, parcel.asked, lambda: not line.cancelled)
            if outcome is not None and outcome.fault is not None:
                raise outcome.fault.error()
        except Exception as error:  # noqa: BLE001  whatever kept the pipeline from being sent there
            self._safe = False
            _log.warning(
                "%s cannot do that; this program itself does, and may end as the worker did: %s", _OWN, message_of(error)
            )
            return None
        opened: list[_Opened] = []
        if outcome is not None and outcome.result is not None:
            header, buffers = outcome.result
            message = from_worker(header)
            assert isinstance(message, Results)
            opened = self._opened(parcel, message.results, BufferQueue([buffer.data for buffer in buffers]))
        elif outcome is not None and not outcome.lost:
            return None  # it ended nothing, and cannot be sent from there
        with self._lock:
            self.ledger.settle(parcel.serial)
        if outcome is not None and outcome.lost:
            return [_lost(task, outcome.blame, f"of {_OWN} {outcome.cause}") for task in parcel.tasks]
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
                self.port.wait(patience.look_s if self.ledger.uneasy else patience.beat_s, self.ledger.workers)
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
            _log.exception("remote workers are no longer reachable; this process continues alone")
            for worker in list(self.ledger.workers.values()):
                self._lose(worker, "is no longer reachable", blame=0)
        finally:
            for memory in self._seen.values():
                memory.close()
            self.port.close()

    def _hand_out(self, now: float) -> None:
        """Send parcels to who has room, and late ones to others, too: but not those of somebody who has just ended."""
        with self._lock:
            dawdlers = self.ledger.dawdlers(now)
        for dawdler in dawdlers:
            if not self.port.send(dawdler.address, packed(Beat())):
                self._miss(dawdler)
        with self._lock:
            sent: list[tuple[WorkerAccount | None, Parcel]] = [*self.ledger.for_workers(now)]
            if self.ledger.uneasy:
                sent += self.ledger.late(now)
            for worker, parcel in sent:
                if worker is None:
                    self._errands.submit([Task(0, 0, _Errand(parcel, apart=True))], first=True)
        for worker, parcel in sent:
            if worker is not None and not self._ask(worker, parcel):
                self._miss(worker)
        while self._freed:
            address, serials = self._freed.popitem()
            self.port.send(address, packed(Freed(serials)))

    def _ask(self, worker: WorkerAccount, parcel: Parcel) -> bool:
        asked, carrier = parcel.asked, parcel.line.carrier
        if asked is None:
            return True  # home has it meanwhile
        freed = self._freed.pop(worker.address, [])
        return self.port.send(worker.address, packed(Tasks(parcel.serial, carrier.kind, asked, parcel.first, freed)))

    def _look_after(self, now: float) -> None:
        """Say that this process is there, and find out who is not any more."""
        beat, silent_s = packed(Beat()), self.setting.patience.silent_s
        for worker in list(self.ledger.workers.values()):
            if not self.port.send(worker.address, beat):
                self._miss(worker)
            elif worker.heard_s < now - silent_s:
                self._lose(worker, f"gave no sign of life for {silent_s:g} s", blame=0)
        with self._lock:
            self._occupy_home()  # it may have waited for somebody to come
        if 0 < self._alone_s < now and not self.ledger.workers:
            self._alone_s = 0.0
            _log.warning("no pool answers at %s; this process makes its batches itself until one does", self.port.address)

    def _miss(self, worker: WorkerAccount) -> None:
        """Nobody is at its address. First hear what it said before: rows it has made, or that it leaves; then nothing is lost."""
        for _ in range(_MOST_LAST_WORDS):  # others go on talking
            heard = [*self.port.received()]
            for message in heard:
                self._hear(*message)
            if not heard or worker.address not in self.ledger.workers:
                break
        self._lose(worker, "lost its connection")

    def _lose(self, worker: WorkerAccount, how: str, blame: int = KILLED) -> None:
        """A worker is gone. What it may have begun when its connection ended may be why, and is tried alone.

        Not what a pool had: it works for others, too, and there is no second one to try it.
        """
        blame = 0 if self.setting.pooled else blame
        with self._lock:
            if worker.address not in self.ledger.workers:
                return
            parcels = len(worker.held)
            suspects = self.ledger.leave(worker, blamed=bool(blame), now=time.monotonic())
            left = len(self.ledger.workers)
            self._occupy_home()
        again = f", and {counted(parcels, 'parcel')} of its tasks will run again" if parcels else ""
        self._unsee(worker.address)
        _log.warning("%s %s %s%s (%s left)", self._name, worker.name, how, again, left)
        for parcel in suspects:
            cause = f"of {self._name} {worker.name} {how}"
            parcel.line.answer([_lost(task, blame, cause) for task in parcel.tasks])

    def _unsee(self, address: Any) -> None:
        """Let go of the memory of a worker or pool: else it stays, when that itself has ended."""
        self._freed.pop(address, None)
        if (memory := self._seen.pop(address, None)) is not None:
            memory.close()

    def _hear(self, address: bytes, header: Any, buffers: list[Any]) -> None:
        worker = self.ledger.workers.get(address)
        if worker is None and len(header) > MAX_GREETING:
            return
        try:
            message = from_worker(header)
            if isinstance(message, Hello):
                self._greet(address, message)
            elif isinstance(message, Refused):
                self._hear_refusal(address, message.why)
            elif worker is None and not self.setting.pooled:
                self.port.send(address, packed(Stranger()))
            elif worker is None:
                return  # late words of a pool that is called again
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
                self.port.send(address, packed(Refused(f"the trainer could not read a message of this worker: {error}")))
                self._lose(worker, f"sent an unreadable message ({error})", blame=0)

    def _hear_refusal(self, address: bytes, why: str) -> None:
        if self.setting.pooled:
            self.refusal = f"the pool at {address.decode()} does not work for this program: {why}"

    def _own(self) -> str:
        return f"{PROTOCOL} (Stoker {self.setting.version})"

    def _greet(self, address: bytes, hello: Hello) -> None:
        name, now = address.decode() if self.setting.pooled else f"{hello.host}:{hello.pid}", time.monotonic()
        known = self.ledger.workers.get(address)
        if known is not None:
            self._lose(known, "began again", blame=0)
        why = self._mismatch(hello)
        if why:
            self._refuse(address, f"worker {name}", why)
            return
        self._unsee(address)
        memory = None
        if hello.memory is not None:
            self._lose_earlier(hello.memory.token)
            memory = SeenMemory.open(hello.memory)
        if memory is not None:
            self._seen[address] = memory
        patience = self.setting.patience
        if not self.port.send(address, packed(Welcome(patience.beat_s, patience.silent_s, memory is not None, os.getpid()))):
            return
        if self.setting.pooled:
            self._rows_told[address] = hello.rows
        with self._lock:
            self.ledger.join(address, name, hello.threads, now, here=hello.host == socket.gethostname()[:200])
            self._alone_s = 0.0
            count = len(self.ledger.workers)
        _log.info("%s %s joined with %s (%s now)", self._name, name, counted(hello.threads, "thread"), count)
        self._compare_pythons(hello.identity)

    def _compare_pythons(self, its: Mapping[str, str]) -> None:
        mine, other = (identity.get("python", "") for identity in (self.setting.identity, its))
        if mine != other and other not in self._pythons and len(self._pythons) < _MOST_REFUSALS:
            self._pythons.add(other)
            _log.warning(
                "%s: Python %s there, and %s here, which make other code of functions: whether it is the same is not compared",
                self._name,
                other,
                mine,
            )

    def _lose_earlier(self, token: bytes) -> None:
        """Who connects again forgets what it had lent: whatever comes by its earlier connection is not to be read any more."""
        for address in [address for address, seen in self._seen.items() if seen.token == token]:
            if (worker := self.ledger.workers.get(address)) is not None:
                self._lose(worker, "connected again", blame=0)
            self._unsee(address)

    def _mismatch(self, hello: Hello) -> str:
        """Why a worker cannot be taken; "": it can."""
        if hello.protocol != PROTOCOL or hello.version != self.setting.version:
            return f"it has protocol {hello.protocol} (Stoker {hello.version}), and the trainer {self._own()}; install the same"
        if len(self.ledger.workers) >= _MOST_WORKERS:
            return f"the trainer has {_MOST_WORKERS:,} workers already"
        told = differences(self.setting.identity, hello.identity)
        return f"its pipeline is not the trainer's: {'; '.join(told)}" if told else ""

    def _refuse(self, address: bytes, name: str, why: str) -> None:
        if why not in self._refused and len(self._refused) < _MOST_REFUSALS:
            self._refused.add(why)
            _log.warning("%s was refused: %s", name, why)
        self._hear_refusal(address, why)
        self.port.send(address, packed(Refused(why)))

    def _obey(self, worker: WorkerAccount, message: FromWorker, buffers: list[Any]) -> None:
        if isinstance(message, Results) and (self.setting.pooled or message.places is not None):
            try:
                self._take_in(worker, message, self._lent(worker, message.places) or BufferQueue(buffers))
            finally:
                self._freed.setdefault(worker.address, []).append(message.serial)
        elif isinstance(message, Results):
            self._take_in(worker, message, BufferQueue(buffers))
        elif isinstance(message, Stranger):
            self._lose(worker, "no longer knows this program")
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
            self._unsee(worker.address)
            _log.info("%s %s left", self._name, worker.name)

    def _lent(self, worker: WorkerAccount, places: list[tuple[int, int]] | None) -> BufferQueue | None:
        """What lies at places in the memory of a worker or pool; None: it was sent."""
        if places is None:
            return None
        if (memory := self._seen.get(worker.address)) is None:
            raise FrameError("rows in a memory that is not known here")
        return BufferQueue(memory.buffers(places), lent=True)

    def _keep_home(self, message: Unsendable) -> None:
        with self._lock:
            parcel = self.ledger.open.get(message.serial)
            if parcel is None:
                return
            line: _RemoteChannel[Any, Any] = parcel.line
            line.unsent += 1
            line.travels = line.unsent < max(_MOST_UNSENT, line.sent)  # else what follows would mostly be as this is
            if not self._told_unsent:
                self._told_unsent = True
                _log.warning("rows that cannot be sent are made by the trainer itself; the first of them have %s", message.why)
            self.ledger.keep_home(parcel)
            self._occupy_home()

    def _take_in(self, worker: WorkerAccount, message: Results, buffers: BufferQueue) -> None:
        """Rows have come: unless somebody was faster, they go where they belong."""
        parcel = worker.held.get(message.serial)
        sent_s = None if parcel is None else parcel.holders.get(worker.number)
        if parcel is None or sent_s is None:
            return
        try:
            outcomes = self._opened(parcel, message.results, buffers)
        except NotReadYet as error:
            self._keep_home(Unsendable(message.serial, str(error)))
            return
        now = time.monotonic()
        with self._lock:
            settled = self.ledger.settle(parcel.serial)
            if settled is None:
                return
            parcel.line.sent += 1
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


def _tell(stop: threading.Event, wake: WakePipe) -> None:
    stop.set()
    wake.ring()
