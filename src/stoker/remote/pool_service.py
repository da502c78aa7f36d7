"""A pool: threads that make rows for several trainers. Rows that more than one of them asks for are made once.

Trainers connect, and ask for tasks as they ask a worker: rows of an epoch. What a task gives depends on nothing else than the
pipeline, its seed, and those rows, so the answer for one trainer is the answer for all. It is kept, within a bound of bytes,
until all of them have it. Each trainer goes at its own pace; who falls far behind has its rows made again.

The socket and all accounts belong to the thread that calls `run`. Threads that make rows put them into a queue, and wake it.
"""

from __future__ import annotations

import itertools
import os
import re
import socket as sockets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from ..engine.executor import Outcome, Task
from ..engine.threads import ThreadExecutor
from ..engine.wake_pipe import WakePipe
from ..sizes import counted
from ..storage.plain_values import Unstorable
from .carrier import Carrier, make_results
from .curve_keys import ListenerKeys
from .fair_queue import FairQueue
from .frames import (
    MAX_BUFFERS,
    MAX_GREETING,
    PROTOCOL,
    Beat,
    Bye,
    Call,
    End,
    FrameError,
    Freed,
    FromTrainer,
    Hello,
    Refused,
    Results,
    RowsResult,
    RowsTask,
    Stranger,
    Tasks,
    Unsendable,
    Unwanted,
    Welcome,
    from_trainer,
    other_version,
    packed,
)
from .identities import differences
from .listening_port import ListeningPort
from .pool_memory import AbsentReaders, PoolMemory, watch_of
from .wire_addresses import is_private

#: what may differ between a pool's pipeline and a trainer's: tasks say which rows, and the seed goes with the trainer
_FREE = ("order", "seed")
_SEED = re.compile(r"-?[0-9]{1,24}")
#: seconds until a trainer that says nothing is taken for gone, unless it says how long, and between signs of life of the pool
_SILENT_S, _BEAT_S = 5.0, 0.5
#: bytes of memory for answers that the pool keeps while nobody uses it
_KEEP = 256 << 20
#: bytes that an answer takes beside its buffers, its header and the numbers of its rows
_ENTRY = 2048
#: seconds for which the first trainers wait for others (`wait_for`)
_WAIT_S = 30.0
#: trainers, pipelines with a seed, and parcels of a trainer that are open
_MOST_TRAINERS, _MOST_SEEDS, _MOST_PARCELS = 256, 64, 4096


class PooledPipeline(NamedTuple):
    """A pipeline that a pool works for. `rows` is how many rows its tasks should have."""

    name: str
    identity: Mapping[str, str]
    rows: int
    carriers: Callable[[int, Callable[[int], Any]], dict[str, Carrier]]  # for a seed, with this memory


#: which rows of which pipeline and seed: the same for the same rows, whoever asks
_Key = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class _Made:
    """The answer to a task, packed; its buffers lie in the pool's memory. `lasts`: nothing in it may go well another time."""

    key: _Key
    place: tuple[int, int]  # epoch, and position of its first row
    packed: msgspec.Raw
    buffers: list[memoryview]
    nbytes: int
    wall_s: float
    lasts: bool
    thread: int = 0
    given: set[bytes] = field(default_factory=set)  # addresses of trainers that have it


@dataclass(slots=True, eq=False)
class _SharedTask:
    """A task that somebody waits for."""

    key: _Key
    task: RowsTask
    carrier: Carrier
    waiters: list[tuple[_Asked, int]] = field(default_factory=list)  # and which of their tasks it is
    begun: bool = False
    payer: Hashable = None  # on whose account it is done


@dataclass(slots=True, eq=False)
class _Asked:
    """A parcel of tasks that a trainer has asked for."""

    trainer: _Trainer
    serial: int
    made: list[_Made | None]
    came_s: float
    missing: int = 0


