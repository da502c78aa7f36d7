"""Frames: what is sent is what is read; and whatever else comes is a FrameError, and costs no memory."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.batch.slab import Slab, plain_memory
from stoker.batch.written_rows import Report
from stoker.errors import ReadError
from stoker.faults import TaskFault
from stoker.loader.batch_units import BatchPart
from stoker.loader.build import compile_work, layout_of
from stoker.loader.remote_work import carriers_of
from stoker.remote.carrier import make_results
from stoker.remote.frames import (
    ArrayColumn,
    BufferQueue,
    FaultResult,
    FrameError,
    Results,
    RowsResult,
    ValuesColumn,
    from_trainer,
    from_worker,
    packed,
    read_array,
    read_dtype,
    read_numbers,
)
from stoker.remote.row_frames import column_frame, fault_frame, read_column, read_fault, read_report, report_frame
from stoker.source.chunk import BytesColumn
from stoker.storage.plain_values import Unstorable
from stoker.storage.scratch import Scratch

from ..contract.test_executors import pipeline_named
from .fuzz_frames import fuzz

ARRAYS = [
    np.arange(6).reshape(3, 2),
    np.zeros((3, 0)),
    np.ones(3, np.bool_),
    np.array([1, 2, 3], "M8[s]"),
    np.ones((3, 2), ">f4"),
]
LISTS: list[list[Any]] = [
    [1, None, "text"],
    [b"a", b"", b"bc"],
    [np.zeros(2), np.zeros(2), np.ones(2)],
    [np.zeros(2), np.zeros(3), np.float32(1)],
    [{"a": [1, (2, 3)]}, {"b": np.arange(3)}, {}],
    [np.array(["x", "yz"]), np.array([b"q"]), True],
]


def through(column: Any, rows: int = 3) -> Any:
    buffers: list[Any] = []
    header = msgspec.msgpack.encode(column_frame("f", column, buffers))
    frame = msgspec.msgpack.decode(header, type=type(column_frame("f", column, [])))
    left = BufferQueue([bytes(part) for part in buffers])
    read = read_column(frame, left, rows)
    left.end()
    return read


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_arrays_are_read_as_they_were_written(array: Any) -> None:
    read = through(array)
    assert read.dtype == array.dtype and read.shape == array.shape and read.tobytes() == array.tobytes()


@pytest.mark.parametrize("values", LISTS, ids=range(len(LISTS)))
def test_values_are_read_as_they_were_written(values: list[Any]) -> None:
    assert repr(through(values)) == repr(values)


def test_byte_strings_are_read_as_they_were_written() -> None:
    column = BytesColumn.of([b"one", b"", b"three"])
    assert through(column).own() == [b"one", b"", b"three"]
    assert through(column.take(np.array([2, 0])), 2).own() == [b"three", b"one"]


@pytest.mark.parametrize("value", [object(), np.array([None]), {1: object()}, np.zeros(1, [("a", int)])], ids=range(4))
def test_what_has_no_plain_bytes_is_not_sent(value: Any) -> None:
    with pytest.raises(Unstorable):
        column_frame("f", [value], [])


@pytest.mark.parametrize("value", [1 << 64, [1, {2: -1 << 63 << 1}], "half a \udc80", {"\ud800": 1}], ids=range(4))
def test_what_a_header_cannot_hold_is_named_and_not_sent(value: Any) -> None:
    result = RowsResult(report_frame(Report()), [column_frame("f", [value], [])])
    with pytest.raises(FrameError, match="a value cannot be sent"):
        packed(Results(1, [result], 0, 0.0))


def test_nesting_without_end_is_not_sent() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(Unstorable, match="lists within lists"):
        column_frame("f", [nested], [])


def test_a_type_of_another_library_is_not_sent() -> None:
    """It has the name of a type that NumPy does not have, or the name of another one."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind in (ml_dtypes.float8_e5m2, ml_dtypes.bfloat16):
        for column in ([np.zeros(2, kind)] * 2, [np.zeros(2, kind), np.zeros(3, kind)], np.zeros((2, 2), kind)):
            with pytest.raises(Unstorable):
                column_frame("f", column, [])


class OwnError(ValueError):
    def __init__(self, text: str) -> None:
        super().__init__(text, 1 << 70)
        self._hidden, self.shown, self.filename = 3, 4, text


