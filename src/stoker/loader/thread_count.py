"""How many worker threads a loader starts by default: this process's share of the cores."""

from __future__ import annotations

from typing import NamedTuple

from ..engine.resources import machine_cores, usable_cores
from ..plan.plan import Plan
from ..plan.ranks import local_processes
from ..sizes import counted
from ..source.source import Source

#: threads beside one a core, where reading waits for a network; each of them asks for many records at once
_WAITING = 4


class ThreadCount(NamedTuple):
    """A number of threads, and the reason for it in words."""

    threads: int
    reason: str


def core_share() -> ThreadCount:
    """The cores of this process: those it may use, shared with the other processes of this run on this machine."""
    cores = usable_cores()
    neighbours = local_processes()
    shared, share = cores, cores
    if neighbours is not None and neighbours.count > 1:
        # A launcher that binds processes to cores has divided them already; but some may have got the same, as those of a socket.
        shared = (neighbours.cores or machine_cores()) if neighbours.binds else cores
        share = max(1, shared // neighbours.count)
    if neighbours is None or share >= cores:
        return ThreadCount(cores, f"this process may use {counted(cores, 'core')}")
    reason = f"{counted(shared, 'core')} shared by {neighbours.count} processes on this machine ({neighbours.where})"
    return ThreadCount(share, reason)


def default_threads(plan: Plan) -> ThreadCount:
    """One a core, shared with the other processes of this run on this machine; more where reads wait for a network."""
    threads, reason = core_share()
    if isinstance(plan.source, Source) and plan.source.waits:
        return ThreadCount(threads + _WAITING, f"{reason}, and {_WAITING} more because reads wait for a network")
    return ThreadCount(threads, reason)


def moves_told(plan: Plan) -> str:
    """What a loader may do about workers that do not keep up, in words; only running it shows what it does."""
    cores = core_share().threads
    if cores == 1:
        return "threads, because there is one core"
    functions = f", {cores} processes where functions hold the interpreter lock" if plan.functions else ""
    return f"threads; if they do not keep up, more threads where tasks wait{functions}"
