"""The process executor: worker processes of some threads each, which may die. Nothing is lost with them.

Many processes are for functions that hold the interpreter's lock; one with many threads, a feeder, leaves the interpreter of the
training loop alone. Workers are fresh interpreters: nothing is forked, so threads and locks of this process do not matter, and a
script needs no ``if __name__ == "__main__"``.

There is no thread of ours in this process. Whoever submits sends, and whoever collects receives and looks after the workers. Any
end of a worker is a death, whatever its exit code: it is replaced at once, and its tasks come back as lost, to run again. How it
died, and whether it had begun a task, says how much that task is to blame.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from ..errors import ConfigError, message_of
from ..sizes import counted
from .daemons import at_end
from .executor import CRASHED, KILLED, NOT_BEGUN, Channel, Executor, Outcome, Task, TaskWork
from .packed_work import PackedWork
from .process_line import Frame, Kind, frame, head, write_block
from .process_worker import STACKS
from .pumped_channel import PumpedChannel
from .shared_memory import AddressBook, BlockArena, Bytes, MemoryFile, Place, SharedAddress, lend
from .task_notes import TaskNote
from .wake_pipe import WakePipe
from .worker_handle import SentTask, WorkerHandle
from .worker_number import worker_number

C = TypeVar("C")
R = TypeVar("R")

#: seconds for all workers to end by themselves, and for one to write its stacks
_END_S, _STACKS_S = 0.5, 1.0
#: and for one that was killed to be gone: the system may have gigabytes of its memory to free
_KILLED_S = 5.0
#: seconds in which a worker may start without being taken for stuck
_START_S = 60.0
#: workers that end one after another before they have begun, until nobody believes in the next: by themselves, or killed
_MOST_STILLBORN = {CRASHED: 5, KILLED: 100}
#: how long to wait before tasks are taken from a worker that has many for one that has none, or before a worker that was kept
#: for suspects gets other tasks again
_PATIENCE_S = 0.05

_log = logging.getLogger("stoker")
_alive: weakref.WeakSet[ProcessExecutor] = weakref.WeakSet()


class _Unreadable(Exception):
    """What a worker sent cannot be read."""


class ProcessExecutor(Executor):
    """Worker processes, each with threads of its own; `workers` are all threads together."""

    shares_memory = False

    def __init__(
        self,
        workers: int,
        make_scratch: Callable[[], Any],
        processes: int = 1,
        *,
        stdout: int | None = None,
        gentle: bool = False,
    ) -> None:
        """`stdout` is where what workers print goes; None: where this process's goes.

        Workers are killed with this process. With `gentle` they end by themselves, and works can clean up before.
        """
        if not hasattr(os, "memfd_create"):
            raise ConfigError("worker processes need Linux; use loader(executor='threads')")
        if worker_number() is not None:  # each would start others, which import the same, without end
            raise ConfigError(
                "a worker process cannot start worker processes; if it was importing your training script, put the training code "
                'there under if __name__ == "__main__": or into a function; if it was in a function of yours, use a loader with '
                "executor='threads' there"
            )
        self._threads = max(1, workers // processes)
        self.workers = self._threads * processes
        self._make_scratch, self._stdout, self._gentle = make_scratch, stdout, gentle
        self._returned: deque[Any] = deque()  # blocks of shared memory that were lent
        self._works: list[PackedWork[Any, Any]] = []
        self._channels = count()
        self._dropped: deque[int] = deque()  # channels that were cancelled
        self._files = AddressBook()
        self._poll = select.poll()
        self._by_fd: dict[int, WorkerHandle] = {}
        self._suspects: deque[tuple[_ProcessChannel[Any, Any], Task[Any], bool]] = deque()  # to run with nothing beside them
        self._reserved: WorkerHandle | None = None  # the worker that runs them
        self._idle_s = 0.0  # since when it has none; the next one mostly follows at once
        self._held: deque[tuple[_ProcessChannel[Any, Any], list[Task[Any]], bool]] = deque()  # until that is over
        self._serial = 1  # of the next task
        self._stillborn = 0
        self._careful = False  # since a worker has sent what cannot be read here
        self._broken: str | None = None
        self._closed = False
        self._lock = threading.Lock()  # of this process alone: what a worker does cannot hold it
        self._owner = os.getpid()
        self._workers: list[WorkerHandle] = []
        try:
            self._wake = WakePipe()
        except OSError as error:
            raise _cannot_start(error) from error
        self._arena = BlockArena(MemoryFile())
        _alive.add(self)
        at_end(_end_all)
        try:
            self._files[self._arena.file.number] = self._arena.file
            self._poll.register(self._wake.end, select.POLLIN)
            for number in range(processes):
                self._workers.append(self._start(number))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _cannot_start(error) from error
            raise

    # ---- what the engine asks for ----------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        return self._closed

    @property
    def ready(self) -> bool:
        """Whether a worker has begun; others may still be on their way."""
        return any(worker.ready for worker in self._workers)

    @property
    def starting(self) -> bool:
        since = time.monotonic() - _START_S
        return any(not worker.ready and worker.heard_s > since for worker in self._workers)

    @property
    def processes(self) -> list[int]:
        """The numbers of the worker processes."""
        return [worker.process.pid for worker in self._workers]

    def allocate(self, nbytes: int) -> tuple[Bytes, SharedAddress]:
        self._take_returned()
        place = self._arena.take(nbytes)
        return lend(self._arena.view(place), place, self._returned), SharedAddress(place)

    def channel(self, work: TaskWork[C, R]) -> Channel[C, R]:
        return _ProcessChannel(self, self.pack(work))

    def pack(self, work: TaskWork[C, R]) -> int:
        """Make a work fit to be sent, as it is now; gives its number. ConfigError says why it cannot be."""
        for number, known in enumerate(self._works):
            if known.work is work:
                return number
        self._take_returned()
        self._works.append(PackedWork(work, self._arena))
        return len(self._works) - 1

    def copy_of(self, work: TaskWork[C, R]) -> TaskWork[C, R]:
        """A work that was packed, as a worker has it: what becomes of it there is not seen in the work itself."""
        copy: TaskWork[C, R] = self._works[self.pack(work)].copy()
        return copy

    def is_sent(self, work: TaskWork[C, R]) -> bool:
        """Whether a work that was packed is still what it was then, arrays included."""
        return self._works[self.pack(work)].unchanged()

    def stacks(self, describe: Callable[[Any], str]) -> str:
        """Every worker's Python stacks, as it writes them down itself: also one that is stuck in native code."""
        before = {}
        for worker in self._workers:
            before[worker.number] = os.fstat(worker.stacks).st_size
            if worker.ready:  # before, this signal would end it
                worker.process.send_signal(STACKS)
        deadline = time.monotonic() + _STACKS_S
        told = []
        for worker in self._workers:
            text = worker.new_stacks(before[worker.number], deadline)
            doing = "; ".join(f"at {describe(worker.sent[serial].task.content)}" for serial in sorted(worker.begun()))
            told.append(f"worker {worker.number} (pid {worker.process.pid}), {doing or 'waiting for work'}:\n{text}")
        return "\n".join(told)

    def replace_stuck(self, quiet_s: float) -> bool:
        with self._lock:
            before = time.monotonic() - quiet_s
            found = False
            for worker in list(self._workers):
                stuck = worker.begun(before)
                if stuck or (worker.ready and worker.sent and worker.silent_since() <= before):
                    found = True
                    worker.kill()
                    self._bury(worker, stuck, f"was stuck: it did not finish within {quiet_s:g} s")
            return found

    def notes(self) -> list[tuple[Task[Any], TaskNote]]:
        """The tasks that are being done now, and what they have noted."""
        return [(worker.sent[serial].task, noted) for worker in self._workers for serial, noted in worker.notes().items()]

    def replace(self, task: Task[Any], cause: str) -> None:
        """End the worker that is at this task, and start another. The task comes back as lost, with CRASHED and this cause."""
        with self._lock:
            for worker in list(self._workers):
                if stuck := {serial for serial in worker.begun() if worker.sent[serial].task is task}:
                    worker.kill()
                    self._bury(worker, stuck, cause)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._owner != os.getpid():
            return  # a forked child: the workers are not its own
        mine = False
        try:
            self._wake.ring()
            mine = self._lock.acquire(timeout=1.0)
            for worker in self._workers:
                with suppress(OSError):
                    worker.line.send(head(Kind.END))
            deadline = time.monotonic() + _END_S
            for worker in self._workers:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        finally:
            self._let_go()
            if mine:
                self._lock.release()

    def _let_go(self) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(timeout=_KILLED_S)
            worker.close()
            worker.sent = {}  # which holds batches' memory, and would until somebody collects garbage
        self._suspects, self._held = deque(), deque()
        self._arena.file.close()
        self._wake.close()
        _alive.discard(self)

    # ---- workers ---------------------------------------------------------------------------------------------------------------

    def _start(self, number: int) -> WorkerHandle:
        if not sys.executable:
            raise ConfigError(
                "worker processes cannot start because sys.executable is empty; set it to a Python interpreter, or use "
                "loader(executor='threads')"
            )
        try:
            worker = WorkerHandle(number, self._threads, self._stdout, self._careful, self._gentle)
        except OSError as error:
            raise _cannot_start(error) from error
        self._files[worker.file.number] = worker.file
        for fd in (worker.line.socket.fileno(), worker.pidfd):
            if fd >= 0:
                self._by_fd[fd] = worker
                self._poll.register(fd, select.POLLIN)
        worker.attach(worker.file)
        worker.attach(self._arena.file)
        worker.line.send(frame(Kind.START, (self._make_scratch, worker.careful, number)))
        return worker

    def _bury(self, worker: WorkerHandle, stuck: set[int] | None = None, cause: str = "") -> None:
        """A worker has ended: tell of its tasks, and put another in its place. One that was ended here is blamed on `stuck`."""
        for fd in (worker.line.socket.fileno(), worker.pidfd):
            if self._by_fd.pop(fd, None) is not None:
                self._poll.unregister(fd)
        notes = worker.notes()
        begun = {*notes} if stuck is None else stuck
        blame, words = worker.fate() if stuck is None else (CRASHED, cause)
        if not begun and worker.ready and worker.sent and blame == CRASHED:
            begun = {min(worker.sent)}  # it had none in its hands: what it was taking in has ended it
        worker.kill()  # what functions started in it
        worker.process.wait()
        worker.close()
        del self._files[worker.file.number]  # what this process still uses of it stays, and is copied for others
        lost = list(worker.sent.items())
        self._stillborn = 0 if worker.ready else self._stillborn + 1
        if self._stillborn >= _MOST_STILLBORN.get(blame, 1 << 30):
            self._broken = f"{self._stillborn} worker processes in a row ended before they had begun; the last one {words}"
        elif not self._closed:  # by another thread, which did not want to wait
            try:
                successor = self._workers[worker.number] = self._start(worker.number)
                self._reserved = successor if self._reserved is worker else self._reserved
                again = f", and {counted(len(lost), 'task')} will run again" if lost else ""
                _log.warning(
                    "worker process %d (pid %d) %s; another takes its place%s", worker.number, worker.process.pid, words, again
                )
            except ConfigError as error:
                self._broken = f"a worker process {words}, and no other could take its place: {error}"
        for serial, sent in lost:
            self._settle(worker, serial)
            at = notes[serial].at if serial in notes else b""
            blamed = blame if serial in begun else NOT_BEGUN
            sent.channel.answer(Outcome(sent.task, lost=True, blame=blamed, cause=words, noted=at))
        if self._broken is None:
            self._try_suspects()

    def _settle(self, worker: WorkerHandle, serial: int) -> SentTask:
        """A task is no longer that worker's."""
        sent = worker.sent.pop(serial)
        for place in sent.blocks:
            self._arena.give(place)
        return sent

    # ---- sending ---------------------------------------------------------------------------------------------------------------

    def submit(self, channel: _ProcessChannel[Any, Any], tasks: list[Task[Any]], first: bool) -> None:
        with self._lock:
            if self._closed or self._broken is not None:
                return
            self._look_after()
            if tasks[0].alone:
                self._suspects += [(channel, task, first) for task in tasks]
                self._try_suspects()
            else:
                self._pass_on(channel, tasks, first)

    def _pass_on(self, channel: _ProcessChannel[Any, Any], tasks: list[Task[Any]], first: bool) -> None:
        """Give tasks to the worker that has the fewest."""
        free = [worker for worker in self._workers if worker is not self._reserved]
        if free:
            ready = [worker for worker in free if worker.ready]
            self._give(min(ready or free, key=lambda worker: len(worker.sent)), channel, tasks, first)
        else:
            self._held.append((channel, tasks, first))

    def _try_suspects(self) -> None:
        """Let a worker have the tasks that may end it, one at a time, while it has no other."""
        if self._suspects:
            self._reserved = self._reserved or min(self._workers, key=lambda worker: len(worker.sent))
            while self._suspects and not self._reserved.sent:
                channel, task, first = self._suspects.popleft()
                self._give(self._reserved, channel, [task], first)
        elif self._reserved is not None and not self._reserved.sent:
            self._idle_s = time.monotonic()

    def _release(self) -> None:
        """Give the worker of suspects to all again, when no other has come."""
        self._reserved = None
        while self._held:
            self._pass_on(*self._held.popleft())

    def _reserved_idle(self) -> bool:
        return self._reserved is not None and not self._reserved.sent and not self._suspects

    def _give(self, worker: WorkerHandle, channel: _ProcessChannel[Any, Any], tasks: list[Task[Any]], first: bool) -> None:
        if channel.cancelled:
            return
        tainted, worker.tainted = worker.tainted, True  # until this is done: an interruption may leave half of it
        now = time.monotonic()
        if channel.number not in worker.open:
            while worker.works <= channel.work:
                worker.line.send(self._works[worker.works].data)
                worker.works += 1
            worker.open.add(channel.number)
            worker.line.send(frame(Kind.OPEN, (channel.number, channel.work)))
        blocks: list[Place] = []
        group = range(self._serial, self._serial + len(tasks))
        self._serial = group.stop
        numbered = [(serial, task.unit, task.number, task.content) for serial, task in zip(group, tasks)]

        def put(memory: list[memoryview]) -> list[Place]:
            places = [self._files.place_of(raw) for raw in memory]
            for place in places:
                if place is not None:
                    worker.attach(self._files[place.extent.file])
            if None not in places:
                return places  # type: ignore[return-value]
            block, copied = self._put([raw for raw, place in zip(memory, places) if place is None])
            blocks.append(block)
            left = iter(copied)
            return [next(left) if place is None else place for place in places]

        try:
            data = frame(Kind.TASKS, (channel.number, first, numbered), put, tag=group.start)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  what a user's value may do when it is pickled, nobody knows
            worker.tainted = tainted
            if len(tasks) > 1:
                for task in tasks:
                    self._give(worker, channel, [task], first)
            else:
                channel.refuse(tasks[0], f"could not be given it: {message_of(error)}")
            return
        for serial, task in zip(group, tasks):
            worker.sent[serial] = SentTask(channel, task, first, now, group)
        worker.sent[group[-1]].blocks = blocks  # tasks of a group are answered in order
        worker.free_returned()
        worker.line.send(data)
        worker.tainted = tainted

    def _put(self, memory: list[memoryview]) -> tuple[Place, list[Place]]:
        """Take arrays to memory that all workers see: a block, and where they are in it."""
        self._take_returned()
        return write_block(self._arena, memory)

    def _take_returned(self) -> None:
        while self._returned:
            self._arena.give(self._returned.popleft().place)

    def _look_after(self) -> None:
        """What has to be done before anything else: channels that ended, workers that were left in the middle of something."""
        while self._dropped:
            number = self._dropped.popleft()
            data = frame(Kind.CANCEL, number)
            for worker in self._workers:
                if number in worker.open:
                    worker.open.discard(number)
                    worker.line.send(data)
        for worker in list(self._workers):
            if worker.tainted:
                worker.kill()
                self._bury(worker)
        if self._broken is None and self._reserved_idle() and time.monotonic() >= self._idle_s + _PATIENCE_S:
            self._release()

    def drop(self, number: int) -> None:
        """A channel has ended. May be called by a finalizer, whatever goes on."""
        self._dropped.append(number)
        self._wake.ring()

    # ---- receiving -------------------------------------------------------------------------------------------------------------

    def pump(self, timeout_s: float, until: Callable[[], object]) -> None:
        """Receive, and look after workers, until something is there; at most for so long."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            while not self._closed:
                self._look_after()
                if self._broken is not None:
                    raise ConfigError(
                        f"{self._broken}; the workers' output on stderr, above, may say why; or use loader(executor='threads')"
                    )
                left = deadline - time.monotonic()
                wait_s = 0.0 if until() else min(max(left, 0.0), _PATIENCE_S if self._uneven() or self._reserved_idle() else 1.0)
                flushed = not [worker for worker in self._workers if not worker.line.flush()]
                events = self._poll.poll(1000 * (wait_s if flushed else min(wait_s, 0.01)))
                for fd, _ in events:
                    self._heard(fd)
                if until() or (left <= 0 and not events):
                    return
                if not events:
                    self._even_out()

    def _heard(self, fd: int) -> None:
        if fd == self._wake.end:
            self._wake.heard()
            return
        worker = self._by_fd.get(fd)
        if worker is None:
            return  # buried by an event before this one
        worker.tainted = True
        # Asked, because this may be an event of one that was buried a moment ago, whose descriptor its successor has now.
        dead = fd == worker.pidfd and worker.process.poll() is not None
        try:
            for frame_ in worker.line.receive():
                if frame_ is None:
                    dead = True
                else:
                    self._handle(worker, frame_)
        except _Unreadable as error:
            # One of the values in it, nobody knows which. Another worker does that again, and looks before it sends.
            self._careful = True
            _log.info("what worker process %d sent cannot be read: %s", worker.number, message_of(error))
            return
        worker.tainted = False
        if dead:
            self._bury(worker)

    def _handle(self, worker: WorkerHandle, frame_: Frame) -> None:
        worker.heard_s = time.monotonic()
        if frame_.kind == Kind.READY:
            worker.ready = True
            return
        try:
            value = frame_.value(worker.borrow)
        except Exception as error:  # what a user's value may do, nobody knows
            if worker.careful:
                raise
            raise _Unreadable(message_of(error)) from error
        if frame_.kind == Kind.RETURNED:
            worker.recalled = False
            self._redirect(worker, value)
            return
        if frame_.kind == Kind.REFUSED:
            self._refused(worker, worker.sent[frame_.tag].group, value)
            return
        for serial, result, fault, lost, start_s, stop_s, cpu_s, seat in value:
            sent = self._settle(worker, serial)
            number = worker.number * self._threads + seat
            sent.channel.answer(Outcome(sent.task, result, fault, lost, NOT_BEGUN, "", start_s, stop_s, cpu_s, number))
        self._try_suspects()

    def _refused(self, worker: WorkerHandle, group: range, why: str) -> None:
        """A worker could not read a group of tasks: it gets them one by one, and of one alone its sample is to blame."""
        tasks = [self._settle(worker, serial) for serial in group]
        for sent in tasks:
            if len(tasks) > 1:
                self._give(worker, sent.channel, [sent.task], sent.first)
            else:
                sent.channel.refuse(sent.task, f"could not read it: {why}")
        self._try_suspects()

    def _uneven(self) -> bool:
        loads = [len(worker.sent) for worker in self._workers if worker.ready and worker is not self._reserved]
        return len(loads) > 1 and min(loads) < self._threads and max(loads) > self._threads

    def _even_out(self) -> None:
        """Ask a worker that has tasks waiting to give some back, for one that has none."""
        ready = [worker for worker in self._workers if worker.ready and worker is not self._reserved]
        if not ready:
            return
        idle, busy = min(ready, key=lambda w: len(w.sent)), max(ready, key=lambda w: len(w.sent))
        if len(idle.sent) < self._threads < len(busy.sent) and not busy.recalled:
            busy.recalled = True
            busy.line.send(frame(Kind.RECALL, max(1, (len(busy.sent) - self._threads) // 2)))

    def _redirect(self, worker: WorkerHandle, serials: Iterable[int]) -> None:
        for serial in serials:
            sent = self._settle(worker, serial)
            self._pass_on(sent.channel, [sent.task], sent.first)


class _ProcessChannel(PumpedChannel[C, R]):
    def __init__(self, executor: ProcessExecutor, work: int) -> None:
        super().__init__(executor, next(executor._channels))
        self._executor, self.work = executor, work
        weakref.finalize(self, _drop, weakref.ref(executor), self.number).atexit = False

    def submit(self, tasks: list[Task[C]], *, first: bool = False) -> None:
        self._executor.submit(self, tasks, first)

    def refuse(self, task: Task[C], cause: str) -> None:
        """A task could not be handed over. That counts as if it had ended its worker: so the sample is found that is to blame."""
        self.answer(Outcome(task, lost=True, blame=CRASHED, cause=cause))


def _drop(executor: weakref.ref[ProcessExecutor], number: int) -> None:
    alive = executor()
    if alive is not None:
        alive.drop(number)


def _cannot_start(error: OSError) -> ConfigError:
    return ConfigError(
        f"worker processes could not be started ({error.strerror or error}); use fewer, as in loader(processes=1), or "
        "executor='threads', or raise the limit (`ulimit -u`, `ulimit -n`)"
    )


def _end_all() -> None:
    """At the end of the program; without this the workers would end, too, but unseen."""
    for executor in list(_alive):
        executor.close()


def _leave_alone() -> None:
    """In a forked child: keep no worker alive that belongs to another process."""
    for executor in list(_alive):
        for worker in executor._workers:
            worker.process.returncode = 0  # it is not a child of this process
            with suppress(OSError):
                worker.close()
    _alive.clear()


os.register_at_fork(after_in_child=_leave_alone)
