"""Joining rows to columns: stacked, padded, or a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stoker import Pipeline
from stoker.batch.collate import collate
from stoker.batch.strings import ByteStrings
from stoker.errors import BatchError
from stoker.source.chunk import BYTES, OBJECT, array_spec

from ..loader.runs import numbers


def joined(values: Sequence[Any], spec: Any = OBJECT, **rules: Any) -> Any:
    return collate("f", values, spec, rules, lambda row: f"key {row}")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "float64"),
        ([True, False], "bool"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([1j, 2], "complex128"),
    ],
    ids=repr,
)
def test_numbers_become_an_array(values: list[Any], dtype: str) -> None:
    column = joined(values)
    assert column.dtype == dtype and column.tolist() == values


def test_arrays_of_one_shape_are_stacked() -> None:
    column = joined([np.ones((2, 3), np.uint8), np.zeros((2, 3), np.uint8)])
    assert column.shape == (2, 2, 3) and column.dtype == np.uint8


def test_torch_tensors_are_stacked_like_arrays() -> None:
    torch = pytest.importorskip("torch")
    column = joined([torch.ones(2), torch.zeros(2)])
    assert isinstance(column, np.ndarray) and column.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("values", [["a", "b"], [b"a", b"b"], [None, 1], [{"a": 1}, {"a": 2}], [1, "b"], [[1], [2]]], ids=repr)
def test_what_is_neither_number_nor_array_stays_a_list(values: list[Any]) -> None:
    assert joined(values) == values


def test_fields_known_to_vary_are_lists_even_where_they_would_stack() -> None:
    values = [np.zeros(2), np.zeros(2)]
    assert joined(values, array_spec(np.uint8, None, None, 3)) is values


def test_fields_known_to_be_bytes_are_byte_strings_and_no_others() -> None:
    strings = joined([b"a", b""], BYTES)
    assert isinstance(strings, ByteStrings) and strings == [b"a", b""]
    assert joined(strings, BYTES) is strings
    assert joined(strings, OBJECT) == [b"a", b""] and isinstance(joined(strings, OBJECT), list)
    assert isinstance(joined(strings, BYTES, f=list), list)


def test_a_field_can_be_asked_for_as_a_list() -> None:
    assert joined([1, 2], f=list) == [1, 2]


def test_shapes_that_differ_are_refused_naming_both_samples_and_the_remedy() -> None:
    with pytest.raises(BatchError, match=r"'f' does not stack: \(2,\) in sample 'key 0', \(3,\) in sample 'key 2'.*pad="):
        joined([np.zeros(2), np.zeros(2), np.zeros(3)])
    with pytest.raises(BatchError, match="does not stack"):
        joined([1, np.zeros(3)])


def test_both_keys_are_named_through_the_whole_pipeline() -> None:
    with pytest.raises(BatchError, match=r"\(1,\) in sample '4', \(2,\) in sample '5'"):
        list(numbers().skip(4).map(lambda s: {"t": np.zeros(1 + int(s["x"] >= 5))}).batch(4))


def test_padding_fills_up_to_the_longest() -> None:
    column = joined([np.array([1, 2], np.int16), np.array([3], np.int16), np.array([], np.int16)], f=-1)
    assert column.tolist() == [[1, 2], [3, -1], [-1, -1]] and column.dtype == np.int16


def test_padding_works_in_every_dimension() -> None:
    column = joined([np.ones((1, 3)), np.ones((2, 1))], f=0)
    assert column.tolist() == [[[1, 1, 1], [0, 0, 0]], [[1, 0, 0], [1, 0, 0]]]


def test_scalars_and_lists_can_be_padded_too() -> None:
    assert joined([1, 2], f=0).tolist() == [1, 2]
    assert joined([[1, 2], [3]], f=9).tolist() == [[1, 2], [3, 9]]


def test_many_rows_can_be_padded() -> None:
    column = joined([np.zeros(n, np.uint8) for n in range(500)], f=1)
    assert column.shape == (500, 499) and int(column.sum()) == sum(499 - n for n in range(500))


@pytest.mark.parametrize("fill", [float("nan"), "x", None, 300, -1], ids=repr)
def test_a_fill_that_does_not_fit_the_type_is_refused(fill: Any) -> None:
    with pytest.raises(BatchError, match="'f'"):
        column = joined([np.zeros(1, np.uint8), np.zeros(2, np.uint8)], f=fill if fill is not None else {})
        raise AssertionError(f"padded to {column}")


def test_rows_of_different_dimensions_cannot_be_padded() -> None:
    with pytest.raises(BatchError, match=r"\[1, 2\] dimensions"):
        joined([np.zeros(1), np.zeros((1, 1))], f=0)


def lengths(pad: Any) -> Pipeline:
    return numbers(10).map(lambda s: {"t": np.arange(int(s["x"]))}).batch(5, pad=pad)


def test_batches_are_padded_each_to_its_own_longest_row() -> None:
    assert [batch["t"].shape for batch in lengths({"t": 0})] == [(5, 4), (5, 9)]
    assert [[len(row) for row in batch["t"]] for batch in lengths({"t": list})] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_rule_for_a_field_of_one_shape_changes_nothing_but_list() -> None:
    stacked = next(iter(numbers().batch(3, pad={"y": 7})))
    listed = next(iter(numbers().batch(3, pad={"y": list})))
    assert stacked["y"].shape == (3, 5)
    assert isinstance(listed["y"], list) and np.array_equal(np.stack(listed["y"]), stacked["y"])
