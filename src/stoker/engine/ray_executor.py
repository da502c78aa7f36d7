"""The Ray executor: one actor per worker, wherever the cluster has room; no single actor is needed.

Tasks wait in this process; an actor holds one group of them and has one more ready. So fast actors get more, actors can join and
leave at any time, and little is lost with one. Results come through the object store; what tasks write to a batch is copied into
it from the store's pages, once.

An actor that is not placed yet makes Ray's autoscaler add a machine; one that has been idle for a while is released. An actor
that ends, or whose machine ends, is replaced, and its tasks come back as lost. Ray does not say whether a worker was killed or
ended by itself, so its tasks are blamed as if it had been killed.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, message_of
from ..sizes import counted
from .daemons import at_end
from .executor import CRASHED, KILLED, NOT_BEGUN, Channel, Executor, FarWork, Outcome, Task, TaskWork
from .function_wire import pack, pack_work, unpack
from .pumped_channel import PumpedChannel
from .ray_session import RaySession, sending_to_ray
from .ray_worker import BESIDE, CONTROL, FarAddress, RayWorker, parcel
from .task_notes import TaskNote
from .threads import ThreadExecutor

C = TypeVar("C")
R = TypeVar("R")

#: seconds: one wait for Ray; the same while tasks run in this process, too; between two looks at the cluster, and at notes
_WAIT_S, _HOME_S, _CLUSTER_S, _NOTES_S = 0.1, 0.005, 2.0, 0.5
#: for a result that has arrived to be read; for all workers to clean up, and for one to tell its stacks
_READ_S, _END_S, _STACKS_S = 60.0, 1.0, 1.0
#: how long a worker may take to start, for which a cluster may have to add a machine, and how long one may have nothing to do
_START_S, _IDLE_S = 600.0, 120.0
#: the loop waits for so long, and tasks with it, until workers that were let go are started again
_SHORT_S = 1.0
#: whoever asks for no outcome for so long is away, and workers have nothing to do because of that
_AWAY_S = 10.0
#: how many workers in a row may end before they have started a task until no more are started
_MOST_STILLBORN = 20

_log = logging.getLogger("stoker")
_alive: weakref.WeakSet[RayExecutor] = weakref.WeakSet()


@dataclass(slots=True)
class _Group:
    """Tasks that one worker runs one after another, by serial number."""

    channel: _RayChannel[Any, Any]
    tasks: dict[int, Task[Any]]
    alone: bool = False


@dataclass(slots=True)
class _Actor:
    """A worker, seen from here: what it has, and since when."""

    number: int
    handle: Any
    about: Any  # the reference that says it has started
    since_s: float  # when it was started, was given something while it had nothing, or last answered
    ready: bool = False
    fresh: bool = False  # it has begun, and answered nothing yet
    pid: int = 0
    machine: str = ""
    sent: dict[Any, _Group] = field(default_factory=dict)  # by the reference of its outcome, the oldest first
    works: set[int] = field(default_factory=set)
    shift_s: float = float("inf")  # from its clock to ours
    notes: dict[int, TaskNote] = field(default_factory=dict)
    asked: Any = None  # the reference of notes that are on their way
    asked_s: float = 0.0

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method concurrently with the running tasks; returns the reference of its answer."""
        return getattr(self.handle, method).options(concurrency_group=CONTROL).remote(*arguments)

    def task_of(self, serial: int) -> Task[Any] | None:
        return next((group.tasks[serial] for group in self.sent.values() if serial in group.tasks), None)


