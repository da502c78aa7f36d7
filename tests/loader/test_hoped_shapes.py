"""Fields that functions make have room in the batch's memory once their rows turned out alike; nobody can tell the difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.errors import BatchError

OPTIONS: list[dict[str, Any]] = [{"executor": "inline"}, {"threads": 2}, {"processes": 1}]


def pipeline(odd: Any = None, at: int = 37) -> Pipeline:
    """Arrays of one shape and text, but for one sample whose array is `odd`."""

    def make(sample: dict[str, Any]) -> dict[str, Any]:
        number = int(sample["n"])
        made = np.full((2, 3), number, np.int32) if odd is None or number != at else odd
        return {"text": str(number), "array": made, "label": number}

    return stoker.arrays(n=np.arange(60)).map(make)


def columns(pipeline: Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(**options) as loader:
        return [dict(batch._asdict()) for batch in loader]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_arrays_of_functions_lie_in_the_memory_of_their_batch(options: dict[str, Any]) -> None:
    batches = columns(pipeline().batch(6), ahead=2, **options)
    assert [list(batch) for batch in batches] == [["text", "array", "label"]] * 10
    for number, batch in enumerate(batches):
        rows = range(6 * number, 6 * number + 6)
        assert batch["text"] == [str(row) for row in rows]
        np.testing.assert_array_equal(batch["array"], np.stack([np.full((2, 3), row, np.int32) for row in rows]))
    assert batches[-1]["array"].base is not None and batches[-1]["array"].flags.c_contiguous


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_row_of_another_type_makes_its_batch_what_it_would_be_alone(options: dict[str, Any]) -> None:
    odd = np.full((2, 3), 0.5)
    batches = columns(pipeline(odd).batch(6), **options)
    assert [str(batch["array"].dtype) for batch in batches] == ["int32"] * 6 + ["float64"] + ["int32"] * 3
    np.testing.assert_array_equal(batches[6]["array"][:, 0, 0], [36, 0.5, 38, 39, 40, 41])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_row_of_another_shape_is_told_as_ever(options: dict[str, Any]) -> None:
    with pytest.raises(BatchError, match=r"field 'array' does not stack: \(2, 3\) in sample '36', \(3,\) in sample '37'"):
        columns(pipeline(np.zeros(3, np.int32)).batch(6), **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_that_are_left_out_leave_no_hole(options: dict[str, Any]) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["label"] % 10 == 7:
            raise ValueError("bad")
        return sample

    batches = columns(pipeline(np.full((2, 3), 0.5), at=38).map(fail).on_error("skip", budget=10).batch(6), **options)
    found = [row for batch in batches for row in batch["array"][:, 0, 0].tolist()]
    assert found == [0.5 if n == 38 else n for n in range(60) if n % 10 != 7]
    assert [n for batch in batches for n in batch["label"].tolist()] == [n for n in range(60) if n % 10 != 7]
