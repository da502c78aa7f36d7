"""Checks the machine before worker processes start: what cannot work is refused now, other problems are reported in one line."""

from __future__ import annotations

from ..errors import ConfigError
from ..sizes import counted, show_bytes
from .machine import Machine

#: descriptors that a worker process takes of this one: a socket, a lifeline, a handle of the process, its memory, its stacks
_FILES_PER_WORKER = 5
#: descriptors that are left for everything else: slabs, shards, the program's own
_FILES_SPARE = 32
#: threads of a worker process besides those that run tasks
_THREADS_BESIDE = 2
#: bytes of an idle worker process: an interpreter with NumPy and Stoker
WORKER_BYTES = 30_000_000
#: batches that are under way at once, at least
_WINDOW = 2


def preflight(
    processes: int,
    threads: int,
    *,
    memory: int = 0,
    batch_bytes: int = 0,
    pinned: bool = False,
    machine: Machine | None = None,
) -> str:
    """Check whether `processes` worker processes of `threads` threads can run here; ConfigError says why not, and what helps.

    Returns what was found, in one line, and at its end what may become too little.

    `memory` limits what is in flight, `batch_bytes` is about the size of a batch; 0: unknown. `pinned`: batches are in memory
    that a device reads from.
    """
    machine = Machine.read() if machine is None else machine
    asked = f"loader(processes={processes})"
    _check_system(asked, machine)
    _check_files(asked, processes, machine)
    _check_tasks(f"loader(processes={processes}, threads={threads})", processes * (threads + _THREADS_BESIDE), machine)
    _check_memory(asked, processes, batch_bytes, machine)
    found = [f"{counted(processes, 'process', 'processes')} of {counted(threads, 'thread')}, each a fresh interpreter"]
    found.append(counted(machine.cores, "usable core"))
    if machine.memory_left is not None:
        of = "" if machine.memory_limit is None else f" of the {show_bytes(machine.memory_limit)} this container may take"
        found.append(f"{show_bytes(machine.memory_left)} of memory free{of}")
    if machine.files_limit is not None:
        found.append(f"{max(0, machine.files_limit - machine.files_open):,} of {machine.files_limit:,} descriptors free")
    if pinned and machine.locked_limit is not None:
        found.append(f"{show_bytes(machine.locked_limit)} may be locked (ulimit -l)")
    return "; ".join([*found, *_tight(processes, threads, memory, machine)])


def _check_system(asked: str, machine: Machine) -> None:
    if machine.lacks:
        raise ConfigError(f"{asked}: worker processes need {machine.lacks}(), which this system does not have; omit processes")
    if not machine.interpreter:
        raise ConfigError(
            f"{asked}: Python does not know its own executable (sys.executable is empty, as in programs that embed Python), so "
            "no worker can start; set sys.executable to a Python with the same packages, or omit processes"
        )


def _check_files(asked: str, processes: int, machine: Machine) -> None:
    needed = machine.files_open + processes * _FILES_PER_WORKER + _FILES_SPARE
    if machine.files_limit is not None and needed > machine.files_limit:
        raise ConfigError(
            f"{asked}: needs about {needed:,} open files, {machine.files_open:,} of them open already, and this process may have "
            f"{machine.files_limit:,}; raise the limit (ulimit -n {max(4096, 2 * needed)}), or use fewer processes"
        )


def _check_tasks(asked: str, needed: int, machine: Machine) -> None:
    if machine.tasks_left is not None and needed > machine.tasks_left:
        raise ConfigError(
            f"{asked}: needs {needed:,} processes and threads, and this container allows {machine.tasks_left:,} more (pids.max); "
            "raise its limit (docker run --pids-limit), or use fewer"
        )
    if machine.tasks_limit is not None and needed > machine.tasks_limit:
        raise ConfigError(
            f"{asked}: needs {needed:,} processes and threads, and this user may have {machine.tasks_limit:,}; raise the limit "
            "(ulimit -u), or use fewer"
        )


def _check_memory(asked: str, processes: int, batch_bytes: int, machine: Machine) -> None:
    needed = processes * WORKER_BYTES + _WINDOW * batch_bytes
    if machine.memory_limit is not None and needed > machine.memory_limit:
        batches = f" and {_WINDOW} batches of {show_bytes(batch_bytes)}" if batch_bytes else ""
        raise ConfigError(
            f"{asked}: {counted(processes, 'interpreter')} of {show_bytes(WORKER_BYTES)}{batches} need {show_bytes(needed)}, and "
            f"this container may take {show_bytes(machine.memory_limit)}; raise its memory limit, or use fewer processes or "
            "smaller batches"
        )


def _tight(processes: int, threads: int, memory: int, machine: Machine) -> list[str]:
    """What works, but may not work well."""
    told = []
    if processes * threads > 2 * machine.cores:
        told.append(f"{processes * threads:,} threads for {counted(machine.cores, 'core')}")
    needed = processes * WORKER_BYTES + memory
    if machine.memory_left is not None and needed > machine.memory_left:
        told.append(f"workers and memory={show_bytes(memory)!r} may take {show_bytes(needed)}, more than is free")
    return told
