"""The fault lab: each scenario is a program in a session of its own, with limits and a deadline, and is judged by what it leaves.

After every scenario, whatever happened in it:

H1  it ended in time; else all stacks of it and its workers are in the message
H2  none of its processes is alive, whatever session they are in or whoever their parent is now
H3  its temporary, runtime and working folders and /dev/shm are as before
H4  its descriptors, threads and children are as few as at its start (counted in it, by `fault_scene.leave`)

and by what it tells:

H5  the numbers of the delivered samples are the oracle's (`lab_oracle.py`), or differ by what the report lists
H6  so are the hashes of their bytes
H7  an error is of Stoker's own type, says which sample it was, where that lies and why, and is raised once
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..loader.runs import environment

ARMING = Path(__file__).parent / "fault_arming"
SHARED_MEMORY = Path("/dev/shm")
#: how long what a scenario leaves may take to be gone
PATIENCE_S = 10.0
PREAMBLE = "from tests.system.fault_scene import *\nimport os, signal, sys, threading, time\nimport numpy as np, stoker\n"

#: how a program is started: the arguments of Python, and what it reads from standard input
STARTS: dict[str, Callable[[Path], tuple[list[str], bytes]]] = {
    "script": lambda path: ([str(path)], b""),
    "python -c": lambda path: (["-c", path.read_text()], b""),
    "standard input": lambda path: (["-"], path.read_bytes()),
    "cells": lambda path: (["-c", f"exec(compile(open({str(path)!r}).read(), '<cell 1>', 'exec'), {{}})"], b""),
    "module": lambda path: (["-m", path.stem], b""),
}


@dataclass(frozen=True)
class Fault:
    """Where and how a process fails: `POINTS` and `ACTIONS` of `fault_arming/sitecustomize.py` name both."""

    point: str
    action: str = "kill"
    after: int = 0  # visits of a process that go well
    times: int = 1  # in all processes of the scenario together


@dataclass
class Ended:
    """How a scenario ended, and its account where it gave one."""

    status: int
    output: str
    errors: str
    account: dict[str, Any] | None
    seconds: float  # from the start, or from the last signal that was sent to it
    lingered_s: float  # from its end to that of its last process


class Broken(AssertionError):
    """A scenario that did not keep one of H1 to H4."""


def marked(mark: str) -> list[int]:
    """All live processes that have this mark in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if mark.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
            except OSError:
                continue  # gone, or somebody else's
    return found


def nobodys(paths: set[Path]) -> set[Path]:
    """Those of these files that are still there and that no process has open or mapped."""
    paths = {path for path in paths if path.exists()}
    if not paths:
        return set()
    used = ""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                used += Path(f"/proc/{entry}/maps").read_text()
                for number in os.listdir(f"/proc/{entry}/fd"):
                    used += os.readlink(f"/proc/{entry}/fd/{number}") + "\n"
            except OSError:
                continue
    return {path for path in paths if str(path) not in used}


