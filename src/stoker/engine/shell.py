"""Runs the user's shell command, many at a time, and leaves nothing when it ends: no process, no folder."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ClosedError
from . import janitor

#: bytes kept of what a command prints: its last words
_TAIL = 4096
_POLL_S = 0.1
#: A command tells the janitor of itself, before it begins: its caller may be killed as soon as there is a process. The janitor's
#: pipe is what it is started with as standard input.
_ANNOUNCED = """trap '' PIPE; echo "+$$" >&0 2>/dev/null; trap - PIPE; exec </dev/null; exec /bin/sh -c "$1\""""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended: status 0 is well, a negative one a signal, None a time-out. `words` is the end of what it printed."""

    status: int | None
    words: str


class Workshop:
    """A folder with a subfolder for each command that runs. Safe for many threads; `close` ends all that run.

    Each command has its own session, so that it ends with everything it has started. The janitor, a separate process, does the
    same if this process is killed.
    """

    def __init__(self, command: str, timeout_s: float) -> None:
        self._argv = ["/bin/sh", "-c", _ANNOUNCED, "sh", command]
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._closed, self._made = False, 0
        self.root = tempfile.mkdtemp(prefix="stoker-proc-")
        try:
            program = [sys.executable, "-I", "-S", str(Path(janitor.__file__)), self.root]
            self._janitor = subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True, text=True)
        except BaseException:
            janitor.remove_folder(self.root)
            raise

    def folder(self) -> str:
        """A new, empty folder."""
        with self._lock:
            self._made += 1
            name = f"{self.root}/{self._made}"
        Path(name).mkdir(0o700)
        return name

    def run(self, folder: str) -> CommandEnd:
        """Run the command in a folder, to its end or until its time is up; nothing it started lives on."""
        read_end, write_end = os.pipe()
        try:
            process = self._start(folder, write_end)
        finally:
            os.close(write_end)
        try:
            words = _Tail(read_end)
            deadline = time.monotonic() + self._timeout_s
            in_time = _wait_for(process.pid, words, deadline)
        finally:
            os.close(read_end)
            self._end(process)
        return CommandEnd(process.returncode if in_time else None, words.text())

    def close(self) -> None:
        """End what runs, and let nothing begin any more."""
        with self._lock:
            self._closed = True
            for group in self._running:
                janitor.kill_group(group)

    def clear(self) -> None:
        """Remove all folders and let the janitor go; after `close`, when no thread runs commands any more."""
        janitor.remove_folder(self.root)
        assert self._janitor.stdin is not None
        with suppress(OSError):
            self._janitor.stdin.close()
        self._janitor.wait(timeout=10)

    def _start(self, folder: str, output: int) -> subprocess.Popen[bytes]:
        with self._lock:  # so that `close` misses none
            if self._closed:
                raise ClosedError("stopped")
            process = subprocess.Popen(
                self._argv, cwd=folder, stdin=self._janitor.stdin, stdout=output, stderr=output, start_new_session=True
            )
            self._running.add(process.pid)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the group while its leader is not yet reaped: until then its number can mean no other."""
        janitor.kill_group(process.pid)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it says nothing any more
        with self._lock:
            self._running.discard(process.pid)
            self._note(f"-{process.pid}\n")
        process.wait()

    def _note(self, line: str) -> None:
        assert self._janitor.stdin is not None
        with suppress(OSError):  # a janitor that is gone misses nothing while we live
            self._janitor.stdin.write(line)
            self._janitor.stdin.flush()


class _Tail:
    """The end of what comes down a pipe."""

    def __init__(self, fd: int) -> None:
        self._fd, self._kept, self.ended = fd, b"", False
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def read(self, wait_s: float) -> bool:
        """Take what is there; False when nothing came in time."""
        if not self._poll.poll(max(0.0, wait_s) * 1000):
            return False
        data = os.read(self._fd, 1 << 16)
        self._kept = (self._kept + data)[-_TAIL:]
        self.ended = not data
        return True

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace").strip()


def _wait_for(pid: int, words: _Tail, deadline: float) -> bool:
    """Read what a process prints until it has ended; False when that took too long. The process is not reaped.

    Usually its end is also the end of what it prints; but it may close its output before, or leave somebody behind who keeps it.
    """
    pause = 0.0005
    while True:
        if not words.ended:
            words.read(min(_POLL_S, deadline - time.monotonic()))
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            while not words.ended and words.read(0):
                pass
            return True
        if time.monotonic() >= deadline:
            return False
        if words.ended:
            time.sleep(pause)
            pause = min(2 * pause, _POLL_S)