@dataclass(slots=True, eq=False)
class _Trainer:
    """What is known of one trainer. `watch` is a descriptor of its process, if it sees the pool's memory."""

    address: bytes
    name: str
    caller: bytes
    pid: int
    variant: tuple[str, int]
    carriers: dict[str, Carrier]
    heard_s: float
    silent_s: float = _SILENT_S
    ready: bool = False
    cut_off: bool = False  # nothing can be sent to it; its last words may still be on their way
    watch: int = -1
    asked: dict[int, _Asked] = field(default_factory=dict)
    reached: tuple[int, int] = (-1, 0)  # the farthest place it has an answer for: it will not ask for what is before that
    lent: dict[int, list[memoryview]] = field(default_factory=dict)  # or sent; by serial, until it says that it has them


class PoolService:
    """One pool. `say` takes a line for whoever watches; `memory` bounds the bytes of answers that are kept."""

    def __init__(
        self,
        address: str,
        pipelines: Sequence[PooledPipeline],
        *,
        keys: ListenerKeys | None,
        version: str,
        threads: int,
        memory: int,
        make_scratch: Callable[[], Any],
        say: Callable[[str], None],
        asked: str,
        wait_for: int = 1,
    ) -> None:
        self._pipelines, self._version, self._threads, self._say = pipelines, version, threads, say
        self._limit, self._wait_for, self._waits_until = memory, wait_for, 0.0
        self._memory = PoolMemory(max(_KEEP, memory // 4))
        self._wake = WakePipe()
        self._port = ListeningPort(address, keys, self._wake, asked)
        self.address = self._port.address
        self._at = self._memory.at if is_private(self.address) else None
        self._trainers: dict[bytes, _Trainer] = {}
        self._absent = AbsentReaders()
        self._variants: dict[tuple[str, int], dict[str, Carrier]] = {}
        self._queue: FairQueue[_SharedTask] = FairQueue(lambda job: not job.begun and bool(job.waiters))
        self._jobs: dict[_Key, _SharedTask] = {}
        self._kept: OrderedDict[_Key, _Made] = OrderedDict()
        self._kept_bytes = self._running = 0
        self._done: deque[Outcome[_SharedTask, _Made | str]] = deque()
        self._leaving = False
        self._refused: set[str] = set()
        #: tasks that were made, and answers that were given: more, where trainers share
        self.made = self.given = 0
        self._executor = ThreadExecutor(threads, make_scratch)
        self._channel = self._executor.channel(self._make, self)

    def leave(self) -> None:
        """Return from `run` soon. For handlers of signals, and other threads."""
        self._leaving = True
        self._wake.ring()

    def run(self) -> None:
        """Work until somebody says `leave`. Trainers go on alone then, or with another pool at the same place."""
        beat_due = 0.0
        try:
            while not self._leaving:
                self._port.wait(_BEAT_S)
                while self._done:
                    self._finish(self._done.popleft())
                for address, header, _ in self._port.received():
                    self._hear(address, header)
                now = time.monotonic()
                if now >= beat_due:
                    beat_due = now + _BEAT_S
                    self._look_after(now)
                self._hand_out(now)
            for trainer in self._trainers.values():
                self._port.send(trainer.address, packed(Bye()))
        finally:
            self._close()

    def _close(self) -> None:
        self._executor.close()
        self._port.close()
        self._absent.close()
        for trainer in self._trainers.values():
            if trainer.watch >= 0:
                os.close(trainer.watch)
        for held in (self._trainers, self._jobs, self._kept, self._done):
            held.clear()  # their memory is gone with the last array of it
        self._memory.close()
        self._wake.close()

    # ---- trainers ------------------------------------------------------------------------------------------------------------

    def _hear(self, address: bytes, header: Any) -> None:
        trainer = self._trainers.get(address)
        if trainer is None and len(header) > MAX_GREETING:
            return
        try:
            message = from_trainer(header)
            if isinstance(message, Call):
                self._greet(address, message)
            elif trainer is None:
                self._port.send(address, packed(Stranger()))
            else:
                trainer.heard_s = time.monotonic()
                self._obey(trainer, message)
        except FrameError as error:
            other = other_version(header) if trainer is None else None
            if other is not None:
                self._refuse(address, "a trainer", f"it has protocol {other[0]} (Stoker {other[1]}), and the pool {self._own()}")
            elif trainer is not None:
                self._port.send(address, packed(Refused(f"the pool could not read a message of this program: {error}")))
                self._lose(trainer, f"sent an unreadable message ({error})")

    def _own(self) -> str:
        return f"{PROTOCOL} (Stoker {self._version})"

    def _greet(self, address: bytes, call: Call) -> None:
        name = f"{call.host if call.host.isprintable() else ascii(call.host)}:{call.pid}"
        for known in [known for known in self._trainers.values() if known.address == address or known.caller == call.caller]:
            self._lose(known, "calls again", gone=True)
        self._absent.back(call.caller)
        chosen = self._chosen(call)
        if isinstance(chosen, str):
            self._refuse(address, f"trainer {name}", chosen)
            return
        pipeline, seed = chosen
        variant = pipeline.name, seed
        if variant not in self._variants:
            self._make_room()
            self._variants[variant] = pipeline.carriers(seed, self._memory.allocate)
        hello = Hello(
            PROTOCOL,
            self._version,
            dict(call.identity),
            self._threads,
            sockets.gethostname()[:200],
            os.getpid(),
            pipeline.rows,
            self._at,
        )
        carriers = self._variants[variant]
        self._trainers[address] = _Trainer(address, name, call.caller, call.pid, variant, carriers, time.monotonic())
        self._port.send(address, packed(hello))

    def _chosen(self, call: Call) -> tuple[PooledPipeline, int] | str:
        """Which pipeline a trainer wants, and its seed; or why there is none."""
        if call.protocol != PROTOCOL or call.version != self._version:
            return f"it has protocol {call.protocol} (Stoker {call.version}), and the pool {self._own()}; install the same"
        if len(self._trainers) >= _MOST_TRAINERS:
            return f"the pool has {_MOST_TRAINERS} trainers already"
        seed = call.identity.get("seed", "")
        if _SEED.fullmatch(seed) is None:
            return "its seed is not a number"
        told = []
        for pipeline in self._pipelines:
            found = differences(pipeline.identity, call.identity, _FREE)
            if not found:
                return pipeline, int(seed)
            told.append(f"it is not {pipeline.name}: {', '.join(found)}")
        return "its pipeline is not one of the pool's; " + "; ".join(told)

    def _make_room(self) -> None:
        used = {trainer.variant for trainer in self._trainers.values()}
        for variant in [variant for variant in self._variants if variant not in used][
            : max(0, len(self._variants) + 1 - _MOST_SEEDS)
        ]:
            del self._variants[variant]

    def _refuse(self, address: bytes, name: str, why: str) -> None:
        if why not in self._refused and len(self._refused) < 100:
            self._refused.add(why)
            self._say(f"{name} was refused: {why}")
        self._port.send(address, packed(Refused(why)))

    def _obey(self, trainer: _Trainer, message: FromTrainer) -> None:
        if isinstance(message, Tasks) and trainer.ready:
            self._free(trainer, message.freed)
            self._take(trainer, message)
        elif isinstance(message, Freed):
            self._free(trainer, message.serials)
        elif isinstance(message, Unwanted):
            for serial in message.serials:
                self._drop(trainer, serial)
        elif isinstance(message, Welcome) and not trainer.ready:
            self._admit(trainer, message)
        elif isinstance(message, End):
            self._lose(trainer, "has ended", gone=True)
        elif isinstance(message, Refused):
            self._lose(trainer, f"left this pool: {message.why}")

    def _free(self, trainer: _Trainer, serials: list[int]) -> None:
        for serial in serials:
            trainer.lent.pop(serial, None)

    def _admit(self, trainer: _Trainer, welcome: Welcome) -> None:
        trainer.ready, trainer.silent_s = True, welcome.silent_s
        if welcome.mapped and self._at is not None:
            trainer.watch = watch_of(trainer.pid)  # where it is not seen from here, rows are sent to it
        count = sum(trainer.ready for trainer in self._trainers.values())
        self._waits_until = self._waits_until or time.monotonic() + _WAIT_S
        if count >= self._wait_for:
            self._wait_for = 0
        shares = sum(other.variant == trainer.variant for other in self._trainers.values()) - 1
        same = f", {counted(shares, 'other')} with the same pipeline and seed" if shares else ""
        self._say(f"trainer {trainer.name} connected for {trainer.variant[0]} (seed {trainer.variant[1]}): {count} now{same}")

    def _look_after(self, now: float) -> None:
        """Say that the pool is there, and find out who is not any more."""
        beat = packed(Beat())
        for trainer in list(self._trainers.values()):
            if trainer.cut_off:
                self._lose(trainer, "lost its connection")
            elif not self._port.send(trainer.address, beat):
                trainer.cut_off = True
            elif trainer.heard_s < now - trainer.silent_s:
                self._lose(trainer, f"gave no sign of life for {trainer.silent_s:g} s")
        self._absent.look()
        if self._wait_for and 0 < self._waits_until < now:
            self._say(f"not all of {self._wait_for} trainers connected within {_WAIT_S:g} s; starting without them")
            self._wait_for = 0

    def _lose(self, trainer: _Trainer, how: str, gone: bool = False) -> None:
        """A trainer is no longer there. `gone`: it has said so, and so reads nothing any more."""
        del self._trainers[trainer.address]
        self._queue.leave(trainer.address)
        for serial in list(trainer.asked):
            self._drop(trainer, serial)
        self._drop_unwanted([*self._kept.values()])
        if trainer.watch >= 0 and trainer.lent and not gone:
            self._absent.add(trainer.caller, trainer.watch, [*trainer.lent.values()])
        elif trainer.watch >= 0:
            os.close(trainer.watch)
        if trainer.ready:
            self._say(f"trainer {trainer.name} {how}: {len(self._trainers)} left")

    # ---- tasks ---------------------------------------------------------------------------------------------------------------

    def _take(self, trainer: _Trainer, asked: Tasks) -> None:
        carrier = trainer.carriers.get(asked.kind)
        if carrier is None:
            raise FrameError(f"it asks for {asked.kind!r}, which this pipeline does not have")
        if (
            len(trainer.asked) + len(trainer.lent) >= _MOST_PARCELS
            or asked.serial in trainer.asked
            or asked.serial in trainer.lent
        ):
            raise FrameError("it asks for too much, or for the same again")
        parcel = trainer.asked[asked.serial] = _Asked(trainer, asked.serial, [None] * len(asked.tasks), time.monotonic())
        for number, task in enumerate(asked.tasks):
            key = (trainer.variant, asked.kind, task.epoch, task.positions, task.indices)
            made = parcel.made[number] = self._kept.get(key)
            if made is not None:
                self._kept.move_to_end(key)
                continue
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _SharedTask(key, task, carrier)
            job.waiters.append((parcel, number))
            parcel.missing += 1
            if not job.begun:
                self._queue.put(trainer.address, job, asked.first)
        if not parcel.missing:
            self._answer(parcel)

    def _drop(self, trainer: _Trainer, serial: int) -> None:
        """Nobody waits for a parcel any more. What has begun is finished, and kept: others may ask for it."""
        parcel = trainer.asked.pop(serial, None)
        if parcel is None or not parcel.missing:
            return
        for key, job in list(self._jobs.items()):
            job.waiters = [waiter for waiter in job.waiters if waiter[0] is not parcel]
            if not job.waiters and not job.begun:
                del self._jobs[key]

    def _hand_out(self, now: float) -> None:
        """Give threads something to do: little beforehand, so that who comes next gets its share soon."""
        if self._wait_for > 1:
            return
        while self._running < self._threads + 1 + self._threads // 4 and (found := self._queue.next()) is not None:
            job = found[1]
            job.begun, job.payer = True, found[0]
            self._running += 1
            self._channel.submit([Task(0, 0, job)])

    def _make(self, job: _SharedTask, scratch: Any) -> _Made | str:
        """The answer to a task, or why it cannot be sent; in a thread."""
        try:
            results, buffers = make_results(job.carrier, [job.task], scratch)
            own = [self._memory.own(buffer) for buffer in buffers]
            [result], header = results, msgspec.Raw(packed(results[0]))
        except (Unstorable, FrameError, MemoryError) as error:
            return str(error) or type(error).__name__
        lasts = isinstance(result, RowsResult) and not result.report.failure and not result.report.skipped
        rows = len(job.task.positions) + len(job.task.indices)
        place = job.task.epoch, int.from_bytes(job.task.positions[:8], "little", signed=True)
        return _Made(job.key, place, header, own, _ENTRY + rows + len(header) + sum(map(len, own)), result.wall_s, lasts)

    def put(self, outcomes: list[Outcome[_SharedTask, _Made | str]]) -> None:
        """Take outcomes of jobs, in the thread that did them."""
        self._done += outcomes
        self._wake.ring()

    def _finish(self, outcome: Outcome[_SharedTask, _Made | str]) -> None:
        job, made = outcome.task.content, outcome.result
        self._running -= 1
        self.made += 1
        del self._jobs[job.key]
        self._queue.charge(job.payer, outcome.stop_s - outcome.start_s)
        if outcome.fault is not None or made is None:  # a mistake of ours
            made = str(outcome.fault.error())[:1000] if outcome.fault is not None else "nothing was made"
        if isinstance(made, _Made):
            made.thread = outcome.worker
            self._keep(made)
        for parcel, number in job.waiters:
            if isinstance(made, str):
                if parcel.trainer.asked.pop(parcel.serial, None) is not None:
                    self._send(parcel.trainer, packed(Unsendable(parcel.serial, made)))
                continue
            parcel.made[number] = made
            parcel.missing -= 1
            if not parcel.missing:
                self._answer(parcel)

    def _keep(self, made: _Made) -> None:
        """Keep an answer for others, unless something went wrong that may go well another time."""
        if not made.lasts:
            return
        self._kept[made.key] = made
        self._kept_bytes += made.nbytes
        while self._kept_bytes > self._limit:
            self._drop_kept(next(iter(self._kept.values())))

    def _drop_kept(self, made: _Made) -> None:
        if self._kept.pop(made.key, None) is not None:
            self._kept_bytes -= made.nbytes

    def _drop_unwanted(self, answers: list[_Made]) -> None:
        """Memory that is used again at once is still in the caches of the processor, and known to all who read it."""
        for made in answers:
            if not any(
                trainer.variant == made.key[0] and trainer.address not in made.given and trainer.reached <= made.place
                for trainer in self._trainers.values()
            ):
                self._drop_kept(made)

    def _answer(self, parcel: _Asked) -> None:
        trainer, made = parcel.trainer, [made for made in parcel.made if made is not None]
        if trainer.asked.pop(parcel.serial, None) is None:
            return
        for each in made:
            each.given.add(trainer.address)
            trainer.reached = max(trainer.reached, each.place)
        # And some of the oldest: others may have passed them by now.
        self._drop_unwanted([*made, *itertools.islice(self._kept.values(), len(made) + 1)])
        buffers = [buffer for each in made for buffer in each.buffers]
        waited_s = time.monotonic() - parcel.came_s - sum(each.wall_s for each in made)
        contents: list[Any] = [each.packed for each in made]
        results = Results(parcel.serial, contents, made[0].thread, max(0.0, waited_s))
        self.given += len(made)
        if len(buffers) > MAX_BUFFERS:
            self._send(trainer, packed(Unsendable(parcel.serial, f"a parcel of {len(buffers):,} buffers")))
            return
        if trainer.watch >= 0:
            results.places = [self._memory.place(buffer) for buffer in buffers]
        try:
            header = packed(results)
        except FrameError as error:  # too long
            self._send(trainer, packed(Unsendable(parcel.serial, str(error))))
            return
        trainer.lent[parcel.serial] = buffers
        self._send(trainer, header, () if results.places is not None else buffers)

    def _send(self, trainer: _Trainer, header: bytes, buffers: Sequence[memoryview] = ()) -> None:
        if not self._port.send(trainer.address, header, buffers):
            trainer.cut_off = True