class Scenario:
    """A program under way. `with` it; whatever happens, nothing of it outlives the block.

    `code` follows a preamble that imports `fault_scene`; `keeps` are files it may leave in its working folder.
    """

    def __init__(
        self,
        folder: Path,
        code: str,
        *arguments: str,
        data: Path | None = None,
        start: str = "script",
        fault: Fault | None = None,
        limits: dict[int, int] | None = None,
        deadline_s: float = 120.0,
        preamble: str = PREAMBLE,
        **variables: str,
    ) -> None:
        self.mark = f"FAULT_LAB_MARK={secrets.token_hex(16)}"
        self._folder = folder
        self._rooms = [folder / name for name in ("tmp", "runtime", "work")]
        for room in self._rooms:
            room.mkdir(parents=True)
        (folder / "notes").mkdir()
        self._shared = set(SHARED_MEMORY.glob("*"))
        script = folder / "scenario.py"
        script.write_text(preamble + code)
        python, stdin = STARTS[start](script)
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        env = {
            **environment(),
            "TMPDIR": str(self._rooms[0]),
            "XDG_RUNTIME_DIR": str(self._rooms[1]),
            "FAULT_LAB_WORDS": str(writing),
            "FAULT_LAB_DATA": str(data or folder),
            "FAULT_LAB_NOTES": str(folder / "notes"),
            "PYTHONFAULTHANDLER": "1",  # so that SIGABRT shows all stacks
            "OPENBLAS_NUM_THREADS": "1",
            **dict([self.mark.split("=")]),
            **variables,
        }
        if start == "module":
            env["PYTHONPATH"] += os.pathsep + str(folder)
        if fault is not None:
            env["PYTHONPATH"] = str(ARMING) + os.pathsep + env["PYTHONPATH"]
            env["FAULT_LAB_FAULT"] = json.dumps({**asdict(fault), "ledger": str(folder / "notes" / "faults")})
        self._words, self._heard, self._rest = reading, list[tuple[str, dict[str, Any]]](), b""
        with (
            (folder / "stdin").open("wb+") as given,
            (folder / "stdout").open("wb") as out,
            (folder / "stderr").open("wb") as errors,
        ):
            given.write(stdin)
            given.seek(0)
            self.process = subprocess.Popen(
                [sys.executable, *python, *arguments],
                stdin=given,
                stdout=out,
                stderr=errors,
                cwd=self._rooms[2],
                env=env,
                pass_fds=[writing],
                start_new_session=True,
            )
        os.close(writing)
        self._ending = os.pidfd_open(self.process.pid)  # a forked child may hold the pipe open when it has ended
        for kind, most in {resource.RLIMIT_CORE: 0, **(limits or {})}.items():
            resource.prlimit(self.process.pid, kind, (most, most))
        self._since = time.monotonic()
        self.until = self._since + deadline_s

    def __enter__(self) -> Scenario:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all(signal.SIGKILL)
        self.process.wait()
        os.close(self._words)
        os.close(self._ending)

    # ---- while it runs ---------------------------------------------------------------------------------------------------

    def hear(self, word: str) -> dict[str, Any]:
        """Wait for a word that the program says, and what it says with it."""
        while True:
            for number, (heard, values) in enumerate(self._heard):
                if heard == word:
                    del self._heard[: number + 1]
                    return values
            if not self._listen():
                raise Broken(f"it ended without a word of {word!r}:\n{self.errors}")

    def workers(self) -> list[int]:
        """Its processes beside the first."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def signal(self, number: int, *, group: bool = True) -> None:
        """Send a signal to all of its session, as a terminal does, or to its first process alone."""
        self._since = time.monotonic()
        if group:
            os.killpg(self.process.pid, number)
        else:
            os.kill(self.process.pid, number)

    @property
    def output(self) -> str:
        return (self._folder / "stdout").read_text(errors="replace")

    @property
    def errors(self) -> str:
        return (self._folder / "stderr").read_text(errors="replace")

    # ---- how it ended ----------------------------------------------------------------------------------------------------

    def end(self) -> Ended:
        """Wait for its end and judge it by H1 to H4."""
        while self._listen():
            pass
        account = next((values for word, values in self._heard if word == "account"), None)
        try:
            self.process.wait(max(0.1, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._too_late()
        ended = time.monotonic()
        while left := marked(self.mark):
            if time.monotonic() > ended + PATIENCE_S:
                shown = {pid: _shown(pid) for pid in left}
                raise Broken(f"H2: processes are left: {shown}\n{self.errors}")
            time.sleep(0.005)
        gone = time.monotonic()
        if files := [str(path) for room in self._rooms for path in room.rglob("*")]:
            raise Broken(f"H3: files are left: {files}\n{self.errors}")
        until = time.monotonic() + PATIENCE_S
        while squatters := nobodys(set(SHARED_MEMORY.glob("*")) - self._shared):
            if time.monotonic() > until:
                raise Broken(f"H3: shared memory is left: {squatters}")
            time.sleep(0.05)
        if account is not None and account["left"]:
            raise Broken(f"H4: still in use at the end: {account['left']}\n{self.errors}")
        return Ended(self.process.returncode, self.output, self.errors, account, ended - self._since, gone - ended)

    def _listen(self) -> bool:
        """Read what the program says next; False at its end."""
        left = self.until - time.monotonic()
        ready = select.select([self._words, self._ending], [], [], left)[0] if left > 0 else []
        if not ready:
            self._too_late()
        data = os.read(self._words, 1 << 16) if self._words in ready else b""
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        self._heard += [tuple(json.loads(line)) for line in lines]
        return bool(data)

    def _too_late(self) -> None:
        if self.process.poll() is None or marked(self.mark):
            self._end_all(signal.SIGABRT)
            time.sleep(0.5)  # to write their stacks
        raise Broken(f"H1: not ended in time\n{self.output}\n{self.errors}")

    def _end_all(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        while left := marked(self.mark):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            if number != signal.SIGKILL:
                return
            self.process.poll()
            time.sleep(0.002)


def _shown(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200]
    except OSError:
        return "gone"


def play(folder: Path, code: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """Run a scenario to its end, which must be a good one, and return its account."""
    with Scenario(folder, code, *arguments, **options) as scenario:
        ended = scenario.end()
    assert ended.status == 0 and ended.account is not None, (ended.status, ended.errors)
    return ended.account
