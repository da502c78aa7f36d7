"""A worker process, from the outside. What it is given, and what follows from its end, is decided elsewhere."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from ..faults import TaskFault
from .executor import CRASHED, KILLED, NOT_BEGUN, Task
from .fresh_interpreter import command_line, ended_in_words
from .process_line import HomeLine, Kind, frame, head
from .resources import out_of_memory_kills
from .shared_memory import Bytes, MemoryFile, Place, lend
from .task_notes import NoteBoard, TaskNote

#: seconds for one whose line has ended to be gone
_WAIT_S = 0.5
_LIMITED = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")

#: how far workers step back for the training loop: it needs a core at once whenever it needs one, and workers take what is left.
#: Sixteen busy cores at its own priority cost a compiled ResNet-18 a fifth of its speed, and at this one nothing
_NICE = 10


@dataclass(slots=True)
class SentTask:
    """A task that a worker has, and what is held for it until it is answered."""

    channel: Any
    task: Task[Any]
    first: bool
    at_s: float
    group: range  # the numbers of those that were sent with it
    blocks: list[Place] = field(default_factory=list)


class WorkerHandle:
    """A worker process, seen from the one that started it: its line, its memory, what it has, and how it ended."""

    def __init__(self, number: int, threads: int, stdout: int | None, careful: bool, gentle: bool) -> None:
        self.number, self.threads, self._gentle = number, threads, gentle
        self.careful = careful  # it sends nothing that it cannot read itself
        self.ready = self.tainted = self.recalled = False
        self.heard_s = time.monotonic()
        self.sent: dict[int, SentTask] = {}
        self.returned: deque[Any] = deque()  # blocks of its memory that are no longer used here
        self.known: set[int] = set()  # memory files it was handed
        self.works = 0  # how many it was handed
        self.taken: list[TaskFault | None] = []  # of those it has answered, why it cannot make one
        self.open: set[int] = set()  # channels
        with ExitStack() as opened:  # closed again, unless all of it succeeds
            self.file = MemoryFile()
            opened.callback(self.file.close)
            self._board = NoteBoard(self.file.map(self.file.extend(NoteBoard.size(threads))))
            self.stacks = os.memfd_create("stoker-stacks", os.MFD_CLOEXEC)
            opened.callback(os.close, self.stacks)
            self._kills = out_of_memory_kills()
            own, theirs = socket.socketpair()
            opened.callback(own.close)
            with theirs:
                lifeline, self._lifeline = os.pipe()
                opened.callback(os.close, self._lifeline)
                try:
                    self.process = self._start(theirs.fileno(), lifeline, stdout)
                finally:
                    os.close(lifeline)
            opened.callback(self.process.wait)
            opened.callback(self.kill)
            self.line = HomeLine(own)
            self.pidfd = os.pidfd_open(self.process.pid) if hasattr(os, "pidfd_open") else -1
            opened.pop_all()

    def _start(self, line: int, lifeline: int, stdout: int | None) -> subprocess.Popen[bytes]:
        words = line, lifeline, self.stacks, self.threads, self._gentle
        return subprocess.Popen(
            command_line("stoker.engine.process_worker", *words, nice=_NICE),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            pass_fds=(line, lifeline, self.stacks),
            start_new_session=True,  # Ctrl-C is for this process to decide on
            env=_environment(),
        )

    @property
    def fit(self) -> bool:
        """Whether it has begun, and is past making the works it was handed: the imports they take may end it."""
        return self.ready and len(self.taken) == self.works

    def notes(self) -> dict[int, TaskNote]:
        """The tasks in its hands, and what they have noted."""
        return {serial: noted for serial, noted in self._board.read() if serial in self.sent}

    def begun(self, before_s: float = float("inf")) -> set[int]:
        """The tasks in its hands that have not got on since some time."""
        return {serial for serial, noted in self.notes().items() if noted.since_s <= before_s}

    def silent_since(self) -> float:
        """When it last said something, or was given something to answer."""
        return max(self.heard_s, min((sent.at_s for sent in self.sent.values()), default=self.heard_s))

    def attach(self, file: MemoryFile) -> None:
        """Make sure that it sees a memory file."""
        if file.number not in self.known:
            self.known.add(file.number)
            own = file is self.file
            self.line.send(frame(Kind.ATTACH, (file.number, file.size if own else 0, own)), [file.fd])

    def borrow(self, places: list[Place]) -> list[Bytes]:
        """Arrays in a block of its memory, which is the first place; it has it back when the last of them is dropped."""
        block, *inside = places
        memory = lend(self.file.view(block), block, self.returned)
        return [memory[start - block.start : start - block.start + nbytes] for _, start, nbytes in inside]

    def free_returned(self) -> None:
        """Report to the worker which blocks of its memory are free again."""
        places = []
        while self.returned:
            places.append(self.returned.popleft().place)
        if places:
            self.line.send(head(Kind.FREE, places))

    def new_stacks(self, start: int, deadline: float) -> str:
        """What it has written of its stacks after `start`, when no more comes."""
        size = start
        while True:
            now = os.fstat(self.stacks).st_size
            if (now > start and now == size) or time.monotonic() > deadline:
                break
            size = now
            time.sleep(0.02)
        text = os.pread(self.stacks, max(0, size - start), start).decode("utf-8", "replace")
        return text or "  (it does not answer: it is stopped, or just beginning)\n"

    def fate(self) -> tuple[int, str]:
        """How it ended: how much a task that it had begun is to blame, and in words."""
        try:
            status = self.process.wait(timeout=_WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self.process.wait()
        if self.tainted:
            return NOT_BEGUN, "was abandoned, because its message was interrupted"
        words = ended_in_words(status)
        if -status == signal.SIGKILL and out_of_memory_kills() > self._kills:
            return CRASHED, f"{words}, because memory ran out"
        return (KILLED if -status in (signal.SIGKILL, signal.SIGTERM) else CRASHED), words

    def kill(self) -> None:
        """End it now, with all that functions started in it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Release everything here that belongs to it."""
        if self._lifeline >= 0:
            lifeline, self._lifeline = self._lifeline, -1
            os.close(lifeline)
            self.line.close()
            if self.pidfd >= 0:
                os.close(self.pidfd)
            os.close(self.stacks)
            self.file.close()


def _environment() -> dict[str, str]:
    """What a worker finds there: libraries are to start no threads of their own, and sets have one order in all workers."""
    limits = {f"{name}_NUM_THREADS": "1" for name in _LIMITED}
    return {"PYTHONHASHSEED": "0", **os.environ, **limits, "OPENCV_FOR_THREADS_NUM": "1"}
