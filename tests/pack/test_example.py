"""`ExampleEncoder`: the wire format of tf.train.Example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ConfigError
from stoker.pack.values.example import ExampleEncoder, packed_ints, varint

from . import wire


def encoded(fields: dict[str, Any], **options: Any) -> bytes:
    return b"".join(ExampleEncoder(**options).encode(fields.items()))


def decoded(**fields: Any) -> dict[str, tuple[str, list[Any]]]:
    return wire.example(encoded(fields))


@pytest.mark.parametrize(
    ("value", "kind", "values"),
    [
        (b"x", "bytes", [b"x"]),
        (b"", "bytes", [b""]),
        (bytearray(b"xy"), "bytes", [b"xy"]),
        (memoryview(b"xy"), "bytes", [b"xy"]),
        ("grün", "bytes", ["grün".encode()]),
        ([b"a", "b", b""], "bytes", [b"a", b"b", b""]),
        (np.array([b"ab", b"c"]), "bytes", [b"ab", b"c"]),
        (np.array(["ä", "b"]), "bytes", ["ä".encode(), b"b"]),
        (np.str_("t"), "bytes", [b"t"]),
        (0, "int", [0]),
        (127, "int", [127]),
        (128, "int", [128]),
        (-1, "int", [-1]),
        (2**63 - 1, "int", [2**63 - 1]),
        (-(2**63), "int", [-(2**63)]),
        (True, "int", [1]),
        (np.uint8(200), "int", [200]),
        ([3, -4, 5], "int", [3, -4, 5]),
        ((1, 2), "int", [1, 2]),
        ([True, False], "int", [1, 0]),
        (list(range(200)), "int", list(range(200))),
        (np.array([[1, 2], [3, 4]], np.int8), "int", [1, 2, 3, 4]),
        (np.array([[1, 2], [3, 4]]).T, "int", [1, 3, 2, 4]),
        (np.array([2**63 - 1], np.uint64), "int", [2**63 - 1]),
        (np.array([True, False]), "int", [1, 0]),
        (np.empty(0, np.int32), "int", []),
        (np.empty(0, np.float32), "float", []),
        (0.5, "float", [0.5]),
        (0.1, "float", [float(np.float32(0.1))]),  # a Python float is a double for want of anything else
        (np.float32(0.1), "float", [float(np.float32(0.1))]),
        (np.float16(0.1), "float", [float(np.float16(0.1))]),
        ([1, 0.25], "float", [1.0, 0.25]),
        (np.array([1.5, -2.0]), "float", [1.5, -2.0]),
        (np.array([1.5], ">f4"), "float", [1.5]),
        (float("inf"), "float", [float("inf")]),
        ([], "", []),
    ],
)
def test_a_value_becomes_the_list_of_its_kind(value: Any, kind: str, values: list[Any]) -> None:
    assert decoded(x=value) == {"x": (kind, values)}


def test_not_a_number_is_a_float_too() -> None:
    kind, values = decoded(x=np.array([np.nan, 1.0]))["x"]
    assert kind == "float" and values[0] != values[0] and values[1] == 1.0


def test_names_are_in_order_whatever_order_they_are_given_in() -> None:
    one = encoded({"b": 1, "a": b"x", "ä": 2.0, "B": [1, 2]})
    assert one == encoded({"ä": 2.0, "B": [1, 2], "a": b"x", "b": 1})
    assert list(wire.example(one)) == ["B", "a", "b", "ä"]


def test_what_is_none_is_left_out() -> None:
    assert decoded(a=None, b=1) == {"b": ("int", [1])}
    assert decoded(a=None) == {}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_whole_numbers_are_packed_as_one_by_one(numbers: list[int]) -> None:
    packed = packed_ints(np.array(numbers, np.int64))
    assert packed == b"".join(varint(number & 2**64 - 1) for number in numbers)
    assert decoded(x=np.array(numbers, np.int64)) == {"x": ("int", numbers)}


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
        st.one_of(
            st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1), st.floats(width=32, allow_nan=False),
            st.lists(st.binary(max_size=10), min_size=1, max_size=200), st.lists(st.integers(-5, 300), min_size=1, max_size=100),
        ),
        max_size=6,
    )
)  # fmt: skip
def test_any_sample_comes_back(fields: dict[str, Any]) -> None:
    found = wire.example(encoded(fields))
    assert {name: values for name, (_, values) in found.items()} == {
        name: list(value) if isinstance(value, list) else [value] for name, value in fields.items()
    }


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.array([1.0, 0.1]), "32-bit float.*np.float32.*floats='round'"),
        ([0.5, 1e300], "32-bit float"),
        (2**63, "64"),
        (-(2**63) - 1, "64"),
        ([1, 2**70], "64"),
        (np.array([2**63], np.uint64), "64"),
        ({"a": 1}, "json.dumps"),
        (1j, "not a list of numbers"),
        (np.array([object()]), "not a list of numbers"),
        ([b"a", 1], "one kind"),
        ([1, None], "one kind"),
        ([[1], [1, 2]], "not a list of numbers"),
        (object(), "not a list of numbers"),
        ("\ud800", "UTF-8"),
        (np.array(["2020-01-01"], "M8[D]"), "not a list of numbers"),
    ],
)
def test_what_an_example_cannot_hold_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        encoded({"field": value})
    assert "'field'" in str(caught.value)


def test_numbers_are_rounded_only_when_asked_to() -> None:
    assert wire.example(encoded({"x": [0.1, 2.0]}, floats="round")) == {"x": ("float", [float(np.float32(0.1)), 2.0])}
    with pytest.raises(ConfigError, match="32-bit"):
        encoded({"x": 1e300}, floats="round")  # this would become infinity
    with pytest.raises(ConfigError, match="'exact' or 'round'"):
        ExampleEncoder(floats="maybe")


def test_a_feature_is_of_one_kind_in_all_samples() -> None:
    encoder = ExampleEncoder()
    encoder.encode([("x", []), ("y", 1)])
    encoder.encode([("x", 1)])
    encoder.encode([("x", [])])
    with pytest.raises(ConfigError, match=r"'x'.*float here and int in an earlier sample"):
        encoder.encode([("x", 0.5)])


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        encoded({"\udcff": 1})
