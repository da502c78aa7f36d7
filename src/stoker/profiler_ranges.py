"""Named ranges for profilers. If no profiler is active, asking for one costs a dict lookup.

`torch.profiler` sees them while it records: those of the training loop's thread, and with ``profile_all_threads`` those of worker
threads. `torch.autograd.profiler.emit_nvtx` makes NVTX ranges of them. `stoker.observe.nvtx` does so without torch's profiler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

#: a range of this name, for a `with` block
Record = Callable[[str], AbstractContextManager[Any]]

_Result = TypeVar("_Result")
#: recorders that the user asked for; the latest counts
_asked: list[Record] = []


def recorder() -> Record | None:
    """The profiler that records ranges now; None: there is none."""
    if _asked:
        return _asked[-1]
    torch = sys.modules.get("torch.autograd.profiler")
    # a name of its own, but the only one that is true in every thread; without it, nothing is recorded
    return torch.record_function if torch is not None and getattr(torch, "_is_profiler_enabled", False) else None


def within(name: str, call: Callable[..., _Result], *given: Any) -> _Result:
    """Call a function, within a range of this name if a profiler records ranges."""
    record = recorder()
    return call(*given) if record is None else recorded(record, name, call, *given)


def recorded(record: Record, name: str, call: Callable[..., _Result], *given: Any) -> _Result:
    """Call something within a range of this name."""
    with record(f"stoker: {name}"):
        return call(*given)


def record_with(record: Record) -> Callable[[], None]:
    """Have ranges recorded from now on, in all threads; returns what ends that."""
    _asked.append(record)

    def end() -> None:
        if record in _asked:
            _asked.remove(record)

    return end
