"""Errors as plain data: what a worker says of an exception, and the exception its consumer raises.

In one process the exception itself is handed on, with its traceback and causes. Sent to another process it becomes plain values,
and is made again there: a class of Stoker's or Python's own, the same message and attributes, and the text of the traceback in a
note. Classes are looked up in a table: nothing is ever imported because data name it.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import errors
from .errors import message_of

#: exceptions that can be made again, by name
_KINDS: dict[str, type[BaseException]] = {
    name: kind
    for module in (builtins, errors)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
#: types of attributes and arguments that travel; an exception may hold anything
_PLAIN = (str, bytes, bool, int, float, type(None))
#: what an OSError has besides its attributes
_OF_SYSTEM = ("errno", "strerror", "filename", "filename2")
#: causes of causes, and characters of a message, that travel
_MOST_CAUSES, _MOST_CHARACTERS = 8, 1 << 16
#: characters that `user_traceback` gives: the end, where it was raised
_MOST_TRACE = 8000
#: what precedes the traceback of an exception that was raised elsewhere
_ELSEWHERE = "raised in a worker:\n"
#: frames of our own begin like this
_OUR_FRAME = f'  File "{Path(__file__).parent}/'


@dataclass(frozen=True, slots=True)
class TaskFault:
    """One error. `details` are its attributes: of a sample's error `key`, `origin` and `position`, of a system's `errno`.

    >>> import pickle
    >>> fault = TaskFault.of(errors.ReadError("a.jpg: cannot be read", key="a", position=7))
    >>> error = pickle.loads(pickle.dumps(fault)).error()
    >>> type(error).__name__, str(error), error.key, error.position
    ('ReadError', 'a.jpg: cannot be read', 'a', 7)
    """

    kind: str
    message: str
    arguments: tuple[Any, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    trace: str = ""
    cause: TaskFault | None = None
    live: BaseException | None = field(default=None, repr=False, compare=False)  # stays in its process

    @classmethod
    def of(cls, error: BaseException) -> TaskFault:
        """The fault of an exception, which it holds; what it takes to send it is worked out when it is sent."""
        return cls(type(error).__name__, "", live=error)

    def error(self) -> BaseException:
        """The exception: the very one, or one made again."""
        if self.live is not None:
            return self.live
        try:
            made = _KINDS[self.kind](*self.arguments)
            for name, value in self.details.items():
                setattr(made, name, value)
        except Exception:  # noqa: BLE001  no such class is known here, or it asks for arguments that do not travel
            made = RuntimeError(f"{self.kind}: {self.message}")
        made.__cause__ = None if self.cause is None else self.cause.error()
        if self.trace:
            made.__dict__["__notes__"] = [f"{_ELSEWHERE}{self.trace}"]  # as add_note() does, from Python 3.11 on
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        plain = self if self.live is None else _plain(self.live, _MOST_CAUSES)
        return TaskFault, (plain.kind, plain.message, plain.arguments, plain.details, plain.trace, plain.cause)


class RunAgain(Exception):
    """Raised by a task that must run again from its start, on any worker: it is not an error."""


def _plain(error: BaseException, causes: int) -> TaskFault:
    """An exception as values. One of a class that cannot be made again becomes the nearest of its bases that can."""
    kind = next(base for base in type(error).__mro__ if _KINDS.get(base.__name__) is base)
    message = message_of(error, _MOST_CHARACTERS)
    arguments, details = error.args, dict(getattr(error, "__dict__", {}))
    if isinstance(error, OSError):
        details |= {name: getattr(error, name) for name in _OF_SYSTEM if getattr(error, name) is not None}
    if kind is not type(error):
        message = f"{type(error).__qualname__}: {message}"
    if kind is not type(error) or not all(type(argument) in _PLAIN for argument in arguments):
        arguments = (message,)
    return TaskFault(
        kind.__name__,
        message,
        arguments,
        {name: value for name, value in details.items() if type(value) in _PLAIN},
        "".join(traceback.format_exception(type(error), error, error.__traceback__, chain=error.__cause__ is None)),
        None if error.__cause__ is None or not causes else _plain(error.__cause__, causes - 1),
    )


def user_traceback(error: BaseException) -> str | None:
    """Where in the user's code a sample's error was raised, as text of a bounded length; None: not in it.

    The same for an exception that came from another process.
    """
    cause = error.__cause__
    raised = cause if isinstance(error, errors.FunctionError) and cause is not None else error
    notes: list[str] = raised.__dict__.get("__notes__", [])
    text = next((note[len(_ELSEWHERE) :] for note in notes if note.startswith(_ELSEWHERE)), "")
    if not text and raised.__traceback__ is not None:
        text = "".join(traceback.format_exception(type(raised), raised, raised.__traceback__))
    lines = [*_without_our_frames(text.splitlines(keepends=True))]
    if not any(line.startswith('  File "') for line in lines):
        return None
    told = "".join(lines)
    return told if len(told) <= _MOST_TRACE else f"...{told[-_MOST_TRACE:]}"


def _without_our_frames(lines: list[str]) -> Iterator[str]:
    """A traceback without the frames that lead from a worker to the user's function."""
    leading = dropping = False
    for line in lines:
        if line.startswith("Traceback "):
            leading, dropping = True, False
        elif leading and not line.startswith("   "):  # a frame, and not the code in it; or the error itself
            dropping = line.startswith(_OUR_FRAME)
            leading = dropping
        if not dropping:
            yield line
