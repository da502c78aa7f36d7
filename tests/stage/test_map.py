"""Users' functions over samples and fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import BatchError, FunctionError

from ..loader.runs import numbers


def test_a_function_gets_a_dict_and_gives_the_new_sample() -> None:
    def square(sample: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(sample, dict)
        return {"square": sample["x"] ** 2}

    assert [batch["square"].tolist() for batch in numbers(4).map(square).batch(2)] == [[0, 1], [4, 9]]


def test_functions_over_fields_are_applied_in_turn_and_leave_the_rest() -> None:
    batch = next(iter(numbers(4).map(x=[lambda v: v + 1, lambda v: v * 10]).batch(4)))
    assert batch["x"].tolist() == [10, 20, 30, 40] and batch["y"].shape == (4, 5)


@pytest.mark.parametrize("result", [None, 3, [1, 2], "text", (1, 2)], ids=repr)
def test_a_function_that_gives_no_mapping_is_told_so(result: Any) -> None:
    with pytest.raises(FunctionError, match=f"must return the new sample.*not {type(result).__name__}.*map\\(field=fn\\)"):
        list(numbers().map(lambda sample: result).batch(2))


def test_names_of_fields_are_text() -> None:
    with pytest.raises(FunctionError, match="mapping of field names"):
        list(numbers().map(lambda sample: {1: 2}).batch(2))


def test_samples_that_disagree_on_their_fields_are_named() -> None:
    def uneven(sample: dict[str, Any]) -> dict[str, Any]:
        return {"a": 1, "b": 2} if sample["x"] == 2 else {"a": 1}

    with pytest.raises(BatchError, match="'b'"):
        list(numbers().map(uneven).batch(4))


def test_random_numbers_depend_on_the_place_and_on_nothing_else() -> None:
    def draw(value: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1 << 40))

    pipeline = numbers().shuffle(seed=1).map(x=draw, rng=True).batch(60)
    with pipeline.loader() as loader:
        first, second = next(iter(loader))["x"], next(iter(loader))["x"]
    assert len(set(first.tolist()) | set(second.tolist())) == 120, "no two samples, and no two epochs, draw alike"
    assert np.array_equal(next(iter(pipeline))["x"], first)
    other_seed = next(iter(numbers().shuffle(seed=2).map(x=draw, rng=True).batch(60)))["x"]
    assert not set(first.tolist()) & set(other_seed.tolist())


def test_every_function_draws_numbers_of_its_own() -> None:
    def draw(value: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1 << 40))

    def collect(value: Any, rng: np.random.Generator) -> list[int]:
        return [value, int(rng.integers(1 << 40))]

    def both(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**sample, "z": rng.integers(1 << 40)}

    pipeline = numbers().map(x=[draw, collect], y=draw, rng=True).map(both, rng=True).batch(60, pad={"x": 0})
    batch = next(iter(pipeline))
    drawn = [*batch["x"].ravel().tolist(), *batch["y"].tolist(), *batch["z"].tolist()]
    assert len(set(drawn)) == 4 * 60


def test_functions_are_not_called_for_rows_that_failed_before_them() -> None:
    seen: list[Any] = []

    def picky(value: Any) -> Any:
        if value == 1:
            raise ValueError
        return value

    pipeline = numbers(3).map(x=[picky, lambda value: seen.append(value) or value]).batch(3).on_error(stoker.skip(budget=1))
    assert next(iter(pipeline))["x"].tolist() == [0, 2]
    assert seen == [0, 2]


def test_a_function_may_change_what_it_was_given() -> None:
    source = np.arange(20.0).reshape(10, 2)

    def spoil(sample: dict[str, Any]) -> dict[str, Any]:
        sample["x"] += 100
        return sample

    pipeline = stoker.arrays(x=source).map(spoil).batch(5)
    assert [batch["x"].min() for batch in pipeline] == [100, 110]
    assert source.max() == 19, "the user's arrays are not touched"