class RayExecutor(Executor):
    """Actors with several threads each. Without `processes` there are as many as the cluster has cores for, now and later."""

    shares_memory = False

    def __init__(
        self,
        workers: int,
        make_scratch: Callable[[], Any],
        processes: int | None = None,
        *,
        address: str | None = None,
        call: str = "loader(executor='ray')",
        most: int | None = None,
        ahead: int = 1,
        aside: bool = False,
    ) -> None:
        """`workers` are the threads of each actor; `ahead` groups of tasks are sent to each that it cannot begin yet.

        There are never more than `most` actors. `call` is what the user wrote. `aside`: functions print to standard error.
        """
        self._threads, self._processes, self._most, self._ahead, self._aside = workers, processes, most, ahead, aside
        self._make_scratch, self._call = make_scratch, call
        self._session = RaySession(address, call, None if processes is None else processes * workers)
        self._ray = self._session.ray
        self._errors = self._ray.exceptions
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._closed = self._careful = False
        self._broken: str | None = None
        self._actors: list[_Actor] = []
        self._serials, self._channels = count(1), count()
        self._works: list[tuple[TaskWork[Any, Any], Any]] = []
        self._queue: deque[_Group] = deque()
        self._suspects: deque[_Group] = deque()
        self._dropped: deque[int] = deque()  # channels that were cancelled
        self._home: ThreadExecutor | None = None
        self._home_done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._at_home = 0
        self._stillborn = 0
        self._short_s = 0.0  # for how long the loop has waited, since tasks wait for a worker
        self._size, self._looked_s, self._pumped_s = 1, 0.0, time.monotonic()
        _alive.add(self)
        at_end(_end_all)
        try:
            self._remote = self._ray.remote(concurrency_groups={CONTROL: 1})(RayWorker)
            self._scratch = pack_work(make_scratch)[0]
            self._look_at_cluster()
            while len(self._actors) < self._size:
                self._start()
        except BaseException:
            self.close()
            raise

    # ---- what the engine asks for ----------------------------------------------------------------------------------------------

    @property
    def workers(self) -> int:  # type: ignore[override]  # clusters grow and shrink
        return self._threads * self._size

    @property
    def stopped(self) -> bool:
        return self._closed

    @property
    def processes(self) -> list[int]:
        return [actor.pid for actor in self._actors]

    @property
    def ready(self) -> bool:
        return any(actor.ready for actor in self._actors)

    @property
    def starting(self) -> bool:
        since = time.monotonic() - _START_S
        fresh = [actor for actor in self._actors if actor.fresh]
        for actor in fresh:
            actor.fresh = False  # it has until the next time somebody asks, and that is when nothing has come for long
        return bool(fresh) or any(not actor.ready and actor.since_s > since for actor in self._actors)

    def allocate(self, nbytes: int) -> tuple[NDArray[np.uint8], FarAddress]:
        return np.empty(nbytes, np.uint8), FarAddress(nbytes)

    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        for number, (known, _) in enumerate(self._works):
            if known is work:
                return _RayChannel(self, work, number)
        with sending_to_ray():
            self._works.append((work, self._ray.put(parcel(pack_work(work, BESIDE)))))
        return _RayChannel(self, work, len(self._works) - 1)

    def stacks(self, describe: Callable[[Any], str]) -> str:
        asked = [(actor, actor.ask("stacks") if actor.ready else None) for actor in self._actors]
        deadline = time.monotonic() + _STACKS_S
        told = []
        for actor, reference in asked:
            contents = [task.content for group in list(actor.sent.values()) for task in group.tasks.values()]
            where = f"{actor.machine}, pid {actor.pid}" if actor.ready else "not placed by Ray yet"
            doing = "; ".join(f"at {describe(content)}" for content in contents[:1]) or "waiting for work"
            text = f"  (it waits for {counted(self._threads, 'free core')} of the cluster, or is just starting)\n"
            if reference is not None:
                text = "  (it does not answer: it is stopped, or in native code)\n"
                with suppress(self._errors.RayError):
                    text = self._ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
            told.append(f"worker {actor.number} ({where}), {doing}:\n{text}")
        return "\n".join(told)

    def replace_stuck(self, quiet_s: float) -> bool:
        with self._lock:
            before = time.monotonic() - quiet_s
            stuck = [actor for actor in self._actors if actor.ready and actor.sent and actor.since_s <= before]
            for actor in stuck:
                self._bury(actor, CRASHED, f"was stuck: it did not finish within {quiet_s:g} s")
            return bool(stuck)

    def notes(self) -> list[tuple[Task[Any], TaskNote]]:
        """The tasks that are being done now, and what they had noted a moment ago."""
        now = time.monotonic()
        for actor in self._actors:
            if actor.asked is not None and self._ray.wait([actor.asked], timeout=0)[0]:
                reference, actor.asked = actor.asked, None
                with suppress(self._errors.RayError):
                    told = self._ray.get(reference, timeout=_READ_S)
                    actor.notes = {serial: TaskNote(now - age_s, *rest) for serial, age_s, *rest in told}
            if actor.ready and actor.sent and actor.asked is None and now >= actor.asked_s + _NOTES_S:
                actor.asked, actor.asked_s = actor.ask("notes"), now
        pairs = [(actor.task_of(serial), noted) for actor in self._actors for serial, noted in actor.notes.items()]
        return [(task, noted) for task, noted in pairs if task is not None]

    def replace(self, task: Task[Any], cause: str) -> None:
        """End the worker that is at this task, and start another. The task comes back as lost, with CRASHED and this cause."""
        with self._lock:
            for actor in list(self._actors):
                if any(task is its for group in actor.sent.values() for its in group.tasks.values()):
                    self._bury(actor, CRASHED, cause)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._owner != os.getpid():
            return  # a forked child: the workers are not its own
        mine = self._lock.acquire(timeout=_END_S)
        try:
            with suppress(Exception):  # of a cluster that is gone, and its actors with it
                if not self._session.lost:
                    cleaned = [actor.ask("clean_up") for actor in self._actors if actor.sent]
                    if cleaned:
                        self._ray.wait(cleaned, num_returns=len(cleaned), timeout=_END_S)
                    for actor in self._actors:
                        self._ray.kill(actor.handle)
        finally:
            self._actors, self._works = [], []
            self._queue, self._suspects = deque(), deque()
            if self._home is not None:
                self._home.close()
            self._session.close()
            _alive.discard(self)
            if mine:
                self._lock.release()

    # ---- workers ---------------------------------------------------------------------------------------------------------------

    def _look_at_cluster(self) -> None:
        """How many workers there may be: as many as the user said, or as the cluster has cores for."""
        now = time.monotonic()
        if self._looked_s and now < self._looked_s + _CLUSTER_S:
            return
        self._looked_s = now
        size = self._processes or max(1, int(self._ray.cluster_resources().get("CPU", 0.0)) // self._threads)
        self._size = size if self._most is None else min(size, self._most)
        spare = len(self._actors) - self._size
        idle = [actor for actor in self._actors if actor.ready and not actor.sent and actor.since_s + _IDLE_S < now]
        placed = sum(actor.ready for actor in self._actors)
        for actor in sorted(self._actors, key=lambda actor: (actor.ready, -actor.number)):
            # While others have nothing to do, nobody needs one that waits for room, and for which the cluster may add a machine.
            needless = placed > 1 and actor in idle if actor.ready else bool(idle)
            if needless or (spare > 0 and not actor.sent):
                spare -= 1
                placed -= actor.ready
                self._actors.remove(actor)
                self._ray.kill(actor.handle)

    def _start(self) -> None:
        taken = {actor.number for actor in self._actors}
        number = next(number for number in count() if number not in taken)
        # Names are unique in a cluster; that of a dead actor is taken until Ray has heard of it.
        handle = self._remote.options(
            name=f"stoker-worker-{number}-{secrets.token_hex(3)}",
            num_cpus=self._threads,
            max_concurrency=self._threads,
            max_restarts=0,
            max_task_retries=0,
        ).remote(number, self._threads, self._scratch, sys.path, str(Path.cwd()), self._aside)
        self._actors.append(_Actor(number, handle, handle.about.remote(), time.monotonic()))

    def _began(self, actor: _Actor) -> None:
        """A worker has started, or could not be."""
        try:
            about = self._ray.get(actor.about, timeout=_READ_S)
        except self._errors.RayError as error:
            if getattr(error, "actor_init_failed", False) or isinstance(error, self._errors.RuntimeEnvSetupError):
                self._broken = f"workers cannot be started on the Ray cluster: {_last_line(error)}"
            self._bury(actor, NOT_BEGUN, _words(error, self._errors)[1])
            return
        actor.about, actor.ready, actor.since_s, self._stillborn = None, True, time.monotonic(), 0
        actor.fresh = True
        actor.pid, actor.machine = about["pid"], about["machine"]
        if about["version"] != (own := version("stoker")):
            self._broken = (
                f"the Ray node {actor.machine} has Stoker {about['version']}, and this program {own}; install the same version "
                "on all nodes"
            )

    def _bury(self, actor: _Actor, blame: int, cause: str) -> None:
        """A worker has ended, or is to: tell of its tasks, and put another in its place."""
        if actor not in self._actors:
            return
        self._actors.remove(actor)
        with suppress(Exception):  # it is dead already, or Ray is
            self._ray.kill(actor.handle)
        lost = list(actor.sent.values())
        self._stillborn = 0 if actor.ready else self._stillborn + 1
        if self._stillborn >= _MOST_STILLBORN and self._broken is None:
            self._broken = (
                f"{self._stillborn} workers in a row ended on the Ray cluster before they had begun; the last one {cause}"
            )
        if self._broken is None and not self._closed:
            self._start()
            again = f", and {counted(sum(len(group.tasks) for group in lost), 'task')} will run again" if lost else ""
            where = f" ({actor.machine}, pid {actor.pid})" if actor.ready else ""
            _log.warning("worker %d on Ray%s %s; another takes its place%s", actor.number, where, cause, again)
        for at, group in enumerate(lost):
            self._lose(group, blame if at < self._threads else NOT_BEGUN, cause, actor.notes)

    def _lose(self, group: _Group, blame: int, cause: str, notes: dict[int, TaskNote]) -> None:
        for serial, task in group.tasks.items():
            noted = notes[serial].at if serial in notes else b""
            group.channel.answer(Outcome(task, lost=True, blame=blame, cause=cause, noted=noted))

    # ---- sending ---------------------------------------------------------------------------------------------------------------

    def submit(self, channel: _RayChannel[Any, Any], tasks: list[Task[Any]], first: bool) -> None:
        with self._lock:
            if self._closed or self._is_broken():
                return
            if tasks[0].alone:
                self._suspects += [_Group(channel, {next(self._serials): task}, alone=True) for task in tasks]
            elif first:
                self._queue.appendleft(_Group(channel, {next(self._serials): task for task in tasks}))
            else:
                self._queue.append(_Group(channel, {next(self._serials): task for task in tasks}))
            self._hand_out()

    def run_at_home(self, channel: _RayChannel[Any, Any], tasks: list[Task[Any]]) -> None:
        """Run tasks in a thread of this process: what they need is here."""
        with self._lock:
            if self._closed:
                return
            self._home = self._home or ThreadExecutor(1, self._make_scratch)
            line = self._home.channel(channel.work, _HomeOutlet(channel, self._home_done))
            self._at_home += len(tasks)
            line.submit(tasks, first=True)

    def _hand_out(self) -> None:
        """Give tasks to workers that have room for them. A suspect gets a worker of its own, and nobody else gets any before."""
        while self._suspects:
            free = next((actor for actor in self._actors if actor.ready and not actor.sent), None)
            if free is None:
                return
            self._send(free, self._suspects.popleft())
        most = self._threads + self._ahead
        while self._queue:
            loads = [(len(actor.sent), actor.number, actor) for actor in self._actors if actor.ready and not _has_suspect(actor)]
            if not loads or min(loads)[0] >= most:
                break
            self._send(min(loads)[2], self._queue.popleft())
        if self._queue and len(self._actors) < self._size and (self._short_s > _SHORT_S or not self._actors):
            self._start()  # it was let go when there was nothing to do, or the cluster has grown

    def _send(self, actor: _Actor, group: _Group) -> None:
        channel = group.channel
        if channel.cancelled:
            return
        numbered = [(serial, task.unit, task.number, task.content) for serial, task in group.tasks.items()]
        try:
            sent = parcel(pack(numbered, BESIDE))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  a user's value may raise anything when it is pickled
            self._one_by_one(group, f"could not be given it: {message_of(error)}")
            return
        if channel.number_of_work not in actor.works:
            actor.works.add(channel.number_of_work)
            actor.ask("take_work", channel.number_of_work, self._works[channel.number_of_work][1])
        if not actor.sent:
            actor.since_s = time.monotonic()
        reference = actor.handle.run.remote(channel.number, channel.number_of_work, sent, self._careful)
        actor.sent[reference] = group

    def _one_by_one(self, group: _Group, cause: str) -> None:
        """Tasks could not be handed over: each is tried alone, and of one alone its sample is to blame."""
        if len(group.tasks) > 1:
            singles = [_Group(group.channel, {serial: task}) for serial, task in group.tasks.items()]
            self._queue.extendleft(reversed(singles))
        else:
            self._lose(group, CRASHED, cause, {})

    def drop(self, number: int) -> None:
        """A channel has ended. May be called by a finalizer, whatever goes on."""
        self._dropped.append(number)

    def _look_after(self) -> None:
        while self._dropped:
            number = self._dropped.popleft()
            for actor in self._actors:
                if any(group.channel.number == number for group in actor.sent.values()):
                    actor.ask("end", number)
            self._queue = deque(group for group in self._queue if group.channel.number != number)
            self._suspects = deque(group for group in self._suspects if group.channel.number != number)
        self._look_at_cluster()
        self._hand_out()

    # ---- receiving -------------------------------------------------------------------------------------------------------------

    def pump(self, timeout_s: float, until: Callable[[], object]) -> None:
        """Receive, and look after workers, until something is there; at most for so long."""
        now = time.monotonic()
        deadline = now + timeout_s
        with self._lock:
            if now > self._pumped_s + _AWAY_S:
                for actor in self._actors:
                    actor.since_s = max(actor.since_s, now)  # nobody was here who could have given it anything
            while not self._closed:
                self._pumped_s = time.monotonic()
                try:
                    if not self._is_broken():
                        self._look_after()
                        begun = time.monotonic()
                        self._receive(0.0 if until() else max(0.0, deadline - begun))
                        self._short_s = self._short_s + time.monotonic() - begun if self._queue else 0.0
                except (self._errors.RaySystemError, OSError) as error:
                    self._broken = f"the Ray cluster is no longer reachable: {_last_line(error)}"
                if self._broken is not None:
                    raise ConfigError(f"{self._call}: {self._broken}; loader(executor='processes') runs on this machine only")
                if until() or time.monotonic() >= deadline:
                    return

    def _is_broken(self) -> bool:
        """Whether there is no way on. Asked before Ray is: one that was shut down would be started again by any question."""
        if self._broken is None and self._session.lost:
            self._broken = "ray.shutdown() was called"
        return self._broken is not None

    def _receive(self, left_s: float) -> None:
        """Take in what has arrived; waits for it, shortly."""
        while True:
            try:
                self._home_done.get_nowait()
                self._at_home -= 1
            except queue.Empty:
                break
        wait_s = min(left_s, _HOME_S if self._at_home else _WAIT_S)
        owners = {reference: actor for actor in self._actors for reference in actor.sent}
        owners |= {actor.about: actor for actor in self._actors if not actor.ready}
        if not owners:
            time.sleep(wait_s)
            return
        references = list(owners)
        if not self._ray.wait(references, timeout=wait_s)[0]:
            return
        dead: list[tuple[_Actor, Exception]] = []
        for reference in self._ray.wait(references, num_returns=len(references), timeout=0)[0]:
            actor = owners[reference]
            if not actor.ready:
                self._began(actor)
            elif (error := self._arrived(actor, reference)) is not None:
                dead.append((actor, error))
        for actor, error in dead:
            self._bury(actor, *_words(error, self._errors))
        self._hand_out()

    def _arrived(self, actor: _Actor, reference: Any) -> Exception | None:
        """Take in what became of a group of tasks; returns the error that says that its worker has ended."""
        group = actor.sent[reference]
        try:
            answer = None if group.channel.cancelled else self._ray.get(reference, timeout=_READ_S)
        except (self._errors.RayActorError, self._errors.OutOfMemoryError, self._errors.NodeDiedError) as error:
            return error  # type: ignore[no-any-return]
        except self._errors.RayError as error:
            # The worker lives. What it sent was on a machine that is gone; or it failed in a way that is none of its tasks'.
            del actor.sent[reference]
            lost = isinstance(error, self._errors.ObjectLostError)
            cause = "finished it, and the result was lost with its Ray node" if lost else f"failed: {_last_line(error)}"
            self._lose(group, NOT_BEGUN if lost else CRASHED, cause, {})
            return None
        del actor.sent[reference]
        actor.since_s, actor.fresh = time.monotonic(), False
        actor.notes = {}
        if isinstance(answer, str):
            self._one_by_one(group, f"could not read it: {answer}")
        elif answer is not None:
            self._take_in(actor, group, *answer)
        return None

    def _take_in(self, actor: _Actor, group: _Group, sent: Any, written: list[list[NDArray[Any]]]) -> None:
        data, memory = sent
        try:
            # Copied: users may write to what they get, and memory of the store cannot be written to.
            told = unpack(data, [array.copy() for array in memory])
        except Exception as error:  # noqa: BLE001  a user's value may raise anything when it is read
            if self._careful:
                self._lose(group, CRASHED, f"sent what cannot be read: {message_of(error)}", {})
            else:
                self._careful = True  # one of the values; done again, the worker looks before it sends
                (self._suspects if group.alone else self._queue).appendleft(group)
            return
        if told:
            actor.shift_s = min(actor.shift_s, time.monotonic() - told[-1][4])
        for task, filled, (result, fault, lost, start_s, stop_s, cpu_s) in zip(group.tasks.values(), written, told):
            if filled:
                for target, array in zip(group.channel.memory_of(task), filled):
                    target[...] = array
            times = start_s + actor.shift_s, stop_s + actor.shift_s, cpu_s
            group.channel.answer(Outcome(task, result, fault, lost, NOT_BEGUN, "", *times, actor.number))
        if not group.channel.cancelled and (left := dict([*group.tasks.items()][len(told) :])):
            self._queue.appendleft(_Group(group.channel, left))  # one took long, and they were not begun


class _RayChannel(PumpedChannel[C, R]):
    def __init__(self, executor: RayExecutor, work: TaskWork[C, R], number_of_work: int) -> None:
        super().__init__(executor, next(executor._channels))
        self._executor, self.work, self.number_of_work = executor, work, number_of_work

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        if isinstance(self.work, FarWork) and self.work.written(tasks[0].content) is None:
            self._executor.run_at_home(self, tasks)
        else:
            self._executor.submit(self, tasks, first)

    def memory_of(self, task: Task[C]) -> Iterable[NDArray[Any]]:
        """The memory here that a task writes to."""
        assert isinstance(self.work, FarWork)
        return self.work.written(task.content) or ()


class _HomeOutlet:
    """Where outcomes of tasks go that run in a thread of this process."""

    def __init__(self, channel: _RayChannel[Any, Any], done: queue.SimpleQueue[None]) -> None:
        self._channel, self._done = channel, done

    def put(self, outcomes: list[Outcome[Any, Any]]) -> None:
        for outcome in outcomes:
            self._channel.answer(outcome)
            self._done.put(None)


def _has_suspect(actor: _Actor) -> bool:
    return any(group.alone for group in actor.sent.values())


def _words(error: Exception, errors: Any) -> tuple[int, str]:
    """How a worker ended: how much a task that it had begun is to blame, and in words."""
    text = str(error)
    if isinstance(error, errors.OutOfMemoryError) or ("OOM" in text and "memory pressure" in text):
        return CRASHED, "was ended by Ray, because memory ran out on its node"
    if isinstance(error, errors.NodeDiedError) or getattr(error, "preempted", False) or "node has died" in text:
        return KILLED, "ended with its Ray node"
    return KILLED, "was killed, or ended by itself"


def _last_line(error: Exception) -> str:
    """The line of a long message of Ray's that says most."""
    lines = [line.strip() for line in message_of(error, 4000).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _end_all() -> None:
    """At the end of the program; without this the actors would end, too, but unseen."""
    for executor in list(_alive):
        executor.close()
