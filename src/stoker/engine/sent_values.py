"""Handles, in a worker, values that may not survive the way back, or did not survive the way there."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np

from ..errors import ConfigError, FunctionError, SampleError, StokerError, message_of
from ..faults import TaskFault
from .executor import RowWork, TaskWork
from .function_wire import pack, pack_work, unpack
from .main_guard import importing
from .process_line import SMALL


def received_work(unpacked: Callable[[], TaskWork[Any, Any]]) -> TaskWork[Any, Any]:
    """The work that was sent; if it cannot be made here, one whose every task fails with the reason."""
    try:
        with importing(worker=True):
            return unpacked()
    except StokerError as error:  # of a source that is not what it was, say
        return RefusedWork(TaskFault.of(error))
    except BaseException as error:  # noqa: BLE001  a module that cannot be imported here, or whatever it does
        told = FunctionError(
            f"the pipeline could not be made in a worker process: {type(error).__name__}: {message_of(error)}; modules that "
            "it uses must be found by a fresh interpreter with the same sys.path; loader(executor='threads') needs none"
        )
        told.__cause__ = error
        return RefusedWork(TaskFault.of(told))


class RefusedWork:
    """The work that could not be made here: every task of it fails, with the reason."""

    def __init__(self, fault: TaskFault) -> None:
        self.fault = fault

    def __call__(self, content: Any, scratch: Any) -> Any:
        raise self.fault.error()


def without_refused(work: TaskWork[Any, Any], content: Any, result: Any, error: Exception) -> tuple[Any, TaskFault | None]:
    """The result of a task without those of its rows that cannot be sent; or the fault that says so."""
    refused: Exception = FunctionError(f"what a function of the pipeline returned {_reason(error)}")
    if isinstance(work, RowWork):
        try:
            kept = work.leave_out(content, result, _refusal)
            check_sendable(kept)
            return kept, None
        except SampleError as named:
            refused = named
        except Exception:  # noqa: BLE001  it was not one of the values
            pass
    return None, TaskFault.of(refused)


def check_sendable(value: Any) -> None:
    """Raise what would be raised when a value is sent, or when it is read by the receiver."""
    unpack(*pack(value, 0))


def signature(value: Any) -> str | None:
    """Identifies a user's value, to notice changes while its arrays stay in place; None: that is not possible."""
    try:
        body, memory = pack_work(value, SMALL)
    except ConfigError:
        return None
    arrays = [np.frombuffer(raw, np.uint8).__array_interface__["data"][0] for raw in memory]
    return blake2b(body + repr([(at, raw.nbytes) for at, raw in zip(arrays, memory)]).encode()).hexdigest()


def _refusal(value: Any) -> str:
    """That a value cannot be sent home, and why; empty if it can."""
    try:
        check_sendable(value)
    except Exception as error:  # noqa: BLE001
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    return (
        f"cannot be sent from its worker process: {message_of(error) or type(error).__name__}; return arrays, numbers, text or "
        "bytes, or use loader(executor='threads')"
    )
