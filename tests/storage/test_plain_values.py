"""Values become bytes and come back with their types."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stoker.storage.plain_values import Unstorable, read_value, write_value


def there_and_back(value: Any) -> Any:
    buffers: list[Any] = []
    tree = json.loads(json.dumps(write_value(value, buffers)))
    data, at = b"".join(buffers), 0

    def take(count: int) -> memoryview:
        nonlocal at
        at += count
        return memoryview(data)[at - count : at]

    back = read_value(tree, take)
    assert at == len(data)
    return back


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(1 << 80),
        0.1,
        float("inf"),
        -0.0,
        "",
        "ümläut\ud800",
        b"",
        b"\x00\xff",
        [],
        [1, [2.5, (3, "x")], {"a": b"b", 4: None, (1, 2): [True]}],
        np.float32(0.1),
        np.int64(-5),
        np.bool_(True),
        np.str_("text"),
        np.datetime64("2024-02-29", "ns"),
    ],
    ids=repr,
)
def test_a_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    back = there_and_back(value)
    assert type(back) is type(value) and repr(back) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.zeros((0, 4), np.float64),
        np.array(5, np.uint8),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::3],
        np.array(["a", "bcd"]),
        np.array([1 + 2j]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_comes_back_with_memory_of_its_own(array: Any) -> None:
    back = there_and_back(array)
    assert back.dtype == array.dtype and back.shape == array.shape and back.flags.writeable
    np.testing.assert_array_equal(back, array)


def test_a_tensor_comes_back_as_one() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float16).reshape(2, 3).t()
    back = there_and_back([tensor])[0]
    assert back.dtype == tensor.dtype and torch.equal(back, tensor)
    with pytest.raises(Unstorable, match="not a plain one"):
        write_value(torch.zeros(2, requires_grad=True), [])


class Celsius(float):
    """A type of the user's."""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Celsius(3), "Celsius"),
        ({1, 2}, "a set"),
        (np.array([None]), "array of object"),
        (np.zeros(2, [("a", "i4")]), "array of"),
        ([1, {"a": object()}], "a object"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(value: Any, told: str) -> None:
    with pytest.raises(Unstorable, match=told):
        write_value(value, [])
