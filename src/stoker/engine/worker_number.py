"""The number of this process among an executor's worker processes."""

from __future__ import annotations

_number: int | None = None


def worker_number() -> int | None:
    """Its number, from 0 on, which the process that takes its place has too; None: this is not a worker process."""
    return _number


def be_worker(number: int) -> None:
    """This process is that worker."""
    global _number  # of a process, and said once in its life
    _number = number
