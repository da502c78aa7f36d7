"""Errors that travel as plain data are the same errors where they arrive."""

from __future__ import annotations

import pickle
import zlib

import numpy as np
import pytest

import stoker
from stoker import errors
from stoker.errors import CorruptShard, FunctionError, ReadError, RemoteError, SampleError
from stoker.faults import TaskFault, user_traceback


class Homemade(KeyError):
    """An exception of a user."""


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def sent(error: BaseException) -> BaseException:
    fault: TaskFault = pickle.loads(pickle.dumps(TaskFault.of(error)))  # noqa: S301
    again: TaskFault = pickle.loads(pickle.dumps(fault))  # noqa: S301
    assert again == fault
    return fault.error()


def test_in_one_process_it_is_the_very_exception() -> None:
    error = raised(ValueError("x"))
    assert TaskFault.of(error).error() is error


def kinds() -> list[type[errors.StokerError]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.StokerError)]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_error_of_ours_arrives_with_class_and_message(kind: type[errors.StokerError]) -> None:
    error = sent(raised(kind("what is wrong")))
    assert type(error) is kind and str(error) == "what is wrong"


@pytest.mark.parametrize(
    "error",
    [
        ReadError("cannot be read", key="k", origin="a.tar, byte 5", position=7),
        CorruptShard("bad", shard="a.tar", offset=512),
        RemoteError("gone", url="http://a", status=404, moved=True),
        FileNotFoundError(2, "No such file or directory", "a.jpg"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        SystemExit(3),
        KeyError("name"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_attributes_arrive_too(error: BaseException) -> None:
    if isinstance(error, ReadError):
        error.errno = 12
    made = sent(raised(error))
    names = ("key", "origin", "position", "errno", "filename", "shard", "offset", "url", "status", "moved", "code", "args")
    assert type(made) is type(error) and str(made) == str(error)
    assert [getattr(made, name, None) for name in names] == [getattr(error, name, None) for name in names]


def test_causes_and_tracebacks_arrive_as_text() -> None:
    wrapped = FunctionError("f raised", key="k")
    wrapped.__cause__ = raised(ZeroDivisionError("division by zero"))
    made = sent(raised(wrapped))
    assert isinstance(made, SampleError) and type(made.__cause__) is ZeroDivisionError
    assert "raise error" in made.__cause__.__notes__[0]  # type: ignore[attr-defined]


def test_what_an_error_was_raised_in_the_handling_of_is_in_the_text() -> None:
    error = KeyError("name")
    error.__context__ = raised(ZeroDivisionError("division by zero"))
    made = sent(raised(error))
    assert "ZeroDivisionError: division by zero" in made.__notes__[0]  # type: ignore[attr-defined]


def test_a_class_that_is_not_known_here_becomes_the_nearest_that_is_and_keeps_its_name() -> None:
    made = sent(raised(Homemade("x")))
    assert type(made) is KeyError and "Homemade: 'x'" in str(made)
    made = sent(raised(zlib.error("bad data")))
    assert type(made) is Exception and str(made) == "error: bad data"


def test_an_error_that_cannot_be_made_again_is_told_all_the_same() -> None:
    made = sent(raised(UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates")))
    assert type(made) is UnicodeEncodeError
    for kind in ("UnicodeDecodeError", "os.system", "print"):
        made = TaskFault(kind, "text", ("text",)).error()
        assert type(made) is RuntimeError and str(made) == f"{kind}: text"


def test_values_that_are_not_plain_stay_behind() -> None:
    error = ValueError(object())
    error.__dict__["held"] = lambda: None
    made = sent(raised(error))
    assert type(made) is ValueError and "object object" in str(made) and not hasattr(made, "held")


def of_function(cause: Exception) -> FunctionError:
    error = FunctionError("f raised")
    error.__cause__ = raised(cause)
    return error


def test_a_traceback_is_of_the_user_s_code_and_the_same_from_elsewhere() -> None:
    error = of_function(Homemade("x"))
    told = user_traceback(error)
    assert told is not None and told.startswith("Traceback (most recent call last):\n  File")
    assert "in raised\n    raise error" in told and told.rstrip().endswith("Homemade: 'x'")
    assert user_traceback(sent(error)) == told
    assert user_traceback(ReadError("constructed, never raised")) is None


def test_our_own_frames_are_left_out_and_a_long_one_is_cut_to_its_end() -> None:
    def fails(sample: object) -> None:
        raise ValueError("here")

    with pytest.raises(FunctionError) as caught:
        list(stoker.arrays(x=np.arange(3)).map(x=fails).batch(1))
    told = user_traceback(caught.value)
    assert told is not None and told.splitlines()[1].endswith("in fails") and "each_row" not in told
    long = user_traceback(of_function(ValueError("y" * 100_000)))
    assert long is not None and len(long) == 8003 and long.startswith("...yyy")