def test_any_error_can_be_sent() -> None:
    """Those of users have attributes of their own, and name files whose names are not UTF-8."""
    frame = from_worker(packed(Results(1, [FaultResult(fault_frame(TaskFault.of(OwnError("a\udc80.jpg"))))], 0, 0.0)))
    made: Any = read_fault(frame.results[0].fault).error()
    assert type(made) is ValueError and made.shown == 4 and made.filename == "a\\udc80.jpg" and "udc80" in str(made)
    assert not hasattr(made, "_hidden")


@pytest.mark.parametrize(
    "text",
    ["O", "|O", "V8", "|V8", "<U0", "<U", "i8", "<i8,<i8", "(2,)<i8", "[('a','i8')]", "os.system", "", "\0", "a4", "<M8[-1s]"],
)
def test_types_that_are_not_on_the_list_are_refused(text: str) -> None:
    with pytest.raises(FrameError):
        read_dtype(text)


@pytest.mark.parametrize("shape", [[3], [1 << 40, 1 << 40], [0], [2, 2], [1 << 47] * 32])
def test_an_array_must_have_the_bytes_it_says(shape: list[int]) -> None:
    with pytest.raises(FrameError):
        read_array(b"\0" * 16, "<i8", shape)


def test_numbers_are_within_their_bounds() -> None:
    assert read_numbers(np.arange(3).tobytes(), "rows", 3, 3).tolist() == [0, 1, 2]
    for data, most, count in (
        (b"\0" * 7, 9, None),
        (np.array([3]).tobytes(), 3, 1),
        (np.array([-1]).tobytes(), 3, 1),
        (b"", 3, 1),
    ):
        with pytest.raises(FrameError):
            read_numbers(data, "rows", most, count)


def test_errors_are_made_again_without_their_code() -> None:
    error = ReadError("a.jpg: cannot be read", key="a", position=7)
    error.__cause__ = KeyError("gone")
    made = read_fault(fault_frame(TaskFault.of(error))).error()
    assert type(made) is ReadError and made.key == "a" and made.position == 7 and isinstance(made.__cause__, KeyError)
    frame = fault_frame(TaskFault.of(error))
    frame.details["__class__"] = "x"
    with pytest.raises(FrameError):
        read_fault(frame)


def test_a_report_names_only_rows_that_there_are() -> None:
    report = Report(2)
    report.slow = ((1, 0.5),)
    assert read_report(report_frame(report), 2, 2).slow == ((1, 0.5),)
    for steps, rows in ((3, 2), (2, 1)):
        with pytest.raises(FrameError):
            read_report(report_frame(report), steps, rows)


# ---- whatever comes --------------------------------------------------------------------------------------------------------


def real_message() -> tuple[list[bytes], Callable[[list[bytes]], Any]]:
    """A message with rows of several kinds, and what a trainer does with such."""
    plan = pipeline_named("pad").plan
    work, _ = compile_work(plan, layout_of(plan, 1))
    [carrier] = carriers_of(plan, None).values()
    assert plan.order is not None
    places = plan.order.places(np.arange(7), 0)
    asked = carrier.asked(BatchPart(places, 0, Slab(work.layout, plain_memory(work.layout.nbytes + 64)[0])))
    assert asked is not None
    results, buffers = make_results(carrier, [asked], Scratch())
    message = [packed(Results(3, results, 0, 0.0)), *(bytes(buffer) for buffer in buffers)]

    def take_in(parts: list[bytes]) -> Any:
        heard = from_worker(parts[0])
        if not isinstance(heard, Results):
            return heard
        slab, left = Slab(work.layout, plain_memory(work.layout.nbytes + 64)[0]), BufferQueue(parts[1:])
        for result in heard.results:
            if isinstance(result, RowsResult):
                carrier.received(BatchPart(places, 0, slab), result, left)()
            else:
                read_fault(result.fault).error()
        left.end()
        return heard

    return message, take_in


MESSAGE, TAKE_IN = real_message()


def judged(parts: list[bytes]) -> None:
    with suppress(FrameError):
        TAKE_IN(parts)


def test_a_real_message_is_taken_in() -> None:
    assert isinstance(TAKE_IN(list(MESSAGE)), Results)


