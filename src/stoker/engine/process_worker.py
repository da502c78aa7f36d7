"""A worker process, from the inside: runs tasks in its threads until its line ends.

Ctrl-C and SIGTERM are left to the process that started it. It ends with that process, however that ends: the kernel kills it when
the lifeline closes, whatever its threads are doing at that moment.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NoReturn, Protocol, runtime_checkable

from ..errors import message_of
from ..turns import TURNS
from .executor import Outcome, Task, TaskWork
from .fresh_interpreter import end_with
from .process_line import Frame, Kind, WorkerLine, frame, head, write_block
from .sent_values import RefusedWork, check_sendable, received_work, without_refused
from .shared_memory import BlockArena, Bytes, Extent, MemoryFile, Place, attach, attached, attached_privately
from .task_notes import NoteBoard, NoteRow, note_in
from .threads import ThreadExecutor
from .worker_number import be_worker

#: this signal makes a worker write down what all its threads are doing
STACKS = signal.SIGUSR1


def main(line: int, lifeline: int, stacks: int, threads: int, gentle: bool) -> NoReturn:
    """The life of a worker; the first three are descriptors. A gentle end is one before which works can clean up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for fd in (line, lifeline, stacks):
        os.set_inheritable(fd, False)  # programs that functions start have no use for them
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what functions print is seen, also if this process is killed
    if not gentle:
        end_with(lifeline)
    TURNS.private = True
    faulthandler.register(STACKS, file=stacks, all_threads=True)
    code = 1
    try:
        _Worker(WorkerLine(line), threads).run()
        code = 0
    except BaseException:  # noqa: BLE001  our bug; the process that started this notices that it ended
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it is None where the program was started with it closed
            stream.flush()
    os._exit(code)  # without waiting for threads: what they do is of no use to anybody now


@runtime_checkable
class UntidyWork(Protocol):
    """Work that leaves something to remove when it is interrupted in the middle."""

    def clean_up(self) -> None:
        """Remove it: this process is about to end."""


@dataclass(slots=True)
class _Numbered:
    """A task's content and its number in this process."""

    serial: int
    value: Any


class _Desk:
    """One thread's scratch, and where it notes the task in its hands. It is made in that thread."""

    def __init__(self, scratch: Any, row: NoteRow) -> None:
        self.scratch, self.row = scratch, row
        note_in(row)

    def close(self) -> None:
        self.scratch.close()


class _NotedWork:
    """The work of a channel. After its end, what is left of its tasks is not done."""

    def __init__(self, work: TaskWork[Any, Any]) -> None:
        self._work, self.ended = work, False

    def __call__(self, content: _Numbered, desk: _Desk) -> Any:
        if self.ended:
            return None
        desk.row.begin(content.serial)
        try:
            return self._work(content.value, desk.scratch)
        finally:
            desk.row.end()


class _Outlet:
    """Where threads put outcomes: they go home."""

    def __init__(self, send: Callable[[list[Outcome[_Numbered, Any]]], None]) -> None:
        self.put = send


class _Worker:
    def __init__(self, line: WorkerLine, threads: int) -> None:
        self._line, self._threads = line, threads
        self._works: dict[int, TaskWork[Any, Any]] = {}
        self._channels: dict[int, tuple[_NotedWork, Any]] = {}
        self._arena: BlockArena | None = None
        self._board: NoteBoard | None = None
        self._executor: ThreadExecutor | None = None
        self._careful = False
        self._handlers = {
            Kind.ATTACH: self._attach,
            Kind.START: self._start,
            Kind.WORK: self._take_work,
            Kind.OPEN: self._open,
            Kind.TASKS: self._take_tasks,
            Kind.CANCEL: self._cancel,
            Kind.FREE: self._free,
            Kind.RECALL: self._give_back,
        }

    def run(self) -> None:
        for frame_ in self._line.receive():
            if frame_.kind == Kind.END:
                break
            self._handlers[frame_.kind](frame_)
        for work in self._works.values():
            if isinstance(work, UntidyWork):
                work.clean_up()

    def _attach(self, frame_: Frame) -> None:
        number, size, own = frame_.value(attached)
        file = MemoryFile(number, self._line.descriptors.popleft(), size=size)
        attach(file)
        if own:  # it begins with the board
            self._arena = BlockArena(file)
            self._board = NoteBoard(file.map(Extent(number, 0, size)))

    def _start(self, frame_: Frame) -> None:
        (make_scratch, self._careful, number), seats = frame_.value(attached), count()
        be_worker(number)
        board = self._board
        assert board is not None
        self._executor = ThreadExecutor(self._threads, lambda: _Desk(make_scratch(), board.row(next(seats))))
        self._line.send(head(Kind.READY))

    def _take_work(self, frame_: Frame) -> None:
        views = attached_privately if frame_.tag else _read_only
        work = self._works[len(self._works)] = received_work(lambda: frame_.value(views))
        self._line.send(frame(Kind.TAKEN, work.fault if isinstance(work, RefusedWork) else None))

    def _open(self, frame_: Frame) -> None:
        channel, work = frame_.value(attached)
        assert self._executor is not None
        noted = _NotedWork(self._works[work])
        self._channels[channel] = noted, self._executor.channel(noted, _Outlet(partial(self._send, self._works[work])))

    def _take_tasks(self, frame_: Frame) -> None:
        try:
            channel, first, tasks = frame_.value(_copied)
        except Exception as error:  # noqa: BLE001  a user's value may raise anything when it is read
            told = message_of(error) or type(error).__name__
            self._line.send(frame(Kind.REFUSED, told, tag=frame_.tag))
            return
        group = [Task(unit, number, _Numbered(serial, content)) for serial, unit, number, content in tasks]
        self._channels[channel][1].submit(group, first=first)

    def _cancel(self, frame_: Frame) -> None:
        noted, _ = self._channels.pop(frame_.value(attached))
        noted.ended = True

    def _free(self, frame_: Frame) -> None:
        assert self._arena is not None
        for place in frame_.places:
            self._arena.give(place)

    def _give_back(self, frame_: Frame) -> None:
        assert self._executor is not None
        groups = self._executor.take_back(frame_.value(attached))
        self._line.send(frame(Kind.RETURNED, [task.content.serial for group in groups for task in group]))

    def _send(self, work: TaskWork[Any, Any], outcomes: list[Outcome[_Numbered, Any]]) -> None:
        """Send what became of a group of tasks; of one whose result cannot be sent, what can, or that it cannot."""
        try:
            if self._careful:
                check_sendable([outcome.result for outcome in outcomes])
            data = self._framed(outcomes)
        except Exception as error:  # noqa: BLE001  a user's value may raise anything when it is pickled
            if len(outcomes) > 1:
                for outcome in outcomes:
                    self._send(work, [outcome])
                return
            [outcome] = outcomes
            outcome.result, outcome.fault = without_refused(work, outcome.task.content.value, outcome.result, error)
            data = self._framed([outcome])
        self._line.send(data)

    def _framed(self, outcomes: list[Outcome[_Numbered, Any]]) -> bytes:
        told = [(o.task.content.serial, o.result, o.fault, o.lost, o.start_s, o.stop_s, o.cpu_s, o.worker) for o in outcomes]
        return frame(Kind.OUTCOMES, told, self._put)

    def _put(self, memory: list[memoryview]) -> list[Place]:
        """Take arrays to memory that lasts as long as somebody at home uses them: the block, and where they are in it."""
        assert self._arena is not None
        block, places = write_block(self._arena, memory)
        return [block, *places]


def _copied(places: list[Place]) -> list[Bytes]:
    """For functions, which may change what they get, and die, and have it again; or may keep it."""
    return [view.copy() for view in attached(places)]


def _read_only(places: list[Place]) -> list[memoryview]:
    return [view.data.toreadonly() for view in attached(places)]
