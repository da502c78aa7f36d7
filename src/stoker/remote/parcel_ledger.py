"""Who has which tasks: the account of everything that waits, of what is at work at home or elsewhere, and what is to go where.

No I/O, no clock, no threads: it is told what happened and when, so it is tested in microseconds. Tasks go as *parcels*: those
that one thread is to do one after another. All parcels wait in one line, and whoever is free takes the first: home or a worker.
Where nothing waits, and a worker has had a parcel for longer than is usual, somebody who is free gets it, too: the first result
counts.

Invariant: a parcel that is open waits in exactly one line, or has at least one holder. It is settled once, by whoever is first;
after that nobody writes to its rows for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..engine.executor import Task
from ..sizes import counted

#: home among those who hold parcels; workers have numbers from 0 on
HOME = -1
#: bytes of results that a worker may owe: enough to keep a fast line busy, and little enough to be taken in at once
OWED_BYTES = 64 << 20
#: parcels for each thread of a worker: one at work, and others on their way, as many as the way is long
_LEAST_EACH, _MOST_EACH = 2, 8
#: a parcel is late after so many times what parcels usually take, and so many seconds
_LATE_TIMES, _LATE_S = 3.0, 0.15
#: seconds for which suspects wait for a worker when the last one was lost: home does them then, in a process of their own
SUSPECTS_WAIT_S = 5.0
#: how fast what is usual follows what happens
_FOLLOWS = 0.2


@dataclass(slots=True, eq=False)
class Parcel:
    """Some tasks of one channel. `line` is the channel, `asked` what a worker is asked for, `nbytes` what will come back."""

    line: Any
    tasks: list[Task[Any]]
    asked: Any = None  # None: it stays at home
    nbytes: int = 0
    first: bool = False
    serial: int = -1
    holders: dict[int, float] = field(default_factory=dict)  # and since when
    route: int | None = None  # the same number goes to the same worker, of those who are there
    tainted: bool = False  # a worker ended that had it, and others

    @property
    def suspect(self) -> bool:
        """Whether it may be what ended a worker: then the next that gets it has nothing else meanwhile."""
        return self.tainted or self.tasks[0].alone


@dataclass(slots=True, eq=False)
class WorkerAccount:
    """What is known of one worker. `address` is how to reach it."""

    number: int
    address: Hashable
    name: str
    threads: int
    heard_s: float
    seat: int = 0  # the number of its first thread among all workers' threads
    held: dict[int, Parcel] = field(default_factory=dict, repr=False)  # by serial, in the order they were sent
    owed: int = 0  # bytes
    leaving: bool = False
    work_s: float = 0.0  # that a parcel usually takes in a thread of it
    way_s: float = 0.0  # and to get there and back
    parcels: int = 0  # that it has done
    here: bool = False  # on the machine of this process, whose cores it shares

    @property
    def most(self) -> int:
        """How many parcels it is to have, so that none of its threads waits for the next."""
        each = _LEAST_EACH if self.work_s <= 0 else _LEAST_EACH + int(self.way_s / self.work_s)
        return self.threads * min(each, _MOST_EACH)

    def work_in_words(self, describe: Callable[[Parcel], str]) -> str:
        """What it is at, and how much waits there."""
        begun, waiting = [*self.held.values()][: self.threads], len(self.held) - self.threads
        more = f"; {counted(waiting, 'parcel')} of tasks after that" if waiting > 0 else ""
        return ("; ".join(map(describe, begun)) or "nothing") + more

    def room(self, nbytes: int) -> bool:
        """Whether it may have another parcel of that size; one it may always have."""
        return not self.held or (len(self.held) < self.most and self.owed + nbytes <= OWED_BYTES)


class _Line:
    """Parcels that wait; urgent ones go before others."""

    def __init__(self) -> None:
        self._urgent: deque[Parcel] = deque()
        self._usual: deque[Parcel] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._usual)

    def put(self, parcel: Parcel) -> None:
        (self._urgent if parcel.first else self._usual).append(parcel)

    def put_back(self, parcel: Parcel) -> None:
        self._urgent.appendleft(parcel)

    def head(self) -> Parcel:
        return (self._urgent or self._usual)[0]

    def pop(self) -> Parcel:
        return (self._urgent or self._usual).popleft()

    def forget(self, parcels: set[int]) -> None:
        """Unwanted those with these serials."""
        self._urgent = deque(parcel for parcel in self._urgent if parcel.serial not in parcels)
        self._usual = deque(parcel for parcel in self._usual if parcel.serial not in parcels)


class ParcelLedger:
    """The account of one executor. `shy`: home does no rows while there is a worker that could, nor before `waits_until`.
    Without `hedges`, what takes long is not done twice.

    Whoever owns it calls one method at a time; `threads`, `uneasy` and `workers` may be read by others meanwhile.
    """

    def __init__(self, home: int, shy: bool = False, hedges: bool = True, waits_until: float = -math.inf) -> None:
        self.home, self.home_busy = home, 0
        self.shy, self.hedges, self.waits_until = shy, hedges, waits_until
        self.workers: dict[Hashable, WorkerAccount] = {}  # by address
        self.open: dict[int, Parcel] = {}  # by serial
        self.usual_s = 0.0  # from sending a parcel to having its result
        self.hedged = 0
        self.rerun = 0  # tasks that wait again because a worker was lost
        self._lonely_s = 0.0  # since when there may be nobody
        self._serials, self._numbers = count(), count()
        self._indoors = _Line()  # that only home can do
        self._waiting = _Line()
        self._suspects = _Line()

    # ---- parcels -----------------------------------------------------------------------------------------------------------

    def put(self, parcel: Parcel) -> None:
        """Somebody is to do it."""
        parcel.serial = next(self._serials)
        self.open[parcel.serial] = parcel
        self._line(parcel).put(parcel)

    def _line(self, parcel: Parcel) -> _Line:
        return self._indoors if parcel.asked is None else self._suspects if parcel.suspect else self._waiting

    def keep_home(self, parcel: Parcel) -> None:
        """Its result cannot be sent: home is to do it."""
        if parcel.asked is None or parcel.serial not in self.open:
            return  # it is already
        self._release(parcel)
        parcel.asked = None
        self.put_back(parcel)

    def put_back(self, parcel: Parcel) -> None:
        """If nobody is at it any more it is to be done all the same: before others, because it was due before them."""
        if not parcel.holders and parcel.serial in self.open:
            self._line(parcel).put_back(parcel)

    def settle(self, serial: int) -> tuple[Parcel, list[WorkerAccount]] | None:
        """A result has come: the parcel, and who else is still at it. None: another was first, or nobody wants it any more."""
        parcel = self.open.pop(serial, None)
        return None if parcel is None else (parcel, self._release(parcel))

    def drop(self, line: Any) -> dict[Hashable, list[int]]:
        """Nobody waits for the parcels of a channel any more: forget them; by worker, those it has."""
        told: dict[Hashable, list[int]] = {}
        dropped = {serial: parcel for serial, parcel in self.open.items() if parcel.line is line}
        for serial, parcel in dropped.items():
            del self.open[serial]
            for worker in self._release(parcel):
                told.setdefault(worker.address, []).append(serial)
        for waiting in (self._indoors, self._waiting, self._suspects):
            waiting.forget({*dropped})
        return told

    def _release(self, parcel: Parcel) -> list[WorkerAccount]:
        """Take a parcel from all who have it; returns the workers among them."""
        holders = [worker for worker in self.workers.values() if worker.number in parcel.holders]
        for worker in holders:
            self._take_from(worker, parcel)
        parcel.holders.clear()
        return holders

    def _take_from(self, worker: WorkerAccount, parcel: Parcel) -> None:
        if worker.held.pop(parcel.serial, None) is not None:
            worker.owed -= parcel.nbytes
        parcel.holders.pop(worker.number, None)

    def done(self, worker: WorkerAccount, sent_s: float, now: float, work_s: float, waited_s: float) -> None:
        """A worker has sent a result: what parcels take there, and on their way."""
        took = now - sent_s
        follow = _FOLLOWS if worker.parcels else 1.0
        worker.parcels += 1
        worker.work_s += follow * (work_s - worker.work_s)
        worker.way_s += follow * (max(0.0, took - work_s - waited_s) - worker.way_s)
        self.usual_s += (_FOLLOWS if self.usual_s else 1.0) * (took - self.usual_s)

    # ---- who gets what -------------------------------------------------------------------------------------------------------

    @property
    def able(self) -> list[WorkerAccount]:
        """The workers that take parcels."""
        return [worker for worker in self.workers.values() if not worker.leaving]

    def for_home(self, now: float = math.inf) -> Parcel | None:
        """The next parcel that home is to do, if a thread is free there."""
        if self.home_busy >= self.home:
            return None
        able = self.able
        if self._indoors:
            parcel = self._indoors.pop()
        elif self._suspects and not able and now >= self._lonely_s + SUSPECTS_WAIT_S and not self._tries:
            parcel = self._suspects.pop()  # one at a time: other threads have other things to do
        elif self._waiting and not (self.shy and (able or now < self.waits_until)):
            parcel = self._waiting.pop()
        else:
            return None
        if parcel.serial not in self.open:
            return self.for_home(now)  # home did it meanwhile, because it was late
        self.home_busy += 1
        parcel.holders[HOME] = 0.0
        return parcel

    @property
    def _tries(self) -> bool:
        """Whether home is at a suspect."""
        return any(HOME in parcel.holders and parcel.suspect and parcel.asked is not None for parcel in self.open.values())

    def for_workers(self, now: float) -> Iterator[tuple[WorkerAccount, Parcel]]:
        """What is to be sent now, and to whom: each in turn gets a parcel, as long as they have room.

        Suspects come first, and each has its worker to itself: so that it is known which of them ended one.
        """
        free = self.able
        if self._suspects:
            for worker in [worker for worker in free if not worker.held]:
                if self._suspects:
                    yield self._send(worker, self._suspects.pop(), now)
            return
        free = [worker for worker in free if not any(parcel.suspect for parcel in worker.held.values())]
        while self._waiting and free:
            nbytes = self._waiting.head().nbytes
            free = [worker for worker in free if worker.room(nbytes)]
            taker = self._taker(self._waiting.head(), free)
            if taker is None:
                return
            yield self._send(taker, self._waiting.pop(), now)

    def _taker(self, parcel: Parcel, free: list[WorkerAccount]) -> WorkerAccount | None:
        """Who of the free ones gets a parcel; None: nobody, or somebody who is not free yet."""
        if parcel.route is None or not free:
            return min(free, key=_load, default=None)
        able = sorted(self.able, key=lambda worker: worker.name)
        worker = able[parcel.route % len(able)]
        return worker if worker in free else None

    def late(self, now: float) -> Iterator[tuple[WorkerAccount | None, Parcel]]:
        """Parcels that somebody who is free is to do, too, because who has them takes long; None: home is."""
        for parcel in [] if self._waiting else self._late(now):
            others = [w for w in self.able if w.number not in parcel.holders and len(w.held) < w.threads]
            others = [w for w in others if w.room(parcel.nbytes) and not any(held.suspect for held in w.held.values())]
            if self.home_busy < self.home and not (self.shy and others):
                self.home_busy += 1
                self.hedged += 1
                parcel.holders[HOME] = now
                yield None, parcel
            elif others:
                self.hedged += 1
                yield self._send(min(others, key=_load), parcel, now)
            else:
                return

    def _late(self, now: float) -> list[Parcel]:
        """Those that are due first come first."""
        since = now - max(_LATE_S, _LATE_TIMES * self.usual_s)
        late = [p for p in self.open.values() if len(p.holders) == 1 and not p.suspect and HOME not in p.holders]
        return sorted((p for p in late if min(p.holders.values()) < since), key=lambda p: (p.tasks[0].unit, p.serial))

    def dawdlers(self, now: float) -> list[WorkerAccount]:
        """The workers that others may have to help, where nothing waits."""
        holders = {number for parcel in self._late(now) for number in parcel.holders} if self.uneasy else set()
        return [worker for worker in self.workers.values() if worker.number in holders]

    @property
    def uneasy(self) -> bool:
        """Whether somebody has to look soon whether parcels are late."""
        return self.hedges and not self._waiting and any(HOME not in parcel.holders for parcel in list(self.open.values()))

    def _send(self, worker: WorkerAccount, parcel: Parcel, now: float) -> tuple[WorkerAccount, Parcel]:
        worker.held[parcel.serial] = parcel
        worker.owed += parcel.nbytes
        parcel.holders[worker.number] = now
        return worker, parcel

    # ---- workers -----------------------------------------------------------------------------------------------------------

    def join(self, address: Hashable, name: str, threads: int, now: float, here: bool = False) -> WorkerAccount:
        """A worker has come."""
        taken = {seat for worker in self.workers.values() for seat in range(worker.seat, worker.seat + worker.threads)}
        seat = self.home
        while any(number in taken for number in range(seat, seat + threads)):
            seat += 1
        worker = self.workers[address] = WorkerAccount(next(self._numbers), address, name, threads, now, seat, here=here)
        return worker

    def give_back(self, worker: WorkerAccount, serials: Iterable[int]) -> None:
        """A worker is going to leave, and has not begun these."""
        worker.leaving = True
        for parcel in reversed([worker.held[serial] for serial in serials if serial in worker.held]):
            self._take_from(worker, parcel)
            self.put_back(parcel)

    def leave(self, worker: WorkerAccount, blamed: bool, now: float = -math.inf) -> list[Parcel]:
        """A worker is gone, and what it had waits again. With `blamed` that may be why: then each is tried by itself.

        Returns what was the only parcel of a worker that ended: either that ended it, or somebody from outside.
        """
        self.workers.pop(worker.address, None)
        self._lonely_s = max(self._lonely_s, now)
        guilty: list[Parcel] = []
        blamed_alone = blamed and len(worker.held) == 1
        for serial, parcel in reversed(list(worker.held.items())):
            self._take_from(worker, parcel)
            if parcel.holders:
                continue
            del self.open[serial]
            if blamed_alone:
                guilty.append(parcel)
                continue
            self.rerun += len(parcel.tasks)
            parcel.tainted = parcel.tainted or blamed
            # Asked again it has another number: an answer to the first time that is still on its way is no answer to the second.
            parcel.serial = next(self._serials)
            self.open[parcel.serial] = parcel
            self.put_back(parcel)
        return guilty

    @property
    def threads(self) -> int:
        """How many tasks run at once."""
        elsewhere = sum(worker.threads for worker in list(self.workers.values()))
        return elsewhere if self.shy and elsewhere else self.home + elsewhere


def _load(worker: WorkerAccount) -> float:
    return len(worker.held) / worker.threads