def test_every_cut_and_every_flipped_byte_is_read_or_refused() -> None:
    header = MESSAGE[0]
    for at in range(len(header)):
        judged([header[:at], *MESSAGE[1:]])
        judged([header[:at] + bytes([header[at] ^ 0xFF]) + header[at + 1 :], *MESSAGE[1:]])
        judged([header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :], *MESSAGE[1:]])
    for count in range(len(MESSAGE)):
        judged(MESSAGE[: count + 1])
        judged([*MESSAGE[: count + 1], b"more", *MESSAGE[count + 1 :]])
        judged([MESSAGE[0], *(part[:-1] for part in MESSAGE[1:])])


_SEEN = settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
_FUZZ = {
    "cuts": st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 8), st.binary(max_size=12)), min_size=1, max_size=6),
    "extra": st.lists(st.binary(max_size=64), max_size=3),
}


def mutated(cuts: list[tuple[int, int, bytes]], extra: list[bytes]) -> list[bytes]:
    header = bytearray(MESSAGE[0])
    for at, count, put in cuts:
        at %= len(header) + 1
        header[at : at + count] = put
    return [bytes(header), *MESSAGE[1:], *extra]


@given(**_FUZZ)
@_SEEN
def test_a_message_that_was_changed_is_read_or_refused(cuts: list[tuple[int, int, bytes]], extra: list[bytes]) -> None:
    judged(mutated(cuts, extra))


def test_messages_of_both_sides_that_were_changed_are_taken_in_or_refused() -> None:
    fuzz(seed=1, count=15_000)


@pytest.mark.faults
@pytest.mark.thorough
def test_very_many_changed_messages_are_taken_in_or_refused() -> None:
    """New ones each time; a failure names its seed. `python -m tests.remote.fuzz_frames --seconds 1800` runs for longer."""
    fuzz(seed=random.SystemRandom().randrange(1 << 40), count=3_000_000)


@given(st.binary(max_size=200))
@_SEEN
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (from_worker, from_trainer):
        with suppress(FrameError):
            read(data)


_TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | st.text(max_size=4)
    | st.sampled_from(["a", "g", "l", "t", "d", "b", "<i8"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(_TREES, max_size=3), st.binary(max_size=64))
@_SEEN
def test_any_tree_of_values_is_read_or_refused(trees: list[Any], data: bytes) -> None:
    column = {"type": "values", "name": "t", "trees": trees}
    result = {"type": "rows", "report": {"seconds": [0.0] * 2, "cpu_s": [0.0] * 2, "nbytes": [0] * 2}, "columns": [column]}
    judged([msgspec.msgpack.encode({"type": "results", "serial": 1, "results": [result], "thread": 0, "waited_s": 0.0}), data])


@pytest.mark.parametrize(
    "tree",
    [
        *(["a"], ["l"], ["d", [[1]]], ["b"], ["g", "<i8"], [], ["l", None], ["d", [1]], [["a"]], ["b", "9"]),
        *(b"", {}, {"b": 0, 0: 0}, {"a": 0, "<i8": 0, (0,): 0, 0: 0}, ["l", [{"b": 0, 0: 0}]]),  # a map is read like a list
        *(["a", "1U,i4", [0], 0], ["a", "<i8", [-1], 0], ["a", "<i8", None, 0], ["a", "<i8", [0] * 33, 0]),
    ],
)
def test_a_tree_that_is_not_one_is_refused(tree: Any) -> None:
    with pytest.raises(FrameError):
        read_column(ValuesColumn("t", [tree]), BufferQueue([b""]), 1)


@pytest.mark.parametrize("kind", ["a", "g"])
def test_a_text_of_characters_that_do_not_exist_is_refused(kind: str) -> None:
    for dtype in ("<U1", ">U1"):
        tree = [kind, dtype, [], 4]
        assert str(read_column(ValuesColumn("t", [tree]), BufferQueue([np.array("\u20ac", dtype).tobytes()]), 1)[0]) == "\u20ac"
        for column in (ValuesColumn("t", [tree]), ArrayColumn("t", dtype, [1])):
            with pytest.raises(FrameError):
                read_column(column, BufferQueue([b"\xff\xff\xff\xff"]), 1)


def test_nesting_without_end_is_refused() -> None:
    for data in (b"\x91" * 100_000, b"\x81\xa1a" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"):
        with pytest.raises(FrameError):
            from_worker(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB
